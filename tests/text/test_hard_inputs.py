"""Inputs and stores as the world makes them: refused in a sentence, or taken as what they are."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparseoco.core.errors import InputError
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import read_documents
from tests.text.ingests import WORDS, content, files, jsonl, run

# Limits of the system and of formats


def test_more_pieces_than_files_may_be_open(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl([" ".join(WORDS[:4] * 10) for _ in range(2000)]))
    program = (
        "import resource, sys; from pathlib import Path; from sparseoco.text.ingest import ingest;"
        "from sparseoco.text.options import TextOptions;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128));"
        "m = ingest([sys.argv[1]], Path(sys.argv[2]), TextOptions(ngram_range=(1, 2)), shard_bytes=1024);"
        "assert (m.rows, len(m.shards) > 300) == (2000, True), m"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.jsonl"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "row", "options"),
    [
        ("a.jsonl", b'{"text":"ab","label":' + b"9" * 400 + b"}", {"labels": "numbers"}),
        ("a.jsonl", b'{"text":"ab","label":["a,b","c"]}', {"label_list": "join"}),
        ("a.svm", b"1 " + b"7" * 5000 + b":1", {}),
        ("a.svm", b"1 9223372036854775808:1", {}),
        ("a.svm", b"1 1:1_0", {}),
        ("a.svm", b"1_0 1:1", {}),
        ("a.svm", b"1_0 1:1", {"labels": "numbers"}),
        ("a.review", b"ab:1 #label#:positive #label#:negative", {}),
    ],
)
def test_rows_that_are_bad(tmp_path: Path, name: str, row: bytes, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"{name}, line 1: "):
        run(tmp_path, name, row + b"\n", **options)


@pytest.mark.parametrize("more", [b"trailing", b"x", b"\0\0then", b"x" * 100])
def test_bytes_after_a_gzip_stream(tmp_path: Path, more: bytes) -> None:
    with pytest.raises(InputError, match="other bytes follow"):
        run(tmp_path, "a.jsonl.gz", gzip.compress(jsonl(["ab"])) + more)
    run(tmp_path, "b.jsonl.gz", gzip.compress(jsonl(["ab"])) + bytes(700), out="padded")


def test_only_numbered_manifests_count(tmp_path: Path) -> None:
    manifest = run(tmp_path, "a.jsonl", jsonl(["ab"]))
    (tmp_path / "out" / "manifest-zzz.json").write_text("{}")
    assert Store.open(tmp_path / "out").manifest == manifest


# Names of files and of documents


def days(folder: Path) -> list[str]:
    """Two files of one name: three lines and two, some of them equal."""
    for day, text in (("day1", "ab\ncd\nab\n"), ("day2", "ab\nef\n")):
        (folder / day).mkdir()
        (folder / day / "x.txt").write_text(text)
    return [str(folder / day / "x.txt") for day in ("day1", "day2")]


@pytest.mark.parametrize("duplicates", ["error", "first", "all"])
def test_a_file_of_the_same_name_every_night(tmp_path: Path, duplicates: Any) -> None:
    first, second = days(tmp_path)
    options = TextOptions(duplicates=duplicates)
    ingest([first], tmp_path / "out", options)
    assert ingest([second], tmp_path / "out", options).rows == 5
    ids = ["x.txt:1", "x.txt:2", "x.txt:3", "x.txt~2:1", "x.txt~2:2"]
    assert content(tmp_path / "out")[1] == ids
    ingest([first, second], tmp_path / "once", options)
    assert content(tmp_path / "once")[1] == ids


def test_folders_of_the_same_files(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part / "pos").mkdir(parents=True)
        (tmp_path / part / "pos" / "1.txt").write_text("some text")
    ingest([str(tmp_path / "train")], tmp_path / "out", TextOptions())
    ingest([str(tmp_path / "test")], tmp_path / "out", TextOptions())
    assert content(tmp_path / "out")[1] == ["train/pos/1.txt", "test/pos/1.txt"]


def test_a_file_spelled_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = days(tmp_path)
    manifest = ingest([first], tmp_path / "out", TextOptions())
    monkeypatch.chdir(tmp_path / "day1")
    for spelled in ("x.txt", "../day1/x.txt", f"file://{first}"):
        assert ingest([spelled], tmp_path / "out", TextOptions()) == manifest
    with pytest.raises(InputError, match="given twice"):
        ingest(["x.txt", first], tmp_path / "new", TextOptions())
    monkeypatch.chdir(tmp_path / "day2")
    assert ingest(["x.txt"], tmp_path / "out", TextOptions()).rows == 5
    assert ingest([first, second], tmp_path / "out", TextOptions()).version == 2


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    for name in ("a\udcff.txt", "in/n\udcff.txt", "tree/a/n\udcff.txt", "d\udcff/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("ab\n")
    for given in ("a\udcff.txt", "none\udcff.txt", "in", "tree", "d\udcff"):
        with pytest.raises(InputError, match=r"\\xff.* not UTF-8"):
            ingest([str(tmp_path / given)], tmp_path / "out", TextOptions())
        with pytest.raises(InputError, match=r"\\xff.* not UTF-8"):
            list(read_documents([str(tmp_path / given)], TextOptions()))


# Inputs that are no files


def test_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    for name in ("pipe", "tree/a/pipe"):
        os.mkfifo(tmp_path / name)
    for given in ("pipe", "tree"):
        with pytest.raises(InputError, match="not a regular file"):
            ingest([str(tmp_path / given)], tmp_path / "out", TextOptions(format="auto"))
    reading, writing = os.pipe()
    try:
        with pytest.raises(InputError, match="not a regular file"):
            ingest([f"/dev/fd/{reading}"], tmp_path / "out", TextOptions(format="jsonl"))
    finally:
        os.close(reading)
        os.close(writing)


def test_an_address_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ftp://127\.0\.0\.1:1/x\.jsonl cannot be opened: "):
        ingest(["ftp://127.0.0.1:1/x.jsonl"], tmp_path / "out", TextOptions())


def test_staging_left_by_a_kill_after_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = jsonl(["ab", "cd"])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("sparseoco.text.ingest.clear_staging", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        run(tmp_path, "a.jsonl", data)
    assert (tmp_path / "out" / ".staging").exists()
    before = files(tmp_path / "out")
    run(tmp_path, "a.jsonl", data)
    assert not (tmp_path / "out" / ".staging").exists()
    assert files(tmp_path / "out") == before
