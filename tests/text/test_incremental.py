"""Files that are added to a store, which inputs can be combined, and the rows that are encoded."""

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparseoco.storage.commit
import sparseoco.text.ingest
from sparseoco.pipeline.evaluation import evaluate_model
from sparseoco.storage.commit import commit_json, digest_value, read_json
from sparseoco.store.manifest import Manifest, latest_manifest
from sparseoco.store.shards import Store, read_shards
from sparseoco.text import encoding as duplicates
from sparseoco.text import vocabulary
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import read_documents
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.folders import folder_bytes
from tests.support.ingests import WORDS, ingest_bytes, jsonl, random_texts, store_content, write_documents, write_files
from tests.support.models import random_model
from tests.support.tables import WRITERS

# ----------------------------------------------------------------------------------------------------------------------
# Files that are added to a store.


@pytest.mark.parametrize("options", [{}, {"hash_bits": 10}], ids=["frozen", "hashed"])
def test_file_added_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    """Shards written before the kill get the right source when a new source precedes theirs."""
    ingest_bytes(tmp_path, "0.jsonl", jsonl(random_texts(12)), **options)
    for name in "ba":
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl(random_texts(12, seed=1)).replace(b'"d', f'"{name}'.encode()))
    inputs = [str(tmp_path / f"{name}.jsonl") for name in "0ab"]
    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr(sparseoco.text.ingest, "commit_manifest", None)
        ingest([inputs[0], inputs[2]], tmp_path / "out", TextOptions(**options), shard_bytes=4096)
    manifest = ingest(inputs, tmp_path / "out", TextOptions(**options), shard_bytes=4096)
    assert Store(tmp_path / "out", manifest).shards.column("source").tolist() == [0, 1, 2]


@pytest.mark.fault(10, 11)
def test_adding_files(tmp_path: Path) -> None:
    first, second = jsonl(random_texts(100)), jsonl(random_texts(100, seed=1)).replace(b'"d', b'"e')
    manifest = ingest_bytes(tmp_path, "a.jsonl", first, ngram_range=(1, 2))
    before = folder_bytes(tmp_path / "out")
    assert ingest_bytes(tmp_path, "a.jsonl", first, ngram_range=(1, 2)) == manifest
    assert folder_bytes(tmp_path / "out") == before
    more = second + b'{"id":"new","label":"p","text":"alpha neverseen beta alpha"}\n'
    (tmp_path / "b.jsonl").write_bytes(more)
    both = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    options = TextOptions(ngram_range=(1, 2))
    added = ingest(both, tmp_path / "out", options, shard_bytes=4096)
    assert (added.version, added.rows, added.n_sources) == (2, 201, 2)
    assert before.items() <= folder_bytes(tmp_path / "out").items()
    _, ids, labels, rows = store_content(tmp_path / "out")
    assert ids[-1] == "new"
    assert labels[-1] == 1
    assert rows[-1]["alpha"] == 2
    assert "neverseen" not in rows[-1]
    assert added.dropped_terms >= 3
    assert [entry.rows for entry in added.labels.classes] == [100, 101]

    with raises_code("unknown-class", "c.jsonl, line 1", "2 classes"):
        ingest_bytes(tmp_path, "c.jsonl", b'{"id":"c","label":"q","text":"alpha"}\n', ngram_range=(1, 2))
    with raises_code("duplicate-id", "b.jsonl and ", "d.jsonl, line 1"):
        ingest_bytes(tmp_path, "d.jsonl", b'{"id":"new","label":"p","text":"alpha"}\n', ngram_range=(1, 2))
    with raises_code("options-changed", tmp_path / "out", "(lowercase)"):
        ingest(both, tmp_path / "out", TextOptions(ngram_range=(1, 2), lowercase=False))
    (tmp_path / "a.jsonl").write_bytes(first + b"\n" + second)
    with raises_code("input-changed", tmp_path / "a.jsonl"):
        ingest(both, tmp_path / "out", options)


