"""Inputs: odd names, pipes, system limits; paths, documents that are withheld, and the size of shards."""

import gzip
import os
import socket
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pytest

from sparseoco.pipeline.run_file import load_run_file
from sparseoco.store.shards import Store
from sparseoco.text.documents import CountedDocuments
from sparseoco.text.ingest import ingest
from sparseoco.text.options import SHARD_BYTES, TextOptions, shard_size
from sparseoco.text.readers import read_documents
from sparseoco.text.sources import Source, find_sources, with_unique_names
from tests.support.errors import raises_code
from tests.support.ingests import WORDS, ingest_bytes, jsonl, store_content, write_files
from tests.support.texts import write_reviews

# ----------------------------------------------------------------------------------------------------------------------
# Unusual inputs: odd names, pipes, malformed rows, system limits.


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
    (tmp_path / "tree" / "a").mkdir(parents=True)
    for name in ("pipe", "tree/a/pipe"):
        os.mkfifo(tmp_path / name)
    for item, named in (("pipe", "pipe"), ("tree", "tree/a/pipe")):
        with raises_code("not-a-file", tmp_path / named):
            ingest([str(tmp_path / item)], tmp_path / "out", TextOptions(format="auto"))
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
