"""Connections to clusters, workers that restart, and the files of work."""

import asyncio
import gc
import os
import random
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock, patch
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import psutil
import pyarrow as pa
import pytest
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster, Nanny, Scheduler, Security, Worker
from distributed.comm import connect as open_connection
from distributed.core import Status

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.execution import clusters as module
from sparseoco.execution.clusters import ClusterOptions, TaskPool, connect, scheduler_workers, worker_shape
from sparseoco.storage.commit import commit_json
from sparseoco.storage.tables import write_array, write_checkpoint, write_parquet
from sparseoco.store.entries import write_data_file
from tests.support import processes
from tests.support.damage import KINDS, damage
from tests.support.errors import raises_code
from tests.support.processes import wait_until

processes.forks_with("distributed")


@pytest.fixture(autouse=True, scope="module")
def forked_workers() -> Iterator[None]:
    """Worker processes are forks: tests/core/test_signals and test_pool start them as commands do."""
    with processes.forked_workers():
        yield


# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.fault(44)
@pytest.mark.parametrize("options", [ClusterOptions(), ClusterOptions(workers=1)])
def test_a_local_cluster_listens_on_this_machine_only(tmp_path: Path, options: ClusterOptions) -> None:
    with connect(options, tmp_path) as client:
        client.submit(sum, [1, 2]).result()
        here = [psutil.Process(), *psutil.Process().children(recursive=True)]
        found = [connection for process in here for connection in process.net_connections("tcp")]
        assert {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
        ports = [worker["services"]["dashboard"] for worker in scheduler_workers(client).values()]
        for port in (client.cluster.scheduler.http_server.port, *ports):  # no page has logs or tracebacks
            for page in ("info/main/logs.html", "json/counts.json", "status", "health", "metrics"):
                with pytest.raises(HTTPError, match="404") as raised:
                    urlopen(f"http://127.0.0.1:{port}/{page}")
                raised.value.close()


async def answers(address: str, arguments: dict[str, Any]) -> bool:
    """Whether a scheduler, worker or nanny says who it is."""
    try:
        comm = await open_connection(address, timeout=0.5, **arguments)
        await comm.write({"op": "identity"})
        return "id" in await comm.read()
    except OSError:
        return False


@pytest.mark.fault(44)
def test_worker_processes_refuse_whoever_has_no_key_of_the_run(tmp_path: Path) -> None:
    """As another user of this machine would try it."""
    stranger = Security.temporary().get_connection_args("client")
    stranger["ssl_context"].verify_mode = ssl.CERT_NONE  # does not care whom it talks to
    with connect(ClusterOptions(workers=1), tmp_path) as client:
        worker_shape(client)
        addresses = [client.scheduler.address, *scheduler_workers(client), client.cluster.workers[0].address]
        for address in addresses:
            plain = f"tcp://{address.partition('://')[2]}"
            for where, arguments in ((plain, {}), (plain.replace("tcp", "tls"), stranger)):
                assert not asyncio.run(answers(where, arguments))
            assert asyncio.run(answers(address, client.security.get_connection_args("client")))


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "scratch" / "dask-scratch-space" / "worker-of-old" / "corpus"
    left.mkdir(parents=True)
    with connect(ClusterOptions(threads=1), tmp_path / "scratch"):
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [ClusterOptions(threads=1), ClusterOptions(workers=1)])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, options: ClusterOptions) -> None:
    scratch = tmp_path / "scratch"
    with pytest.raises(KeyboardInterrupt), connect(options, scratch):
        (scratch / "dask-scratch-space" / "corpus").mkdir(parents=True, exist_ok=True)  # as a worker lays one out
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_missing_scheduler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseoco.execution.clusters.CONNECT_SECONDS", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    for scheduler, code in ((address, "no-scheduler"), ("somewhere", "scheduler-address")):
        with raises_code(code, scheduler), connect(ClusterOptions(scheduler=scheduler), tmp_path):
            pass


def test_a_cluster_without_workers_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparseoco.execution.clusters.WORKERS_SECONDS", 1)
    with connect(ClusterOptions(threads=1), tmp_path) as client:
        client.cluster.scale(0)
        wait_until(lambda: not client.scheduler_info()["workers"])
        with raises_code("no-workers", "1 s", kind=SparseocoError):
            worker_shape(client)


