"""Tables of a store that grow, the terms, and columns of them."""

import hashlib
import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.execution.pool import TaskPool
from sparseoco.store import transpose as transposing
from sparseoco.store.corpus import weighted_corpus
from sparseoco.store.entries import ShardEntry, ShardTable, SourceEntry, SourceTable, add_entries, read_shard_table
from sparseoco.store.manifest import Manifest, commit_manifest, latest_manifest
from sparseoco.store.shards import Store
from sparseoco.store.terms import term_weights
from sparseoco.store.transpose import range_edges, transpose, transposed_labels
from sparseoco.store.weighting import COUNTS, Weighting
from tests.support.damage import KINDS, damage, flip
from tests.support.errors import raises_code
from tests.support.folders import folder_bytes
from tests.support.stores import make_store

# ----------------------------------------------------------------------------------------------------------------------


def shard(number: int) -> ShardEntry:
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    return ShardEntry(
        file=f"shard-{digest[:24]}.parquet",
        bytes=1000 + number,
        sha256=digest,
        rows=number % 7,
        nonzeros=5 * number,
        counts="float64" if number % 5 == 3 else "uint16",
        source=number // 2,
        labels=number if number % 2 else None,
    )


def source(number: int) -> SourceEntry:
    modified = number if number % 3 else None
    return SourceEntry(path=f"/texts/{number}.jsonl", bytes=number, modified_ns=modified, sha256="", rows=number)


def first_manifest(folder: Path) -> Manifest:
    """The manifest of a store without shards and sources."""
    manifest = Store.open(make_store(folder)).manifest
    return manifest.model_copy(update=add_entries(folder, None, []))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return first_manifest(tmp_path_factory.mktemp("store"))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=14))
