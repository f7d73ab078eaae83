"""What kinds of raw text go together, and what must not hang on how it is cut or when it comes."""

import json
from pathlib import Path

import numpy as np
import pytest

from sparseoco.core.errors import InputError
from sparseoco.pipeline.evaluation import evaluate_model
from sparseoco.store.manifest import latest_manifest
from sparseoco.store.shards import Store, read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.training.model import Model
from tests.support.commands import call
from tests.text.ingests import jsonl, run, texts


def test_plain_lines_and_labels_are_kept_apart(tmp_path: Path) -> None:
    """Else the classes of a store would be gone, and every later ingest refused."""
    labelled = run(tmp_path, "a.jsonl", jsonl(texts(20)))
    with pytest.raises(
        InputError, match=r"b\.txt is plain text without labels, and the documents ingested before have"
    ):
        run(tmp_path, "b.txt", b"alpha beta\n")
    assert latest_manifest(tmp_path / "out") == labelled
    run(tmp_path, "b.txt", b"alpha beta\n", out="plain")
    with pytest.raises(InputError, match=r"a\.jsonl has labels, and the documents ingested before have none"):
        run(tmp_path, "a.jsonl", jsonl(texts(20)), out="plain", max_bad_rows=100)
    both = [str(tmp_path / name) for name in ("a.jsonl", "b.txt")]
    with pytest.raises(InputError, match=r"b\.txt is plain text without labels, and other inputs have some"):
        ingest(both, tmp_path / "both", TextOptions())
    assert run(tmp_path, "c.txt", b"alpha\n", out="plain").rows == 2
    marked = run(tmp_path, "_SUCCESS", b"")  # as others mark a folder that is complete
    assert (marked.labels, marked.rows) == (labelled.labels, labelled.rows)
    assert len(marked.sources) == 2

    numbers = jsonl(texts(20), label=float)
    run(tmp_path, "n.jsonl", numbers, out="numbers", labels="numbers")
    with pytest.raises(InputError, match="plain text without labels"):
        run(tmp_path, "b.txt", b"alpha beta\n", out="numbers", labels="numbers")


def test_folders_are_classes(tmp_path: Path) -> None:
    (tmp_path / "texts" / "p").mkdir(parents=True)
    (tmp_path / "texts" / "p" / "1.txt").write_text("word")
    with pytest.raises(InputError, match="its folders are classes, not numbers"):
        ingest([str(tmp_path / "texts")], tmp_path / "out", TextOptions(labels="numbers"))


@pytest.mark.parametrize("name", ["a.txt", "a.svm", "a.review", "texts"])
def test_where_needs_fields(tmp_path: Path, name: str) -> None:
    if name == "texts":
        (tmp_path / name / "p").mkdir(parents=True)
        (tmp_path / name / "p" / "1.txt").write_text("word")
    else:
        (tmp_path / name).write_text("1 1:1\n")
    with pytest.raises(InputError, match="has no fields that where could choose by"):
        ingest([str(tmp_path / name)], tmp_path / "out", TextOptions(where={"split": "train"}))


def test_hashed_features_are_named_whatever_became_of_their_documents(tmp_path: Path) -> None:
    """A dropped duplicate, text beside counted bags, documents without a term: all in one table of names."""
    rows = jsonl(texts(30))
    again = json.dumps({"id": "d0", "label": "p", "text": "alpha once more"}).encode() + b"\n"
    (tmp_path / "b.jsonl").write_bytes(again + jsonl(texts(5, 1), id=lambda k: f"e{k}"))
    (tmp_path / "a.jsonl").write_bytes(rows)
    inputs = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    options = TextOptions(hash_bits=10, duplicates="first")
    assert ingest(inputs, tmp_path / "out", options, shard_bytes=1024).rows == 35
    frequencies = Store.open(tmp_path / "out").document_frequencies()
    _, names = read_shards(tmp_path / "out")
    assert "alpha" in names
    assert frequencies[names.index("alpha")] == sum("alpha" in text.split() for text in texts(30) + texts(5, 1))

    (tmp_path / "c.svm").write_bytes(b"1 1:1 2:3\n-1 2:1\n")
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_bytes(b'{"label":"1","text":"aa bb"}\n{"label":"-1","text":"bb cc"}\n')
    ingest([str(mixed), str(tmp_path / "c.svm")], tmp_path / "mixed", TextOptions(hash_bits=10))
    assert {"aa", "bb", "cc", "1", "2"} <= set(read_shards(tmp_path / "mixed")[1])

    run(tmp_path, "e.jsonl", b'{"label":"p","text":""}\n{"label":"n","text":"a"}\n', out="empty", hash_bits=4)
    assert read_shards(tmp_path / "empty")[1] == [""] * 16


