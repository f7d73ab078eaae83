"""The first run file for inputs of every kind: it is valid as it is, and with each of its commented options."""

import csv
import datetime
import gzip
import json
import re
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from sparseoco.pipeline.run_file import EvaluateOptions, RunFile, load_run_file
from sparseoco.pipeline.steps import run_ingest
from sparseoco.store.shards import Store
from tests.support.commands import Cli

WORDS = {"pos": "a good film with fine actors", "neg": "a bad film with dull dialogue"}
ROWS = 80


def records(**others: Any) -> list[dict[str, Any]]:
    """Rows of id, text and label, and others, computed from the number of the row."""
    labels = [("pos", "neg")[k % 2] for k in range(ROWS)]
    rows = [{"id": f"d{k}", "text": f"{WORDS[label]} w{k % 7}", "label": label} for k, label in enumerate(labels)]
    return [row | {name: value(k) for name, value in others.items()} for k, row in enumerate(rows)]


def write(path: Path, rows: list[Any]) -> Path:
    """Write rows in the format that the path says; rows of CSV that are lists have no header."""
    if ".jsonl" in path.name:
        pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
        path.write_bytes(pack(b"".join(json.dumps(row).encode() + b"\n" for row in rows)))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        lists = rows if isinstance(rows[0], list) else [list(rows[0]), *(list(row.values()) for row in rows)]
        with path.open("w", newline="") as file:
            csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",").writerows(lists)
    return path


def write_folder(folder: Path, codecs: tuple[str, ...] = ("utf-8",)) -> Path:
    """A text a file in folders of their labels, in each of these encodings in turn."""
    for k, row in enumerate(records()):
        path = folder / row["label"] / f"{k}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{row['text']} naïve café".encode(codecs[k % len(codecs)]))
    return folder


class Proposal(NamedTuple):
    """The run file that init writes, its text, and what init prints."""

    run: RunFile
    text: str
    out: str


def propose(cli: Cli, source: Path) -> Proposal:
    """The run file for an input, which is valid with any of its comments."""
    file = source.parent / "first.toml"
    file.unlink(missing_ok=True)
    out = cli("init", source, "--out", file).out
    assert f"sparseoco run {file}" in out
    changed, found = file.parent / "with.toml", 0
    lines = file.read_text().splitlines()
    end = next(k for k, line in enumerate(lines) if line.startswith("# [score]"))
    for k, line in enumerate(lines[:end]):
        if re.match(r"# [\w.]+ = ", line) and not line.startswith("# fields."):
            changed.write_text("\n".join([*lines[:k], line[2:], *lines[k + 1 :]]))
            load_run_file(changed)
            found += 1
    assert found > 8
    if fields := [line[2:] for line in lines if line.startswith("# fields.")]:  # they replace text_field, all together
        kept = [line for line in lines if not line.startswith("text_field")]
        place = kept.index("[ingest]") + 1
        changed.write_text("\n".join([*kept[:place], *fields, *kept[place:]]))
        load_run_file(changed)
    changed.write_text("\n".join([*lines[:end], *(line[2:] for line in lines[end:])]))
    assert load_run_file(changed).score is not None
    return Proposal(load_run_file(file), file.read_text(), out)


