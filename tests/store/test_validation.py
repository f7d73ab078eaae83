"""Cases 33 and 51 of the faults: metadata that disagree with the data are refused before compiled code runs.

The digests of these stores match: someone computed them again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparseoco.core.errors import StorageError
from sparseoco.core.sparse_rows import csr_fault, increasing_fault, index_fault
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.store.corpus import Corpus
from sparseoco.store.entries import ShardTable
from sparseoco.store.manifest import LabelTable
from sparseoco.store.segments import LabelSets, check_columns, check_shard
from sparseoco.store.shards import ShardRows, Store, read_shards
from tests.support.errors import raises_code
from tests.support.stores import make_store, with_columns


def edited(folder: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """A store whose manifest is changed, and has the checksum of the changed content."""
    path = folder / "manifest-00000001.json"
    value = read_json(path)
    edit(value)
    commit_json(path, value)
    return folder


def read_all(folder: Path, scratch: Path) -> None:
    """Everything that a search reads."""
    store = Store.open(folder)
    store.document_frequencies()
    Corpus(store, scratch).whole()
    store.labels()
    read_shards(folder)


def set_count(count: int) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["features"].update(count=count)


@pytest.mark.parametrize(
    "edit",
    [
        set_count(150),
        set_count(201),
        set_count(10**7),
        lambda manifest: manifest.update(rows=299),
        lambda manifest: manifest.update(nonzeros=manifest["nonzeros"] + 1),
        lambda manifest: manifest["labels"]["classes"].pop(),
        lambda manifest: manifest["labels"].update(kind="multi"),
        lambda manifest: manifest["labels"].update(kind="numbers", classes=[]),
        lambda manifest: manifest["columns"].append("weight"),
        lambda manifest: manifest["features"].update(kind="hashed", hash_bits=10, count=1 << 11),
        lambda manifest: manifest["features"].update(files=[]),
    ],
    ids=map(str, range(11)),
)
@pytest.mark.fault(51)
def test_an_edited_manifest(tmp_path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    folder = make_store(tmp_path / "store", classes=3)
    read_all(folder, _folder(tmp_path / "a"))
    with raises_code("corrupt-file", folder, kind=StorageError):
        read_all(edited(folder, edit), _folder(tmp_path / "b"))


@pytest.mark.fault(51)
def test_a_smaller_number_of_features_is_refused_by_every_reader(tmp_path: Path) -> None:
    folder = edited(make_store(tmp_path / "store"), set_count(150))
    store = Store.open(folder)
    corpus = Corpus(store, _folder(tmp_path / "corpus"))
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
            check_shard(tmp_path, entry, manifest, *changed[1:5], None)
        else:
            with raises_code("corrupt-file", tmp_path, kind=StorageError):
                check_shard(tmp_path, entry, manifest, *changed[1:5], None)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": np.array([0, 1, 200], np.int32)},
        {"indices": np.array([0, 1, -1], np.int32)},
        {"indices": np.array([0, 1, 2**31 + 1])},
        {"indices": np.array([0, 1, 2**32 + 1])},
        {"indices": np.array([0, 1], np.int32)},
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
    rows = ShardRows(
        None,
        np.array([0, 1], np.int32),
        np.array([0, 2, 3]),
        np.array([0, 1, 0], np.int32),
        np.ones(3, np.uint16),
    )
    check_shard(tmp_path, entry, store.manifest, *rows[1:5], None)
    changed = rows._replace(**changes)
    with raises_code("corrupt-file", tmp_path, kind=StorageError):
        check_shard(tmp_path, entry, store.manifest, *changed[1:5], changed.columns.get("weight"))


def test_a_column_with_nulls_or_of_another_type(tmp_path: Path) -> None:
    for values in (pa.array([1, None], pa.int32()), pa.array([1, 2], pa.int64())):
        with raises_code("corrupt-file", tmp_path, "label", kind=StorageError):
            check_columns(tmp_path, pa.table({"label": values}), {"label": pa.int32()})


def test_faults_of_rows() -> None:
    good = np.array([0, 2, 2, 3]), np.array([0, 4, 1])
    assert csr_fault(*good, 3, 5) is None
    assert csr_fault(np.zeros(1, np.int64), np.empty(0, np.int64), 0, 1) is None
    assert csr_fault(good[0].astype(np.float64), good[1], 3, 5) is not None
    assert (index_fault(good[1], 5), increasing_fault(np.array([0, 3]), 4)) == (None, None)
    assert index_fault(good[1].astype(np.float64), 5) is not None
    assert increasing_fault(good[1], 5) is not None
