"""Local workers that are gone for good are restarted; those that come back by themselves are left alone."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster, Nanny
from distributed.core import Status

from sparseoco.execution import pool as module
from sparseoco.execution.clusters import ClusterOptions, connect, restart_workers, scheduler_workers, worker_shape
from sparseoco.execution.pool import TaskPool


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(workers=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


def until(done: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def nannies(client: Client) -> list[Nanny]:
    """All of them, once they are there."""
    cluster: LocalCluster = client.cluster
    until(lambda: len(cluster.workers) == 2)
    return list(cluster.workers.values())


def give_up(client: Client, count: int) -> None:
    """Close so many nannies, as one does whose worker cannot start."""
    for nanny in nannies(client)[:count]:
        client.sync(nanny.close)
    until(lambda: len(scheduler_workers(client)) == 2 - count)


def all_back(client: Client) -> bool:
    return len(scheduler_workers(client)) == 2


def test_while_waiting_for_a_result(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.1)
    give_up(client, 2)
    assert TaskPool(client).call(sum, [1, 2]) == 3
    until(lambda: all_back(client))


def test_while_results_come_quickly(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up(client, 1)
    monkeypatch.setitem(module._last_check, client, time.monotonic() - 2 * module.CHECK_SECONDS)
    assert TaskPool(client).call(sum, [1, 2]) == 3
    until(lambda: all_back(client))


def test_before_work_is_divided_among_them(client: Client) -> None:
    give_up(client, 2)
    assert worker_shape(client)[0] in (1, 2)
    until(lambda: all_back(client))


def test_a_nanny_whose_first_worker_cannot_start_is_replaced(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(nanny: Nanny) -> Any:
        raise OSError("no more processes")

    give_up(client, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Nanny, "instantiate", refused)
        restart_workers(client)
        until(lambda: any(nanny.status in (Status.closed, Status.failed) for nanny in nannies(client)))
    restart_workers(client)
    until(lambda: all_back(client))


def test_a_worker_that_comes_back_slowly_is_left_alone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Dask's timeout of 15 s, after which it closes the nanny, is a tenth of a second.
    monkeypatch.setattr("distributed.deploy.spec.parse_timedelta", lambda time: parse_timedelta(time) / 150)
    before = nannies(client)
    assert before[0].pid is not None
    os.kill(before[0].pid, signal.SIGKILL)
    until(lambda: not all_back(client))
    until(lambda: all_back(client))
    assert nannies(client) == before
    assert {nanny.status for nanny in before} == {Status.running}