def test_any_ingests_give_the_same_tables_and_digest(
    tmp_path_factory: pytest.TempPathFactory, empty: Manifest, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    manifest, stop = empty.model_copy(update=add_entries(folder, None, [])), 0
    for version, size in enumerate(sizes, 2):
        first, stop = stop, stop + size
        added = add_entries(folder, manifest, map(shard, range(first, stop)), map(source, range(first, stop)))
        manifest = manifest.model_copy(update={**added, "version": version})
        commit_manifest(folder, manifest)
        assert list(read_shard_table(folder, manifest.increment)) == [shard(number) for number in range(first, stop)]
    whole = empty.model_copy(update=add_entries(folder, None, map(shard, range(stop)), map(source, range(stop))))
    if sizes:
        assert latest_manifest(folder) == manifest
    assert manifest.digest == whole.digest
    for name in ("n_shards", "rows", "nonzeros", "bytes", "n_sources"):
        assert getattr(manifest, name) == getattr(whole, name)
    shards, sources = read_shard_table(folder, manifest), SourceTable.read(folder, manifest.source_listing)
    assert (shards, sources) == (read_shard_table(folder, whole), SourceTable.read(folder, whole.source_listing))
    assert list(shards) == [shard(number) for number in range(stop)]
    assert list(sources) == [source(number) for number in range(stop)]


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ShardTable.of(map(shard, range(50)))
    made = []
    monkeypatch.setattr(ShardTable, "entry", staticmethod(lambda **fields: made.append(fields) or ShardEntry(**fields)))
    assert table.row_offsets.tolist() == np.cumsum([0, *(k % 7 for k in range(50))]).tolist()
    assert table.nonzero_offsets[-1] == 5 * 49 * 25
    assert table.label_offsets[-1] == sum(range(1, 50, 2))
    assert table.counts_dtypes == ["float64", "uint16"]
    part = table[10:20]
    assert part.row_offsets[-1] == sum(k % 7 for k in range(10, 20))
    assert not made
    assert (table[3], table[-1], part[0]) == (shard(3), shard(49), shard(10))
    assert len(made) == 3
    with pytest.raises(IndexError):
        table[50]
    assert len(ShardTable.of([])) == len(SourceTable.of([])) == 0
    assert ShardTable.of([]).row_offsets.tolist() == [0]


@pytest.mark.fault(36)
def test_opening_makes_no_object_per_shard(tmp_path: Path, empty: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 shards are opened in 0.1 seconds."""
    some = ShardTable.of(map(shard, range(1000)))
    many = ShardTable(pa.concat_tables([some.table] * 100))
    manifest = empty.model_copy(update=add_entries(tmp_path, None, many, map(source, range(2000))))
    commit_manifest(tmp_path, manifest)

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("an entry was made")

    for kind in (ShardTable, SourceTable):
        monkeypatch.setattr(kind, "entry", fail)
    begin = time.process_time()
    store = Store.open(tmp_path)
    assert store.shards.row_offsets[-1] == store.n_rows == 100 * some.row_offsets[-1]
    assert time.process_time() - begin < 0.1
    assert store.counts_dtype == np.float64
    assert store.sources.column("rows").sum() == 1999 * 1000


@pytest.mark.parametrize("column", ["rows", "nonzeros", "source", "labels"])
def test_a_listing_that_cannot_be_true(tmp_path: Path, empty: Manifest, column: str) -> None:
    table = ShardTable.of(map(shard, range(9))).table
    wrong = table.set_column(
        table.schema.get_field_index(column), column, pa.array([-1, *table[column].to_pylist()[1:]], pa.int64())
    )
    manifest = empty.model_copy(update=add_entries(tmp_path, None, ShardTable(wrong)))
    with raises_code("corrupt-file", manifest.shard_listing.file, kind=StorageError):
        read_shard_table(tmp_path, manifest)


# ----------------------------------------------------------------------------------------------------------------------
# The store by columns is the store, transposed: whatever the shards, and wherever a run was killed.


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(), tmp_path_factory.mktemp("dask")) as client:
        yield client


@pytest.mark.parametrize(("shard_rows", "nonzeros"), [(300, 10**6), (41, 500), (100, 150)])
def test_as_scipy_has_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_rows: int, nonzeros: int
) -> None:
    monkeypatch.setattr(transposing, "RANGE_NONZEROS", nonzeros)
    store, made = Store.open(make_store(tmp_path / "store", features=60, shard_rows=shard_rows)), set()
    for weighting in (COUNTS, Weighting(tf="log", idf=True, norm="l2")):
        columns = transpose(client, store, tmp_path, weighting)
        rows = weighted_corpus(store, tmp_path, term_weights(store, weighting)).rows(0, store.n_rows)
        expected = csr_matrix((rows[2], rows[1], rows[0]), (store.n_rows, store.n_features)).tocsc()
        parts = [columns.read(shard) for shard in range(columns.n_shards)]
        assert (columns.n_rows, columns.n_features) == (store.n_features, store.n_rows)
        assert sum(part.labels.size for part in parts) == store.n_features
        sizes = np.concatenate([np.diff(part.indptr) for part in parts])
        np.testing.assert_array_equal(sizes, np.diff(expected.indptr))
        np.testing.assert_array_equal(np.concatenate([part.indices for part in parts]), expected.indices)
        np.testing.assert_array_equal(np.concatenate([part.counts for part in parts]), expected.data)
        labels, weights = transposed_labels(columns)
        np.testing.assert_array_equal(labels, store.labels())
        assert weights is None
        assert not (columns.folder / "pieces").exists()
        made.add(columns.folder)
        with monkeypatch.context() as patch:
            patch.setattr(TaskPool, "run", None)  # it is made once
            assert transpose(client, store, tmp_path, weighting).manifest == columns.manifest
    assert len(made) == 2


def test_ranges_are_those_of_any_shards(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transposing, "RANGE_NONZEROS", 777)
    made = []
    for shard_rows in (300, 41):
        store = Store.open(make_store(tmp_path / f"{shard_rows}", shard_rows=shard_rows))
        columns = transpose(client, store, tmp_path)
        made.append([columns.folder / entry.file for entry in columns.shards])
    assert [path.name for path in made[0]] == [path.name for path in made[1]]
    assert len(made[0]) > 3


@pytest.mark.fault(52)
def test_damaged_files_of_an_earlier_run_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that was killed before its end, or of one that was complete; in this process."""
    monkeypatch.setattr(TaskPool, "call", lambda pool, function, *arguments: function(*arguments))
    monkeypatch.setattr(TaskPool, "map", lambda pool, function, calls: [function(*call) for call in calls])
    store, rng = Store.open(make_store(tmp_path / "store")), random.Random(0)
    want = folder_bytes(transpose(None, store, tmp_path / "undisturbed").folder)
    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr(transposing, "commit_manifest", None)
        transpose(None, store, tmp_path / "killed")
    number = 0
    for source in (tmp_path / "undisturbed", tmp_path / "killed"):
        for name in folder_bytes(source):
            folder = shutil.copytree(source, tmp_path / f"{number}")
            kinds = KINDS[1:] if name.endswith(".npz") else KINDS  # some bits of a zip file mean nothing
            damage(folder / name, kinds[number % len(kinds)], rng)
            assert folder_bytes(transpose(None, store, folder).folder) == want, name
            number += 1
    assert number > 9


def test_two_runs_at_once_get_their_own(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    folders = [tmp_path / f"run-{i}" / "columns" for i in range(2)]
    write = partial(transposing._write, client, store, weighting=COUNTS, intercept=False)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(write, folders))
    assert made[0] == made[1]
    for folder, manifest in zip(folders, made, strict=True):
        assert all((folder / entry.file).exists() for entry in Store(folder, manifest).shards)


def test_corrupt_shards_are_reported(client: Client, tmp_path: Path) -> None:
    """Of columns as of rows."""
    store = Store.open(make_store(tmp_path / "store"))
    columns = transpose(client, store, tmp_path)
    flip(columns.folder / columns.shards[0].file)
    with raises_code("corrupt-file", columns.folder / columns.shards[0].file, kind=StorageError):
        columns.read(0)
    flip(store.folder / store.shards[1].file)
    with raises_code("corrupt-file", store.shards[1].file, kind=StorageError):
        transpose(client, store, tmp_path / "other")


@settings(max_examples=50, deadline=None)
@given(
    frequencies=st.lists(st.integers(0, 3 * transposing.RANGE_NONZEROS), min_size=1, max_size=30),
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
        assert stop == first + 1 or size <= transposing.RANGE_NONZEROS * 1.001
    for a, b in pairwise(sizes):  # or they would be one
        assert a + b >= transposing.RANGE_NONZEROS * 0.999
