"""Clusters by hand, on one host and on two, and how runs on them stop."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import distributed
import pytest
import yaml

from sparseoco.execution.options import ACROSS_HOSTS, ONE_THREAD
from tests.deploy.deployments import (
    ADDRESSES,
    Hosts,
    check_results,
    copy_with_three_lines_changed,
    deployed,
    search_begun,
    two_hosts,
    write_long_run_file,
)
from tests.search.by_hand import as_environment, certificates, cluster_by_hand
from tests.support.folders import assert_same_results
from tests.support.prefect_server import (
    FINAL,
    ask,
    check_ends,
    environment,
    flow_runs,
    prefect_server,
    running,
    wait_for,
)
from tests.support.stores import make_store
from tests.support.texts import write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# The processes of a deployment, each started by hand: a Prefect server, a worker, and Dask under TLS.


NEVER = "0 0 1 1 *"


def run_with(server: str, certificates: dict[str, str]) -> dict[str, Any]:
    """The state in which a run of the pipeline ends that has these certificates in its environment."""
    (pipeline,) = ask(server, "deployments/filter", deployments={"name": {"any_": ["pipeline"]}})
    variables = {"job_variables": {"env": certificates}}
    run = ask(server, f"deployments/{pipeline['id']}/create_flow_run", **variables)["id"]
    wait_for(lambda: any(ended["id"] == run for ended in flow_runs(server, *FINAL)), "the run to end", seconds=300)
    state: dict[str, Any] = next(ended["state"] for ended in flow_runs(server, *FINAL) if ended["id"] == run)
    return state


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
            wait_until(lambda: len(list((tmp_path / "cut" / "search" / "cells").glob("*.json"))) >= 3, run)
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
            wait_until(lambda log=log: "Registered to" in log.read_text(), processes[host + 1])
        yield processes


def wait_until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait while a process runs for something to become true."""
    while not true():
        assert process.poll() is None, f"{process.args} has ended"
        time.sleep(0.2)


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
    run_file = write_long_run_file(tmp_path)
    run_file.write_text(run_file.read_text().replace("threads = 2", cluster))
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
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    run = flow_runs(server)[-1]
    assert run["state_type"] == "CRASHED"
    assert run["state"]["message"].startswith("Stopped")