def test_sums_of_real_values_do_not_hang_on_shards(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lines = [
        f"{1 - 2 * (k % 2)} " + " ".join(f"{j}:{random.normal():.17g}" for j in random.permutation(50)[:12])
        for k in range(300)
    ]
    found = []
    for size in (1024, 8192, 1 << 20):
        run(tmp_path, "a.svm", "\n".join(lines).encode(), out=str(size), hash_bits=3, shard_bytes=size)
        found.append(read_shards(tmp_path / str(size))[0].data.tolist())
    assert found[0] == found[1] == found[2]


def test_dropped_entries_of_real_values_are_counted(tmp_path: Path) -> None:
    for size in (1024, 1 << 20):
        run(tmp_path, "a.svm", b"1 1:1\n-1 2:1\n", out=str(size), shard_bytes=size)
        more = b"".join(b"%d 1:0.5 3:0.25 4:2\n" % (1 - 2 * (k % 2)) for k in range(100))
        assert run(tmp_path, "b.svm", more, out=str(size), shard_bytes=size).dropped_terms == 200


def test_a_sum_that_32_bits_do_not_hold_is_refused(tmp_path: Path) -> None:
    row = b"1 " + b" ".join(b"%d:4294967295" % j for j in range(1, 9)) + b"\n"
    with pytest.raises(InputError, match="share a hash occur more than"):
        run(tmp_path, "a.svm", row, hash_bits=1)
    small = b"1 " + b" ".join(b"%d:429496729" % j for j in range(1, 9)) + b"\n"
    run(tmp_path, "b.svm", small, out="small", hash_bits=1)
    assert read_shards(tmp_path / "small")[0].sum() == 8 * 429496729


def test_the_longest_line_is_one_for_any_shards(tmp_path: Path) -> None:
    line = b"x" * 1999
    for size in (1024, 1 << 20):
        assert run(tmp_path, "a.txt", b"y\n" + line, out=str(size), shard_bytes=size, max_line_bytes=1999).rows == 2
        with pytest.raises(InputError, match="raise max_line_bytes"):
            run(tmp_path, "b.txt", b"y\n" + line + b"x", out=f"b{size}", shard_bytes=size, max_line_bytes=1999)


def test_what_is_wrong_further_up_is_said(tmp_path: Path) -> None:
    """A bad row before a line that is too long, whatever is read first."""
    data = (
        jsonl(texts(100)) + b"{\n" + jsonl(texts(100, 1), id=lambda k: f"e{k}") + b'{"text":"' + b"x" * 9000 + b'"}\n'
    )
    with pytest.raises(InputError, match=r"a\.jsonl, line 101: not valid JSON"):
        run(tmp_path, "a.jsonl", data, shard_bytes=1024, max_line_bytes=3000)


def test_quarantines_are_all_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(jsonl(texts(3), id=lambda k, name=name: f"{name}{k}") + b"{\n")
        assert call(monkeypatch, "ingest", f"{name}.jsonl", "--out", "out", "--max-bad-rows", "1") == 0
    said = "".join(capsys.readouterr().err.split("\n"))
    manifest = latest_manifest(tmp_path / "out")
    assert manifest is not None
    assert all(entry.file in said for entry in manifest.quarantine)
    assert len(manifest.quarantine) == 2


def test_classes_in_prediction_and_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prediction asks for no label; in evaluation a label of no class is a bad row, as at ingest."""
    run(tmp_path, "a.jsonl", jsonl(texts(40)), classes=("n", "p"), max_bad_rows=1)
    assert call(monkeypatch, "train", tmp_path / "out", "--out", tmp_path / "m", "--algorithm", "rda") == 0
    (tmp_path / "tree" / "later").mkdir(parents=True)
    (tmp_path / "tree" / "later" / "1.txt").write_text("alpha")
    capsys.readouterr()
    assert call(monkeypatch, "predict", tmp_path / "m", tmp_path / "tree") == 0
    assert capsys.readouterr().out.startswith("tree/later/1.txt\t")
    odd = jsonl(texts(10), label=lambda k: "pnq"[k % 3] if k in (1, 2) else "p")
    (tmp_path / "t.jsonl").write_bytes(odd)
    told = evaluate_model(Model(tmp_path / "m"), [str(tmp_path / "t.jsonl")], {}, lambda *_: None)
    assert told["rows"] == 9
    (tmp_path / "t.jsonl").write_bytes(jsonl(texts(10), label=lambda k: "q"))
    with pytest.raises(InputError, match=r"t\.jsonl, line 2: the label is not one of the 2 classes"):
        evaluate_model(Model(tmp_path / "m"), [str(tmp_path / "t.jsonl")], {}, lambda *_: None)
