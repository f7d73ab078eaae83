import json
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import commit_json
from sparseoco.store.manifest import FeatureTable, commit_manifest
from sparseoco.store.segments import LabelSets, add_entries
from sparseoco.store.shards import ShardRows, Store, read_shards, write_names, write_shard
from tests.support.errors import raises_code
from tests.support.stores import make_store, with_columns


def test_write_and_read(tmp_path: Path) -> None:
    matrix, terms = read_shards(make_store(tmp_path, shard_rows=70))
    assert matrix.shape == (300, 200)
    assert matrix.has_canonical_format
    assert terms[:2] == ["t0", "t1"]
    again, _ = read_shards(make_store(tmp_path / "other", shard_rows=300))
    assert (matrix != again).nnz == 0
    store = Store.open(tmp_path)
    rows = store.read(1, ids=True)
    assert rows.ids.to_pylist()[0] == "d70"
    assert np.array_equal(rows.indptr, matrix.indptr[70:141] - matrix.indptr[70])
    assert np.array_equal(store.labels()[70:140], rows.labels)
    assert np.array_equal(store.document_frequencies(), np.diff(matrix.tocsc().indptr))


def test_shards_are_plain_parquet(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path))
    path = tmp_path / store.shards[0].file
    rows = store.read(0)
    expected = rows.indices[: rows.indptr[1]].tolist()
    assert pd.read_parquet(path)["indices"][0].tolist() == expected
    assert polars.read_parquet(path)["indices"][0].to_list() == expected
    assert duckdb.sql(f"select indices from '{path}' limit 1").fetchall() == [(expected,)]


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    names = [sorted(path.name for path in make_store(tmp_path / name).iterdir()) for name in ("a", "b")]
    assert names[0] == names[1]
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in names[0])


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


@pytest.mark.fault(12, 14)
@pytest.mark.parametrize("damage", ["missing", "truncated", "empty", "flipped", "other"])
def test_damaged_shards(tmp_path: Path, damage: str) -> None:
    store = Store.open(make_store(tmp_path))
    path = tmp_path / store.shards[1].file
    data = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "flipped":
        data[len(data) // 3] ^= 16
        path.write_bytes(data)
    else:
        path.write_bytes((tmp_path / store.shards[0].file).read_bytes())
    store.read(0)
    with raises_code("missing-file" if damage == "missing" else "corrupt-file", path, kind=StorageError):
        store.read(1)


def test_damaged_manifests(tmp_path: Path) -> None:
    make_store(tmp_path)
    manifest = tmp_path / "manifest-00000001.json"
    text = manifest.read_text()
    for broken in (text[:-20], "", text.replace('"rows": 300', '"rows": "many"'), '{"a": 1}'):
        manifest.write_text(broken)
        with raises_code("corrupt-file", manifest, kind=StorageError):
            Store.open(tmp_path)
    value = json.loads(text)
    del value["checksum"]
    for other in (1, 2, 3, 99):
        changed = value | {"schema_version": other, "shards": []}
        for write in (commit_json, lambda path, value: path.write_text(json.dumps(value))):  # without a checksum
            write(manifest, changed)
            with raises_code("format-version", manifest, other, kind=StorageError):
                Store.open(tmp_path)


@pytest.mark.fault(9)
def test_two_writers_of_a_version_do_not_mix(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path))
    with raises_code("version-conflict", "version 1", kind=StorageError):
        commit_manifest(tmp_path, store.manifest)


def test_a_folder_without_manifest(tmp_path: Path) -> None:
    with raises_code("not-a-store", tmp_path, "sparseoco ingest"):
        Store.open(tmp_path)


def test_hashed_features_get_their_most_frequent_term(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path))
    numbers = np.array([3, 2, 1])
    parts = [
        write_names(tmp_path, np.array([7, 7, 9]), pa.array(["rare", "often", "one"]), numbers, numbers),
        write_names(tmp_path, np.array([7]), pa.array(["often"]), np.array([5]), np.array([4])),
    ]
    hashed = FeatureTable(kind="hashed", count=16, files=tuple(parts), hash_bits=4, hash_seed=0)
    commit_manifest(tmp_path, store.manifest.model_copy(update={"version": 2, "features": hashed}))
    table = Store.open(tmp_path).describe(np.array([9, 7, 8])).to_pydict()
    assert table["term"] == ["one", "often (+1 more)", ""]
    assert table["count"] == [1, 10, 0]
