"""The first run file for inputs of every kind: it is valid as it is, and with each of its commented options."""

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from sparseoco.pipeline.run_file import EvaluateOptions, RunFile, load_run_file
from sparseoco.pipeline.steps import run_ingest
from sparseoco.store.shards import Store
from tests.support.commands import call

WORDS = {"pos": "a good film with fine actors", "neg": "a bad film with dull dialogue"}
ROWS = 80


def records(**others: Any) -> list[dict[str, Any]]:
    """Rows of id, text and label, and others, computed from the number of the row."""
    labels = [("pos", "neg")[k % 2] for k in range(ROWS)]
    rows = [{"id": f"d{k}", "text": f"{WORDS[label]} w{k % 7}", "label": label} for k, label in enumerate(labels)]
    return [row | {name: value(k) for name, value in others.items()} for k, row in enumerate(rows)]


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def delimited(path: Path, rows: list[list[Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def propose(monkeypatch: pytest.MonkeyPatch, *inputs: Path) -> tuple[RunFile, str]:
    """The run file that init writes for inputs, and its text."""
    file = inputs[0].parent / "first.toml"
    assert call(monkeypatch, "init", *inputs, "--out", file) == 0
    return load_run_file(file), file.read_text()


def check_comments(file: Path, text: str) -> int:
    """Check that the file is valid with any one of the options in its comments; gives their number."""
    lines, found = text.splitlines(), 0
    end = next(k for k, line in enumerate(lines) if line.startswith("# [score]"))
    for k, line in enumerate(lines[:end]):
        if re.match(r"# [\w.]+ = ", line) and not line.startswith("# fields."):
            (file.parent / "with.toml").write_text("\n".join([*lines[:k], line[2:], *lines[k + 1 :]]))
            load_run_file(file.parent / "with.toml")
            found += 1
    fields = [line[2:] for line in lines if line.startswith("# fields.")]
    if fields:  # they replace text_field, all together
        kept = [line for line in lines if not line.startswith("text_field")]
        place = kept.index("[ingest]") + 1
        (file.parent / "with.toml").write_text("\n".join([*kept[:place], *fields, *kept[place:]]))
        load_run_file(file.parent / "with.toml")
    (file.parent / "with.toml").write_text("\n".join([*lines[:end], *(line[2:] for line in lines[end:])]))
    assert load_run_file(file.parent / "with.toml").score is not None
    return found


def test_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "reviews.jsonl"
    path.write_bytes(json_lines(records(author=lambda k: f"a{k % 9}", date=lambda k: f"2024-01-{k % 28 + 1:02}")))
    run, text = propose(monkeypatch, path)
    assert (run.ingest.text_field, run.ingest.label_field, run.ingest.labels) == ("text", "label", "classes")
    assert run.ingest.inputs == (str(path),)
    assert run.evaluate.holdout > 0
    assert run.search.metric is None
    assert "2 classes in a sample of 80 documents: neg (40), pos (40)" in text
    assert '# group_field = "author"' in text
    assert '# time_field = "date"' in text
    assert check_comments(tmp_path / "first.toml", text) > 12
    assert f"sparseoco run {tmp_path / 'first.toml'}" in capsys.readouterr().out


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "data" / "a.jsonl").write_bytes(json_lines(records()))
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "init", "data/a.jsonl", "--out", "runs/a.toml") == 0
    assert '"../data/a.jsonl"' in (tmp_path / "runs" / "a.toml").read_text()
    load_run_file(tmp_path / "runs" / "a.toml")


def test_a_run_file_of_the_name_of_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its run would be written into the input."""
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail" / "a.jsonl").write_bytes(json_lines(records()))
    assert call(monkeypatch, "init", tmp_path / "mail", "--out", tmp_path / "mail.toml") == 2
    assert "choose another --out, such as mail-run.toml" in " ".join(capsys.readouterr().err.split())
    assert call(monkeypatch, "init", tmp_path / "mail", "--out", tmp_path / "mail-run.toml") == 0


def test_fields_by_type_and_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"key": row["id"], "summary": row["text"], "verdict": row["label"], "votes": k % 5, "price": 1.5 + k}
        for k, row in enumerate(records())
    ]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json_lines(rows)))
    run, text = propose(monkeypatch, tmp_path / "a.jsonl.gz")
    assert (run.ingest.text_field, run.ingest.label_field) == ("summary", "verdict")
    for line in ('# id_field = "key"', '# weight_field = "votes"', '# fields.price = { type = "number" }'):
        assert line in text


def test_a_rare_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row | {"label": "spam" if k % 16 == 0 else "ham"} for k, row in enumerate(records())]
    (tmp_path / "a.jsonl").write_bytes(json_lines(rows))
    run, text = propose(monkeypatch, tmp_path / "a.jsonl")
    assert (run.search.metric, run.search.positive_class) == ("average_precision", "spam")
    assert run.search.threshold is not None
    assert '# class_weight = "balanced"' in text
    assert check_comments(tmp_path / "first.toml", text) > 8


def test_a_split_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json_lines(records(part=lambda k: "test" if k % 4 == 3 else "train"))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(data))
    run, _ = propose(monkeypatch, tmp_path / "a.jsonl.zst")
    assert (run.ingest.where, run.evaluate.where) == ({"part": "train"}, {"part": "test"})
    assert run.ingest.label_field == "label"


def test_lists_of_labels_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": row["text"], "topics": [["a"], ["a", "b"], []][k % 3]} for k, row in enumerate(records())]
    (tmp_path / "a.jsonl").write_bytes(json_lines(rows))
    run, _ = propose(monkeypatch, tmp_path / "a.jsonl")
    assert (run.ingest.label_field, run.ingest.labels) == ("topics", "multi")
    (tmp_path / "first.toml").unlink()
    rows = [[row["text"], 0.25 * k] for k, row in enumerate(records())]
    run, text = propose(monkeypatch, delimited(tmp_path / "b.csv", [["review", "score"], *rows]))
    assert (run.ingest.text_field, run.ingest.label_field, run.ingest.labels) == ("review", "score", "numbers")
    assert '# metric = "rmse"' in text
    assert check_comments(tmp_path / "first.toml", text) > 8


def test_csv_and_tsv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [[row["text"], row["label"]] for row in records()]
    run, _ = propose(monkeypatch, delimited(tmp_path / "a.csv", rows))
    assert (run.ingest.header, run.ingest.text_field, run.ingest.label_field) == (False, "1", "2")
    (tmp_path / "first.toml").unlink()
    short = [["fine actors, good film", "pos"], ["dull and bad film", "neg"], ["fine, fine", "pos"], ["so bad", "neg"]]
    run, _ = propose(monkeypatch, delimited(tmp_path / "b.csv", short))
    assert (run.ingest.header, run.ingest.text_field, run.ingest.label_field) == (False, "1", "2")
    (tmp_path / "first.toml").unlink()
    several = [[text, ["a,b", "a", "b,c"][k % 3]] for k, (text, _) in enumerate(rows)]
    run, _ = propose(monkeypatch, delimited(tmp_path / "a.tsv", [["Body Text", "Tags"], *several], "\t"))
    assert (run.ingest.text_field, run.ingest.label_field, run.ingest.labels) == ("Body Text", "Tags", "multi")


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = records(stars=lambda k: k % 5, seen=lambda k: np.datetime64("2024-01-01") + k)
    columns = {"review": [row["text"] for row in rows], "stars": [row["stars"] for row in rows]}
    pq.write_table(pa.table(columns | {"seen": [row["seen"].item() for row in rows]}), tmp_path / "a.parquet")
    run, text = propose(monkeypatch, tmp_path / "a.parquet")
    assert (run.ingest.text_field, run.ingest.label_field, run.ingest.labels) == ("review", "stars", "classes")
    assert '# time_field = "seen"' in text


def test_documents_without_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k, row in enumerate(records()):
        (tmp_path / "mail" / row["label"]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "mail" / row["label"] / f"{k}.txt").write_text(row["text"])
    _, text = propose(monkeypatch, tmp_path / "mail")
    assert "2 classes in a sample of 80 documents: neg (40), pos (40)" in text
    (tmp_path / "first.toml").unlink()
    (tmp_path / "a.svmlight").write_text("".join(f"{1 - 2 * (k % 2)} 1:2 {k + 2}:1\n" for k in range(ROWS)))
    _, text = propose(monkeypatch, tmp_path / "a.svmlight")
    assert "text_field" not in text
    assert "ngram_range" not in text


def test_rows_without_a_label_and_other_encodings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row | {"label": None if k == 5 else row["label"]} for k, row in enumerate(records())]
    (tmp_path / "a.jsonl").write_bytes(json_lines(rows))
    run, text = propose(monkeypatch, tmp_path / "a.jsonl")
    assert run.ingest.max_bad_rows >= 100
    assert "Documents without a label are quarantined: 1 of 80" in text
    (tmp_path / "first.toml").unlink()
    lines = ["text,label", *(f"{row['text']} naïve café déjà vu,{row['label']}" for row in records())]
    (tmp_path / "b.csv").write_bytes("\n".join(lines).encode("cp1252"))
    run, _ = propose(monkeypatch, tmp_path / "b.csv")
    assert run.ingest.encoding != "utf-8"


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("a.txt", b"a text\nanother text\n", "no-labels"),
        ("a.csv", b"x,y\n1,2\n3,4\n", "no-text"),
        ("a.jsonl", b'{"text": "a b c d e"}\n{"text": "c d e f g"}\n', "no-labels"),
        ("a.jsonl", b"", "no-documents"),
    ],
)
def test_nothing_to_learn(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    data: bytes,
    code: str,
) -> None:
    (tmp_path / name).write_bytes(data)
    assert call(monkeypatch, "init", tmp_path / name, "--out", tmp_path / "first.toml") == 2
    assert f"[{code}]" in capsys.readouterr().err
    assert not (tmp_path / "first.toml").exists()


def test_an_existing_file_is_replaced_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(records()))
    file = tmp_path / "first.toml"
    file.write_text("mine")
    assert call(monkeypatch, "init", tmp_path / "a.jsonl", "--out", file) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert call(monkeypatch, "init", tmp_path / "a.jsonl", "--out", file, "--force") == 0
    load_run_file(file)


@pytest.mark.slow
def test_a_run_of_several_labels_in_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [[row["text"], ["a,b", "a", "b"][k % 3]] for k, row in enumerate(records())]
    propose(monkeypatch, delimited(tmp_path / "a.csv", [["text", "tags"], *rows]))
    assert call(monkeypatch, "run", tmp_path / "first.toml") == 0
    assert (tmp_path / "first" / "report" / "report.html").exists()


def test_one_class_and_ids_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, labels, warned in (
        ("one", lambda k: "sea", "one class only"),
        ("number", lambda k: k, "may be an id"),
        ("two", lambda k: k % 2, ""),
    ):
        (tmp_path / f"{name}.jsonl").write_bytes(json_lines(records(label=labels)))
        assert call(monkeypatch, "init", tmp_path / f"{name}.jsonl", "--out", tmp_path / f"{name}.toml") == 0
        out = capsys.readouterr().out
        assert ("warning:" in out, warned in out) == (bool(warned), True)
        assert ("sparseoco run" in out) == (name != "one")
    for label in ("spam", "ham"):
        (tmp_path / "mail" / label).mkdir(parents=True)
    (tmp_path / "mail" / "spam" / "1.txt").write_text("a text")
    assert call(monkeypatch, "init", tmp_path / "mail", "--out", tmp_path / "first.toml") == 0
    assert "sparseoco run" not in capsys.readouterr().out


def test_a_validation_part_that_is_not_used_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json_lines(records(part=lambda k: ["train", "validation", "test", "train"][k % 4]))
    (tmp_path / "a.jsonl").write_bytes(data)
    run, text = propose(monkeypatch, tmp_path / "a.jsonl")
    assert (run.ingest.where, run.evaluate.where) == ({"part": "train"}, {"part": "test"})
    told = "20 documents in the sample with part = 'validation'"
    assert told in text
    assert told in capsys.readouterr().out
    assert "in a sample of 40 documents" in text  # those that are learned


def test_what_cannot_be_read_is_told_and_the_file_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for k, row in enumerate(records()):
        (tmp_path / "data" / "mail" / row["label"]).mkdir(parents=True, exist_ok=True)
        codec = "cp1252" if k % 8 == 0 else "utf-8"
        (tmp_path / "data" / "mail" / row["label"] / f"{k}.txt").write_bytes(f"{row['text']} naïve café".encode(codec))
    run, text = propose(monkeypatch, tmp_path / "data" / "mail")
    assert run.ingest.encoding == "auto"
    assert "Not valid UTF-8: 10 of 80 rows" in text
    assert "warning: Not valid UTF-8" in capsys.readouterr().out
    run_ingest(run)
    (tmp_path / "a.jsonl").write_bytes(b"no JSON\n" + json_lines(records()))
    run, text = propose(monkeypatch, tmp_path / "a.jsonl")
    out = capsys.readouterr().out
    assert run.ingest.max_bad_rows == 100
    assert "fields: id, text, label" in out
    for shown in (text, out):
        assert "1 of 81 rows in the sample cannot be read, the first:" in shown
    run_ingest(run)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    "labels", [["x", "y", "x,y"], ["x", "y, x"], ["x, y", "z"], [["x"], ["x", "y"]], [["x"], ["y"]]]
)
def test_the_classes_in_the_comment_are_those_that_are_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, labels: list[Any]
) -> None:
    if form == "csv":
        labels = [",".join(value) if isinstance(value, list) else value for value in labels]
    rows = records(label=lambda k: labels[k % len(labels)])
    path = tmp_path / f"a.{form}"
    if form == "csv":
        delimited(path, [list(rows[0]), *(list(row.values()) for row in rows)])
    elif form == "jsonl":
        path.write_bytes(json_lines(rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    run, text = propose(monkeypatch, path)
    run = run.model_copy(update={"evaluate": EvaluateOptions(holdout=0)})
    run_ingest(run)
    classes = Store.open(run.store).manifest.labels.classes
    largest_first = sorted(classes, key=lambda entry: (-entry.rows, entry.name))
    assert f"sample of {ROWS} documents: {', '.join(f'{each.name} ({each.rows})' for each in largest_first)}\n" in text
    assert run.ingest.labels == "multi" or len(classes) == len(labels)
