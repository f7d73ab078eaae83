import asyncio
import gc
import os
import socket
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from distributed import Scheduler, Security, Worker
from distributed.comm import connect as open_connection

from sparseoco.core.errors import SparseocoError
from sparseoco.execution.clusters import ClusterOptions, connect, scheduler_workers, worker_shape
from tests.support.errors import raises_code


def listening() -> set[str]:
    """Addresses that this process and its children listen on, as the kernel lists them (hexadecimal)."""
    owners, waiting = [os.getpid()], [os.getpid()]
    while waiting:
        parent = waiting.pop()
        for task in Path(f"/proc/{parent}/task").iterdir():
            children = [int(child) for child in (task / "children").read_text().split()]
            owners += children
            waiting += children
    inodes = set()
    for owner in owners:
        for descriptor in Path(f"/proc/{owner}/fd").iterdir():
            try:
                inodes.add(os.readlink(descriptor))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.add(fields[1].split(":")[0])
    return found


@pytest.mark.fault(44)
@pytest.mark.parametrize("options", [ClusterOptions(), ClusterOptions(workers=1)])
def test_a_local_cluster_listens_on_this_machine_only(tmp_path: Path, options: ClusterOptions) -> None:
    before = listening()
    with connect(options, tmp_path) as client:
        client.submit(sum, [1, 2]).result()
        assert listening() - before <= {"0100007F"}  # 127.0.0.1
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
    monkeypatch.setattr("sparseoco.execution.clusters.CONNECT_SECONDS", 1)
    with connect(ClusterOptions(threads=1), tmp_path) as client:
        client.cluster.scale(0)
        while client.scheduler_info()["workers"]:
            time.sleep(0.05)
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
