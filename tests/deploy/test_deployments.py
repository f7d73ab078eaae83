"""Deployments on this machine: schedules, a batch system, clusters by hand on one host and on two, and their stops."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import distributed
import psutil
import pytest
import yaml
from prefect.flows import load_flow_from_entrypoint

from sparseoco.execution.options import ACROSS_HOSTS, ONE_THREAD
from sparseoco.flows.steps import TAG
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.report.page import plain
from tests.search.by_hand import as_environment, certificates, cluster_by_hand
from tests.support.folders import assert_same_results
from tests.support.prefect_server import (
    FINAL,
    ROOT,
    artifacts,
    ask,
    check_ends,
    environment,
    flow_runs,
    free_port,
    prefect_server,
    running,
    wait_for,
)
from tests.support.stores import make_store
from tests.support.texts import write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# Deployments of the example in deploy/prefect.yaml, and runs long enough to be stopped.


EXAMPLE = ROOT / "deploy" / "prefect.yaml"


NEVER = "0 0 1 1 *"
PREFECT = [sys.executable, "-m", "prefect"]


def copy_with_three_lines_changed(folder: Path, run_file: Path, cron: str = "* * * * *") -> None:
    """The example in a folder, as its comments say it is to be changed."""
    changed = {
        "folder:": f"folder: &folder {folder}",
        "run_file:": f"run_file: {run_file.name}",
        "cron:": f'cron: "{cron}"',
    }
    lines = EXAMPLE.read_text().splitlines()
    for i, line in enumerate(lines):
        if "# change" in line:
            key = line.split()[0]
            lines[i] = line[: line.index(key)] + changed.pop(key)
    assert not changed
    (folder / "prefect.yaml").write_text("\n".join(lines))


def prefect(*arguments: str, env: dict[str, str], folder: Path) -> None:
    ran = subprocess.run([*PREFECT, *arguments], env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextmanager
def deployed(folder: Path, server: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """What prefect.yaml of the folder says deployed, and a process worker that waits for its runs."""
    env = environment(folder / "home", PREFECT_API_URL=server, PREFECT_WORKER_QUERY_SECONDS="1", **settings)
    prefect("work-pool", "create", "sparseoco", "--type", "process", env=env, folder=folder)
    prefect("--no-prompt", "deploy", "--all", env=env, folder=folder)
    with running([*PREFECT, "worker", "start", "--pool", "sparseoco"], folder / "worker.log", env, folder) as worker:
        yield worker


def check_results(server: str, out: Path) -> None:
    """The artifacts of a finished run name its files, which are those of a run without Prefect."""
    found = artifacts(server)
    assert len(json.loads(found["places-leaderboard"]["data"])) == 4
    assert "| rank |" in found["places-summary"]["data"]
    assert f"Files: {plain(out.as_uri())}" in found["places-summary"]["data"]
    assert (out / "report" / "report.html").exists()
    here = load_run_file(out.parent / "places.toml").model_copy(update={"out": out.parent / "here"})
    run_steps.run_all(here)
    assert_same_results(out, out.parent / "here")


def write_long_run_file(folder: Path, **changes: str) -> Path:
    """A run whose search takes minutes."""
    return write_run_file(folder, **{"epochs = 1": "epochs = 5000"}, **changes)


def search_begun(folder: Path) -> bool:
    return (folder / "run" / "run.json").exists()


# ----------------------------------------------------------------------------------------------------------------------
# Two hosts on one machine: network namespaces with addresses of their own, and a switch between them.


ADDRESSES = ("10.77.0.1", "10.77.0.2")


class Hosts(NamedTuple):
    """Two hosts, 0 and 1, that reach each other through a switch and nothing else; both have this machine's disk."""

    names: tuple[str, str]
    switch: str

    def on(self, host: int, *command: str) -> list[str]:
        """The command as it is started on a host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def cut(self) -> None:
        """The switch forwards nothing from now on, and neither host is notified."""
        _ip("-n", self.switch, "link", "set", "port1", "nomaster")

    def mend(self) -> None:
        """The switch forwards again."""
        _ip("-n", self.switch, "link", "set", "port1", "master", "bridge0")


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Hosts of `ADDRESSES`. Raises `OSError` or `CalledProcessError` where this machine does not let us make them."""
    names = [f"sparseoco-{os.getpid()}-{role}" for role in ("a", "b", "switch")]
    made = []
    try:
        for name in names:
            _ip("netns", "add", name)
            made.append(name)
        *hosts, switch = names
        _ip("-n", switch, "link", "add", "name", "bridge0", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge0", "up")
        for i, (host, address) in enumerate(zip(hosts, ADDRESSES, strict=True)):
            port = f"port{i}"
            _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", switch, "link", "set", port, "master", "bridge0", "up")
            _ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", host, "link", "set", device, "up")
        yield Hosts((hosts[0], hosts[1]), switch)
    finally:
        for name in made:
            _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


# ----------------------------------------------------------------------------------------------------------------------
# Schedules: deploy/prefect.yaml as a person copies and changes it, and a flow served by a script.


AUTOMATIONS = ROOT / "deploy" / "prefect-automations.yaml"


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[str]:
    with prefect_server(tmp_path / "server") as address:
        yield address


def test_every_deployment_names_a_flow_and_its_parameters() -> None:
    deployments = yaml.safe_load(EXAMPLE.read_text())["deployments"]
    assert {"pipeline", "ingest", "search", "train", "report"} <= {deployment["name"] for deployment in deployments}
    for deployment in deployments:
        flow: Any = load_flow_from_entrypoint(deployment["entrypoint"])
        assert flow.name == f"sparseoco-{deployment['name']}"
        assert flow.validate_parameters(deployment["parameters"])
        assert deployment["schedules"]
    active = [d["name"] for d in deployments for schedule in d["schedules"] if schedule.get("active", True)]
    assert active == ["pipeline"]


def test_a_live_run_sends_several_heartbeats_before_it_counts_as_crashed() -> None:
    (automation,) = yaml.safe_load(AUTOMATIONS.read_text())["automations"]
    pools = [deployment["work_pool"] for deployment in yaml.safe_load(EXAMPLE.read_text())["deployments"]]
    for env in [os.environ, *(pool["job_variables"]["env"] for pool in pools)]:  # the first: by hand, or served
        assert automation["trigger"]["within"] >= 4 * int(env["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"])
    assert automation["trigger"]["match_related"]["prefect.resource.id"] == f"prefect.tag.{TAG}"


@pytest.mark.slow
def test_a_deployed_schedule_fires_and_the_run_is_read_through_the_api(tmp_path: Path, fresh_server: str) -> None:
    run_file = write_run_file(tmp_path)
    copy_with_three_lines_changed(tmp_path, run_file)
    with deployed(tmp_path, fresh_server):
        (run, *_) = wait_for(
            lambda: flow_runs(fresh_server, "COMPLETED", "FAILED", "CRASHED"), "a run to end", seconds=300
        )
    assert run["state_type"] == "COMPLETED"
    assert run["parameters"] == {"run_file": run_file.name}
    assert {"sparseoco", "pipeline"} <= set(run["tags"])
    assert run["auto_scheduled"]
    assert run["name"].startswith("places 2")
    (deployment,) = ask(fresh_server, "deployments/filter", deployments={"id": {"any_": [run["deployment_id"]]}})
    assert deployment["name"] == "pipeline"
    assert deployment["global_concurrency_limit"]["limit"] == 1
    assert deployment["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    check_results(fresh_server, tmp_path / "run")


SERVE = """
import sys
from prefect.types.entrypoint import EntrypointType
from sparseoco.flows.pipeline import pipeline

module = EntrypointType.MODULE_PATH
pipeline.serve("reviews", interval=10, parameters={"run_file": sys.argv[1]}, global_limit=1, entrypoint_type=module)
"""
"""A script like that in docs/operations/prefect.md."""


@pytest.mark.slow
def test_a_flow_served_by_a_script_runs_at_an_interval(tmp_path: Path, fresh_server: str) -> None:
    env = environment(tmp_path / "home", PREFECT_API_URL=fresh_server, PREFECT_RUNNER_POLL_FREQUENCY="1")
    command = [sys.executable, "-c", SERVE, str(write_run_file(tmp_path))]
    with running(command, tmp_path / "served.log", env, tmp_path):
        wait_for(lambda: flow_runs(fresh_server, "COMPLETED")[1:], "two runs to end", seconds=300)
    first, second, *_ = flow_runs(fresh_server, "COMPLETED")
    assert first["name"] != second["name"]
    assert not flow_runs(fresh_server, "FAILED", "CRASHED")
    check_results(fresh_server, tmp_path / "run")


@pytest.mark.slow
def test_a_cancelled_run_of_a_worker_ends_soon(tmp_path: Path, fresh_server: str) -> None:
    copy_with_three_lines_changed(tmp_path, write_long_run_file(tmp_path), cron=NEVER)
    with deployed(tmp_path, fresh_server):
        run = start_run(fresh_server, tmp_path)
        begun = time.monotonic()
        ask(fresh_server, f"flow_runs/{run}/set_state", state={"type": "CANCELLING"})
        wait_for(lambda: flow_runs(fresh_server, "CANCELLED"), "the run to be cancelled")
        assert time.monotonic() - begun < 25  # of which Prefect takes ten to look
    assert not flow_runs(fresh_server, "RUNNING", "CANCELLING")


@pytest.mark.slow
def test_runs_without_heartbeats_are_marked_as_crashed(tmp_path: Path, fresh_server: str) -> None:
    copy_with_three_lines_changed(tmp_path, write_long_run_file(tmp_path), cron=NEVER)
    with deployed(tmp_path, fresh_server) as worker:
        env = environment(tmp_path / "home", PREFECT_API_URL=fresh_server)
        prefect("automation", "create", "--from-file", str(AUTOMATIONS), env=env, folder=tmp_path)
        start_run(fresh_server, tmp_path)
        time.sleep(35)  # the first heartbeat
        worker.kill()
        working = [path for path in Path("/proc").glob("[0-9]*/cwd") if path.exists() and path.resolve() == tmp_path]
        for group in {os.getpgid(int(path.parent.name)) for path in working}:  # the runs of the worker
            os.killpg(group, signal.SIGKILL)
        (run,) = wait_for(lambda: flow_runs(fresh_server, "CRASHED"), "the run to be given up", seconds=240)
    assert run["state"]["message"] == "No heartbeat of this run for two minutes."


def start_run(server: str, folder: Path) -> str:
    """A run of the pipeline whose search has begun; gives its id."""
    run = create_run(server)
    wait_for(lambda: search_begun(folder), "the search to begin", seconds=300)
    return run


def create_run(server: str, **variables: Any) -> str:
    """A new run of the pipeline; gives its id."""
    (pipeline,) = ask(server, "deployments/filter", deployments={"name": {"any_": ["pipeline"]}})
    run: str = ask(server, f"deployments/{pipeline['id']}/create_flow_run", **variables)["id"]
    return run


# ----------------------------------------------------------------------------------------------------------------------
# The processes of a deployment, each started by hand: a Prefect server, a worker, and Dask under TLS.


def run_with(server: str, certificates: dict[str, str]) -> dict[str, Any]:
    """The state in which a run of the pipeline ends that has these certificates in its environment."""
    run = create_run(server, job_variables={"env": certificates})
    wait_for(lambda: any(ended["id"] == run for ended in flow_runs(server, *FINAL)), "the run to end", seconds=300)
    return next(ended["state"] for ended in flow_runs(server, *FINAL) if ended["id"] == run)


@pytest.mark.slow
def test_a_deployment_runs_through_dask_under_tls(tmp_path: Path) -> None:
    ours, theirs = (certificates(tmp_path / name) for name in ("ours", "theirs"))
    run_file = write_run_file(tmp_path)
    with (
        prefect_server(tmp_path / "server") as server,
        cluster_by_hand(tmp_path, workers=2, tls=ours) as cluster,
    ):
        assert cluster.address.startswith("tls://")
        text = run_file.read_text()
        run_file.write_text(text.replace("threads = 2", f'scheduler = "{cluster.address}"'))
        copy_with_three_lines_changed(tmp_path, run_file, cron=NEVER)
        with deployed(tmp_path, server):
            for wrong in (as_environment(theirs), {}):
                state = run_with(server, wrong)
                assert state["type"] == "FAILED"
                assert "do not accept each other's certificates" in state["message"]
            assert not list((tmp_path / "run" / "shards").glob("*.parquet"))
            assert run_with(server, as_environment(ours))["type"] == "COMPLETED"
        run_file.write_text(text)
        check_results(server, tmp_path / "run")


# ----------------------------------------------------------------------------------------------------------------------
# A search across two hosts whose link is cut for half a minute ends with the bytes of one that was never disturbed.


SETTINGS = Path(__file__).parents[2] / "deploy" / "dask.yaml"
CUT_SECONDS = 30
PORT = 8786


def test_the_settings_for_processes_started_by_hand_are_those_of_the_client() -> None:
    settings = yaml.safe_load(SETTINGS.read_text())
    threads = settings["distributed"].pop("nanny")["pre-spawn-environ"]
    assert {name: str(count) for name, count in threads.items()} == ONE_THREAD
    assert dict(flat(settings)) == ACROSS_HOSTS
    defaults = Path(distributed.__file__).with_name("distributed.yaml")
    assert set(ACROSS_HOSTS) <= dict(flat(yaml.safe_load(defaults.read_text()))).keys()


def flat(values: dict[str, object], under: str = "") -> Iterator[tuple[str, object]]:
    """Nested settings by their dotted names."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{under}{key}.")
        else:
            yield f"{under}{key}", value


@pytest.mark.fault(38)
@pytest.mark.slow
@pytest.mark.parametrize(("secured", "client"), [(False, 0), (True, 0), (True, 1)])
def test_a_cut_link_changes_nothing(tmp_path: Path, secured: bool, client: int) -> None:
    """The scheduler and a worker are on host 0, a worker on host 1, the command on either."""
    store = make_store(tmp_path / "store", rows=20_000, features=500, shard_rows=2500)
    search = [sys.executable, "-m", "sparseoco", "search", str(store), "--epochs", "16", "--folds", "3", "--out"]
    subprocess.run([*search, str(tmp_path / "whole"), "--threads", "2"], check=True, stdout=subprocess.DEVNULL)
    tls = as_environment(certificates(tmp_path / "certificates")) if secured else {}
    address = f"{'tls' if secured else 'tcp'}://{ADDRESSES[0]}:{PORT}"
    with made() as hosts, cluster(hosts, address, tmp_path, tls) as processes:
        command = hosts.on(client, *search, str(tmp_path / "cut"), "--scheduler", address)
        with running(command, tmp_path / "cut.log", {**os.environ, **tls}) as run:
            cells = tmp_path / "cut" / "search" / "cells"
            wait_for(lambda: len(list(cells.glob("*.json"))) >= 3, "three cells", seconds=600)
            hosts.cut()
            time.sleep(CUT_SECONDS)
            hosts.mend()
            assert run.poll() is None, (tmp_path / "cut.log").read_text()
            assert run.wait(600) == 0, (tmp_path / "cut.log").read_text()
        assert [process.poll() for process in processes] == [None, None, None]  # the far worker lives
    assert_same_results(tmp_path / "cut", tmp_path / "whole")


@contextmanager
def made() -> Iterator[Hosts]:
    """Two hosts; the test is skipped where they cannot be made."""
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(two_hosts())
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield hosts


@contextmanager
def cluster(hosts: Hosts, address: str, folder: Path, tls: dict[str, str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A scheduler on host 0 and a worker on each, started as `docs/operations/address.md` describes."""
    environment = {**os.environ, "DASK_CONFIG": str(SETTINGS), **tls}
    dask_command = [sys.executable, "-m", "dask"]
    scheduler = ["scheduler", "--host", address, "--no-dashboard", "--dashboard-address", "127.0.0.1:8787"]
    with ExitStack() as stack:

        def start(host: int, name: str, *arguments: str) -> subprocess.Popen[bytes]:
            command = hosts.on(host, *dask_command, *arguments)
            return stack.enter_context(running(command, folder / f"{name}.log", environment))

        processes = [start(0, "scheduler", *scheduler)]
        for host in (0, 1):
            place = ["--host", ADDRESSES[host], "--local-directory", str(folder / f"scratch-{host}")]
            place += ["--nthreads", "1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
            processes.append(start(host, f"worker-{host}", "worker", address, *place))
        for host in (0, 1):
            log = folder / f"worker-{host}.log"
            wait_for(lambda log=log: "Registered to" in log.read_text(), "the worker to register")
        yield processes


# ----------------------------------------------------------------------------------------------------------------------
# Flows run by hand that are stopped: the server hears of it, whatever they are at, and they end within ten seconds.


# The main thread heeds no signal, as within a kernel or a library.
STUCK = """
import ctypes, signal, sys
argument, sys.argv[0] = sys.argv[1], "-m"  # as `python -m sparseoco.flows.ingest` begins
from sparseoco.flows import steps
from sparseoco.pipeline import steps as run_steps

def stick(run):
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    print("stuck", flush=True)
    ctypes.CDLL(None).sleep(60)

steps.REPORT_SECONDS = 0.5
run_steps.STEPS["ingest"] = stick
sys.argv = ["ingest", argument]
steps.main("ingest")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prefect_server(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("cluster", ["threads = 2", "workers = 2"])
def test_a_search_that_is_stopped(tmp_path: Path, server: str, cluster: str, number: signal.Signals) -> None:
    run_file = write_long_run_file(tmp_path, **{"threads = 2": cluster})
    env = environment(tmp_path / "home", PREFECT_API_URL=server)
    command = [sys.executable, "-m", "sparseoco.flows.pipeline", str(run_file)]
    with running(command, tmp_path / "log", env, tmp_path) as process:
        wait_for(lambda: search_begun(tmp_path), "the search to begin")
        check_ends(process, number)
    assert flow_runs(server)[-1]["state_type"] == "CRASHED"
    assert "Stopped. Committed work is kept" in (tmp_path / "log").read_text().splitlines()[-1]


@pytest.mark.slow
def test_a_run_that_cannot_end_by_itself(tmp_path: Path, server: str) -> None:
    env = environment(tmp_path / "home", PREFECT_API_URL=server)
    command = [sys.executable, "-c", STUCK, str(write_run_file(tmp_path))]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"stuck\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    run = flow_runs(server)[-1]
    assert run["state_type"] == "CRASHED"
    assert run["state"]["message"].startswith("Stopped")


# ----------------------------------------------------------------------------------------------------------------------
# deploy/jobs.py with stand-ins for the commands of a batch system, which start a job's script as a process.


SUBMIT = """#!{python}
import os, subprocess, sys
from pathlib import Path

script, number = Path(sys.argv[-1]).read_text(), os.getpid()  # jobs may be submitted at the same time
log = open(Path({jobs!r}).parent / f"{{number}}.log", "w")
streams = {{"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}}
job = subprocess.Popen(["bash", "-c", script], cwd="/", start_new_session=True, **streams)
(Path({jobs!r}) / str(number)).write_text(str(job.pid))
print({answer})
"""
CANCEL = """#!{python}
import os, signal, sys
from pathlib import Path

os.killpg(int((Path({jobs!r}) / sys.argv[-1].partition(".")[0]).read_text()), signal.SIGTERM)
"""
SYSTEMS = {
    "SLURM": ("sbatch", "scancel", 'f"Submitted batch job {number}"'),
    "PBS": ("qsub", "qdel", 'f"{number}.server.example.org"'),
}


@pytest.mark.parametrize(("system", "count"), [("SLURM", 1), pytest.param("PBS", 2, marks=pytest.mark.slow)])
def test_a_run_on_jobs_gives_the_same_bytes(tmp_path: Path, system: str, count: int) -> None:
    """With certificates; each job runs one worker of the cores and memory of the job, and none is left.

    The jobs begin in another folder than the command, whose paths are relative to its own.
    """
    commands, jobs = tmp_path / "bin", tmp_path / "jobs"
    commands.mkdir()
    jobs.mkdir()
    submit, cancel, answer = SYSTEMS[system]
    for name, text in ((submit, SUBMIT), (cancel, CANCEL)):
        (commands / name).write_text(text.format(python=sys.executable, jobs=str(jobs), answer=answer))
        (commands / name).chmod(0o755)
    port, script = free_port(), (ROOT / "deploy" / "jobs.py").read_text()
    for before, after in {
        "SLURMCluster": f"{system}Cluster",
        "cores=4": "cores=1",
        '"16GB"': '"1GB"',
        '"ib0"': '"lo"',
        '"/tmp"': repr(str(tmp_path / "scratch")),
        "/shared": str(ROOT),
        "8786": str(port),
        "minimum=8, maximum=8": f"minimum={count}, maximum={count}",
    }.items():
        assert before in script
        script = script.replace(before, after)
    (tmp_path / "jobs.py").write_text(script)
    run_file = write_run_file(tmp_path, **{"folds = 3": "folds = 1"})
    cluster = (ROOT / "deploy" / "address.toml").read_text().replace("scheduler.example.org:8786", f"127.0.0.1:{port}")
    (tmp_path / "address.toml").write_text(cluster)
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "DASK_CONFIG": str(ROOT / "deploy/dask.yaml"),
    }
    environment |= as_environment(certificates(tmp_path / "certificates"))
    command = [sys.executable, "-m", "sparseoco", "run", run_file.name, "--cluster", "address.toml"]
    subprocess.run([sys.executable, "jobs.py", *command], cwd=tmp_path, env=environment, check=True)
    processes = [int(path.read_text()) for path in jobs.iterdir()]
    assert len(processes) == count
    wait_for(lambda: not any(map(psutil.pid_exists, processes)), "the jobs to end")
    for job in jobs.iterdir():
        log = (tmp_path / f"{job.name}.log").read_text()
        assert "Start worker at" in log
        assert "Threads:                          1" in log
    here = load_run_file(run_file).model_copy(update={"out": tmp_path / "here"})
    run_steps.run_all(here)
    assert_same_results(tmp_path / "run", tmp_path / "here")
