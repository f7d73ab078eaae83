"""The store by columns is the store, transposed: whatever the shards, and wherever a run was killed."""

import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from sparseoco import read_shards
from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.execution.pool import TaskPool
from sparseoco.store import transpose as module
from sparseoco.store.corpus import weighted_corpus
from sparseoco.store.shards import Store
from sparseoco.store.terms import term_weights
from sparseoco.store.transpose import range_edges, transpose, transposed_labels
from sparseoco.store.weighting import COUNTS, Weighting
from tests.support.damage import KINDS, damage
from tests.support.errors import raises_code
from tests.support.stores import make_store


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(), tmp_path_factory.mktemp("dask")) as client:
        yield client


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("shard_rows", "nonzeros"), [(300, 10**6), (41, 500), (100, 150)])
def test_as_scipy_has_it(
    shard_rows: int, nonzeros: int, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RANGE_NONZEROS", nonzeros)
    store = Store.open(make_store(tmp_path / "store", shard_rows=shard_rows))
    columns = transpose(client, store, tmp_path)
    X, _ = read_shards(store.folder)
    indptr, indices, counts = X.tocsc().indptr, X.tocsc().indices, X.tocsc().data
    parts = [columns.read(shard) for shard in range(columns.n_shards)]
    assert (columns.n_rows, columns.n_features) == (store.n_features, store.n_rows)
    assert sum(part.labels.size for part in parts) == store.n_features
    np.testing.assert_array_equal(np.concatenate([np.diff(part.indptr) for part in parts]), np.diff(indptr))
    np.testing.assert_array_equal(np.concatenate([part.indices for part in parts]), indices)
    np.testing.assert_array_equal(np.concatenate([part.counts for part in parts]), counts)
    labels, weights = transposed_labels(columns)
    np.testing.assert_array_equal(labels, store.labels())
    assert weights is None
    assert not (columns.folder / "pieces").exists()


def test_weights_are_transposed(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RANGE_NONZEROS", 777)
    store = Store.open(make_store(tmp_path / "store", shard_rows=41))
    weighting = Weighting(tf="log", idf=True, norm="l2")
    columns = transpose(client, store, tmp_path, weighting)
    assert columns.folder != transpose(client, store, tmp_path).folder
    rows = weighted_corpus(store, tmp_path, term_weights(store, weighting)).rows(0, store.n_rows)
    expected = csr_matrix((rows[2], rows[1], rows[0]), (store.n_rows, store.n_features)).tocsc()
    parts = [columns.read(shard) for shard in range(columns.n_shards)]
    np.testing.assert_array_equal(np.concatenate([part.indices for part in parts]), expected.indices)
    np.testing.assert_array_equal(np.concatenate([part.counts for part in parts]), expected.data)


def test_ranges_do_not_depend_on_the_shards_of_rows(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RANGE_NONZEROS", 777)
    made = []
    for shard_rows in (300, 41):
        store = Store.open(make_store(tmp_path / f"{shard_rows}", shard_rows=shard_rows))
        columns = transpose(client, store, tmp_path)
        made.append([columns.folder / entry.file for entry in columns.shards])
    assert [path.name for path in made[0]] == [path.name for path in made[1]]
    assert len(made[0]) > 3


def test_killed_and_run_again_gives_the_same_bytes(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RANGE_NONZEROS", 1500)
    store = Store.open(make_store(tmp_path / "store"))
    want = contents(transpose(client, store, tmp_path / "undisturbed").folder)
    commit, write = module.commit_json, module.write_checkpoint
    for stop in range(1, 9):
        folder, calls = tmp_path / f"{stop}", []

        def dying(*arguments: object, stop: int = stop, calls: list[object] = calls) -> object:
            calls.append(arguments)
            if len(calls) == stop:
                raise KeyboardInterrupt
            return arguments

        with monkeypatch.context() as patch:
            patch.setattr(module, "write_checkpoint", lambda *a, dying=dying: write(*dying(*a)))
            patch.setattr(module, "commit_json", lambda *a, dying=dying: commit(*dying(*a)))
            patch.setattr(TaskPool, "call", lambda pool, function, *arguments: function(*arguments))
            patch.setattr(TaskPool, "map", lambda pool, function, calls: [function(*call) for call in calls])
            try:
                transpose(client, store, folder)
            except KeyboardInterrupt:
                assert not list(folder.rglob("manifest-*"))
        assert contents(transpose(client, store, folder).folder) == want


def test_made_once(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    first = transpose(client, store, tmp_path)
    monkeypatch.setattr(TaskPool, "run", None)
    assert transpose(client, store, tmp_path).manifest == first.manifest


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskPool, "call", lambda pool, function, *arguments: function(*arguments))
    monkeypatch.setattr(TaskPool, "map", lambda pool, function, calls: [function(*call) for call in calls])


@pytest.mark.fault(52)
@pytest.mark.usefixtures("in_this_process")
def test_damaged_files_of_an_earlier_run_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that was killed before its end, or of one that was complete."""
    store, rng = Store.open(make_store(tmp_path / "store")), random.Random(0)
    want = contents(transpose(None, store, tmp_path / "undisturbed").folder)

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "commit_manifest", kill)
        transpose(None, store, tmp_path / "killed")
    number = 0
    for source in (tmp_path / "undisturbed", tmp_path / "killed"):
        for name in contents(source):
            folder = shutil.copytree(source, tmp_path / f"{number}")
            kinds = KINDS[1:] if name.endswith(".npz") else KINDS  # some bits of a zip file mean nothing
            damage(folder / name, kinds[number % len(kinds)], rng)
            assert contents(transpose(None, store, folder).folder) == want, name
            number += 1
    assert number > 9


def test_two_runs_at_once_get_their_own(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    folders = [tmp_path / f"run-{i}" / "columns" for i in range(2)]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda folder: module._write(client, store, folder, COUNTS, intercept=False), folders))
    assert made[0] == made[1]
    for folder, manifest in zip(folders, made, strict=True):
        assert all((folder / entry.file).exists() for entry in Store(folder, manifest).shards)


def test_corrupt_files_are_not_read(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    columns = transpose(client, store, tmp_path)
    path = columns.folder / columns.shards[0].file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with raises_code("corrupt-file", path, kind=StorageError):
        columns.read(0)


def test_a_corrupt_shard_of_rows_is_reported(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    (store.folder / store.shards[1].file).write_bytes(b"PAR1")
    with raises_code("corrupt-file", store.shards[1].file, kind=StorageError):
        transpose(client, store, tmp_path)


@settings(max_examples=50, deadline=None)
@given(
    frequencies=st.lists(st.integers(0, 3 * module.RANGE_NONZEROS), min_size=1, max_size=30),
    more=st.floats(1.0, 4.0),
)
def test_ranges_are_full_but_not_too_full(frequencies: list[int], more: float) -> None:
    nonzeros = round(more * sum(frequencies))
    edges = range_edges(np.array(frequencies), nonzeros)
    assert edges[0] == 0
    assert edges[-1] == len(frequencies)
    sizes = [more * sum(frequencies[first:stop]) for first, stop in pairwise(edges)]
    for (first, stop), size in zip(pairwise(edges), sizes, strict=True):
        assert stop > first
        assert stop == first + 1 or size <= module.RANGE_NONZEROS * 1.001
    for a, b in pairwise(sizes):  # or they would be one
        assert a + b >= module.RANGE_NONZEROS * 0.999
