"""No document is lost, joined, split or mislabelled without an error or a line that says so."""

import io
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sparseoco.store.manifest import Manifest
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import ReadOutcome, read_documents
from sparseoco.text.streams import codec_name, detect, to_utf8
from sparseoco.training.models import Model
from tests.support.commands import call
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes, jsonl, store_content, write_files

SMS = 'ham\tgo until\nham\t"hello there\nspam\tfree entry\nspam\tcall "now"\n'
ACCENTS = "label,text\nham,été à la plage naïve\nspam,garçon très content\n"


def taken(folder: Path, *inputs: Path, **options: Any) -> tuple[Manifest, list[str], list[str]]:
    """(manifest, ids, labels by name) of an ingest into a new store."""
    out = folder / f"out{len(list(folder.glob('out*')))}"
    manifest = ingest([str(path) for path in inputs], out, TextOptions.of(options))
    _, ids, labels, _ = store_content(out)
    names = [entry.name for entry in manifest.labels.classes]
    return manifest, ids, [names[label] if names else "" for label in labels]


# Quotes


def test_quotes_in_tsv_are_text(tmp_path: Path) -> None:
    fields = {"header": False, "label_field": "1", "text_field": "2"}
    for data in (SMS, SMS.replace("\n", "\r\n")):
        manifest = ingest_bytes(tmp_path, "a.tsv", data.encode(), out=f"{len(data)}", **fields)
        assert (manifest.rows, manifest.multiline_rows) == (4, 0)
        assert [(entry.name, entry.rows) for entry in manifest.labels.classes] == [("ham", 2), ("spam", 2)]
    with raises_code("missing-field", "b.tsv", """the columns are '"label"', '"text"'"""):
        ingest_bytes(tmp_path, "b.tsv", b'"label"\t"text"\n"ham"\t"two\nlines"\n', out="b")
    with raises_code("malformed-record", "d.tsv, line 2"):
        ingest_bytes(tmp_path, "d.tsv", b'label\ttext\nham\t"a\tb"\n', out="d")


def test_records_over_several_lines_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tsv = "label\ttext\n" + SMS
    write_files(tmp_path, {"a.csv": tsv.replace("\t", ","), "a.tsv": tsv})
    assert call(monkeypatch, "ingest", tmp_path / "a.csv", "--min-df", 1, "--out", tmp_path / "csv") == 0
    assert "1 record spans several lines" in capsys.readouterr().err
    assert call(monkeypatch, "ingest", tmp_path / "a.tsv", "--min-df", 1, "--out", tmp_path / "tsv") == 0
    said = capsys.readouterr()
    assert "4 documents" in said.out
    assert said.err == ""


def test_records_over_several_lines_are_those_of_documents(tmp_path: Path) -> None:
    """Not those that `where` or a holdout leaves out, nor bad rows."""
    rows = [f'{part},d{k},p,"two\n{k}"\n' for k in range(100) for part in ("train", "test")]
    path = tmp_path / "a.csv"
    path.write_text("split,id,label,text\n" + "".join(rows) + 'test,"x\ny",p\n')
    options = TextOptions(where={"split": "test"}, holdout=0.2, max_bad_rows=1)
    expected = []
    for withheld in (False, True):
        outcome = ReadOutcome()
        batches = list(read_documents([str(path)], options, withheld=withheld, batch_bytes=500, outcome=outcome))
        assert outcome.multiline_rows == outcome.documents == sum(map(len, batches))
        assert all(batch.multiline.tolist() == batch.lines.tolist() for batch in batches)
        expected.append(outcome.documents)
    assert sum(expected) == 100
    assert 5 < expected[1] < 40
    manifest = ingest([str(path)], tmp_path / "out", options, shard_bytes=1024)
    assert (manifest.rows, manifest.multiline_rows) == (expected[0], expected[0])


def test_records_without_a_header_have_one_size(tmp_path: Path) -> None:
    options = {"header": False, "label_field": "1", "text_field": "2"}
    with raises_code("malformed-record", "a.tsv, line 2: 3 fields instead of 2"):
        ingest_bytes(tmp_path, "a.tsv", b"ham\tgo until\nspam\tfree\tentry\n", **options)
    marked = b"\xef\xbb\xbf\r\n" + b'"ham","two\r\nlines"\r\nspam,x y\r\n' * 60
    for size in (1024, 1 << 20):
        manifest = ingest_bytes(tmp_path, "b.csv", marked, out=str(size), shard_bytes=size, **options)
        assert (manifest.rows, manifest.multiline_rows) == (120, 60)


