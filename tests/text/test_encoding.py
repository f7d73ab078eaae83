"""Rows that are encoded: classes, columns, label sets, and documents with the same id."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparseoco.storage.commit import commit_json, digest_value, read_json
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store, read_shards
from sparseoco.text import encoding as duplicates
from sparseoco.text import vocabulary
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import read_documents
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.folders import folder_bytes
from tests.support.ingests import ingest_bytes, jsonl, random_texts, store_content, write_documents, write_files

# ----------------------------------------------------------------------------------------------------------------------
# The allowed classes: those of the options, or those of the first ingest; and rows with other labels.


def classes_of(manifest: Manifest) -> dict[str, int]:
    return {entry.name: entry.rows for entry in manifest.labels.classes}


def bad_rows(folder: Path, manifest: Manifest) -> list[tuple[int, int, str]]:
    table = pq.read_table(folder / manifest.quarantine[-1].file).to_pydict()
    return list(zip(table["line"], table["offset"], table["reason"], strict=True))


def test_unknown_classes_in_folders(tmp_path: Path) -> None:
    write_files(tmp_path / "texts", {f"{label}/1.txt": f"word {label}" for label in "pqn"})
    named = TextOptions(classes=("n", "p"))
    with raises_code("unknown-class", "texts/q/1.txt: ", "2 classes"):
        ingest([str(tmp_path / "texts")], tmp_path / "folder", named)
    options = named.model_copy(update={"max_bad_rows": 1})
    assert classes_of(ingest([str(tmp_path / "texts")], tmp_path / "folder", options)) == {"n": 1, "p": 1}


@pytest.mark.fault(31, 32)
def test_class_that_first_occurs_later(tmp_path: Path) -> None:
    """A class in the options exists from the beginning; the shards equal those of a store whose first files had it."""
    first, more = (
        jsonl(random_texts(50)),
        jsonl(random_texts(20, 1), id=lambda k: f"e{k}", label=lambda k: "pqn"[k % 3]),
    )
    named = {"classes": ("q", "p", "n")}
    manifest = ingest_bytes(tmp_path, "a.jsonl", first, **named)
    assert classes_of(manifest) == {"n": 25, "p": 25, "q": 0}
    manifest = ingest_bytes(tmp_path, "b.jsonl", more, **named)
    assert (manifest.version, classes_of(manifest)) == (2, {"n": 31, "p": 32, "q": 7})
    assert store_content(tmp_path / "out")[2][-3:] == [0, 1, 2]

    ingest_bytes(tmp_path, "c.jsonl", first + more, out="found")
    ingest_bytes(tmp_path, "c.jsonl", first + more, out="named", classes=("n", "q", "p"))
    shards = [
        {k: v for k, v in folder_bytes(tmp_path / out).items() if "manifest" not in k} for out in ("found", "named")
    ]
    assert shards[0] == shards[1]

    ingest_bytes(tmp_path, "a.jsonl", first, out="closed")
    with raises_code("unknown-class", "b.jsonl, line 2: ", "2 classes", "max_bad_rows"):
        ingest_bytes(tmp_path, "b.jsonl", more, out="closed")
    manifest = ingest_bytes(tmp_path, "b.jsonl", more, out="closed", max_bad_rows=7)
    assert (manifest.rows, manifest.quarantined_rows) == (63, 7)
    assert [line for line, _, _ in bad_rows(tmp_path / "closed", manifest)] == [2, 5, 8, 11, 14, 17, 20]


def test_store_from_before_an_option_existed(tmp_path: Path) -> None:
    """Its manifest lacks the option: files can be added with the default value."""
    first = ingest_bytes(tmp_path, "a.jsonl", jsonl(random_texts(10)))
    path = tmp_path / "out" / "manifest-00000001.json"
    described = read_json(path)
    del described["options"]["classes"]
    described["options_digest"] = digest_value(described["options"])
    path.unlink()
    commit_json(path, described)
    more = jsonl(random_texts(5, 1), id=lambda k: f"e{k}")
    assert ingest_bytes(tmp_path, "b.jsonl", more).rows == first.rows + 5
    with raises_code("options-changed", tmp_path / "out", "(classes)"):
        ingest_bytes(tmp_path, "b.jsonl", more, classes=("n", "p"))


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(10)))
    arguments = ["ingest", tmp_path / "a.jsonl", "--out", tmp_path / "out", "--class", "q", "--class", "p"]
    assert call(monkeypatch, *arguments) == 2
    assert "line 2: the label is not one of the 2 classes" in " ".join(capsys.readouterr().err.split())
    assert call(monkeypatch, *arguments, "--class", "n") == 0
    assert "n (5), p (5), q (0)" in capsys.readouterr().out


# ----------------------------------------------------------------------------------------------------------------------
# Weights, groups, times and label sets: from every format that has them to the shards.


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


def test_duplicates_take_their_columns_and_labels_along(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": k % 3, "label": labels, "text": "one two", "w": k, "by": k, "at": k} for k, labels in enumerate(SETS)
    ]
    options = {"labels": "multi", "duplicates": "first", **FIELDS}
    ingest_bytes(tmp_path, "a.jsonl", table(rows, "jsonl"), **options)
    store = Store.open(tmp_path / "out")
    assert store.column("weight").tolist() == [0, 1, 2]
    assert store.labels().toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


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
    write_files(tmp_path / "texts", {f"{label}/1.txt": f"word {label}" for label in "pn"})
    found = ingest([str(tmp_path / "texts")], tmp_path / "f", TextOptions(labels="multi"))
    assert sets(tmp_path / "f", found) == [["n"], ["p"]]


# ----------------------------------------------------------------------------------------------------------------------
# Ids are divided by their hashes; equal hashes are decided by the ids.


@pytest.mark.parametrize(("buckets", "ids_per_task"), [(1, 1 << 20), (2, 20), (1 << 62, 1 << 20), (1 << 62, 20)])
def test_ids_with_equal_hashes_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int, ids_per_task: int
) -> None:
    monkeypatch.setattr(vocabulary, "NGRAMS_PER_TASK", ids_per_task)
    original = duplicates._hash_ids
    monkeypatch.setattr(duplicates, "_hash_ids", lambda strings: original(strings) % buckets)
    names = [f"d{k}" for k in range(120)]
    write_documents(tmp_path / "x.jsonl", names)
    apart = ingest([str(tmp_path / "x.jsonl")], tmp_path / "apart", TextOptions(), shard_bytes=2000)
    assert apart.rows == 120
    repeated = [*names[:70], "d3", "d69", *names[70:], "d3", "d119"]
    write_documents(tmp_path / "y.jsonl", repeated)
    with raises_code("duplicate-id", "y.jsonl, line 4 and ", "y.jsonl, line 71"):
        ingest([str(tmp_path / "y.jsonl")], tmp_path / "error", TextOptions(), shard_bytes=2000)
    ingest([str(tmp_path / "y.jsonl")], tmp_path / "first", TextOptions(duplicates="first"), shard_bytes=2000)
    store = Store.open(tmp_path / "first")
    ids = [name for shard in range(store.n_shards) for name in store.read(shard, ids=True).ids.to_pylist()]
    assert ids == names
    with raises_code("duplicate-id", "x.jsonl and ", "z.jsonl, line 2"):  # against the shards of the store
        write_documents(tmp_path / "z.jsonl", ["new", "d5"])
        ingest([str(tmp_path / "z.jsonl")], tmp_path / "apart", TextOptions(), shard_bytes=2000)
    X, _ = read_shards(tmp_path / "apart")
    assert X.shape[0] == 120
