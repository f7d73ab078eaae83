"""Schedules: deploy/prefect.yaml as a person copies and changes it, and flows served on a schedule of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.flows import load_flow_from_entrypoint

from sparseoco.flows.serving import TAG
from sparseoco.pipeline import steps
from sparseoco.pipeline.run_file import load_run_file
from tests.support.prefect_server import (
    ROOT,
    artifacts,
    ask,
    check_ends,
    environment,
    flow_runs,
    prefect_server,
    running,
    wait_for,
)
from tests.support.texts import write_run_file

EXAMPLE = ROOT / "deploy" / "prefect.yaml"
AUTOMATIONS = ROOT / "deploy" / "prefect-automations.yaml"
PREFECT = [sys.executable, "-m", "prefect"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with prefect_server(tmp_path / "server") as address:
        yield address


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


def test_a_run_that_lives_is_heard_of_several_times_before_it_is_given_up() -> None:
    (automation,) = yaml.safe_load(AUTOMATIONS.read_text())["automations"]
    pools = [deployment["work_pool"] for deployment in yaml.safe_load(EXAMPLE.read_text())["deployments"]]
    for env in [os.environ, *(pool["job_variables"]["env"] for pool in pools)]:  # the first: by hand, or served
        assert automation["trigger"]["within"] >= 4 * int(env["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"])
    assert automation["trigger"]["match_related"]["prefect.resource.id"] == f"prefect.tag.{TAG}"


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


@pytest.mark.slow
def test_a_deployed_schedule_fires_and_the_run_is_read_through_the_api(tmp_path: Path, server: str) -> None:
    run_file = write_run_file(tmp_path)
    copy_with_three_lines_changed(tmp_path, run_file)
    with deployed(tmp_path, server):
        (run, *_) = wait_for(lambda: flow_runs(server, "COMPLETED", "FAILED", "CRASHED"), "a run to end", seconds=300)
    assert run["state_type"] == "COMPLETED"
    assert run["parameters"] == {"run_file": run_file.name}
    assert {"sparseoco", "pipeline"} <= set(run["tags"])
    assert run["auto_scheduled"]
    assert run["name"].startswith("places 2")
    (deployment,) = ask(server, "deployments/filter", deployments={"id": {"any_": [run["deployment_id"]]}})
    assert deployment["name"] == "pipeline"
    assert deployment["global_concurrency_limit"]["limit"] == 1
    assert deployment["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    check_results(server, tmp_path / "run")


def check_results(server: str, out: Path) -> None:
    """The artifacts of a finished run lead to its files, which are those of a run without Prefect."""
    found = artifacts(server)
    assert len(json.loads(found["places-leaderboard"]["data"])) == 4
    assert "| rank |" in found["places-summary"]["data"]
    links = {key: artifact["data"] for key, artifact in found.items() if "(file://" in artifact["data"]}
    for key, file in (("report", "report/report.html"), ("weights", "model/weights.parquet")):
        assert (out / file).as_uri() in links[f"places-{key}"]
        assert (out / file).exists()
    here = load_run_file(out.parent / "places.toml").model_copy(update={"out": out.parent / "here"})
    steps.run_all(here)
    for file in ("search/metrics.parquet", "model/weights.parquet"):
        assert (out / file).read_bytes() == (here.out / file).read_bytes()


@contextmanager
def served(folder: Path, server: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    env = environment(folder / "home", PREFECT_API_URL=server, PREFECT_RUNNER_POLL_FREQUENCY="1")
    command = [sys.executable, "-m", "sparseoco.flows.pipeline", "serve", *arguments]
    with running(command, folder / "served.log", env, folder) as process:
        yield process


@pytest.mark.slow
def test_a_served_flow_runs_at_an_interval(tmp_path: Path, server: str) -> None:
    with served(tmp_path, server, "--interval", "10s", str(write_run_file(tmp_path))):
        runs = wait_for(lambda: two_of(flow_runs(server, "COMPLETED")), "two runs to end", seconds=300)
    assert runs[0]["name"] != runs[1]["name"]
    assert not flow_runs(server, "FAILED", "CRASHED")
    check_results(server, tmp_path / "run")


def two_of(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return runs if len(runs) >= 2 else []


def write_long_run_file(folder: Path) -> Path:
    """A run whose search takes minutes."""
    run_file = write_run_file(folder)
    run_file.write_text(run_file.read_text().replace("folds = 3", "folds = 3\nepochs = 5000"))
    return run_file


def search_begun(folder: Path) -> bool:
    return (folder / "run" / "run.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_served_flow_that_is_stopped_ends_within_ten_seconds(
    tmp_path: Path, server: str, number: signal.Signals
) -> None:
    run_file = write_long_run_file(tmp_path)
    with served(tmp_path, server, "--interval", "10s", str(run_file)) as process:
        wait_for(lambda: search_begun(tmp_path), "the search to begin", seconds=300)
        wait_for(lambda: flow_runs(server, "CANCELLED"), "a run that is due meanwhile to end")
        check_ends(process, number)
        assert not group_of(process.pid)
    named = [run["name"] for run in flow_runs(server, "CANCELLED", "CRASHED")]
    assert sum(name.startswith("places 2") for name in named) == 1
    assert not flow_runs(server, "RUNNING", "PENDING", "CANCELLING")
    assert (tmp_path / "run/shards/manifest-00000001.json").exists()
    assert [deployment["paused"] for deployment in ask(server, "deployments/filter")] == [True]


def group_of(leader: int) -> list[str]:
    """Living processes of the leader's group."""
    listed = subprocess.run(["ps", "-eo", "pgid,stat,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()[1:]]
    return [" ".join(row) for row in rows if row[0] == str(leader) and not row[1].startswith("Z")]


@pytest.mark.slow
def test_a_run_of_a_worker_is_over_soon_after_it_is_cancelled(tmp_path: Path, server: str) -> None:
    copy_with_three_lines_changed(tmp_path, write_long_run_file(tmp_path), cron="0 0 1 1 *")
    with deployed(tmp_path, server):
        run = start_run(server, tmp_path)
        begun = time.monotonic()
        ask(server, f"flow_runs/{run}/set_state", state={"type": "CANCELLING"})
        wait_for(lambda: flow_runs(server, "CANCELLED"), "the run to be cancelled")
        assert time.monotonic() - begun < 25  # of which Prefect takes ten to look
    assert not flow_runs(server, "RUNNING", "CANCELLING")


@pytest.mark.slow
def test_runs_that_fell_silent_with_their_worker_are_written_down_as_crashed(tmp_path: Path, server: str) -> None:
    copy_with_three_lines_changed(tmp_path, write_long_run_file(tmp_path), cron="0 0 1 1 *")
    with deployed(tmp_path, server) as worker:
        env = environment(tmp_path / "home", PREFECT_API_URL=server)
        prefect("automation", "create", "--from-file", str(AUTOMATIONS), env=env, folder=tmp_path)
        start_run(server, tmp_path)
        time.sleep(35)  # the first heartbeat
        worker.kill()
        for row in sessions_below(tmp_path):
            os.killpg(row, signal.SIGKILL)
        (run,) = wait_for(lambda: flow_runs(server, "CRASHED"), "the run to be given up", seconds=240)
    assert run["state"]["message"] == "No heartbeat of this run for two minutes."


def start_run(server: str, folder: Path) -> str:
    """A run of the pipeline whose search has begun; gives its id."""
    (pipeline,) = ask(server, "deployments/filter", deployments={"name": {"any_": ["pipeline"]}})
    run: str = ask(server, f"deployments/{pipeline['id']}/create_flow_run")["id"]
    wait_for(lambda: search_begun(folder), "the search to begin", seconds=300)
    return run


def sessions_below(folder: Path) -> list[int]:
    """Groups of processes that work in the folder: the runs of a worker."""
    working = (path for path in Path("/proc").glob("[0-9]*/cwd"))
    return sorted({os.getpgid(int(path.parent.name)) for path in working if path.exists() and path.resolve() == folder})