def test_lines_that_end_with_cr_alone(tmp_path: Path) -> None:
    with raises_code("line-ends", "a.txt"):
        ingest_bytes(tmp_path, "a.txt", b"one\rtwo\rthree\r")
    assert ingest_bytes(tmp_path, "b.txt", b"one\r\ntwo\r", out="b").rows == 2


# Folders


def test_labels_are_the_folders_of_files(tmp_path: Path) -> None:
    files = {f"enron{k}/{name}/{k}.{name}": f"mail {name}\nof {k}" for k in (1, 2) for name in ("ham", "spam")}
    enron = write_files(tmp_path / "enron", files)
    labels = ["ham", "spam", "ham", "spam"]
    assert taken(tmp_path, enron)[2] == labels
    assert taken(tmp_path, enron / "enron1/ham", enron / "enron1/spam")[1:] == (
        ["ham/1.ham", "spam/1.spam"],
        labels[:2],
    )
    assert taken(tmp_path, enron, unlabelled=True)[2] == [""] * 4
    assert taken(tmp_path, enron, include=["enron1"], exclude=["*.spam"])[1] == ["enron/enron1/ham/1.ham"]
    with raises_code("no-documents", enron, "--include"):
        taken(tmp_path, enron, include=["nothing"])
    write_files(enron, {"enron1/Summary.txt": "of all", ".hidden/x": "y"})
    with raises_code("invalid-input", "Summary.txt", "--exclude"):
        taken(tmp_path, enron)
    assert taken(tmp_path, enron, exclude=["Summary.txt"])[2] == labels
    assert taken(tmp_path, enron, unlabelled=True)[0].rows == 5


def test_linked_folders_are_read(tmp_path: Path) -> None:
    write_files(tmp_path, {"else/ham/1": "one", "mail/spam/2": "two"})
    (tmp_path / "mail" / "ham").symlink_to(tmp_path / "else" / "ham")
    assert taken(tmp_path, tmp_path / "mail")[2] == ["ham", "spam"]
    (tmp_path / "mail" / "spam" / "again").symlink_to(tmp_path / "mail")
    with raises_code("not-a-file", "again"):
        taken(tmp_path, tmp_path / "mail")


def test_folders_of_tables_and_of_text(tmp_path: Path) -> None:
    rows = [jsonl([f"text {k}"], id=lambda _, k=k: f"d{k}").decode() for k in range(2)]
    tables = write_files(tmp_path / "t", {"2024/a.jsonl": rows[0], "2025/b.jsonl": rows[1], "_SUCCESS": ""})
    assert taken(tmp_path, tables)[1] == ["d0", "d1"]  # rows, not files, though in folders of folders
    parts = write_files(tmp_path / "parts", {"part-0": rows[0], "part-1": rows[1]})
    assert taken(tmp_path, parts)[1] == ["d0", "d1"]
    write_files(tables, {"2025/readme.md": "about them"})
    with raises_code("mixed-folder", "readme.md", "a.jsonl"):
        taken(tmp_path, tables)
    assert taken(tmp_path, tables, include=["*.jsonl"])[0].rows == 2
    lines = write_files(tmp_path / "lines", {"a.txt": "one\ntwo\n", "b.txt": "three\n"})
    assert taken(tmp_path, lines)[1:] == (["lines/a.txt", "lines/b.txt"], ["lines"] * 2)
    assert taken(tmp_path, lines, format="lines")[1] == ["a.txt:1", "a.txt:2", "b.txt:1"]
    with raises_code("unsupported-combination", "a.txt", "--format folder"):
        taken(tmp_path, lines / "a.txt", format="folder")


# Encodings