def test_folder_with_new_times_but_same_content(tmp_path: Path) -> None:
    write_files(tmp_path / "in", {f"{label}/1.txt": "some text" for label in "ab"})
    ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions())
    (tmp_path / "in" / "a" / "1.txt").write_text("some text")
    assert ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions()).version == 1
    (tmp_path / "in" / "stray.txt").write_text("x")
    with raises_code("invalid-input", "stray.txt"):
        ingest([str(tmp_path / "in")], tmp_path / "out", TextOptions())


NEW = b'{"id":"new%d","label":"p","text":"alpha neverseen beta alpha %s"}\n'


def test_extended_vocabulary(tmp_path: Path) -> None:
    """Ids never change, new terms follow, and every count equals that of one ingest of everything."""
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(100)))
    (tmp_path / "b.jsonl").write_bytes(NEW % (1, b"rare") + NEW % (2, b"seldom"))
    (tmp_path / "c.jsonl").write_bytes(jsonl(random_texts(40, seed=1)).replace(b'"d', b'"e') + NEW % (3, b"rare"))
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    options = TextOptions(ngram_range=(1, 2))
    tables = []
    for count in (1, 2, 3):
        ingest(paths[:count], tmp_path / "out", options, shard_bytes=4096, vocabulary="extend")
        tables.append(Store.open(tmp_path / "out").vocabulary())
    for before, after in itertools.pairwise(tables):
        assert after.slice(0, len(before)) == before
    store = Store.open(tmp_path / "out")
    assert (store.manifest.version, store.n_features) == (3, len(tables[-1]))
    assert len(store.manifest.features.files) < 3  # small ones are merged
    assert store.manifest.dropped_terms == 0
    assert store.document_frequencies().size == store.n_features
    assert tables[1]["term"].to_pylist()[len(tables[0])] == "neverseen"
    ingest(paths, tmp_path / "whole", options, shard_bytes=4096)
    assert store_content(tmp_path / "out")[1:] == store_content(tmp_path / "whole")[1:]
    ingest(paths[:1], tmp_path / "frozen", options, shard_bytes=4096)
    frozen = ingest(paths, tmp_path / "frozen", options, shard_bytes=4096)
    assert frozen.features.count == len(tables[0])
    assert frozen.dropped_terms > 0


@pytest.mark.parametrize(("options", "policy"), [({}, "frozen"), ({}, "extend"), ({"hash_bits": 5}, "frozen")])
@pytest.mark.parametrize("pending", [0, 1 << 22])
def test_document_frequencies_are_of_all_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], policy: Any, pending: int
) -> None:
    """Also where terms of a document share a hash, after every increment, and for an increment without documents."""
    monkeypatch.setattr("sparseoco.text.encoding.PENDING", pending)
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(60)))
    (tmp_path / "b.jsonl").write_bytes(jsonl(random_texts(40, seed=1), id=lambda k: f"e{k}") + NEW % (3, b"rare"))
    (tmp_path / "c.jsonl").write_bytes(jsonl(random_texts(9), id=lambda k: f"d{k}"))
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    text = TextOptions(**options, duplicates="first")
    for count in (1, 2, 3):
        manifest = ingest(paths[:count], tmp_path / "out", text, shard_bytes=1024, vocabulary=policy)
        assert manifest.n_shards >= 2
        expected = np.diff(read_shards(tmp_path / "out")[0].tocsc().indptr)
        np.testing.assert_array_equal(Store.open(tmp_path / "out").document_frequencies(), expected)


