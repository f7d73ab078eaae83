"""A search across two hosts whose link is cut for half a minute ends with the bytes of one that was never disturbed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import distributed
import pytest
import yaml

from sparseoco.execution.options import ACROSS_HOSTS, ONE_THREAD, as_environment
from tests.deploy.hosts import ADDRESSES, Hosts, two_hosts
from tests.search.by_hand import certificates
from tests.support.stores import make_store

SETTINGS = Path(__file__).parents[2] / "deploy" / "dask.yaml"
FILES = ("search/metrics.parquet", "search/curves.parquet", "search/best.json", "model/weights.parquet")
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
    with started([*search, str(tmp_path / "whole"), "--threads", "2"], tmp_path / "whole.log", {}) as whole:
        assert whole.wait(600) == 0
    tls = as_environment(certificates(tmp_path / "certificates")) if secured else {}
    address = f"{'tls' if secured else 'tcp'}://{ADDRESSES[0]}:{PORT}"
    with made() as hosts, cluster(hosts, address, tmp_path, tls) as processes:
        command = hosts.on(client, *search, str(tmp_path / "cut"), "--scheduler", address)
        with started(command, tmp_path / "cut.log", tls) as run:
            wait_until(lambda: len(list((tmp_path / "cut" / "search" / "cells").glob("*.json"))) >= 3, run)
            hosts.cut()
            time.sleep(CUT_SECONDS)
            hosts.mend()
            assert run.poll() is None, (tmp_path / "cut.log").read_text()
            assert run.wait(600) == 0, (tmp_path / "cut.log").read_text()
        assert [process.poll() for process in processes] == [None, None, None]  # the far worker lives
    for file in FILES:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "cut" / file).read_bytes(), file


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
    environment = {"DASK_CONFIG": str(SETTINGS), **tls}
    dask_command = [sys.executable, "-m", "dask"]
    scheduler = ["scheduler", "--host", address, "--no-dashboard", "--dashboard-address", "127.0.0.1:8787"]
    with ExitStack() as stack:

        def start(host: int, name: str, *arguments: str) -> subprocess.Popen[bytes]:
            command = hosts.on(host, *dask_command, *arguments)
            return stack.enter_context(started(command, folder / f"{name}.log", environment))

        processes = [start(0, "scheduler", *scheduler)]
        for host in (0, 1):
            place = ["--host", ADDRESSES[host], "--local-directory", str(folder / f"scratch-{host}")]
            worker = [
                "worker",
                address,
                *place,
                "--nthreads",
                "1",
                "--no-dashboard",
                "--dashboard-address",
                "127.0.0.1:0",
            ]
            processes.append(start(host, f"worker-{host}", *worker))
        for host in (0, 1):
            log = folder / f"worker-{host}.log"
            wait_until(lambda log=log: "Registered to" in log.read_text(), processes[host + 1])
        yield processes


@contextmanager
def started(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def wait_until(true: Callable[[], bool], running: subprocess.Popen[bytes]) -> None:
    """Wait while a process runs for something to become true."""
    while not true():
        assert running.poll() is None, f"{running.args} has ended"
        time.sleep(0.2)
