"""Workers of our own that are gone for good are started again, and those that come back by themselves are let be."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster, Nanny
from distributed.core import Status

from sparseoco.execution import pool as waiting
from sparseoco.execution.clusters import ClusterOptions, connect, start_again, worker_shape, workers_of
from sparseoco.execution.pool import Awaited, Workers


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(workers=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


def until(done: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def keepers(client: Client) -> list[Nanny]:
    """All of them, once they are there."""
    cluster: LocalCluster = client.cluster
    until(lambda: len(cluster.workers) == 2)
    return list(cluster.workers.values())


def give_up(client: Client, count: int) -> None:
    """So many keepers end, as one does whose worker cannot begin."""
    for nanny in keepers(client)[:count]:
        client.sync(nanny.close)
    until(lambda: len(workers_of(client)) == 2 - count)


def all_back(client: Client) -> bool:
    return len(workers_of(client)) == 2


def test_while_a_result_is_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WATCH_SECONDS", 0.1)
    give_up(client, 2)
    assert Awaited(client, client.submit(sum, [1, 2], pure=False)).result() == 3
    until(lambda: all_back(client))


def test_while_results_come_quickly(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up(client, 1)
    monkeypatch.setitem(waiting._looked, client, time.monotonic() - 2 * waiting.WATCH_SECONDS)
    monkeypatch.setattr(Workers, "look", lambda workers: None)
    assert Awaited(client, client.submit(sum, [1, 2], pure=False)).result() == 3
    until(lambda: all_back(client))


def test_before_work_is_cut_up_for_them(client: Client) -> None:
    give_up(client, 2)
    assert worker_shape(client)[0] in (1, 2)
    until(lambda: all_back(client))


def test_a_keeper_whose_first_worker_cannot_begin_is_replaced(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(nanny: Nanny) -> Any:
        raise OSError("no more processes")

    give_up(client, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Nanny, "instantiate", refused)
        start_again(client)
        until(lambda: any(nanny.status in (Status.closed, Status.failed) for nanny in keepers(client)))
    start_again(client)
    until(lambda: all_back(client))


def test_a_worker_that_takes_long_to_come_back_is_let_be(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Dask's patience of 15 s, after which it closes the keeper, is a tenth of a second.
    monkeypatch.setattr("distributed.deploy.spec.parse_timedelta", lambda time: parse_timedelta(time) / 150)
    before = keepers(client)
    assert before[0].pid is not None
    os.kill(before[0].pid, signal.SIGKILL)
    until(lambda: not all_back(client))
    until(lambda: all_back(client))
    assert keepers(client) == before
    assert {nanny.status for nanny in before} == {Status.running}


class Late:
    """A task that fails at the very moment at which the time to wait for it is over."""

    status = "error"

    def result(self, timeout: float | None = None) -> Any:
        raise TimeoutError if timeout is not None else ValueError("its own")


def test_a_task_that_fails_as_its_wait_ends_gives_its_own_error(client: Client) -> None:
    late: Any = Late()
    with pytest.raises(ValueError, match="its own"):
        Awaited(client, late).result()
