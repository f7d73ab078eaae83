"""The tree of a pass over hosts, and what crosses the network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.offline.cluster import passes as cluster_module
from sparseoco.offline.cluster.passes import ClusterPasses, Hosts
from sparseoco.offline.passes import Partial, PassRequest, tree_sum
from sparseoco.store import corpus as worker_module
from sparseoco.store.shards import Store
from tests.offline.cluster.test_passes import local, same
from tests.support.stores import make_store

REQUEST = PassRequest("logistic", (1, 0, 1))


@given(st.integers(0, 6), st.lists(st.integers(1, 64), min_size=1, max_size=6))
def test_the_tree_does_not_depend_on_the_hosts(levels: int, cuts: list[int]) -> None:
    runs = 1 << levels
    edges = tuple(sorted({0, runs, *(cut for cut in cuts if cut < runs)}))
    values = np.random.default_rng(0).normal(size=runs)
    hosts = Hosts(edges, 1)
    added = hosts.add(lambda host, first, last: tree_sum(values.__getitem__, first, last))
    assert added == tree_sum(values.__getitem__, 0, runs)
    covered = [subtree for host in range(len(edges) - 1) for subtree in hosts.subtrees(host)]
    assert [first for first, _ in covered] == [0, *(last for _, last in covered[:-1])]
    assert covered[-1][1] == runs
    for first, last in covered:
        assert first % (last - first) == 0


def folders_of_passes() -> list[str]:
    return [path.name for path in worker_module.host_folder().glob("passes-*")]


SENT: list[Partial] = []
subtree_sums = cluster_module.subtree_sums  # which a test replaces


def recorded_sums(*arguments: Any) -> list[Partial]:
    """Of the module, so that Dask does not copy the list."""
    found = subtree_sums(*arguments)
    SENT.extend(found)
    return found


@pytest.mark.parametrize("count", [2, 3, 4])
def test_hosts_give_the_bits_of_one_and_send_a_gradient_each_if_their_runs_are_subtrees(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Hosts are groups of tasks in one process here."""
    store = make_store(tmp_path / "store")
    weights = np.random.default_rng(1).normal(size=(200, 3))
    expected = local(store).totals(weights, REQUEST)

    def placed(client: Client, tasks: int) -> list[dict[str, Any]]:
        return [{"priority": i * count // tasks} for i in range(tasks)]  # any argument that is different by host

    monkeypatch.setattr(cluster_module, "subtree_sums", recorded_sums)
    monkeypatch.setattr(cluster_module, "placements", placed)
    monkeypatch.setattr(cluster_module, "TASKS_PER_SLOT", 4)
    monkeypatch.setattr(cluster_module, "RANGE_BYTES", 1)
    passes = ClusterPasses(client, Store.open(store), tmp_path / "work")
    SENT.clear()
    same(passes.totals(weights, REQUEST), expected)
    sent = sum(sums.gradient.values.nbytes for sums in SENT)
    assert 0 < sent <= (2 * count if count == 3 else count - 1) * weights.nbytes
    np.testing.assert_array_equal(passes.squares(), local(store).squares())
    assert client.submit(folders_of_passes, pure=False).result() == []


def test_a_run_whose_file_is_lost_is_computed_again(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store")
    weights = np.random.default_rng(1).normal(size=(200, 3))
    expected = local(store).totals(weights, REQUEST)
    computed: list[tuple[int, int]] = []
    sum_leaves = cluster_module._sum_leaves

    def counted(task: Any, first: int, last: int) -> Partial:
        computed.append((first, last))
        return sum_leaves(task, first, last)

    monkeypatch.setattr(cluster_module, "_sum_leaves", counted)
    monkeypatch.setattr(cluster_module, "compute_run", lambda *arguments: None)
    passes = ClusterPasses(client, Store.open(store), tmp_path / "work")
    same(passes.totals(weights, REQUEST), expected)
    assert sorted(set(computed)) == passes._runs()


def test_a_remote_file_is_fetched_once_per_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    fetched: list[Path] = []

    class Remote:
        name = "weights.npy"

        def download(self, target: Path) -> None:
            fetched.append(target)
            target.write_bytes(b"weights")

    monkeypatch.setattr(worker_module, "RemotePath", Remote)
    remote: Any = Remote()
    with ThreadPoolExecutor(8) as pool:
        copies = list(pool.map(lambda _: worker_module.host_file(remote, tmp_path / "host"), range(8)))
    assert len(fetched) == 1
    assert {copy.read_bytes() for copy in copies} == {b"weights"}


def received(dask_worker: Any) -> int:
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


@pytest.mark.parametrize("workers", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_no_gradient_moves_between_the_workers_of_a_host(tmp_path: Path, workers: int) -> None:
    store = make_store(tmp_path / "store", shard_rows=60)
    weights = np.random.default_rng(1).normal(size=(200, 5))
    request = PassRequest("logistic", (1, 0, 1, 0, 1))
    expected = local(store).totals(weights, request)
    with connect(ClusterOptions(workers=workers), tmp_path / "scratch") as client:
        client.wait_for_workers(workers)
        same(ClusterPasses(client, Store.open(store), tmp_path / "work").totals(weights, request), expected)
        moved = client.run(received)
    assert len(moved) == workers
    assert sum(moved.values()) < weights.nbytes / 2
