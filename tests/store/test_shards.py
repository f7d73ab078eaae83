"""Shards, manifests and tables of a store that grow: what is written, read, validated; and the store by columns."""

import hashlib
import itertools
import pickle
import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.execution.clusters import TaskPool
from sparseoco.storage.locations import Location
from sparseoco.store import shards as store_files
from sparseoco.store import transpose as transposing
from sparseoco.store.corpus import Corpus, weighted_corpus
from sparseoco.store.entries import ShardEntry, ShardTable, SourceEntry, SourceTable, add_entries
from sparseoco.store.manifest import (
    FeatureTable,
    LabelTable,
    Manifest,
    commit_manifest,
    latest_manifest,
    read_manifest,
)
from sparseoco.store.shards import LabelSets, ShardRows, Store, open_store, read_shards, write_shard, write_terms
from sparseoco.store.terms import term_weights
from sparseoco.store.transpose import range_edges, transpose, transposed_labels
from sparseoco.store.weighting import COUNTS, TFIDF, Weighting
from tests.support.damage import DELETED, KINDS, damage, flip, forge, stopped_at
from tests.support.errors import raises_code
from tests.support.folders import folder_bytes
from tests.support.stores import make_store, with_columns

# ----------------------------------------------------------------------------------------------------------------------


def test_write_and_read(tmp_path: Path) -> None:
    matrix, terms = read_shards(make_store(tmp_path, shard_rows=70))
    assert matrix.shape == (300, 200)
    assert matrix.has_canonical_format
    assert terms[:2] == ["t0", "t1"]
    again, _ = read_shards(make_store(tmp_path / "other", shard_rows=300))
    assert (matrix != again).nnz == 0
    assert folder_bytes(make_store(tmp_path / "same", shard_rows=300)) == folder_bytes(tmp_path / "other")
    store = Store.open(tmp_path)
    rows = store.read(1, ids=True)
    assert rows.ids.to_pylist()[0] == "d70"
    assert np.array_equal(rows.indptr, matrix.indptr[70:141] - matrix.indptr[70])
    assert np.array_equal(store.labels()[70:140], rows.labels)
    assert np.array_equal(store.document_frequencies(), np.diff(matrix.tocsc().indptr))


def test_shards_are_plain_parquet(tmp_path: Path) -> None:
    import duckdb
    import polars

    store = Store.open(make_store(tmp_path))
    path = tmp_path / store.shards[0].file
    rows = store.read(0)
    expected = rows.indices[: rows.indptr[1]].tolist()
    assert pd.read_parquet(path)["indices"][0].tolist() == expected
    assert polars.read_parquet(path)["indices"][0].to_list() == expected
    assert duckdb.sql(f"select indices from '{path}' limit 1").fetchall() == [(expected,)]


def test_wide_ids_and_counts_keep_their_dtype(tmp_path: Path) -> None:
    rows = ShardRows(
        ids=pa.array(["a"]),
        labels=np.array([0], np.int32),
        indptr=np.array([0, 2]),
        indices=np.array([5, 2**40]),
        counts=np.array([70_000, 1], np.uint32),
    )
    entry = write_shard(tmp_path, rows, n_features=2**41)
    assert entry.counts == "uint32"
    manifest = Store.open(make_store(tmp_path / "s")).manifest
    wide = manifest.features.model_copy(update={"count": 2**41})
    commit_manifest(tmp_path, manifest.model_copy(update={**add_entries(tmp_path, None, [entry]), "features": wide}))
    read = Store.open(tmp_path).read(0)
    assert read.indices.tolist() == [5, 2**40]
    assert read.indices.dtype == np.int64
    assert read.counts.tolist() == [70_000, 1]