PLAIN = [[row["text"], row["label"]] for row in records()]
SHORT = [["fine actors, good film", "pos"], ["dull and bad film", "neg"], ["fine, fine", "pos"], ["so bad", "neg"]]
SPLIT = {"ingest.where": {"part": "train"}, "evaluate.where": {"part": "test"}, "ingest.label_field": "label"}
NUMBERED = {"ingest.header": False, "ingest.text_field": "1", "ingest.label_field": "2"}
CASES: dict[str, tuple[str, list[Any], dict[str, Any], list[str]]] = {
    "records": (
        "reviews.jsonl",
        records(author=lambda k: f"a{k % 9}", date=lambda k: f"2024-01-{k % 28 + 1:02}"),
        {"ingest.text_field": "text", "ingest.label_field": "label", "ingest.labels": "classes", "search.metric": None},
        ["in a sample of 80 documents: neg (40), pos (40)", '# group_field = "author"', '# time_field = "date"'],
    ),
    "fields by type and values": (
        "a.jsonl.gz",
        [
            {"key": row["id"], "summary": row["text"], "verdict": row["label"], "votes": k % 5, "price": 1.5 + k}
            for k, row in enumerate(records())
        ],
        {"ingest.text_field": "summary", "ingest.label_field": "verdict"},
        ['# id_field = "key"', '# weight_field = "votes"', '# fields.price = { type = "number" }'],
    ),
    "a rare class": (
        "a.jsonl",
        records(label=lambda k: "spam" if k % 16 == 0 else "ham"),
        {"search.metric": "average_precision", "search.positive_class": "spam"},
        ['# class_weight = "balanced"', "\nthreshold = "],
    ),
    "a split": ("a.jsonl.zst", records(part=lambda k: "test" if k % 4 == 3 else "train"), SPLIT, []),
    "a part for validation": (
        "a.jsonl",
        records(part=lambda k: ["train", "validation", "test", "train"][k % 4]),
        SPLIT,
        ["20 documents in the sample with part = 'validation'", "in a sample of 40 documents"],
    ),
    "lists of labels": (
        "a.jsonl",
        [{"text": row["text"], "topics": [["a"], ["a", "b"], []][k % 3]} for k, row in enumerate(records())],
        {"ingest.label_field": "topics", "ingest.labels": "multi"},
        [],
    ),
    "numbers": (
        "b.csv",
        [{"review": row["text"], "score": 0.25 * k} for k, row in enumerate(records())],
        {"ingest.text_field": "review", "ingest.label_field": "score", "ingest.labels": "numbers"},
        ['# metric = "rmse"'],
    ),
    "no header": ("a.csv", PLAIN, NUMBERED, []),
    "few rows without a header": ("a.csv", SHORT, NUMBERED, []),
    "names of labels in a cell": (
        "a.tsv",
        [{"Body Text": row["text"], "Tags": ["a,b", "a", "b,c"][k % 3]} for k, row in enumerate(records())],
        {"ingest.text_field": "Body Text", "ingest.label_field": "Tags", "ingest.labels": "multi"},
        [],
    ),
    "few numbers and a date": (
        "a.parquet",
        [
            {"review": row["text"], "stars": k % 5, "seen": datetime.date(2024, 1, 1) + datetime.timedelta(k)}
            for k, row in enumerate(records())
        ],
        {"ingest.text_field": "review", "ingest.label_field": "stars", "ingest.labels": "classes"},
        ['# time_field = "seen"'],
    ),
    "rows without a label": (
        "a.jsonl",
        [row | {"label": None if k == 5 else row["label"]} for k, row in enumerate(records())],
        {"ingest.max_bad_rows": 100},
        ["Documents without a label are quarantined: 1 of 80"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_proposed(tmp_path: Path, cli: Cli, case: str) -> None:
    name, rows, values, lines = CASES[case]
    run, text, _ = propose(cli, write(tmp_path / name, rows))
    assert {key: attrgetter(key)(run) for key in values} == values
    assert [line for line in lines if line not in text] == []
    assert run.ingest.inputs == (str(tmp_path / name),)
    assert run.evaluate.holdout > 0 or run.evaluate.where


def test_a_part_that_is_not_used_is_told(tmp_path: Path, cli: Cli) -> None:
    name, rows, _, (sentence, _) = CASES["a part for validation"]
    assert sentence in propose(cli, write(tmp_path / name, rows)).out


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    for name in ("data", "runs"):
        (tmp_path / name).mkdir()
    write(tmp_path / "data" / "a.jsonl", records())
    monkeypatch.chdir(tmp_path)
    cli("init", "data/a.jsonl", "--out", "runs/a.toml")
    assert '"../data/a.jsonl"' in (tmp_path / "runs" / "a.toml").read_text()
    load_run_file(tmp_path / "runs" / "a.toml")


def test_a_run_file_of_the_name_of_its_input(tmp_path: Path, cli: Cli) -> None:
    """Its run would be written into the input."""
    mail = write_folder(tmp_path / "mail")
    error = cli("init", mail, "--out", tmp_path / "mail.toml", code=2).err
    assert "choose another --out, such as mail-run.toml" in " ".join(error.split())
    cli("init", mail, "--out", tmp_path / "mail-run.toml")


def test_documents_without_fields(tmp_path: Path, cli: Cli) -> None:
    text = propose(cli, write_folder(tmp_path / "mail")).text
    assert "2 classes in a sample of 80 documents: neg (40), pos (40)" in text
    (tmp_path / "a.svmlight").write_text("".join(f"{1 - 2 * (k % 2)} 1:2 {k + 2}:1\n" for k in range(ROWS)))
    text = propose(cli, tmp_path / "a.svmlight").text
    assert "text_field" not in text
    assert "ngram_range" not in text


def test_what_cannot_be_read_is_told_and_the_file_runs(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "data").mkdir()
    mail = propose(cli, write_folder(tmp_path / "data" / "mail", ("cp1252", *7 * ["utf-8"])))
    assert mail.run.ingest.encoding == "auto"
    assert "Not valid UTF-8: 10 of 80 rows" in mail.text
    assert "warning: Not valid UTF-8" in mail.out
    run_ingest(mail.run)
    lines = ["text,label", *(f"{row['text']} naïve café déjà vu,{row['label']}" for row in records())]
    (tmp_path / "b.csv").write_bytes("\n".join(lines).encode("cp1252"))
    assert propose(cli, tmp_path / "b.csv").run.ingest.encoding != "utf-8"
    path = write(tmp_path / "a.jsonl", records())
    path.write_bytes(b"no JSON\n" + path.read_bytes())
    found = propose(cli, path)
    assert found.run.ingest.max_bad_rows == 100
    assert "fields: id, text, label" in found.out
    for shown in (found.text, found.out):
        assert "1 of 81 rows in the sample cannot be read, the first:" in shown
    run_ingest(found.run)


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("a.txt", b"a text\nanother text\n", "no-labels"),
        ("a.csv", b"x,y\n1,2\n3,4\n", "no-text"),
        ("a.jsonl", b'{"text": "a b c d e"}\n{"text": "c d e f g"}\n', "no-labels"),
        ("a.jsonl", b"", "no-documents"),
    ],
)
def test_nothing_to_learn(tmp_path: Path, name: str, data: bytes, code: str, cli: Cli) -> None:
    (tmp_path / name).write_bytes(data)
    assert f"[{code}]" in cli("init", tmp_path / name, "--out", tmp_path / "first.toml", code=2).err
    assert not (tmp_path / "first.toml").exists()


def test_an_existing_file_is_replaced_only_on_request(tmp_path: Path, cli: Cli) -> None:
    write(tmp_path / "a.jsonl", records())
    file = tmp_path / "first.toml"
    file.write_text("mine")
    assert "--force" in cli("init", tmp_path / "a.jsonl", "--out", file, code=2).err
    assert file.read_text() == "mine"
    cli("init", tmp_path / "a.jsonl", "--out", file, "--force")
    load_run_file(file)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_fields_that_not_every_file_has_are_told(tmp_path: Path, cli: Cli, form: str) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / f"a.{form}", records(author=lambda k: f"a{k % 9}"))
    write(tmp_path / "in" / f"b.{form}", [dict(reversed(row.items())) for row in records(votes=lambda k: k % 5)])
    run, text, out = propose(cli, tmp_path / "in")
    assert (run.ingest.text_field, run.ingest.label_field) == ("text", "label")
    assert "Not used: 'author', which not every file has." in out
    assert '"author"' not in text
    run_ingest(run)


