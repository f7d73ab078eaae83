"""Flows run by hand that are stopped: the server hears of it, whatever they are at, and they end within ten seconds."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.deployments import search_begun, write_long_run_file
from tests.support.prefect_server import check_ends, environment, flow_runs, prefect_server, running, wait_for
from tests.support.texts import write_run_file

# The main thread heeds no signal, as within a kernel or a library.
STUCK = """
import ctypes, signal, sys
argument, sys.argv[0] = sys.argv[1], "-m"  # as `python -m sparseoco.flows.ingest` begins
from sparseoco.flows import command, ending
from sparseoco.pipeline import steps as run_steps

def stick(run):
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    print("stuck", flush=True)
    ctypes.CDLL(None).sleep(60)

ending.GRACE_SECONDS = 0.5
run_steps.STEPS["ingest"] = stick
sys.argv = ["ingest", argument]
command.main("ingest")
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