@pytest.mark.parametrize("kind", ["classes", "numbers", "multi"])
def test_optional_columns(tmp_path: Path, kind: str) -> None:
    source = Store.open(make_store(tmp_path / "source", rows=60, shard_rows=25))
    folder = with_columns(source.folder, tmp_path / "store", multilabel=kind == "multi", numbers=kind == "numbers")
    store = Store.open(folder)
    rows = store.read(1)
    assert rows.columns["weight"].tolist() == ((np.arange(25, 50) % 4) / 2).tolist()
    assert np.array_equal(store.column("group"), np.arange(60) // 10)
    assert np.array_equal(store.column("time"), 1e9 + np.arange(60))
    if kind == "multi":
        assert np.array_equal(rows.labels.indicator(2), store.labels()[25:50].toarray())
        assert store.labels()[[0, 9]].toarray().tolist() == [[0, 0], [1, 1]]
        assert [entry.labels for entry in store.shards] == [store.read(shard).labels.classes.size for shard in range(3)]
    else:
        expected = source.labels() + (0.25 * np.sin(np.arange(60)) if kind == "numbers" else 0)
        assert np.array_equal(store.labels(), expected)
    with raises_code("missing-column", source.folder, "weight"):
        source.column("weight")


@pytest.mark.fault(12, 13, 14)
@pytest.mark.parametrize("kind", ["manifest", "shards", "shard", "vocabulary"])
def test_a_file_that_is_damaged_anywhere_is_refused(tmp_path: Path, kind: str) -> None:
    """Flipped, cut, empty, missing, renamed, with the content of another: before it is parsed."""
    store = Store.open(make_store(tmp_path, rows=3000, features=1000, shard_rows=1500))
    path = max(tmp_path.glob(f"{kind}-*"))
    data, step = path.read_bytes(), max(1, path.stat().st_size // 20)
    contents = [data[:size] for size in range(0, len(data), step)] + [data[-100:], data[:4] + data[-1000:]]
    contents += [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in range(0, len(data), step)]
    contents.append((tmp_path / store.shards[0].file).read_bytes())

    def read() -> None:
        opened = Store.open(tmp_path)
        opened.vocabulary()
        for shard in range(opened.n_shards):
            opened.read(shard)

    shutil.copy(tmp_path / store.shards[0].file, tmp_path / "shard-copy.parquet")
    (tmp_path / "manifest-zzz.json").write_text("{}")  # files that are not listed are ignored
    read()
    for content in contents:
        path.write_bytes(content)
        if content != data:
            with raises_code("corrupt-file", path, kind=StorageError):
                read()
    path.rename(tmp_path / "renamed")
    with raises_code("not-a-store" if kind == "manifest" else "missing-file", kind=SparseocoError):
        read()


@pytest.mark.parametrize("version", [4, 99])
def test_stores_of_other_versions(tmp_path: Path, version: int) -> None:
    manifest = make_store(tmp_path) / "manifest-00000001.json"
    forge(manifest, ("schema_version",), version)
    forge(manifest, ("shard_segments",), [])
    with raises_code("format-version", manifest, version, kind=StorageError):
        Store.open(tmp_path)


@pytest.mark.fault(9)
def test_two_writers_of_a_version_do_not_mix(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path))
    with raises_code("version-conflict", "version 1", kind=StorageError):
        commit_manifest(tmp_path, store.manifest)
    (tmp_path / "none").mkdir()
    with raises_code("not-a-store", tmp_path / "none", "sparseoco ingest"):
        Store.open(tmp_path / "none")


def test_hashed_features_get_their_most_frequent_term(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path))
    numbers = np.array([3, 2, 1])
    parts = [
        write_terms(tmp_path, "names", np.array([7, 7, 9]), pa.array(["rare", "often", "one"]), numbers, numbers),
        write_terms(tmp_path, "names", np.array([7]), pa.array(["often"]), np.array([5]), np.array([4])),
    ]
    hashed = FeatureTable(kind="hashed", count=16, files=tuple(parts), hash_bits=4)
    commit_manifest(tmp_path, store.manifest.model_copy(update={"version": 2, "features": hashed}))
    table = Store.open(tmp_path).describe(np.array([9, 7, 8])).to_pydict()
    assert table["term"] == ["one", "often (+1 more)", ""]
    assert table["count"] == [1, 10, 0]


# ----------------------------------------------------------------------------------------------------------------------
# Cases 33 and 51 of the faults: metadata that disagree with the data are refused before compiled code runs.
#
# The digests of these stores match: someone computed them again.


def read_all(folder: Path, scratch: Path) -> None:
    """Everything that a search reads."""
    scratch.mkdir()
    store = Store.open(folder)
    store.document_frequencies()
    Corpus(store, scratch).whole()
    store.labels()
    read_shards(folder)


FREQUENCIES = {"file": "x", "bytes": 1, "sha256": "0" * 64}


@pytest.mark.fault(51)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((("features", "count"), count) for count in (0, 150, 201, 10**7)),
        *((("rows",), rows) for rows in (-1, 299)),
        *((("nonzeros",), nonzeros) for nonzeros in (-1, 1)),
        (("version",), 2),
        (("n_shards",), 2),
        (("added", "n_shards"), 4),
        *((("frequencies",), FREQUENCIES | {"file": name}) for name in ("../x", "a/x", "..")),
        (("frequencies",), FREQUENCIES | {"sha256": "0"}),
        (("labels", "classes", 2), DELETED),
        (("labels", "kind"), "multi"),
        (("labels", "kind"), "numbers"),
        (("labels",), {"kind": "numbers", "classes": []}),
        (("columns",), ["weight"]),
        (("features", "kind"), "hashed"),
        (("features", "files"), []),
    ],
)
def test_an_edited_manifest(tmp_path: Path, key: tuple[Any, ...], value: object) -> None:
    folder = make_store(tmp_path / "store", classes=3)
    read_all(folder, tmp_path / "a")
    forge(folder / "manifest-00000001.json", key, value)
    with raises_code("corrupt-file", folder, kind=StorageError):
        read_all(folder, tmp_path / "b")