def test_selection_of_new_terms(tmp_path: Path) -> None:
    """min_df applies to the new files alone, max_features to the whole vocabulary."""
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(100)))
    (tmp_path / "b.jsonl").write_bytes(NEW % (1, b"rare") + NEW % (2, b"seldom"))
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]

    def new_terms(name: str, **options: Any) -> tuple[list[str], int]:
        options_ = TextOptions.of(options)
        first = ingest(paths[:1], tmp_path / name, options_)
        both = ingest(paths, tmp_path / name, options_, vocabulary="extend")
        return Store.open(tmp_path / name).vocabulary()["term"].to_pylist()[first.features.count :], both.dropped_terms

    assert new_terms("two", min_df=2) == (["neverseen"], 2)
    assert new_terms("one") == (["neverseen", "rare", "seldom"], 0)
    assert new_terms("full", max_features=9)[0] == []
    size = len(WORDS) - 1  # "the" and "The" are one
    assert new_terms("room", max_features=size + 1) == (["neverseen"], 2)
    assert new_terms("common", max_df=0.95, min_df=2) == ([], 4)


# ----------------------------------------------------------------------------------------------------------------------
# Which inputs can be combined, and what must not depend on splits or on the order of ingests.


def test_labelled_and_unlabelled_text_cannot_be_mixed(tmp_path: Path) -> None:
    """Mixing would lose the classes of the store and block every later ingest."""
    labelled = ingest_bytes(tmp_path, "a.jsonl", jsonl(random_texts(20)))
    with raises_code("unsupported-combination", tmp_path / "b.txt", "the documents of the store have labels"):
        ingest_bytes(tmp_path, "b.txt", b"alpha beta\n")
    assert latest_manifest(tmp_path / "out") == labelled
    ingest_bytes(tmp_path, "b.txt", b"alpha beta\n", out="plain")
    with raises_code("unsupported-combination", tmp_path / "a.jsonl", "the documents of the store have none"):
        ingest_bytes(tmp_path, "a.jsonl", jsonl(random_texts(20)), out="plain", max_bad_rows=100)
    both = [str(tmp_path / name) for name in ("a.jsonl", "b.txt")]
    with raises_code("unsupported-combination", tmp_path / "b.txt", "other inputs have labels"):
        ingest(both, tmp_path / "both", TextOptions())
    assert ingest_bytes(tmp_path, "c.txt", b"alpha\n", out="plain").rows == 2
    marked = ingest_bytes(tmp_path, "_SUCCESS", b"")  # as Spark marks a complete folder
    assert (marked.labels, marked.rows) == (labelled.labels, labelled.rows)
    assert marked.n_sources == 2

    numbers = jsonl(random_texts(20), label=float)
    ingest_bytes(tmp_path, "n.jsonl", numbers, out="numbers", labels="numbers")
    with raises_code("unsupported-combination", tmp_path / "b.txt"):
        ingest_bytes(tmp_path, "b.txt", b"alpha beta\n", out="numbers", labels="numbers")
    folders = write_files(tmp_path / "texts", {"p/1.txt": "word"})  # which are classes
    with raises_code("unsupported-combination", folders):
        ingest([str(folders)], tmp_path / "folders", TextOptions(labels="numbers"))


@pytest.mark.parametrize("name", WRITERS)
def test_where_means_the_same_in_every_format(tmp_path: Path, name: str) -> None:
    table = pa.table(
        {
            "text": ["ab"] * 4,
            "flag": [True, False, None, True],
            "n": pa.array([1, 2, 10, 2**62], pa.int64()),
            "x": [1.0, 0.1, None, 1e22],
            "small": pa.array([1.0, 0.1, None, 2.5], pa.float64() if name == "a.jsonl" else pa.float32()),
            "s": ["True", "1.0", "01", "a, b"],
        }
    )
    WRITERS[name](table, tmp_path / name, 3)
    for field, wanted, rows in (
        ("flag", "true", [1, 4]), ("flag", "True", [1, 4]), ("flag", "FALSE", [2]), ("flag", "1", []),
        ("n", "1", [1]), ("n", "1.0", [1]), ("n", "1e1", [3]), ("n", "01", []), ("n", str(2**62), [4]),
        ("n", str(2**62 + 1), []), ("x", "1", [1]), ("x", "0.10", [2]), ("x", "1E22", [4]), ("x", "null", []),
        ("small", "0.1", [2]), ("small", "1", [1]), ("s", "true", [1]), ("s", "1", [2]), ("s", "01", [3]),
        ("s", "a, b", [4]), ("s", "a,b", []),
    ):  # fmt: skip
        options = TextOptions(where={field: wanted})
        batches = read_documents([str(tmp_path / name)], options, labelled=False)
        found = [int(key.partition(":")[2]) for batch in batches for key in batch.ids.to_pylist()]
        assert found == [row + (name in ("a.csv", "a.tsv")) for row in rows], (field, wanted)


