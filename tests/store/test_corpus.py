"""The rows of a corpus for training, in memory, in a folder of one process or of several; weights and terms."""

import os
import signal
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer

from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.kernels.columns import RowBatch
from sparseoco.storage.temporary import SharedFolder
from sparseoco.store import corpus as module
from sparseoco.store import shards as store_files
from sparseoco.store.corpus import Corpus, folder_on_host, open_corpus, weighted_corpus
from sparseoco.store.entries import read_table
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import Store, add_files, read_shards, write_quarantine, write_terms
from sparseoco.store.terms import TermWeights, inverse_document_frequencies, smooth_idf, term_weights
from sparseoco.store.weighting import COUNTS, TFIDF, FeatureOptions, Weighting
from tests.store import processes
from tests.store.processes import PROCESSES
from tests.support.count_vectorizer import tfidf
from tests.support.errors import raises_code
from tests.support.processes import forked_workers, wait_until
from tests.support.stores import WEIGHTINGS, make_store, with_columns

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


def dense(store: Store, csr: RowBatch) -> np.ndarray:
    return csr_matrix((csr[2], csr[1], csr[0]), (len(csr.labels), store.n_features)).toarray()


def decoded(folder: Path) -> list[int]:
    return np.flatnonzero(np.fromfile(folder / "ready", np.uint8)).tolist()


def reads(corpus: Corpus) -> Iterator[tuple[np.ndarray, RowBatch]]:
    """Rows, and what a corpus gives for them, in every way to read it."""
    random = np.random.default_rng(1)
    for bounds in ((0, ROWS), (0, 1), (19, 21), (20, 40), (133, 133), (ROWS, ROWS), (271, ROWS)):
        yield np.arange(*bounds), corpus.rows(*bounds)
    chosen = [random.integers(0, ROWS, size) for size in (0, 1, 50, 1000)]
    for rows in (*chosen, np.r_[5:40, 7, 40, 41, ROWS - 1, 0, 1], random.permutation(ROWS)):
        yield rows, corpus.gather(rows)
    starts, stops = np.array([0, 19, 60, 60, 271]), np.array([1, 45, 60, 61, ROWS])
    rows = np.concatenate([np.arange(*bounds) for bounds in zip(starts, stops, strict=True)])
    yield rows, corpus.ranges(starts, stops)
    for part in (random.permutation(rows), rows[:0]):
        yield part, corpus.buffered(starts, stops).gather(part)
    yield np.arange(ROWS), corpus.whole()


