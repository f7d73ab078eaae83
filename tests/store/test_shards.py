"""Shards and manifests: what is written, read, validated and referred to."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.storage.locations import Location
from sparseoco.store.corpus import Corpus
from sparseoco.store.entries import ShardTable, add_entries
from sparseoco.store.manifest import FeatureTable, LabelTable, commit_manifest, read_manifest
from sparseoco.store.shards import (
    LabelSets,
    ShardRows,
    Store,
    check_columns,
    check_shard,
    open_store,
    read_shards,
    store_reference,
    write_shard,
    write_terms,
)
from tests.support.errors import raises_code
from tests.support.folders import folder_bytes
from tests.support.stores import make_store, with_columns
from tests.support.wrong_shapes import DELETED, forge

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
        assert isinstance(rows.labels, LabelSets)
        assert np.array_equal(rows.labels.indicator(2), store.labels()[25:50].toarray())
        assert store.labels()[[0, 9]].toarray().tolist() == [[0, 0], [1, 1]]
        assert [entry.labels for entry in store.shards] == [store.read(shard).labels.classes.size for shard in range(3)]
    else:
        expected = source.labels() + (0.25 * np.sin(np.arange(60)) if kind == "numbers" else 0)
        assert np.array_equal(store.labels(), expected)
    with raises_code("missing-column", source.folder, "weight"):
        source.column("weight")


def files_of(store: Store) -> dict[str, Path]:
    """The files of a store by kind."""
    return {path.name.partition("-")[0]: path for path in sorted(store.folder.iterdir())}


@pytest.mark.fault(12, 13, 14)
@pytest.mark.parametrize("kind", ["manifest", "shards", "shard", "vocabulary"])
def test_a_file_that_is_damaged_anywhere_is_refused(tmp_path: Path, kind: str) -> None:
    """Flipped, cut, empty, missing, renamed, with the content of another: before it is parsed."""
    store = Store.open(make_store(tmp_path, rows=3000, features=1000, shard_rows=1500))
    path = files_of(store)[kind]
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
            check_shard(tmp_path, entry, manifest, changed)
        else:
            with raises_code("corrupt-file", tmp_path, kind=StorageError):
                check_shard(tmp_path, entry, manifest, changed)


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
    check_shard(tmp_path, entry, store.manifest, rows)
    changed = rows._replace(**changes)
    with raises_code("corrupt-file", tmp_path, kind=StorageError):
        check_shard(tmp_path, entry, store.manifest, changed)


def test_a_column_with_nulls_or_of_another_type(tmp_path: Path) -> None:
    for values in (pa.array([1, None], pa.int32()), pa.array([1, 2], pa.int64())):
        with raises_code("corrupt-file", tmp_path, "label", kind=StorageError):
            check_columns(tmp_path, pa.table({"label": values}), {"label": pa.int32()})


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
        found = open_store(pickle.loads(pickle.dumps(store_reference(store))))
        assert found.manifest == store.manifest
        assert found.shards == store.shards
    assert [len(store.shards) for store in (first, second, second.increment)] == [3, 4, 1]
    assert second.increment.shards[0] == first.shards[2]


def test_a_process_reads_a_store_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = store_reference(Store.open(make_store(tmp_path)))
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
    reference = store_reference(store)
    other: Location = tmp_path / "other"
    make_store(tmp_path / "other", rows=200)
    (tmp_path / "manifest-00000001.json").unlink()
    commit_manifest(tmp_path, read_manifest(other, 1))
    with raises_code("store-changed", tmp_path, "version 1", kind=StorageError):
        open_store(reference)
    with raises_code("missing-file", "manifest-00000007.json", kind=StorageError):
        open_store(reference._replace(version=7))
