"""Unusual inputs: odd names, pipes, malformed rows, system limits."""

import gzip
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import read_documents
from sparseoco.text.sources import find_sources
from tests.support.errors import raises_code
from tests.support.ingests import WORDS, file_bytes, ingest_bytes, jsonl, store_content

# Limits of the system and of formats


@pytest.mark.fault(19)
def test_more_splits_than_open_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl([" ".join(WORDS[:4] * 10) for _ in range(2000)]))
    program = (
        "import resource, sys; from pathlib import Path; from sparseoco.text.ingest import ingest;"
        "from sparseoco.text.options import TextOptions;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128));"
        "m = ingest([sys.argv[1]], Path(sys.argv[2]), TextOptions(ngram_range=(1, 2)), shard_bytes=1024);"
        "assert (m.rows, m.n_shards > 300) == (2000, True), m"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.jsonl"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.fault(23, 33)
@pytest.mark.parametrize(
    ("name", "row", "options", "code"),
    [
        ("a.jsonl", b'{"text":"ab","label":' + b"9" * 400 + b"}", {"labels": "numbers"}, "invalid-labels"),
        ("a.jsonl", b'{"text":"ab","label":["a"]}', {}, "invalid-labels"),
        ("a.jsonl", b'{"text":"ab","label":["a",""]}', {"labels": "multi"}, "invalid-labels"),
        ("a.jsonl", b'{"text":"ab","label":[["a"]]}', {"labels": "multi"}, "invalid-labels"),
        ("a.jsonl", b'{"text":"ab","label":null}', {"labels": "multi"}, "missing-field"),
        ("a.svm", b"1,x_1, 1:1", {"labels": "multi"}, "invalid-labels"),
        ("a.jsonl", b'{"text":"ab","label":"x"}', {"group_field": "n"}, "missing-field"),
        ("a.svm", b"1 " + b"7" * 5000 + b":1", {}, "malformed-record"),
        ("a.svm", b"1 9223372036854775808:1", {}, "malformed-record"),
        ("a.svm", b"1 1:1_0", {}, "malformed-record"),
        ("a.svm", b"1_0 1:1", {}, "invalid-labels"),
        ("a.svm", b"1_0 1:1", {"labels": "numbers"}, "invalid-labels"),
        ("a.review", b"ab:1 #label#:positive #label#:negative", {}, "invalid-labels"),
    ],
)
def test_malformed_rows(tmp_path: Path, name: str, row: bytes, options: dict[str, Any], code: str) -> None:
    with raises_code(code, f"{name}, line 1: "):
        ingest_bytes(tmp_path, name, row + b"\n", **options)


@pytest.mark.fault(23)
@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("weight_field", value) for value in ("-0.5", "1e39", '"nan"', "[]", "null")),
        ("group_field", "[1]"),
        *(("time_field", value) for value in ('"soon"', "1e400")),
    ],
)
def test_malformed_fields(tmp_path: Path, option: str, value: str) -> None:
    row = f'{{"text":"ab","label":"x","n":{value}}}\n'
    with raises_code("missing-field" if value == "null" else "malformed-record", "a.jsonl, line 1: "):
        ingest_bytes(tmp_path, "a.jsonl", row.encode(), **{option: "n"})


@pytest.mark.fault(28)
@pytest.mark.parametrize("more", [b"trailing", b"x", b"\0\0then", b"x" * 100])
def test_bytes_after_gzip_stream(tmp_path: Path, more: bytes) -> None:
    with raises_code("corrupt-file", "a.jsonl.gz", "other bytes follow"):
        ingest_bytes(tmp_path, "a.jsonl.gz", gzip.compress(jsonl(["ab"])) + more)
    ingest_bytes(tmp_path, "b.jsonl.gz", gzip.compress(jsonl(["ab"])) + bytes(700), out="padded")


@pytest.mark.fault(14)
def test_other_manifest_files_are_ignored(tmp_path: Path) -> None:
    manifest = ingest_bytes(tmp_path, "a.jsonl", jsonl(["ab"]))
    (tmp_path / "out" / "manifest-zzz.json").write_text("{}")
    assert Store.open(tmp_path / "out").manifest == manifest


# Names of files and documents


def days(folder: Path) -> list[str]:
    """Two files with the same name: three lines and two, some of them equal."""
    for day, text in (("day1", "ab\ncd\nab\n"), ("day2", "ab\nef\n")):
        (folder / day).mkdir()
        (folder / day / "x.txt").write_text(text)
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
    for part in ("train", "test"):
        (tmp_path / part / "pos").mkdir(parents=True)
        (tmp_path / part / "pos" / "1.txt").write_text("some text")
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


def test_hard_links_are_one_file(tmp_path: Path) -> None:
    first, _ = days(tmp_path)
    second = tmp_path / "link.txt"
    second.hardlink_to(first)
    with raises_code("duplicate-input", second):
        ingest([first, str(second)], tmp_path / "new", TextOptions(duplicates="first"))
    ingest([first], tmp_path / "out", TextOptions())
    with raises_code("duplicate-input", second):
        ingest([str(second)], tmp_path / "out", TextOptions())


@pytest.mark.fault(58)
def test_what_is_no_regular_file_in_a_folder_is_an_error_unless_it_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(jsonl(["ab"]))
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
    for name in ("a\udcff.txt", "in/n\udcff.txt", "tree/a/n\udcff.txt", "d\udcff/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("ab\n")
    for given in ("a\udcff.txt", "none\udcff.txt", "in", "tree", "d\udcff"):
        with raises_code("file-name", r"\xff"):
            ingest([str(tmp_path / given)], tmp_path / "out", TextOptions())
        with raises_code("file-name", r"\xff"):
            list(read_documents([str(tmp_path / given)], TextOptions()))


# Inputs that are not files


@pytest.mark.fault(58)
def test_pipes_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    for name in ("pipe", "tree/a/pipe"):
        os.mkfifo(tmp_path / name)
    for given, named in (("pipe", "pipe"), ("tree", "tree/a/pipe")):
        with raises_code("not-a-file", tmp_path / named):
            ingest([str(tmp_path / given)], tmp_path / "out", TextOptions(format="auto"))
    reading, writing = os.pipe()
    try:
        with raises_code("not-a-file", f"/dev/fd/{reading}"):
            ingest([f"/dev/fd/{reading}"], tmp_path / "out", TextOptions(format="jsonl"))
    finally:
        os.close(reading)
        os.close(writing)


def test_unsupported_scheme(tmp_path: Path) -> None:
    with raises_code("unknown-scheme", "ftp://127.0.0.1:1/x.jsonl"):
        ingest(["ftp://127.0.0.1:1/x.jsonl"], tmp_path / "out", TextOptions())


def test_staging_left_by_kill_after_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = jsonl(["ab", "cd"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("sparseoco.text.ingest.clear_staging", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        ingest_bytes(tmp_path, "a.jsonl", data)
    assert (tmp_path / "out" / ".staging").exists()
    before = file_bytes(tmp_path / "out")
    ingest_bytes(tmp_path, "a.jsonl", data)
    assert not (tmp_path / "out" / ".staging").exists()
    assert file_bytes(tmp_path / "out") == before
