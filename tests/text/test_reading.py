"""Who reads the inputs, how often, and which version of them."""

import gzip
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from pyarrow import feather

import sparseoco.text.ingest
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.storage import inputs as stored
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import location
from sparseoco.store.shards import Store
from sparseoco.text import splits, streams
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.passes import SplitReader
from sparseoco.text.readers import read_documents
from sparseoco.text.sources import find_sources
from sparseoco.text.tables import TableFile
from tests.support.changes import CHANGES, append, truncate
from tests.support.errors import raises_code
from tests.support.folders import folder_bytes
from tests.support.ingests import jsonl, random_texts


def write_inputs(folder: Path) -> list[Path]:
    """A plain file, a compressed one, one document per file, and a table."""
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(jsonl(random_texts(150), id=lambda k: f"a{k}"))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(random_texts(100, 1), id=lambda k: f"b{k}")))
    for k, text in enumerate(random_texts(60, 2)):
        path = folder / "c" / "pn"[k % 2] / f"{k}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    rows = [{"id": f"d{k}", "label": "pn"[k % 2], "text": text} for k, text in enumerate(random_texts(80, 3))]
    pq.write_table(pa.Table.from_pylist(rows), folder / "d.parquet", row_group_size=30)
    return [folder / name for name in ("a.jsonl", "b.jsonl.gz", "c", "d.parquet")]


def run(inputs: list[Path], out: Path, client: Client | None = None) -> dict[str, bytes]:
    ingest([str(path) for path in inputs], out, TextOptions(), client=client, shard_bytes=4096)
    return folder_bytes(out)


def content_names(files: dict[str, bytes]) -> set[str]:
    """The names of shards and vocabularies, which are digests of their content."""
    return {name for name in files if name.startswith(("shard-", "vocabulary-"))}


@contextmanager
def no_reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process reads no input."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("an input was read")

    with monkeypatch.context() as patch:
        for name in ("storage.inputs.read_blocks", "storage.inputs.small_contents", "text.streams.read_blocks"):
            patch.setattr(f"sparseoco.{name}", refuse)
        patch.setattr(TableFile, "__init__", refuse)
        yield


def test_the_client_reads_no_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = write_inputs(tmp_path / "in")
    expected = run(inputs, tmp_path / "here")
    with connect(ClusterOptions(workers=2), tmp_path / "scratch") as client, no_reading(monkeypatch):
        assert run(inputs, tmp_path / "there", client) == expected
        with inputs[0].open("ab") as file:
            file.write(b"{\n")
        with raises_code("malformed-record", "a.jsonl, line 151"):
            run(inputs, tmp_path / "bad", client)


def test_a_run_that_resumes_reads_and_writes_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = write_inputs(tmp_path / "in")
    expected = run(inputs, tmp_path / "undisturbed")
    monkeypatch.setattr(stored, "PART_BYTES", 10_000)
    with monkeypatch.context() as patch, pytest.raises(TypeError):
        patch.setattr(sparseoco.text.ingest, "commit_manifest", None)
        run(inputs, tmp_path / "out")
    monkeypatch.setattr("sparseoco.text.counting.read_split", None)
    monkeypatch.setattr("sparseoco.text.encoding.write_shard", None)
    with no_reading(monkeypatch):
        found = run(inputs, tmp_path / "out")
    assert content_names(found) == content_names(expected)


NAMES = ["a.jsonl", "b.jsonl.gz", "c/p/0.txt", "d.parquet"]


@pytest.mark.fault(53, 54)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", ["pass_over", "drop_duplicates"])
@pytest.mark.parametrize("change", CHANGES)
def test_inputs_that_change_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, step: str, change: Callable[[Path, bytes], None]
) -> None:
    """Before they are read, or before the commit; a later run resumes."""
    write_inputs(tmp_path / "in")
    source = tmp_path / "in" / name.partition("/")[0]
    shutil.copytree(tmp_path / "in", tmp_path / "before")
    real = getattr(sparseoco.text.ingest, step)

    def changed(*arguments: Any) -> Any:
        path = tmp_path / "in" / name
        change(path, path.read_bytes()[::-1])
        return real(*arguments)

    with monkeypatch.context() as patch, raises_code("input-changed", source):
        patch.setattr(sparseoco.text.ingest, step, changed)
        run([source], tmp_path / "out")
    assert not list((tmp_path / "out").glob("manifest-*"))
    shutil.rmtree(tmp_path / "in")
    shutil.copytree(tmp_path / "before", tmp_path / "in")
    expected = run([source], tmp_path / "undisturbed")
    assert run([source], tmp_path / "out") == expected


@pytest.mark.fault(54)
@pytest.mark.parametrize("start", [0, 4096])
@pytest.mark.parametrize("time", ["plan", "split"])
def test_what_is_read_twice_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: str, start: int) -> None:
    """Whatever the file system says: one read gives another byte, and a later run none."""
    write_inputs(tmp_path / "in")
    source = tmp_path / "in" / "a.jsonl"
    expected = run([source], tmp_path / "expected")

    def damaged(data: bytearray | memoryview, begin: int) -> None:
        at = bytes(data).find(b"alpha", max(0, start - begin))
        if begin <= start + 4096 and at >= 0:
            data[at] = ord("A")

    def read_blocks(*arguments: Any) -> Iterator[bytes]:
        block = bytearray(b"".join(stored.read_blocks(*arguments)))
        damaged(block, 0)
        yield bytes(block)

    def read_range(path: str, name: str, begin: int, buffer: memoryview, pin: stored.Pin | None = None) -> None:
        stored.read_range(path, name, begin, buffer, pin)
        damaged(buffer, begin)

    with monkeypatch.context() as patch, raises_code("input-changed", source):
        if time == "plan":
            patch.setattr(streams, "read_blocks", read_blocks)
        else:
            patch.setattr(splits, "read_range", read_range)
        run([source], tmp_path / "out")
    assert not list((tmp_path / "out").glob("manifest-*"))
    assert content_names(run([source], tmp_path / "out")) == content_names(expected)


