"""Unusual inputs: no document is lost, joined, split or mislabelled without an error or a line that says so."""

import gzip
import io
import os
import resource
import socket
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from sparseoco.pipeline.run_file import load_run_file
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.documents import CountedDocuments
from sparseoco.text.formats import codec_name, detect, to_utf8
from sparseoco.text.ingest import ingest
from sparseoco.text.options import SHARD_BYTES, TextOptions, shard_size
from sparseoco.text.readers import ReadOutcome, read_documents
from sparseoco.text.sources import Source, find_sources, with_unique_names
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.ingests import WORDS, ingest_bytes, jsonl, store_content, write_files
from tests.support.models import random_model
from tests.support.texts import write_reviews

# ----------------------------------------------------------------------------------------------------------------------
# Unusual inputs: odd names, pipes, malformed rows, system limits.


# Limits of the system and of formats


@pytest.mark.fault(19)
def test_more_splits_than_open_files(tmp_path: Path) -> None:
    data = jsonl([" ".join(WORDS[:4] * 10) for _ in range(700)])
    limits, used = resource.getrlimit(resource.RLIMIT_NOFILE), max(map(int, os.listdir("/proc/self/fd")))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 100, limits[1]))
        manifest = ingest_bytes(tmp_path, "a.jsonl", data, shard_bytes=1024, ngram_range=(1, 2))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert manifest.rows == 700
    assert manifest.n_shards > 150


@pytest.mark.fault(28)
@pytest.mark.parametrize("more", [b"trailing", b"x", b"\0\0then", b"x" * 100])
def test_bytes_after_gzip_stream(tmp_path: Path, more: bytes) -> None:
    with raises_code("corrupt-file", "a.jsonl.gz", "other bytes follow"):
        ingest_bytes(tmp_path, "a.jsonl.gz", gzip.compress(jsonl(["ab"])) + more)
    ingest_bytes(tmp_path, "b.jsonl.gz", gzip.compress(jsonl(["ab"])) + bytes(700), out="padded")


@pytest.mark.parametrize("name", ["out", "run"])
def test_shards_are_no_text(tmp_path: Path, name: str) -> None:
    ingest_bytes(tmp_path, "a.jsonl", jsonl(["ab", "cd"]))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "shards").symlink_to(tmp_path / "out")
    with raises_code("unknown-format", "of a folder of shards", "name the text"):
        find_sources([str(tmp_path / name)], TextOptions())


# Names of files and documents


def days(folder: Path) -> list[str]:
    """Two files with the same name: three lines and two, some of them equal."""
    write_files(folder, {"day1/x.txt": "ab\ncd\nab\n", "day2/x.txt": "ab\nef\n"})
    return [str(folder / day / "x.txt") for day in ("day1", "day2")]


@pytest.mark.parametrize("duplicates", ["error", "first", "all"])
def test_same_file_name_in_every_ingest(tmp_path: Path, duplicates: Any) -> None:
    first, second = days(tmp_path)
    options = TextOptions(duplicates=duplicates)
    ingest([first], tmp_path / "out", options)
    assert ingest([second], tmp_path / "out", options).rows == 5
    ids = ["x.txt:1", "x.txt:2", "x.txt:3", "x.txt~2:1", "x.txt~2:2"]
    assert store_content(tmp_path / "out")[1] == ids
    ingest([first, second], tmp_path / "once", options)
    assert store_content(tmp_path / "once")[1] == ids


