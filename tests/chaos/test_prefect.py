"""A flow whose Prefect server dies, answers late or has a locked database leaves the files of the command."""

import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from tests.support.prefect_server import environment, flow_runs, prefect_server
from tests.support.texts import write_run_file

FILES = ("metrics.parquet", "curves.parquet", "feature_survival.parquet", "best.json")
LATENESS = 0.3  # seconds, of every piece of an answer


def check_files(folder: Path) -> None:
    """Compare the tables of a run with those of the command."""
    (folder / "command").mkdir()
    run_steps.run_all(load_run_file(write_run_file(folder / "command")))
    for file in [*(f"search/{name}" for name in FILES), "model/weights.parquet"]:
        assert (folder / "run" / file).read_bytes() == (folder / "command" / "run" / file).read_bytes(), file


@contextmanager
def flow(folder: Path, address: str) -> Iterator[subprocess.Popen[str]]:
    """The flow of a whole run."""
    env = environment(folder / "home", PREFECT_API_URL=address)
    command = [sys.executable, "-m", "sparseoco.flows.pipeline", str(write_run_file(folder))]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_cell(folder: Path, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not list((folder / "run" / "search" / "cells").glob("*")):
        time.sleep(0.01)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(7)
def test_a_server_that_is_killed_during_a_run(tmp_path: Path) -> None:
    with prefect_server(tmp_path / "server") as address, flow(tmp_path, address) as process:
        wait_for_cell(tmp_path, process)
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if "server" in child.cmdline() and "prefect" in child.cmdline():
                    for own in [*child.children(recursive=True), child]:
                        own.kill()
        _, said = process.communicate(timeout=600)
    if process.returncode != 0:  # the files are complete, or the same command resumes
        assert "Traceback" not in said.splitlines()[-1]
        run_steps.run_all(load_run_file(tmp_path / "places.toml"))
    check_files(tmp_path)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(7)
def test_a_server_that_answers_late(tmp_path: Path) -> None:
    with prefect_server(tmp_path / "server") as address, _late(address) as late, flow(tmp_path, late) as process:
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said[-2000:]
        assert [run["state_type"] for run in flow_runs(address)] == ["COMPLETED"]
    check_files(tmp_path)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(7)
def test_a_server_whose_database_is_locked_for_a_while(tmp_path: Path) -> None:
    with prefect_server(tmp_path / "server") as address, flow(tmp_path, address) as process:
        wait_for_cell(tmp_path, process)
        with closing(sqlite3.connect(tmp_path / "server" / "prefect.db", timeout=60)) as database:
            database.execute("BEGIN EXCLUSIVE")
            time.sleep(15)
            database.rollback()
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said[-2000:]
    check_files(tmp_path)


@contextmanager
def _late(address: str) -> Iterator[str]:
    """The address of a proxy that forwards every piece of an answer `LATENESS` late."""
    port = int(address.rpartition(":")[2].partition("/")[0])
    with ThreadPoolExecutor(100) as threads, socket.create_server(("127.0.0.1", 0)) as listener:

        def forward(source: socket.socket, target: socket.socket, wait: float) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    time.sleep(wait)
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

        def serve(near: socket.socket) -> None:
            with near, socket.create_connection(("127.0.0.1", port)) as far:
                other = threads.submit(forward, near, far, 0.0)
                forward(far, near, LATENESS)
                other.result()

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threads.submit(serve, listener.accept()[0])

        threads.submit(accept)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        listener.shutdown(socket.SHUT_RDWR)