def test_encodings_are_reported_and_read(tmp_path: Path) -> None:
    data = ACCENTS.encode("latin-1")
    with raises_code("encoding", "a.csv, line 2: not valid UTF-8", "--encoding", "cp1252"):
        ingest_bytes(tmp_path, "a.csv", data)
    expected = store_content_of(tmp_path, "b.csv", ACCENTS.encode())
    for name, codec in (("c.csv", "latin-1"), ("d.csv", "auto")):
        assert store_content_of(tmp_path, name, data, encoding=codec) == expected
    for codec in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        wide = ACCENTS.encode(codec)
        with raises_code("encoding", f"{codec}.csv is UTF-", f"--encoding {codec}"):
            ingest_bytes(tmp_path, f"{codec}.csv", wide, out="none")
        for chosen in (codec, "auto"):
            found = store_content_of(tmp_path, f"{codec}.csv", wide, out=f"{codec}-{chosen}", encoding=chosen)
            assert found == expected
    for name, data in (("a.xlsx", b"PK\x03\x04etc"), ("x.jsonl", b"\x1f\x8b\x08\0"), ("p.txt", b"PAR1\xff\0")):
        for codec in ("utf-8", "auto", "cp1252"):
            with raises_code("not-text", name):
                ingest_bytes(tmp_path, name, data, out="none", format="jsonl", encoding=codec)
    with raises_code("invalid-option", "encoding"):
        TextOptions.of({"encoding": "rot13"})
    assert codec_name("UTF_8-SIG") == "utf-8"


def store_content_of(folder: Path, name: str, data: bytes, out: str = "", **options: Any) -> Any:
    """Terms, labels and counts of a file, whose ids begin with its name."""
    ingest_bytes(folder, name, data, out=out or f"{name}.out", shard_bytes=1024, **options)
    terms, _, labels, rows = store_content(folder / (out or f"{name}.out"))
    return terms, labels, rows


def test_conversion_in_any_parts() -> None:
    for codec in ("utf-16", "shift_jis", "utf-7", "cp1252"):
        text = "ab +é日" if codec != "cp1252" else "ab +é€"
        data = text.replace("é", "e").encode(codec) if codec == "shift_jis" else text.encode(codec)
        parts = [data[k : k + 1] for k in range(len(data))]
        assert b"".join(to_utf8(parts, codec_name(codec))).decode() == data.decode(codec)
    assert b"".join(to_utf8([b"a\0\0", b"\xd8"], "utf-16-le")) == b"a\xff"
    assert detect(b"plain") == "utf-8"
    assert detect("日本語のテキストです。これは長い文です。".encode("shift_jis") * 5) == "cp932"


STRAY = b"plain words of an english mail, " * 100 + b"it\x92s here, don\x92t " + b"go on " * 500
SHORT = ["it’s a nice day", "São Paulo não", "über uns", "Zwölf Möbel", "été naïve"]
WRAPPED = ["%s", '{"text":"%s"}\n', "id,text\n1,%s\n", "id\ttext\n1\t%s\n"]


@pytest.mark.parametrize(
    ("sample", "codec"),
    [
        (STRAY, "cp1252"),
        (STRAY + b"\x81", "cp1252"),
        (STRAY + "café naïve über señor".encode() * 3, "utf-8"),
        *(((form % text).encode("cp1252"), "cp1252") for form in WRAPPED for text in SHORT),
        ("Вчера мы ходили в кино, потом вернулись домой".encode("cp1251"), "cp1251"),
        ("我們去電影院看了一部關於戰爭的新電影".encode("big5"), "big5"),
    ],
)
def test_a_few_bytes_beyond_ascii_are_western(sample: bytes, codec: str) -> None:
    assert detect(sample) == codec


def test_stray_bytes_do_not_end_an_ingest(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "t", {"a/1": "xx", "b/2": "yy"})
    (folder / "a" / "3").write_bytes(STRAY)
    with raises_code("encoding", "t/a/3", "--encoding", "--encoding-errors replace"):
        taken(tmp_path, folder)
    for options in ({"encoding": "auto"}, {"encoding_errors": "replace"}):
        assert taken(tmp_path, folder, **options)[0].rows == 3
    (folder / "a" / "3").write_bytes(STRAY + "été".encode() * 9)
    with raises_code("encoding", "t/a/3", "--encoding-errors replace"):  # not UTF-8 read as Western
        taken(tmp_path, folder, encoding="auto")

    (folder / "a" / "3").write_bytes("deux mots".encode("utf-16"))
    with raises_code("encoding", "t/a/3", "is UTF-16", "--encoding utf-16"):
        taken(tmp_path, folder)
    assert taken(tmp_path, folder, max_bad_rows=1)[0].quarantined_rows == 1
    assert taken(tmp_path, folder, encoding="auto")[0].rows == 3