@pytest.mark.parametrize("multilabel", [False, True])
def test_every_way_to_read_gives_the_rows(corpus: Corpus, store: Store, tmp_path: Path, multilabel: bool) -> None:
    if multilabel:
        store = Store.open(with_columns(store.folder, tmp_path / "store", multilabel=True))
        corpus = Corpus(store, tmp_path)
        np.testing.assert_array_equal(corpus.column("group"), np.arange(ROWS) // 10)
        np.testing.assert_array_equal(corpus.column("time"), 1e9 + np.arange(ROWS))
    X, labels = read_shards(store.folder)[0].toarray(), store.labels()
    labels = labels.toarray() if multilabel else labels
    kinds = [np.int64, np.int32, np.uint16, np.bool_ if multilabel else np.int32]
    for rows, batch in reads(corpus):
        np.testing.assert_array_equal(dense(store, batch), X[rows])
        np.testing.assert_array_equal(batch.labels, labels[rows])
        if multilabel:
            np.testing.assert_array_equal(batch.weights, store.column("weight")[rows], strict=True)
        else:
            assert batch.weights is corpus.column("weight") is None
        assert [array.dtype for array in batch[:4]] == kinds
        assert batch[0][0] == 0
    some = corpus.gather(np.array([3, 250, 3]))
    assert all(array.flags.writeable for array in some[:4])  # compiled code has one type


def test_only_needed_shards_are_decoded(corpus: Corpus, tmp_path: Path) -> None:
    assert decoded(tmp_path) == []
    corpus.rows(45, 75)
    assert decoded(tmp_path) == [2, 3]
    corpus.gather(np.array([289, 0, 288]))
    assert decoded(tmp_path) == [0, 2, 3, 14]
    corpus.rows(0, ROWS)
    assert decoded(tmp_path) == list(range(15))


def lines(log: Path) -> list[list[int]]:
    return [[int(part) for part in line.split()] for line in log.read_text().splitlines()]


def test_threads_read_a_shard_once(corpus: Corpus, store: Store, tmp_path: Path) -> None:
    X, _ = read_shards(store.folder)

    def work(number: int) -> bool:
        rows = np.random.default_rng(number).permutation(ROWS)
        parts = [dense(store, corpus.gather(part)) for part in np.array_split(rows, 7)]
        return np.array_equal(np.concatenate(parts), X[rows].toarray())

    with (
        processes.slow_reads(0.002, tmp_path / "log"),
        ThreadPoolExecutor(4) as threads,
    ):  # the others come by meanwhile
        assert list(threads.map(work, range(4))) == [True] * 4
    assert sorted(shard for _, shard in lines(tmp_path / "log")) == list(range(15))


def test_corpora_share_a_folder(corpus: Corpus, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus.rows(0, ROWS)
    monkeypatch.setattr(Store, "read", lambda *_, **__: pytest.fail("it was there already"))
    values = dense(store, Corpus(store, tmp_path).rows(5, 9))
    monkeypatch.undo()
    np.testing.assert_array_equal(values, read_shards(store.folder)[0][5:9].toarray())


def test_after_a_kill_others_complete_the_files(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    X, _ = read_shards(store.folder)
    process = PROCESSES.Process(target=processes.read_slowly, args=(str(store.folder), str(tmp_path)))
    process.start()
    corpus = Corpus(store, tmp_path)
    wait_until(lambda: 1 <= len(decoded(tmp_path)) < 15)
    os.kill(process.pid, signal.SIGSTOP)  # it may have locked a shard: others do not wait for long
    values = dense(store, corpus.rows(0, ROWS))
    np.testing.assert_array_equal(values, X.toarray())
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    values = dense(store, Corpus(store, tmp_path).rows(0, ROWS))
    np.testing.assert_array_equal(values, X.toarray())


def test_the_oldest_corpus_is_closed(store: Store, tmp_path: Path) -> None:
    first = open_corpus(store, tmp_path / "0")
    assert open_corpus(store, tmp_path / "0") is first
    for number in range(1, module.MAX_OPEN + 1):
        open_corpus(store, tmp_path / str(number)).rows(0, 1)
    assert not list((tmp_path / "0").iterdir())
    np.testing.assert_array_equal(first.rows(0, 5)[3], store.labels()[:5])  # still usable
    assert open_corpus(store, tmp_path / "0") is not first


def test_local_workers_share_a_folder(store: Store, tmp_path: Path) -> None:
    with forked_workers(), connect(ClusterOptions(workers=2), tmp_path / "scratch") as client:
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])
        folders = client.gather(
            [
                client.submit(processes.open_on_worker, str(store.folder), workers=[address], pure=False)
                for address in addresses
            ]
        )
        assert len(set(folders)) == 1
        assert Path(folders[0]).is_dir()
    assert not Path(folders[0]).exists()


def test_a_full_disk(corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "pwrite", Mock(side_effect=OSError(28, "No space left on device")))
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


@pytest.mark.fault(52)
def test_processes_that_were_killed_leave_nothing(tmp_path: Path) -> None:
    """The files that they left are removed, and not used by the next ones."""
    killed, running, ended = (
        PROCESSES.Process(target=processes.hold, args=(str(tmp_path), name, seconds))
        for name, seconds in (("left", 60.0), ("used", 60.0), ("ended", 0.0))
    )
    for process in (killed, running, ended):
        process.start()
    ended.join()
    wait_until(lambda: all(list(tmp_path.glob(f"{p}.*/{q.pid}")) for p, q in (("left", killed), ("used", running))))
    assert not list(tmp_path.glob("ended*"))
    shared = SharedFolder(tmp_path, "left")
    assert list(shared.path.iterdir())
    shared.release()
    killed.kill()
    killed.join()
    assert list(tmp_path.glob("left*/*"))
    again, other = SharedFolder(tmp_path, "left"), SharedFolder(tmp_path, "other")
    assert not list(again.path.iterdir())
    assert sorted(path.stem.partition(".")[0] for path in tmp_path.iterdir()) == ["left", "other", "used"]
    for folder in (again, other):
        folder.release()
    running.kill()
    running.join()


def test_a_folder_is_not_removed_while_it_is_used(tmp_path: Path) -> None:
    users = [PROCESSES.Process(target=processes.open_and_release, args=(str(tmp_path), 300)) for _ in range(3)]
    for process in users:
        process.start()
    for process in users:
        process.join()
    assert [process.exitcode for process in users] == [0, 0, 0]
    assert not list(tmp_path.iterdir())


def test_workers_started_by_hand_lay_out_one_copy_together(tmp_path: Path) -> None:
    together, interrupted = (
        make_store(tmp_path / name, rows=rows, shard_rows=rows // SHARDS)
        for name, rows in (("together", 200), ("interrupted", 400))
    )
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster) as client:
        arguments = cluster.scheduler_address, str(tmp_path / "scratch")
        workers = [PROCESSES.Process(target=processes.work, args=arguments) for _ in range(2)]
        for worker in workers:
            worker.start()
        client.wait_for_workers(2)
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])

        def start(store: Path, log: Path) -> list[Any]:
            return [
                client.submit(processes.lay_out, str(store), str(log), seed, workers=[address], pure=False)
                for seed, address in enumerate(addresses)
            ]

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
        assert len(list(folder.iterdir())) == 2  # two corpora
    for worker in workers:
        worker.join()
    assert not list(folder.iterdir())