def test_files_without_a_header(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "in").mkdir()
    for name, rows in (("a", PLAIN[:20]), ("b", PLAIN[21:])):
        write(tmp_path / "in" / f"{name}.csv", rows)
    run, _, _ = propose(cli, tmp_path / "in")
    assert {key: attrgetter(key)(run) for key in NUMBERED} == NUMBERED


def test_one_class_and_ids_are_warned_of(tmp_path: Path, cli: Cli) -> None:
    for name, labels, warned in (
        ("one", lambda k: "sea", "one class only"),
        ("number", lambda k: k, "may be an id"),
        ("two", lambda k: k % 2, ""),
    ):
        source = write(tmp_path / f"{name}.jsonl", records(label=labels))
        out = cli("init", source, "--out", tmp_path / f"{name}.toml").out
        assert ("warning:" in out, warned in out) == (bool(warned), True)
        assert ("sparseoco run" in out) == (name != "one")
    for label in ("spam", "ham"):
        (tmp_path / "mail" / label).mkdir(parents=True)
    (tmp_path / "mail" / "spam" / "1.txt").write_text("a text")
    assert "sparseoco run" not in cli("init", tmp_path / "mail", "--out", tmp_path / "first.toml").out


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    "labels", [["x", "y", "x,y"], ["x", "y, x"], ["x, y", "z"], [["x"], ["x", "y"]], [["x"], ["y"]]]
)
def test_the_classes_in_the_comment_are_those_learned(tmp_path: Path, form: str, labels: list[Any], cli: Cli) -> None:
    if form == "csv":
        labels = [",".join(value) if isinstance(value, list) else value for value in labels]
    run, text, _ = propose(cli, write(tmp_path / f"a.{form}", records(label=lambda k: labels[k % len(labels)])))
    run = run.model_copy(update={"evaluate": EvaluateOptions(holdout=0)})
    run_ingest(run)
    classes = Store.open(run.store).manifest.labels.classes
    largest_first = sorted(classes, key=lambda entry: (-entry.rows, entry.name))
    assert f"sample of {ROWS} documents: {', '.join(f'{each.name} ({each.rows})' for each in largest_first)}\n" in text
    assert run.ingest.labels == "multi" or len(classes) == len(labels)