@pytest.mark.fault(54)
@pytest.mark.parametrize("change", [append, truncate])
def test_a_file_that_changes_between_two_blocks(tmp_path: Path, change: Callable[[Path, bytes], None]) -> None:
    """Growth is found at the next block, not at an end that never comes; a cut is no line or stream without an end."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 3 * stored.BLOCK)
    blocks = stored.read_blocks(str(path), "a.txt", stored.local_pin(path.stat()))
    assert len(next(blocks)) == stored.BLOCK
    change(path, path.read_bytes())
    with raises_code("input-changed", "a.txt"):
        next(blocks)


def test_a_large_remote_file_is_read_by_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    path = location("memory://large/a.txt")
    commit_bytes(path, random.Random(0).randbytes(3500))
    monkeypatch.setattr(stored, "PART_BYTES", 1000)
    pin = stored.remote_pin(path.stat())
    assert stored._requests(pin) == [(0, 1000), (1000, 2000), (2000, 3000), (3000, 3500)]
    assert b"".join(stored.read_blocks(str(path), "a.txt", pin)) == path.read_bytes()
    commit_bytes(path, b"x" * 3500)
    with raises_code("input-changed", "a.txt"):
        list(stored.read_blocks(str(path), "a.txt", pin))


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    write_inputs(tmp_path / "in")
    for name in ("a.jsonl", "d.parquet"):
        (source,) = find_sources([str(tmp_path / "in" / name)], TextOptions())
        (tmp_path / "in" / name).unlink()
        with raises_code("input-changed", name):
            list(SplitReader(0, source, TextOptions(), 4096))


@pytest.mark.fault(54)
@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
def test_an_arrow_file_that_is_cut_while_it_is_open(tmp_path: Path, compression: str) -> None:
    """A mapped file would end the process with a signal."""
    path = tmp_path / "a.feather"
    feather.write_feather(pa.table({"text": ["words"] * 100_000}), path, chunksize=50_000, compression=compression)
    table = TableFile(str(path), "arrow", stored.local_pin(path.stat()))
    assert table.row_groups(["text"])[1].rows == 50_000
    os.truncate(path, 5000)
    with raises_code("input-changed", path):
        table.read(["text"], 60_000, 100_000)


@pytest.mark.parametrize("change", CHANGES)
def test_text_that_is_read_again_is_what_was_ingested(tmp_path: Path, change: Callable[[Path, bytes], None]) -> None:
    """Evaluation of withheld documents."""
    write_inputs(tmp_path / "in")
    path = tmp_path / "in" / "a.jsonl"
    run([path], tmp_path / "out")
    store = Store.open(tmp_path / "out")
    read_again = partial(read_documents, [str(path)], TextOptions(max_bad_rows=10**6), ingested=store)
    assert sum(map(len, read_again())) == store.n_rows
    os.utime(path)
    assert sum(map(len, read_again())) == store.n_rows
    run([path], tmp_path / "out")
    change(path, path.read_bytes()[::-1])
    with raises_code("input-changed", path):
        list(read_again())


def test_the_first_error_in_the_order_of_the_input(tmp_path: Path) -> None:
    """Small and compressed files are read by one task, in which a later error does not hide an earlier one."""
    rows = jsonl(random_texts(20))
    contents = {"a.jsonl.gz": gzip.compress(rows), "b.jsonl.gz": gzip.compress(rows)[:-9], "c.jsonl": b"{\n" + rows}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    inputs = [tmp_path / name for name in contents]
    with raises_code("corrupt-file", inputs[1]):
        run(inputs, tmp_path / "out")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(rows + b"{\n"))
    with raises_code("malformed-record", "a.jsonl.gz, line 21"):
        run(inputs, tmp_path / "out")
    with raises_code("too-many-bad-rows", "c.jsonl, line 1"):
        options = TextOptions(max_bad_rows=1, duplicates="first")
        ingest([str(inputs[0]), str(inputs[2])], tmp_path / "out", options, shard_bytes=1 << 20)


@pytest.mark.parametrize("codec", ["utf-16", "cp1252"])
@pytest.mark.parametrize("encoding", ["utf-8", "auto"])
def test_files_of_several_parts_in_other_encodings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, encoding: str
) -> None:
    """The first bytes show it: then the file is read in order."""
    text = "id,label,text\n" + "".join(f"{k},{'pn'[k % 2]},Élan vécu déjà vu à Noël {k}\n" for k in range(400))
    (tmp_path / "a.csv").write_bytes(text.encode(codec))
    monkeypatch.setattr(stored, "PART_BYTES", 4000)
    options = TextOptions(encoding=encoding)
    if encoding == "utf-8":
        with raises_code("encoding", "a.csv"):
            ingest([str(tmp_path / "a.csv")], tmp_path / "out", options, shard_bytes=1024)
        return
    ingest([str(tmp_path / "a.csv")], tmp_path / "out", options, shard_bytes=1024)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode(codec)))
    ingest([str(tmp_path / "a.csv.gz")], tmp_path / "expected", options, shard_bytes=1024)
    found, expected = (content_names(folder_bytes(tmp_path / name)) for name in ("out", "expected"))
    assert found == expected