# ----------------------------------------------------------------------------------------------------------------------
# Weights of terms, against scikit-learn's `TfidfTransformer`.


def weighted(X: csr_matrix, weights: TermWeights, dtype: Any = np.float64) -> csr_matrix:
    return csr_matrix((weights.values(X.indptr, X.indices, X.data, dtype), X.indices, X.indptr), X.shape)


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: w.label)
def test_values_equal_scikit_learns(store: Store, tmp_path: Path, weighting: Weighting) -> None:
    """They are cast once, and do not depend on how rows are read."""
    X, _ = read_shards(store.folder)
    weights = term_weights(store, weighting)
    corpus, single = (weighted_corpus(store, tmp_path, weights, dtype) for dtype in (np.float64, np.float32))
    indptr, indices, values, labels, _ = corpus.rows(0, store.n_rows)
    np.testing.assert_array_equal(labels, store.labels())
    got = csr_matrix((values, indices, indptr), X.shape)
    np.testing.assert_allclose(got.toarray(), tfidf(weighting).fit_transform(X).toarray(), rtol=1e-12, atol=0)
    if weighting.is_identity:
        assert corpus is open_corpus(store, tmp_path)  # counts as they are
        return
    np.testing.assert_array_equal(single.rows(0, store.n_rows)[2], values.astype(np.float32), strict=True)
    order = np.random.default_rng(0).permutation(store.n_rows)
    gathered = corpus.gather(order)
    for i, row in enumerate(order):
        mine, there = slice(*gathered[0][i : i + 2]), slice(*indptr[row : row + 2])
        np.testing.assert_array_equal(gathered[2][mine], values[there])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6000), min_size=4, max_size=4), min_size=1, max_size=6),
    st.sampled_from(WEIGHTINGS),
    st.sampled_from([np.uint16, np.uint32, np.float64]),
    st.sampled_from([1, 1e-3]),
)
def test_any_counts(rows: list[list[int]], weighting: Weighting, dtype: Any, unit: float) -> None:
    X = csr_matrix(np.array(rows, dtype) * (unit if dtype is np.float64 else dtype(1)))
    assume(X.nnz)
    idf = smooth_idf(np.bincount(X.indices, minlength=4), len(rows))
    got = weighted(X, TermWeights(weighting, idf))
    np.testing.assert_allclose(got.toarray(), tfidf(weighting).fit_transform(X).toarray(), rtol=1e-12, atol=0)


def test_pointers_may_start_anywhere() -> None:
    X = csr_matrix(np.array([[1.0, 3.0, 0.0], [0.0, 4.0, 2.0], [5.0, 0.0, 0.0]]))
    weights = TermWeights(Weighting(tf="log", norm="l2"), np.empty(0))
    first = X.indptr[1]
    part = weights.values(X.indptr[1:], X.indices[first:], X.data[first:])
    np.testing.assert_array_equal(part, weights.values(X.indptr, X.indices, X.data)[first:])