@pytest.mark.fault(39)
def test_nothing_of_a_closed_cluster_stays_in_memory(tmp_path: Path) -> None:
    """A process that serves nightly runs starts one cluster after the other."""
    for _ in range(2):
        with connect(ClusterOptions(threads=1), tmp_path / ".scratch") as client:
            assert client.submit(len, "abc").result() == 3
    del client
    gc.collect()
    assert not [found for found in gc.get_objects() if type(found) in (Scheduler, Worker)]


# ----------------------------------------------------------------------------------------------------------------------
# Local workers that are gone for good are restarted; those that come back by themselves are left alone.


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(workers=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


def nannies(client: Client) -> list[Nanny]:
    """All of them, once they are there."""
    cluster: LocalCluster = client.cluster
    wait_until(lambda: len(cluster.workers) == 2)
    return list(cluster.workers.values())


def give_up(client: Client, count: int) -> None:
    """Close so many nannies, as one does whose worker cannot start."""
    for nanny in nannies(client)[:count]:
        client.sync(nanny.close)
    wait_until(lambda: len(scheduler_workers(client)) == 2 - count)


def all_back(client: Client) -> bool:
    return len(scheduler_workers(client)) == 2


def test_while_waiting_for_a_result(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.1)
    give_up(client, 2)
    assert TaskPool(client).call(sum, [1, 2]) == 3
    wait_until(lambda: all_back(client))


def test_while_results_come_quickly(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up(client, 1)
    monkeypatch.setitem(module._last_check, client, time.monotonic() - 2 * module.CHECK_SECONDS)
    assert TaskPool(client).call(sum, [1, 2]) == 3
    wait_until(lambda: all_back(client))


def test_before_work_is_divided_among_them(client: Client) -> None:
    give_up(client, 2)
    assert worker_shape(client)[0] in (1, 2)
    wait_until(lambda: all_back(client))


def test_a_nanny_whose_first_worker_cannot_start_is_replaced(client: Client) -> None:
    give_up(client, 1)
    with patch.object(Nanny, "instantiate", AsyncMock(side_effect=OSError("no more processes"))):
        module.restart_workers(client)
        wait_until(lambda: any(nanny.status in (Status.closed, Status.failed) for nanny in nannies(client)))
    module.restart_workers(client)
    wait_until(lambda: all_back(client))


def test_a_worker_that_comes_back_slowly_is_left_alone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Dask's timeout of 15 s, after which it closes the nanny, is a tenth of a second.
    monkeypatch.setattr("distributed.deploy.spec.parse_timedelta", lambda time: parse_timedelta(time) / 150)
    before = nannies(client)
    os.kill(before[0].pid, signal.SIGKILL)
    wait_until(lambda: not all_back(client))
    wait_until(lambda: all_back(client))
    assert nannies(client) == before
    assert {nanny.status for nanny in before} == {Status.running}


# ----------------------------------------------------------------------------------------------------------------------
# Damaged files of killed runs are removed, whatever their kind; all others stay.


class Pool:
    """Runs tasks at once."""

    def map(self, function: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
        return [function(*own) for own in arguments]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    commit_json(folder / "cell.json", {"a": 1, "b": [1.5, "é"]})
    write_checkpoint(folder / "deep" / "state.npz", {"epoch": 1}, [("w", np.arange(9.0)), ("n", np.arange(3))])
    write_array(folder / "deep" / "weights.npy", np.arange(12.0).reshape(3, 4))
    write_parquet(folder / "part.parquet", pa.table({"x": np.arange(20)}))
    write_data_file(folder, "shard", pa.table({"x": np.arange(20)}))
    (folder / "notes.txt").write_text("of another kind")
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.fault(52)
def test_damaged_files_are_removed(folder: Path, tmp_path: Path) -> None:
    rng, before = random.Random(0), names(folder)
    assert module.remove_damaged(Pool(), folder) == 0  # type: ignore[arg-type]
    assert names(folder) == before
    for name in before - {"notes.txt"}:
        for kind in KINDS[:3]:
            copy = shutil.copytree(folder, tmp_path / f"{name}-{kind}")
            damage(next(copy.rglob(name)), "cut" if name.endswith(".npz") else kind, rng)
            assert module.remove_damaged(Pool(), copy) == 1  # type: ignore[arg-type]
            assert names(copy) == before - {name}
    assert module.remove_damaged(Pool(), tmp_path / "none") == 0  # type: ignore[arg-type]


def test_files_that_cannot_be_read_now_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=OSError(5, "Input/output error")))
    with raises_code("io-error", folder, kind=StorageError):
        module.remove_damaged(Pool(), folder)  # type: ignore[arg-type]
    assert "cell.json" in names(folder)