@pytest.mark.parametrize("name", WRITERS)
def test_several_labels_are_the_same_in_every_format(tmp_path: Path, name: str) -> None:
    texts = ["x", "x,y", " x , y", "", " ", "y, a b"]
    WRITERS[name](pa.table({"text": ["ab"] * len(texts), "label": texts}), tmp_path / name, 3)
    options = TextOptions(labels="multi")
    (batch,) = read_documents([str(tmp_path / name)], options)
    assert batch.labels.to_pylist() == [["x"], ["x", "y"], ["x", "y"], [], [], ["a b", "y"]]
    if name not in ("a.csv", "a.tsv"):
        lists = [["x, y"], [" x", "y"], []]
        WRITERS[name](pa.table({"text": ["ab"] * 3, "label": lists}), tmp_path / name, 3)
        (batch,) = read_documents([str(tmp_path / name)], options)
        assert batch.labels.to_pylist() == [["x, y"], [" x", "y"], []]
    WRITERS[name](pa.table({"text": ["ab"], "label": ["x,,y"]}), tmp_path / name, 3)
    with raises_code("invalid-labels", tmp_path / name):
        list(read_documents([str(tmp_path / name)], options))


def test_names_of_hashed_features(tmp_path: Path) -> None:
    """With dropped duplicates, text mixed with counted documents, and documents without a term."""
    rows = jsonl(random_texts(30))
    again = json.dumps({"id": "d0", "label": "p", "text": "alpha once more"}).encode() + b"\n"
    (tmp_path / "b.jsonl").write_bytes(again + jsonl(random_texts(5, 1), id=lambda k: f"e{k}"))
    (tmp_path / "a.jsonl").write_bytes(rows)
    inputs = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    options = TextOptions(hash_bits=10, duplicates="first")
    assert ingest(inputs, tmp_path / "out", options, shard_bytes=1024).rows == 35
    frequencies = Store.open(tmp_path / "out").document_frequencies()
    _, names = read_shards(tmp_path / "out")
    assert "alpha" in names
    assert frequencies[names.index("alpha")] == sum(
        "alpha" in text.split() for text in random_texts(30) + random_texts(5, 1)
    )

    (tmp_path / "c.svm").write_bytes(b"1 1:1 2:3\n-1 2:1\n")
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_bytes(b'{"label":"1","text":"aa bb"}\n{"label":"-1","text":"bb cc"}\n')
    ingest([str(mixed), str(tmp_path / "c.svm")], tmp_path / "mixed", TextOptions(hash_bits=10))
    assert {"aa", "bb", "cc", "1", "2"} <= set(read_shards(tmp_path / "mixed")[1])

    ingest_bytes(tmp_path, "e.jsonl", b'{"label":"p","text":""}\n{"label":"n","text":"a"}\n', out="empty", hash_bits=4)
    assert read_shards(tmp_path / "empty")[1] == [""] * 16