# Empty files, standard input, and what is printed


def test_what_is_understood_is_printed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path, {"a.tsv": "label\ttext\n" + SMS, "b.jsonl": "", "c.txt": '{"text": "x"}\n', "d/ham/1": "e"})
    write_files(tmp_path, {"d/.Spam/1": "e", "d/ham/.2": "e"})
    (tmp_path / "e.csv").write_bytes(ACCENTS.encode("latin-1"))
    (tmp_path / "f.jsonl").write_text('{broken\n\n{"id": "a", "text": "x"}\n')
    (tmp_path / "g.jsonl").write_text("{broken\n")
    monkeypatch.chdir(tmp_path)
    for inputs, parts in {
        ("a.tsv", "b.jsonl"): (
            "quotes are text",
            "label, text",
            "'id'",
            "ham (2), spam (2)",
            "a.tsv:2",
            "empty files: b.jsonl",
        ),
        ("c.txt",): ("one document per line", "look like JSON lines", "c.txt:1"),
        ("d",): ("one document per file", "ham (1)", "d/ham/1", "hidden, and left out: d/.Spam, d/ham/.2\n"),
        ("d", "--exclude", ".*"): ("ham (1); first id: d/ham/1\n",),
        ("e.csv",): ("line 2: not valid UTF-8",),
        ("f.jsonl",): ("fields: id, text; text from 'text'", "id from 'id'", "line 1: not valid JSON"),
        ("e.csv", "--encoding", "auto"): ("cp1252", "ham (1), spam (1)"),
    }.items():
        assert call(monkeypatch, "ingest", *inputs, "--out", "out", "--dry-run") == 0
        printed = capsys.readouterr().out
        assert all(part in printed for part in parts), printed
    assert call(monkeypatch, "ingest", "g.jsonl", "--out", "out", "--dry-run") == 0
    assert "field" not in capsys.readouterr().out.partition(":")[2]  # nothing is known of them
    assert not (tmp_path / "out").exists()
    assert call(monkeypatch, "ingest", "b.jsonl", "--out", "out") == 2
    assert "b.jsonl is empty" in capsys.readouterr().err


def test_predictions_of_folders_and_of_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["alpha beta", "gamma delta"] * 10
    ingest_bytes(tmp_path, "a.jsonl", jsonl(texts))
    assert call(monkeypatch, "train", tmp_path / "out", "--out", tmp_path / "m", "--algorithm", "rda") == 0
    capsys.readouterr()
    write_files(tmp_path, {"inbox/1.txt": "alpha\nbeta", "inbox/sub/2": "gamma", "inbox/empty": ""})
    assert call(monkeypatch, "predict", tmp_path / "m", tmp_path / "inbox", tmp_path / "none.txt") == 2
    assert call(monkeypatch, "predict", tmp_path / "m", tmp_path / "inbox") == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == [
        "inbox/1.txt", "inbox/empty", "inbox/sub/2",
    ]  # fmt: skip
    for arguments, expected, printed in (
        (("-",), 20, "looks like JSON lines"),
        (("--format", "jsonl"), 20, ""),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(jsonl(texts))))
        assert call(monkeypatch, "predict", tmp_path / "m", *arguments) == 0
        said = capsys.readouterr()
        assert len(said.out.splitlines()) == expected
        assert printed in said.err
    model = Model(tmp_path / "m")
    for wrong in (
        "one string",
        b"bytes",
        {"a": "mapping"},
        {"a set"},
        pd.DataFrame({"text": ["a"]}),
        [b"bytes"],
        [None],
    ):
        with raises_code("invalid-texts"):
            model.predict(wrong)  # type: ignore[arg-type]


def test_where_names_a_column(tmp_path: Path) -> None:
    with raises_code("missing-field", "a.csv", "'spilt'"):
        ingest_bytes(tmp_path, "a.csv", ACCENTS.encode(), where={"spilt": "train"})