@pytest.mark.parametrize("bad", [0.0, -2.0, np.nan])
def test_a_value_without_a_logarithm_is_refused(bad: float) -> None:
    X = csr_matrix((np.array([1.0, bad]), np.array([0, 1]), np.array([0, 2])), (1, 2))
    assert weighted(X, TermWeights(Weighting(tf="binary"), np.empty(0))).data.tolist() == [1.0, 1.0]
    with raises_code("invalid-weighting"):
        weighted(X, TermWeights(Weighting(tf="log"), np.empty(0)))


def test_idf_is_that_of_the_vocabulary(store: Store) -> None:
    X, _ = read_shards(store.folder)
    transformer = TfidfTransformer().fit(X)
    np.testing.assert_allclose(inverse_document_frequencies(store), transformer.idf_, rtol=1e-15)
    assert inverse_document_frequencies(store) is inverse_document_frequencies(store)
    assert term_weights(store, COUNTS).weighting == COUNTS


def test_options_of_features() -> None:
    options = FeatureOptions.model_validate({"tf": ["log", "count", "log"], "idf": True, "norm": "l2"})
    assert [w.label for w in options.weightings] == ["log tf, idf, l2", "counts, idf, l2"]
    assert FeatureOptions().weighting == FeatureOptions().for_values(real=False).weighting == TFIDF
    assert FeatureOptions().for_values(real=True).weighting == COUNTS
    partly = FeatureOptions.model_validate({"tf": "count", "idf": [True, False]})
    assert [w.label for w in partly.for_values(real=True).weightings] == ["counts, idf", "counts"]
    assert Weighting.of({"tf": "log", "idf": True, "norm": "l2", "other": 1}) == options.weightings[0]
    with raises_code("unsupported-combination"):
        _ = options.weighting
    assert [w.label for w in WEIGHTINGS[:2]] == ["counts", "counts, l2"]
    assert len({w.label for w in WEIGHTINGS}) == len(WEIGHTINGS)


# ----------------------------------------------------------------------------------------------------------------------
# Files of terms are merged as they grow: few of them, with the content of all that were added.


def columns(first: int, count: int) -> tuple[np.ndarray, pa.Array, np.ndarray, np.ndarray]:
    features = np.arange(first, first + count)
    return features, pa.array([f"term{n}" for n in features]), features % 5 + 1, features % 3 + 1


def content(folder: Path, files: tuple[FileEntry, ...]) -> pa.Table:
    return pa.concat_tables([read_table(folder, entry) for entry in files], promote_options="permissive")


@settings(max_examples=15)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=25), st.sampled_from([0, 6000, 1 << 20]))
def test_a_vocabulary_in_few_files(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int) -> None:
    folder, files, first = tmp_path_factory.mktemp("terms"), tuple[FileEntry, ...](), 0
    with patch.object(store_files, "MERGED_BYTES", limit):
        for size in sizes:
            added = (write_terms(folder, "vocabulary", *columns(first, size)),) if size else ()
            files, first = add_files(folder, "vocabulary", files, added), first + size
    if files:
        expected = columns(0, first)
        assert content(folder, files).equals(
            pa.table(dict(zip(content(folder, files).column_names, expected, strict=True)))
        )
    if limit == 1 << 20:
        assert all(before.bytes > 2 * after.bytes for before, after in pairwise(files))
    if not limit:
        assert len(files) == sum(size > 0 for size in sizes)


def test_terms_of_hashed_features_are_summed_and_quarantined_rows_stay_in_order(tmp_path: Path) -> None:
    names, rows = tuple[FileEntry, ...](), tuple[FileEntry, ...]()
    for number in range(50):
        names = add_files(tmp_path, "names", names, (write_terms(tmp_path, "names", *columns(3, 4)),))
        row = (f"file-{number}.jsonl", number, 10 * number, "no label")
        rows = add_files(tmp_path, "quarantine", rows, (write_quarantine(tmp_path, [row]),))
    assert content(tmp_path, rows)["line"].to_pylist() == list(range(50))
    assert len(rows) < 6
    table = content(tmp_path, names)
    assert table.num_rows <= 4 * len(names) <= 8
    sums = table.group_by(["feature", "term"]).aggregate([("count", "sum"), ("documents", "sum")])
    features, terms, counts, documents = columns(3, 4)
    assert sorted(tuple(row.values()) for row in sums.to_pylist()) == [
        (int(f), t, 50 * int(c), 50 * int(d))
        for f, t, c, d in zip(features, terms.to_pylist(), counts, documents, strict=True)
    ]
