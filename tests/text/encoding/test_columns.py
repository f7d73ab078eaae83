"""Weights, groups, times and label sets: from every format that has them to the shards."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import read_documents
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes

FIELDS = {"weight_field": "w", "group_field": "by", "time_field": "at"}
ROWS = [
    {"label": "p", "text": "one two", "w": 0.25, "by": "ann", "at": "2024-03-01"},
    {"label": "n", "text": "two", "w": 3, "by": "bob", "at": "2024-03-01T12:00:00+02:00"},
    {"label": "p", "text": "two", "w": 0, "by": "ann", "at": 17.5},
    {"label": "n", "text": "three", "w": "1e-3", "by": "7", "at": "-2"},
]
TIMES = [
    datetime(2024, 3, 1, tzinfo=UTC).timestamp(),
    datetime(2024, 3, 1, 10, tzinfo=UTC).timestamp(),
    17.5,
    -2.0,
]
SETS = [["b", "a", "b"], [], ["c"], ["a"], ["c", "a", "b"]]


def table(rows: list[dict[str, Any]], form: str) -> bytes:
    if form == "jsonl":
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    lines = [",".join(rows[0])] + [",".join(f'"{value}"' for value in row.values()) for row in rows]
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("shard_bytes", [1024, 1 << 20])
def test_columns(tmp_path: Path, form: str, shard_bytes: int) -> None:
    rows = ROWS * 20
    manifest = ingest_bytes(tmp_path, f"a.{form}", table(rows, form), shard_bytes=shard_bytes, **FIELDS)
    assert manifest.columns == ("weight", "group", "time")
    assert manifest.n_shards > 1 or shard_bytes > 1024
    store = Store.open(tmp_path / "out")
    assert store.column("weight").tolist() == np.float32([0.25, 3, 0, 1e-3] * 20).tolist()
    assert store.column("time").tolist() == TIMES * 20
    groups = store.column("group")
    assert groups.dtype == np.int64
    assert len(set(groups.tolist())) == 3
    assert groups[0] == groups[2] == groups[4]


def test_bad_weights_are_quarantined(tmp_path: Path) -> None:
    rows = [*ROWS, {"label": "p", "text": "two", "w": -1, "by": "x", "at": 0}, {"label": "p", "text": "a", "w": 1}]
    manifest = ingest_bytes(tmp_path, "a.jsonl", table(rows, "jsonl"), max_bad_rows=2, **FIELDS)
    assert (manifest.rows, manifest.quarantined_rows) == (4, 2)


def test_duplicates_take_their_columns_and_labels_along(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": k % 3, "label": labels, "text": "one two", "w": k, "by": k, "at": k} for k, labels in enumerate(SETS)
    ]
    options = {"labels": "multi", "duplicates": "first", **FIELDS}
    ingest_bytes(tmp_path, "a.jsonl", table(rows, "jsonl"), **options)
    store = Store.open(tmp_path / "out")
    assert store.column("weight").tolist() == [0, 1, 2]
    assert store.labels().toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("name", ["a.txt", "a.svm", "texts"])
def test_columns_need_fields(tmp_path: Path, name: str) -> None:
    if name == "texts":
        (tmp_path / name / "p").mkdir(parents=True)
        (tmp_path / name / "p" / "1.txt").write_text("word")
    else:
        (tmp_path / name).write_text("1 1:1\n")
    with raises_code("unsupported-combination", tmp_path / name, "weight_field"):
        ingest([str(tmp_path / name)], tmp_path / "out", TextOptions(weight_field="w"))


def test_predictions_need_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text":"one","label":"p"}\n')
    (batch,) = read_documents([str(tmp_path / "a.jsonl")], TextOptions(**FIELDS))
    assert len(batch) == 1
    assert not batch.columns


def sets(folder: Path, manifest: Manifest) -> list[list[str]]:
    names = [entry.name for entry in manifest.labels.classes]
    indicator = Store.open(folder).labels().toarray()
    assert indicator.sum(axis=0).tolist() == [entry.rows for entry in manifest.labels.classes]
    return [[name for name, has in zip(names, row, strict=True) if has] for row in indicator]


@pytest.mark.parametrize("shard_bytes", [1024, 1 << 20])
def test_label_sets(tmp_path: Path, shard_bytes: int) -> None:
    rows = [{"label": labels, "text": f"word{k}"} for k, labels in enumerate(SETS * 15)]
    options = {"labels": "multi", "shard_bytes": shard_bytes}
    manifest = ingest_bytes(tmp_path, "a.jsonl", table(rows, "jsonl"), **options)
    assert manifest.labels.kind == "multi"
    assert sets(tmp_path / "out", manifest) == [sorted(set(labels)) for labels in SETS * 15]
    # A later file, whose unknown classes are bad rows.
    more = table([{"label": "a", "text": "word1"}, {"label": ["a", "new"], "text": "word1"}], "jsonl")
    manifest = ingest_bytes(tmp_path, "b.jsonl", more, max_bad_rows=1, **options)
    assert (manifest.rows, manifest.labels.classes[0].rows) == (76, 46)
    assert sets(tmp_path / "out", manifest)[-1] == ["a"]


def test_label_sets_of_other_formats(tmp_path: Path) -> None:
    options = {"labels": "multi"}
    csv = b'label,text\n"b,a",one\n,two\nc,one\n'
    assert sets(tmp_path / "c", ingest_bytes(tmp_path, "a.csv", csv, out="c", **options)) == [["a", "b"], [], ["c"]]
    svm = b"1,3 1:1\n 1:2 2:1\n+1,2.0 2:1\n"
    found = ingest_bytes(tmp_path, "a.svm", svm, out="s", **options)
    assert sets(tmp_path / "s", found) == [["1", "3"], [], ["1", "2"]]
    for label in "pn":
        (tmp_path / "texts" / label).mkdir(parents=True)
        (tmp_path / "texts" / label / "1.txt").write_text(f"word {label}")
    found = ingest([str(tmp_path / "texts")], tmp_path / "f", TextOptions(labels="multi"))
    assert sets(tmp_path / "f", found) == [["n"], ["p"]]