def test_sums_of_real_values_do_not_depend_on_shards(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lines = [
        f"{1 - 2 * (k % 2)} " + " ".join(f"{j}:{random.normal():.17g}" for j in random.permutation(50)[:12])
        for k in range(150)
    ]
    found = []
    for size in (1024, 8192, 1 << 20):
        ingest_bytes(tmp_path, "a.svm", "\n".join(lines).encode(), out=str(size), hash_bits=3, shard_bytes=size)
        found.append(read_shards(tmp_path / str(size))[0].data.tolist())
    assert found[0] == found[1] == found[2]


def test_dropped_entries_of_real_values_are_counted(tmp_path: Path) -> None:
    for size in (1024, 1 << 20):
        ingest_bytes(tmp_path, "a.svm", b"1 1:1\n-1 2:1\n", out=str(size), shard_bytes=size)
        more = b"".join(b"%d 1:0.5 3:0.25 4:2\n" % (1 - 2 * (k % 2)) for k in range(100))
        assert ingest_bytes(tmp_path, "b.svm", more, out=str(size), shard_bytes=size).dropped_terms == 200


@pytest.mark.fault(33)
def test_sum_beyond_32_bits(tmp_path: Path) -> None:
    row = b"1 " + b" ".join(b"%d:4294967295" % j for j in range(1, 9)) + b"\n"
    with raises_code("count-overflow", "hash_bits"):
        ingest_bytes(tmp_path, "a.svm", row, hash_bits=1)
    small = b"1 " + b" ".join(b"%d:429496729" % j for j in range(1, 9)) + b"\n"
    ingest_bytes(tmp_path, "b.svm", small, out="small", hash_bits=1)
    assert read_shards(tmp_path / "small")[0].sum() == 8 * 429496729


def test_first_error_is_reported(tmp_path: Path) -> None:
    """A bad row before a line that is too long, although the long line is read first."""
    data = jsonl(random_texts(100)) + b"{\n" + jsonl(random_texts(100, 1), id=lambda k: f"e{k}")
    data += b'{"text":"' + b"x" * 9000 + b'"}\n'
    with raises_code("malformed-record", "a.jsonl, line 101: not valid JSON"):
        ingest_bytes(tmp_path, "a.jsonl", data, shard_bytes=1024, max_line_bytes=3000)


def test_all_quarantine_files_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sparseoco.store.shards.MERGED_BYTES", 0)
    printed = ""
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl(random_texts(3), id=lambda k, name=name: f"{name}{k}") + b"{\n")
        printed += cli("ingest", f"{name}.jsonl", "--out", "out", "--max-bad-rows", "1").err.replace("\n", "")
    manifest = latest_manifest(tmp_path / "out")
    assert all(entry.file in printed for entry in manifest.quarantine)
    assert len(manifest.quarantine) == 2


def test_classes_in_prediction_and_evaluation(tmp_path: Path, cli: Cli) -> None:
    """Prediction ignores labels; in evaluation a label of an unknown class is a bad row, as in ingest."""
    model = random_model(tmp_path / "m", max_bad_rows=1)
    write_files(tmp_path / "tree", {"later/1.txt": "alpha"})
    assert cli("predict", tmp_path / "m", tmp_path / "tree").out.startswith("tree/later/1.txt\t")
    odd = jsonl(random_texts(10), label=lambda k: "abq"[k % 3])
    (tmp_path / "t.jsonl").write_bytes(odd)
    reading = {"max_bad_rows": 3}
    assert evaluate_model(model, [str(tmp_path / "t.jsonl")], {}, reading=reading)["rows"] == 7
    (tmp_path / "t.jsonl").write_bytes(jsonl(random_texts(10), label=lambda k: "q"))
    with raises_code("too-many-bad-rows", "t.jsonl, line 2", "2 classes"):
        evaluate_model(model, [str(tmp_path / "t.jsonl")], {})


# ----------------------------------------------------------------------------------------------------------------------
# The allowed classes: those of the options, or those of the first ingest; and rows with other labels.