@pytest.mark.fault(51)
def test_a_smaller_number_of_features_is_refused_by_every_reader(tmp_path: Path) -> None:
    folder = make_store(tmp_path / "store")
    forge(folder / "manifest-00000001.json", ("features", "count"), 150)
    store = Store.open(folder)
    corpus = Corpus(store, tmp_path)
    readers: list[Callable[[], object]] = [
        *(lambda shard=shard: store.read(shard) for shard in range(3)),
        corpus.whole,
        lambda: corpus.rows(0, 2),
        lambda: corpus.gather(np.array([5])),
        store.vocabulary,
        store.document_frequencies,
        lambda: read_shards(folder),
    ]
    for reader in readers:
        with raises_code("corrupt-file", folder, kind=StorageError):
            reader()


@pytest.mark.parametrize("column", ["rows", "nonzeros", "counts", "labels"])
@pytest.mark.fault(51)
def test_an_entry_of_another_shard(tmp_path: Path, column: str) -> None:
    store = Store.open(with_columns(make_store(tmp_path / "a"), tmp_path / "b", multilabel=True))
    entry = store.shards[1]
    value = "uint32" if column == "counts" else getattr(entry, column) - 1
    changed = ShardTable.of([store.shards[0], entry.model_copy(update={column: value}), store.shards[2]])
    with raises_code("corrupt-file", entry.file, kind=StorageError):
        Store(store.folder, store.manifest, changed).read(1)


def test_documents_without_labels_have_the_label_minus_one(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path))
    manifest = store.manifest.model_copy(update={"labels": LabelTable(kind="classes")})
    entry, rows = store.shards[0], store.read(0)
    for label in (-2, -1, 0, 1):
        changed = rows._replace(labels=np.full(entry.rows, label, np.int32))
        if label in (-1, 0):
            store_files.check_shard(tmp_path, entry, manifest, changed)
        else:
            with raises_code("corrupt-file", tmp_path, kind=StorageError):
                store_files.check_shard(tmp_path, entry, manifest, changed)


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": np.array([0, 1, 200], np.int32)},
        {"indices": np.array([0, 1, -1], np.int32)},
        {"indices": np.array([0, 1, 2**31 + 1])},
        {"indices": np.array([0, 1, 2**32 + 1])},
        {"indices": np.array([0, 1], np.int32)},
        {"indptr": np.array([0.0, 2.0, 3.0])},
        {"indices": np.array([0.0, 1.0, 0.0])},
        {"indptr": np.array([0, 2])},
        {"indptr": np.array([0, 4, 3])},
        {"indptr": np.array([0, -1, 3])},
        {"indptr": np.array([1, 2, 3])},
        {"indptr": np.array([0, 2, 2**31 + 3])},
        {"counts": np.array([1, 0, 1], np.uint16)},
        {"counts": np.array([1, 1, 1], np.uint32)},
        {"counts": np.array([1, 1], np.uint16)},
        {"labels": np.array([0, 2], np.int32)},
        {"labels": np.array([0, -1], np.int32)},
        {"labels": np.array([0], np.int32)},
        {"labels": np.array([0.0, np.nan])},
        {"labels": LabelSets(np.array([0, 1, 3]), np.array([0, 1, 2], np.int32))},
        {"labels": LabelSets(np.array([0, 4, 3]), np.array([0, 1, 1], np.int32))},
        {"columns": {"weight": np.array([1, np.inf], np.float32)}},
        {"columns": {"weight": np.array([1, -1], np.float32)}},
        {"columns": {"weight": np.array([1], np.float32)}},
    ],
    ids=str,
)
@pytest.mark.fault(33, 51)
def test_numbers_of_a_shard_that_are_no_positions(tmp_path: Path, changes: dict[str, Any]) -> None:
    store = Store.open(make_store(tmp_path))
    entry = store.shards[0].model_copy(update={"rows": 2, "nonzeros": 3, "labels": 3})
    labels, indptr, indices = np.array([0, 1], np.int32), np.array([0, 2, 3]), np.array([0, 1, 0], np.int32)
    rows = ShardRows(None, labels, indptr, indices, np.ones(3, np.uint16))
    store_files.check_shard(tmp_path, entry, store.manifest, rows)
    changed = rows._replace(**changes)
    with raises_code("corrupt-file", tmp_path, kind=StorageError):
        store_files.check_shard(tmp_path, entry, store.manifest, changed)


def test_a_column_with_nulls_or_of_another_type(tmp_path: Path) -> None:
    for values in (pa.array([1, None], pa.int32()), pa.array([1, 2], pa.int64())):
        with raises_code("corrupt-file", tmp_path, "label", kind=StorageError):
            store_files.check_columns(tmp_path, pa.table({"label": values}), {"label": pa.int32()})


# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_cache() -> None:
    open_store.cache_clear()


def grown(folder: Path, version: int) -> Store:
    """A later version of a store, which has its last shard once more."""
    store = Store.open(folder)
    update = {"version": version, **add_entries(folder, store.manifest, store.shards[-1:])}
    commit_manifest(folder, store.manifest.model_copy(update=update))
    return Store.open(folder)


def test_a_task_opens_the_version_of_the_client(tmp_path: Path) -> None:
    first = Store.open(make_store(tmp_path))
    second = grown(tmp_path, 2)
    for store in (first, second, second.increment):
        found = open_store(pickle.loads(pickle.dumps(store_files.store_reference(store))))
        assert found.manifest == store.manifest
        assert found.shards == store.shards
    assert [len(store.shards) for store in (first, second, second.increment)] == [3, 4, 1]
    assert second.increment.shards[0] == first.shards[2]


def test_a_process_reads_a_store_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = store_files.store_reference(Store.open(make_store(tmp_path)))
    grown(tmp_path, 2)
    read: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path.name), read_bytes(path))[1])
    monkeypatch.setattr(Path, "glob", None)
    stores = [open_store(reference) for _ in range(5)]
    assert {len(store.shards) for store in stores} == {3}
    assert [name.split("-")[0] for name in read] == ["manifest", "shards"]


def test_a_version_that_was_replaced(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path))
    reference = store_files.store_reference(store)
    other: Location = tmp_path / "other"
    make_store(tmp_path / "other", rows=200)
    (tmp_path / "manifest-00000001.json").unlink()
    commit_manifest(tmp_path, read_manifest(other, 1))
    with raises_code("store-changed", tmp_path, "version 1", kind=StorageError):
        open_store(reference)
    with raises_code("missing-file", "manifest-00000007.json", kind=StorageError):
        open_store(reference._replace(version=7))


# ----------------------------------------------------------------------------------------------------------------------
# Tables of a store that grow.


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


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """The manifest of a store without shards and sources."""
    folder = make_store(tmp_path_factory.mktemp("store"))
    return Store.open(folder).manifest.model_copy(update=add_entries(folder, None, []))


@settings(max_examples=12, deadline=None)
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
        assert list(ShardTable.of_version(folder, manifest.increment)) == [
            shard(number) for number in range(first, stop)
        ]
    whole = empty.model_copy(update=add_entries(folder, None, map(shard, range(stop)), map(source, range(stop))))
    if sizes:
        assert latest_manifest(folder) == manifest
    assert manifest.digest == whole.digest
    for name in ("n_shards", "rows", "nonzeros", "bytes", "n_sources"):
        assert getattr(manifest, name) == getattr(whole, name)
    shards, sources = ShardTable.of_version(folder, manifest), SourceTable.read(folder, manifest.source_listing)
    assert (shards, sources) == (ShardTable.of_version(folder, whole), SourceTable.read(folder, whole.source_listing))
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

    for kind in (ShardTable, SourceTable):
        monkeypatch.setattr(kind, "entry", None)
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
        ShardTable.of_version(tmp_path, manifest)


# ----------------------------------------------------------------------------------------------------------------------
# The store by columns is the store, transposed: whatever the shards, and wherever a run was killed.


def test_as_scipy_has_it(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same ranges, whatever the shards."""
    monkeypatch.setattr(transposing, "RANGE_NONZEROS", 500)
    files, folders = dict[Weighting, list[str]](), set()
    stores = [make_store(tmp_path / f"{size}", features=60, shard_rows=size) for size in (300, 41)]
    for store, weighting in itertools.product(map(Store.open, stores), (COUNTS, TFIDF)):
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
        folders.add(columns.folder)
        names = [entry.file for entry in columns.shards]
        assert files.setdefault(weighting, names) == names
        assert len(names) > 3
        with monkeypatch.context() as patch:
            patch.setattr(TaskPool, "run", None)  # it is made once
            assert transpose(client, store, tmp_path, weighting).manifest == columns.manifest
    assert len(folders) == 4


@pytest.mark.fault(52)
def test_damaged_files_of_an_earlier_run_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that was killed before its end, or of one that was complete; in this process."""
    monkeypatch.setattr(TaskPool, "call", lambda pool, function, *arguments: function(*arguments))
    monkeypatch.setattr(TaskPool, "map", lambda pool, function, calls: [function(*call) for call in calls])
    store, rng = Store.open(make_store(tmp_path / "store")), random.Random(0)
    want = folder_bytes(transpose(None, store, tmp_path / "undisturbed").folder)
    with stopped_at("sparseoco.store.transpose.commit_manifest"):
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


@settings(max_examples=30, deadline=None)
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