def test_folders_with_the_same_files(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{part}/pos/1.txt": "some text" for part in ("train", "test")})
    ingest([str(tmp_path / "train")], tmp_path / "out", TextOptions())
    ingest([str(tmp_path / "test")], tmp_path / "out", TextOptions())
    assert store_content(tmp_path / "out")[1] == ["train/pos/1.txt", "test/pos/1.txt"]


def test_other_spellings_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = days(tmp_path)
    manifest = ingest([first], tmp_path / "out", TextOptions())
    monkeypatch.chdir(tmp_path / "day1")
    for spelled in ("x.txt", "../day1/x.txt", f"file://{first}"):
        assert ingest([spelled], tmp_path / "out", TextOptions()) == manifest
    with raises_code("duplicate-input", first):
        ingest(["x.txt", first], tmp_path / "new", TextOptions())
    monkeypatch.chdir(tmp_path / "day2")
    assert ingest(["x.txt"], tmp_path / "out", TextOptions()).rows == 5
    assert ingest([first, second], tmp_path / "out", TextOptions()).version == 2


@pytest.mark.fault(58)
def test_what_is_no_regular_file_in_a_folder_is_an_error_unless_it_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    write_files(folder, {"a.jsonl": jsonl(["ab"])})
    os.mkfifo(folder / "pipe")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    names = ["pipe", "dangling", "loop", "socket"]
    for name in names:
        others = {"exclude": tuple(other for other in names if other != name)}
        with raises_code("not-a-file", folder / name):
            find_sources([str(folder)], TextOptions.of(others))
    assert len(find_sources([str(folder)], TextOptions.of({"exclude": tuple(names)}))) == 1
    assert len(find_sources([str(folder)], TextOptions.of({"include": ("*.jsonl",)}))) == 1


@pytest.mark.fault(58)
def test_file_names_that_are_not_utf8(tmp_path: Path) -> None:
    names = ("a\udcff.txt", "in/n\udcff.txt", "tree/a/n\udcff.txt", "d\udcff/x.txt")
    write_files(tmp_path, dict.fromkeys(names, "ab\n"))
    for item in ("a\udcff.txt", "none\udcff.txt", "in", "tree", "d\udcff"):
        with raises_code("file-name", r"\xff"):
            ingest([str(tmp_path / item)], tmp_path / "out", TextOptions())
        with raises_code("file-name", r"\xff"):
            list(read_documents([str(tmp_path / item)], TextOptions()))


@pytest.mark.fault(58)
def test_a_nul_in_the_inputs_of_a_run_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('out = "run"\n[ingest]\ninputs = ["a\\u0000b"]\n')
    with raises_code("file-name", "NUL"):
        load_run_file(tmp_path / "run.toml")


# Inputs that are not files


@pytest.mark.fault(58)
def test_pipes_are_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with raises_code("not-a-file", tmp_path / "pipe"):
        ingest([str(tmp_path / "pipe")], tmp_path / "out", TextOptions(format="auto"))
    reading, writing = os.pipe()
    try:
        with raises_code("not-a-file", f"/dev/fd/{reading}"):
            ingest([f"/dev/fd/{reading}"], tmp_path / "out", TextOptions(format="jsonl"))
    finally:
        os.close(reading)
        os.close(writing)


def test_names_are_unique_whatever_came_before() -> None:
    earlier = ["/1/x.txt", "/2/x.txt~2", "/3/x.txt", "s3://bucket/y/", "/4/y"]
    new = [Source(path, path, "", "lines", None, 0, None, "") for path in ["/5/x.txt", "/6/x.txt~3", "/7/y", "/8/y"]]
    assert [source.short for source in with_unique_names(new, earlier)] == ["x.txt~4", "x.txt~3~2", "y~3", "y~4"]
    assert PurePosixPath("s3://bucket/y/").name == "y"


ROWS = 400


def ids_of(path: Path, options: TextOptions, *, withheld: bool) -> list[str]:
    batches = read_documents([str(path)], options, withheld=withheld, batch_bytes=2000)
    return [name for batch in batches for name in batch.ids.to_pylist()]


def test_every_document_is_either_learned_or_withheld(tmp_path: Path) -> None:
    """Also counted ones; and the draw depends on ids only."""
    texts, counted, reversed_ = (tmp_path / name for name in ("texts.jsonl", "rows.svmlight", "reversed.jsonl"))
    texts.write_bytes(jsonl([f"word{i} common" for i in range(ROWS)]))
    counted.write_text("".join(f"{'+-'[i % 2]}1 1:{i + 1} {i + 2}:1\n" for i in range(ROWS)))
    reversed_.write_text("\n".join(reversed(texts.read_text().splitlines())))
    options = TextOptions(holdout=0.25)
    for path, name, first in ((texts, "d", 0), (counted, "rows.svmlight:", 1)):
        kept, withheld = (ids_of(path, options, withheld=part) for part in (False, True))
        assert len(kept) + len(withheld) == ROWS
        assert {*kept, *withheld} == {f"{name}{i}" for i in range(first, first + ROWS)}
        assert 0.15 * ROWS < len(withheld) < 0.35 * ROWS
        manifest = ingest([str(path)], tmp_path / path.stem, options, shard_bytes=3000)
        store = Store.open(tmp_path / path.stem)
        assert [name for k in range(manifest.n_shards) for name in store.read(k, ids=True).ids.to_pylist()] == kept
        for batch in read_documents([str(path)], options, withheld=True):
            assert isinstance(batch.labels, pa.Array)
            if isinstance(batch, CountedDocuments):
                assert [f"{path.name}:{n:.0f}" for n in batch.counts[batch.indptr[:-1]]] == batch.ids.to_pylist()
    drawn = ids_of(texts, options, withheld=True)
    assert ids_of(reversed_, options, withheld=True) == drawn[::-1]
    assert set(ids_of(texts, TextOptions(holdout=0.1), withheld=True)) < set(drawn)


@pytest.mark.fault(36)
def test_later_ingests_keep_the_size_of_the_first(tmp_path: Path) -> None:
    first, later = write_reviews(tmp_path / "a.jsonl"), write_reviews(tmp_path / "b.jsonl", first=200)
    assert ingest([str(first)], tmp_path / "store", TextOptions()).shard_bytes == shard_size(None) == SHARD_BYTES
    made = ingest([str(first)], tmp_path / "given", TextOptions(), shard_bytes=2048)
    more = ingest([str(first), str(later)], tmp_path / "given", TextOptions())
    assert (more.shard_bytes, more.added.n_shards) == (2048, made.n_shards)
    assert made.n_shards > 1
    for size in (1, 1 << 31):
        with raises_code("invalid-option", "shard_bytes"):
            ingest([str(first)], tmp_path / "other", TextOptions(), shard_bytes=size)


# ----------------------------------------------------------------------------------------------------------------------
# No document is lost, joined, split or mislabelled without an error or a line that says so.


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


def test_records_over_several_lines_are_reported(tmp_path: Path, cli: Cli) -> None:
    tsv = "label\ttext\n" + SMS
    write_files(tmp_path, {"a.csv": tsv.replace("\t", ","), "a.tsv": tsv})
    said = cli("ingest", tmp_path / "a.csv", "--min-df", 1, "--out", tmp_path / "csv")
    assert "1 record spans several lines" in said.err
    said = cli("ingest", tmp_path / "a.tsv", "--min-df", 1, "--out", tmp_path / "tsv")
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
    named = taken(tmp_path, enron / "enron1/ham", enron / "enron1/spam")[1:]
    assert named == (["ham/1.ham", "spam/1.spam"], labels[:2])
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


def test_what_is_understood_is_printed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    write_files(tmp_path, {"a.tsv": "label\ttext\n" + SMS, "b.jsonl": "", "c.txt": '{"text": "x"}\n', "d/ham/1": "e"})
    write_files(tmp_path, {"d/.Spam/1": "e", "d/ham/.2": "e"})
    (tmp_path / "e.csv").write_bytes(ACCENTS.encode("latin-1"))
    (tmp_path / "f.jsonl").write_text('{broken\n\n{"id": "a", "text": "x"}\n')
    (tmp_path / "g.jsonl").write_text("{broken\n")
    monkeypatch.chdir(tmp_path)
    for inputs, parts in {
        ("a.tsv", "b.jsonl"): (
            "quotes are text", "label, text", "'id'", "ham (2), spam (2)", "a.tsv:2", "empty files: b.jsonl",
        ),
        ("c.txt",): ("one document per line", "look like JSON lines", "c.txt:1"),
        ("d",): ("one document per file", "ham (1)", "d/ham/1", "hidden, and left out: d/.Spam, d/ham/.2\n"),
        ("d", "--exclude", ".*"): ("ham (1); first id: d/ham/1\n",),
        ("e.csv",): ("line 2: not valid UTF-8",),
        ("f.jsonl",): ("fields: id, text; text from 'text'", "id from 'id'", "line 1: not valid JSON"),
        ("e.csv", "--encoding", "auto"): ("cp1252", "ham (1), spam (1)"),
    }.items():  # fmt: skip
        printed = cli("ingest", *inputs, "--out", "out", "--dry-run").out
        assert all(part in printed for part in parts), printed
    printed = cli("ingest", "g.jsonl", "--out", "out", "--dry-run").out
    assert "field" not in printed.partition(":")[2]  # nothing is known of them
    assert not (tmp_path / "out").exists()
    assert "b.jsonl is empty" in cli("ingest", "b.jsonl", "--out", "out", code=2).err


def test_predictions_of_folders_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    texts = ["alpha beta", "gamma delta"] * 10
    model = random_model(tmp_path / "m")
    write_files(tmp_path, {"inbox/1.txt": "alpha\nbeta", "inbox/sub/2": "gamma", "inbox/empty": ""})
    cli("predict", tmp_path / "m", tmp_path / "inbox", tmp_path / "none.txt", code=2)
    printed = cli("predict", tmp_path / "m", tmp_path / "inbox").out.splitlines()
    assert [line.split("\t")[0] for line in printed] == ["inbox/1.txt", "inbox/empty", "inbox/sub/2"]
    for arguments, about in ((["-"], "looks like JSON lines"), (["--format", "jsonl"], "")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(jsonl(texts))))
        said = cli("predict", tmp_path / "m", *arguments)
        assert len(said.out.splitlines()) == 20
        assert about in said.err
    frame = pd.DataFrame({"title": ["a"], "body": ["b"]})
    for wrong in ("one string", b"bytes", {"a": "mapping"}, {"a set"}, frame, [b"bytes"], [None]):
        with raises_code("invalid-texts"):
            model.predict(wrong)  # type: ignore[arg-type]


def test_where_names_a_column(tmp_path: Path) -> None:
    with raises_code("missing-field", "a.csv", "'spilt'"):
        ingest_bytes(tmp_path, "a.csv", ACCENTS.encode(), where={"spilt": "train"})
