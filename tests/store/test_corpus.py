"""The rows of a corpus for training, in memory, in a folder of one process or of several."""

import multiprocessing
import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from scipy.sparse import csr_matrix

from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.kernels.columns import RowBatch
from sparseoco.store import corpus as module
from sparseoco.store.corpus import Corpus, SharedFolder, folder_on_host, host_folder, open_corpus, worker_corpus
from sparseoco.store.entries import ShardTable
from sparseoco.store.shards import Store, read_shards
from tests.search.by_hand import cluster_by_hand
from tests.support.errors import raises_code
from tests.support.stores import make_store, with_columns

# ----------------------------------------------------------------------------------------------------------------------
# The local copy of a store: its rows, decoded on demand, shared between threads and processes.


ROWS, SHARD_ROWS = 290, 20


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(make_store(tmp_path_factory.mktemp("corpus") / "store", rows=ROWS, shard_rows=SHARD_ROWS))


@pytest.fixture(params=["mapped", "read"])
def corpus(request: pytest.FixtureRequest, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A small corpus, which is mapped, and a large one, which is read."""
    if request.param == "read":
        monkeypatch.setattr(module, "MAPPED_BYTES", 0)
    return Corpus(store, tmp_path)


def dense(store: Store, csr: RowBatch) -> tuple[np.ndarray, np.ndarray]:
    indptr, indices, counts, labels, _ = csr
    return csr_matrix((counts, indices, indptr), (labels.size, store.n_features)).toarray(), labels


def decoded(folder: Path) -> list[int]:
    return np.flatnonzero(np.fromfile(folder / "ready", np.uint8)).tolist()


@pytest.mark.parametrize(
    ("start", "stop"), [(0, ROWS), (0, 1), (19, 21), (20, 40), (133, 133), (ROWS, ROWS), (271, ROWS)]
)
def test_rows(corpus: Corpus, store: Store, start: int, stop: int) -> None:
    X, _ = read_shards(store.folder)
    csr = corpus.rows(start, stop)
    assert csr[0][0] == 0
    values, labels = dense(store, csr)
    np.testing.assert_array_equal(values, X[start:stop].toarray())
    np.testing.assert_array_equal(labels, store.labels()[start:stop])


def test_ranges(corpus: Corpus, store: Store) -> None:
    X, _ = read_shards(store.folder)
    starts, stops = np.array([0, 19, 60, 60, 271]), np.array([1, 45, 60, 61, ROWS])
    rows = np.concatenate([np.arange(*bounds) for bounds in zip(starts, stops, strict=True)])
    values, labels = dense(store, corpus.ranges(starts, stops))
    np.testing.assert_array_equal(values, X[rows].toarray())
    np.testing.assert_array_equal(labels, store.labels()[rows])
    chosen = np.random.default_rng(1).permutation(rows)
    for wanted in (chosen, chosen[:0]):
        found, again = corpus.buffered(starts, stops).gather(wanted), corpus.gather(wanted)
        for a, b in zip(found[:4], again[:4], strict=True):
            assert (a.dtype, a.flags.writeable, a.tolist()) == (b.dtype, b.flags.writeable, b.tolist())


def test_gather(corpus: Corpus, store: Store) -> None:
    X, _ = read_shards(store.folder)
    random = np.random.default_rng(1)
    for rows in (
        *(random.integers(0, ROWS, size) for size in (0, 1, 50, 1000)),
        np.r_[5:40, 7, 40, 41, ROWS - 1, 0, 1],
    ):
        values, labels = dense(store, corpus.gather(rows))
        np.testing.assert_array_equal(values, X[rows].toarray())
        np.testing.assert_array_equal(labels, store.labels()[rows])


@pytest.mark.parametrize("mapped", [True, False])
def test_columns_and_label_sets(store: Store, tmp_path: Path, mapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAPPED_BYTES", 1 << 28 if mapped else 0)
    opened = Store.open(with_columns(store.folder, tmp_path / "store", multilabel=True))
    corpus = Corpus(opened, tmp_path)
    indicator, weights = opened.labels().toarray(), opened.column("weight")
    rows = np.random.default_rng(1).permutation(ROWS)
    for wanted, batch in [
        (rows[:57], corpus.gather(rows[:57])),
        (np.arange(15, 45), corpus.rows(15, 45)),
        (rows[rows < 45], corpus.buffered(np.array([0, 30]), np.array([30, 45])).gather(rows[rows < 45])),
        (rows[:0], corpus.gather(rows[:0])),
        (np.arange(ROWS), corpus.whole()),
    ]:
        np.testing.assert_array_equal(batch.labels, indicator[wanted])
        np.testing.assert_array_equal(batch.weights, weights[wanted])
        assert (batch.labels.dtype, batch.weights.dtype) == (np.bool_, np.float32)
    np.testing.assert_array_equal(corpus.column("group"), np.arange(ROWS) // 10)
    np.testing.assert_array_equal(corpus.column("time"), 1e9 + np.arange(ROWS))
    assert indicator.sum(axis=1).min() == 0
    assert indicator.sum(axis=1).max() == 2
    plain = Corpus(store, tmp_path / "plain") if (tmp_path / "plain").mkdir() is None else corpus
    assert plain.column("group") is None
    assert plain.gather(rows[:5]).weights is None


def test_mapped_and_copied_arrays_have_equal_dtypes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.array([3, 250, 3])
    mapped = Corpus(store, tmp_path).gather(rows)
    monkeypatch.setattr(module, "MAPPED_BYTES", 0)
    for other in (Corpus(store, tmp_path).gather(rows), Corpus(store, tmp_path).rows(0, 3)):
        assert [(a.dtype, a.flags.writeable) for a in mapped[:4]] == [(a.dtype, a.flags.writeable) for a in other[:4]]


def test_only_needed_shards_are_decoded(corpus: Corpus, tmp_path: Path) -> None:
    assert decoded(tmp_path) == []
    corpus.rows(45, 75)
    assert decoded(tmp_path) == [2, 3]
    corpus.gather(np.array([289, 0, 288]))
    assert decoded(tmp_path) == [0, 2, 3, 14]
    corpus.rows(0, ROWS)
    assert decoded(tmp_path) == list(range(15))


def test_threads_read_a_shard_once(corpus: Corpus, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = Store.read

    def counted(self: Store, shard: int, *, ids: bool = False) -> object:
        read.append(shard)
        time.sleep(0.002)  # the other threads come by meanwhile
        return original(self, shard, ids=ids)

    monkeypatch.setattr(Store, "read", counted)
    X, _ = read_shards(store.folder)
    del read[:]
    right: list[bool] = []

    def work(number: int) -> None:
        rows = np.random.default_rng(number).permutation(ROWS)
        parts = [dense(store, corpus.gather(part))[0] for part in np.array_split(rows, 7)]
        right.append(np.array_equal(np.concatenate(parts), X[rows].toarray()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 4
    assert sorted(read) == list(range(15))


def test_two_corpora_share_a_folder(
    corpus: Corpus, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.rows(0, ROWS)
    monkeypatch.setattr(Store, "read", lambda *_, **__: pytest.fail("it was there already"))
    values, _ = dense(store, Corpus(store, tmp_path).rows(5, 9))
    monkeypatch.undo()
    np.testing.assert_array_equal(values, read_shards(store.folder)[0][5:9].toarray())


def _read_slowly(folder: str, scratch: str) -> None:
    original = Store.read

    def slow(self: Store, shard: int, *, ids: bool = False) -> object:
        time.sleep(0.05)
        return original(self, shard, ids=ids)

    Store.read = slow  # type: ignore[method-assign]
    Corpus(Store.open(folder), Path(scratch)).rows(0, ROWS)


def test_after_a_kill_others_complete_the_files(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    X, _ = read_shards(store.folder)
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_read_slowly, args=(str(store.folder), str(tmp_path)))
    process.start()
    corpus = Corpus(store, tmp_path)
    deadline = time.monotonic() + 60
    while not 1 <= len(decoded(tmp_path)) < 15:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)  # it may have locked a shard: others do not wait for long
    values, _ = dense(store, corpus.rows(0, ROWS))
    np.testing.assert_array_equal(values, X.toarray())
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    values, _ = dense(store, Corpus(store, tmp_path).rows(0, ROWS))
    np.testing.assert_array_equal(values, X.toarray())


def test_the_oldest_corpus_is_closed(store: Store, tmp_path: Path) -> None:
    first = open_corpus(store, tmp_path / "0")
    assert open_corpus(store, tmp_path / "0") is first
    for number in range(1, module.MAX_OPEN + 1):
        open_corpus(store, tmp_path / str(number)).rows(0, 1)
    assert not list((tmp_path / "0").iterdir())
    np.testing.assert_array_equal(first.rows(0, 5)[3], store.labels()[:5])  # still usable
    assert open_corpus(store, tmp_path / "0") is not first


def _open_on_worker(folder: str) -> str:
    return str(open_corpus(Store.open(folder), host_folder())._folder)


def test_local_workers_share_a_folder(store: Store, tmp_path: Path) -> None:
    with connect(ClusterOptions(workers=2), tmp_path / "scratch") as client:
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])
        folders = client.gather(
            [client.submit(_open_on_worker, str(store.folder), workers=[address], pure=False) for address in addresses]
        )
        assert len(set(folders)) == 1
        assert Path(folders[0]).is_dir()
    assert not Path(folders[0]).exists()


def test_a_shard_of_another_size(store: Store, tmp_path: Path) -> None:
    shards = store.shards
    wrong = [*shards[:-1], shards[-1].model_copy(update={"rows": shards[-1].rows + 1})]
    changed = Store(store.folder, store.manifest, ShardTable.of(wrong))
    with raises_code("corrupt-file", "shard-", kind=StorageError):
        Corpus(changed, tmp_path).rows(280, 285)


def test_a_full_disk(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with raises_code("disk-full", tmp_path, kind=StorageError):
        corpus.rows(0, 5)
    monkeypatch.undo()
    assert decoded(tmp_path) == []
    corpus.rows(0, 5)
    assert decoded(tmp_path) == [0]


def test_a_truncated_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAPPED_BYTES", 0)
    corpus = Corpus(store, tmp_path)
    corpus.rows(0, ROWS)
    os.truncate(tmp_path / "indices", 16)
    with raises_code("io-error", tmp_path, kind=StorageError):
        corpus.gather(np.arange(100))


# ----------------------------------------------------------------------------------------------------------------------
# One folder for the processes of a host: shared, laid out together, private, and removed with its last user.


SHARDS = 20
PROCESSES = multiprocessing.get_context("forkserver")  # forks of a process that has imported this module
PROCESSES.set_forkserver_preload([__name__])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_folder_on_host_is_of_its_user_alone(tmp_path: Path) -> None:
    folder = folder_on_host(tmp_path / "scratch")
    assert folder_on_host(tmp_path / "scratch") == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o770)
    with raises_code("unsafe-folder", folder, kind=StorageError):
        folder_on_host(tmp_path / "scratch")
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(StorageError):
        folder_on_host(tmp_path / "scratch")


def test_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with raises_code("unsafe-folder", kind=StorageError):
        folder_on_host(tmp_path)


def test_the_last_user_removes_the_folder(tmp_path: Path) -> None:
    first, second = SharedFolder(tmp_path, "corpus"), SharedFolder(tmp_path, "corpus")
    (first.path / "file").write_text("content")
    first.release()
    assert (second.path / "file").exists()
    second.release()
    assert not list(tmp_path.iterdir())
    second.release()
    third = SharedFolder(tmp_path, "corpus")
    assert third.path.is_dir()
    del third
    assert not list(tmp_path.iterdir())


def _hold(parent: str, name: str, seconds: float) -> None:
    folder = SharedFolder(Path(parent), name)
    (folder.path / f"{os.getpid()}").touch()
    time.sleep(seconds)


def test_processes_that_were_killed_leave_nothing(tmp_path: Path) -> None:
    killed, running, ended = (
        PROCESSES.Process(target=_hold, args=(str(tmp_path), name, seconds))
        for name, seconds in (("left", 60.0), ("used", 60.0), ("ended", 0.0))
    )
    for process in (killed, running, ended):
        process.start()
    ended.join()
    wait_until(lambda: all((tmp_path / p / f"{q.pid}").exists() for p, q in (("left", killed), ("used", running))))
    assert not (tmp_path / "ended").exists()
    killed.kill()
    killed.join()
    assert (tmp_path / "left").exists()
    other = SharedFolder(tmp_path, "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "other.lock", "used", "used.lock"]
    other.release()
    running.kill()
    running.join()


@pytest.mark.fault(52)
def test_files_that_a_killed_process_left_are_not_used(tmp_path: Path) -> None:
    process = PROCESSES.Process(target=_hold, args=(str(tmp_path), "corpus", 60.0))
    process.start()
    wait_until(lambda: (tmp_path / "corpus" / f"{process.pid}").exists())
    other = SharedFolder(tmp_path, "corpus")
    assert list(other.path.iterdir())  # they share it
    del other
    process.kill()
    process.join()
    assert list((tmp_path / "corpus").iterdir())
    assert not list(SharedFolder(tmp_path, "corpus").path.iterdir())


def _open_and_release(parent: str, times: int) -> None:
    for _ in range(times):
        folder = SharedFolder(Path(parent), "corpus")
        own = folder.path / f"{os.getpid()}"
        own.touch()
        assert own.exists()
        folder.release()


def test_a_folder_is_not_removed_while_it_is_used(tmp_path: Path) -> None:
    processes = [PROCESSES.Process(target=_open_and_release, args=(str(tmp_path), 300)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert not list(tmp_path.iterdir())


def _lay_out(folder: str, log: str, seed: int) -> tuple[int, float]:
    """Read all rows in a random order; every shard that is decoded is a line of the log."""
    original = Store.read

    def slow(self: Store, shard: int, *, ids: bool = False) -> Any:
        with open(log, "a") as file:
            file.write(f"{os.getpid()} {shard}\n")
        time.sleep(0.1)
        return original(self, shard, ids=ids)

    Store.read = slow  # type: ignore[method-assign]
    try:
        corpus = worker_corpus(Store.open(folder))
        rows = corpus.gather(np.random.default_rng(seed).permutation(corpus.n_rows))
    finally:
        Store.read = original  # type: ignore[method-assign]
    return os.getpid(), float(rows.values.sum())


def test_workers_started_by_hand_lay_out_one_copy_together(tmp_path: Path) -> None:
    together, interrupted = (
        make_store(tmp_path / name, rows=rows, shard_rows=rows // SHARDS)
        for name, rows in (("together", 200), ("interrupted", 400))
    )
    with cluster_by_hand(tmp_path, nannies=False) as cluster, Client(cluster.address) as client:
        client.wait_for_workers(2)
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])

        def start(store: Path, log: Path) -> list[Any]:
            return [
                client.submit(_lay_out, str(store), str(log), seed, workers=[address], pure=False)
                for seed, address in enumerate(addresses)
            ]

        def lines(log: Path) -> list[list[int]]:
            return [[int(part) for part in line.split()] for line in log.read_text().splitlines()]

        results = client.gather(start(together, tmp_path / "log"))
        found = lines(tmp_path / "log")
        assert sorted(shard for _, shard in found) == list(range(SHARDS))
        assert {process for process, _ in found} == {process for process, _ in results}
        assert {total for _, total in results} == {float(read_shards(together)[0].sum())}

        futures = start(interrupted, tmp_path / "log2")
        wait_until(lambda: (tmp_path / "log2").exists() and len({p for p, _ in lines(tmp_path / "log2")}) == 2)
        killed = results[0][0]
        os.kill(killed, signal.SIGKILL)
        assert futures[1].result()[1] == float(read_shards(interrupted)[0].sum())
        found = lines(tmp_path / "log2")
        assert {shard for _, shard in found} == set(range(SHARDS))
        again = len(found) - SHARDS
        assert again <= 1  # what the other one was decoding
        (folder,) = (tmp_path / "scratch").glob("*/sparseoco-*")
        assert len(list(folder.iterdir())) == 4  # two corpora and their locks
    assert not list(folder.iterdir())