def classes_of(manifest: Manifest) -> dict[str, int]:
    return {entry.name: entry.rows for entry in manifest.labels.classes}


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
    first = jsonl(random_texts(50))
    more = jsonl(random_texts(20, 1), id=lambda k: f"e{k}", label=lambda k: "pqn"[k % 3])
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
    bad = pq.read_table(tmp_path / "closed" / manifest.quarantine[-1].file)
    assert bad["line"].to_pylist() == [2, 5, 8, 11, 14, 17, 20]


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


# ----------------------------------------------------------------------------------------------------------------------
# Weights, groups, times and label sets: from every format that has them to the shards.


FIELDS = {"weight_field": "w", "group_field": "by", "time_field": "at"}
ROWS = [
    {"label": "p", "text": "one two", "w": 0.25, "by": "ann", "at": "2024-03-01"},
    {"label": "n", "text": "two", "w": 3, "by": "bob", "at": "2024-03-01T12:00:00+02:00"},
    {"label": "p", "text": "two", "w": 0, "by": "ann", "at": 17.5},
    {"label": "n", "text": "three", "w": "1e-3", "by": "7", "at": "-2"},
]
TIMES = [datetime(2024, 3, 1, tzinfo=UTC).timestamp(), datetime(2024, 3, 1, 10, tzinfo=UTC).timestamp(), 17.5, -2.0]
SETS = [["b", "a", "b"], [], ["c"], ["a"], ["c", "a", "b"]]


def table(rows: list[dict[str, Any]], form: str) -> bytes:
    if form == "jsonl":
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    lines = [",".join(rows[0])] + [",".join(f'"{value}"' for value in row.values()) for row in rows]
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_columns(tmp_path: Path, form: str) -> None:
    manifest = ingest_bytes(tmp_path, f"a.{form}", table(ROWS * 20, form), shard_bytes=1024, **FIELDS)
    assert manifest.columns == ("weight", "group", "time")
    assert manifest.n_shards > 1
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


def test_label_sets(tmp_path: Path) -> None:
    rows = [{"label": labels, "text": f"word{k}"} for k, labels in enumerate(SETS * 15)]
    options = {"labels": "multi", "shard_bytes": 1024}
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


@pytest.mark.parametrize(("buckets", "ids_per_task"), [(1, 1 << 20), (2, 20), (1 << 62, 20)])
def test_ids_of_equal_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int, ids_per_task: int) -> None:
    monkeypatch.setattr(vocabulary, "NGRAMS_PER_TASK", ids_per_task)
    original = duplicates._hash_ids
    monkeypatch.setattr(duplicates, "_hash_ids", lambda strings: original(strings) % buckets)
    names = [f"d{k}" for k in range(60)]
    write_documents(tmp_path / "x.jsonl", names)
    apart = ingest([str(tmp_path / "x.jsonl")], tmp_path / "apart", TextOptions(), shard_bytes=2000)
    assert apart.rows == 60
    repeated = [*names[:35], "d3", "d34", *names[35:], "d3", "d59"]
    write_documents(tmp_path / "y.jsonl", repeated)
    with raises_code("duplicate-id", "y.jsonl, line 4 and ", "y.jsonl, line 36"):
        ingest([str(tmp_path / "y.jsonl")], tmp_path / "error", TextOptions(), shard_bytes=2000)
    ingest([str(tmp_path / "y.jsonl")], tmp_path / "first", TextOptions(duplicates="first"), shard_bytes=2000)
    store = Store.open(tmp_path / "first")
    ids = [name for shard in range(store.n_shards) for name in store.read(shard, ids=True).ids.to_pylist()]
    assert ids == names
    with raises_code("duplicate-id", "x.jsonl and ", "z.jsonl, line 2"):  # against the shards of the store
        write_documents(tmp_path / "z.jsonl", ["new", "d5"])
        ingest([str(tmp_path / "z.jsonl")], tmp_path / "apart", TextOptions(), shard_bytes=2000)
    assert read_shards(tmp_path / "apart")[0].shape[0] == 60
