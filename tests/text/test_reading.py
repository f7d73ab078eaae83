"""How inputs are cut and read: by whom, how often, which version of them, and the same wherever they are cut."""

import csv
import gzip
import hashlib
import io
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import feather
from xxhash import xxh3_64_intdigest

import sparseoco.text.ingest
from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.storage import inputs as stored
from sparseoco.storage.commit import commit_bytes, digest_value
from sparseoco.storage.locations import location
from sparseoco.store.shards import Store
from sparseoco.text import formats, splits
from sparseoco.text.documents import Documents
from sparseoco.text.formats import DELIMITERS
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers import SLACK, Chunk, read_jsonl
from sparseoco.text.passes import Cut, SplitReader, cut_in_order, plan_source
from sparseoco.text.readers import read_documents
from sparseoco.text.sources import Source, find_sources
from sparseoco.text.tables import TableFile
from tests.support.damage import CHANGES, append, stopped_at, truncate
from tests.support.errors import raises_code
from tests.support.folders import folder_bytes
from tests.support.ingests import jsonl, random_texts, write_files
from tests.support.processes import forked_workers
from tests.support.tables import batches, documents

# ----------------------------------------------------------------------------------------------------------------------
# Who reads the inputs, how often, and which version of them.


def write_inputs(folder: Path) -> list[Path]:
    """A plain file, a compressed one, one document per file, and a table."""
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(jsonl(random_texts(150), id=lambda k: f"a{k}"))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(random_texts(100, 1), id=lambda k: f"b{k}")))
    write_files(folder / "c", {f"{'pn'[k % 2]}/{k}.txt": text for k, text in enumerate(random_texts(60, 2))})
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

    refuse = Mock(side_effect=AssertionError("an input was read"))
    with monkeypatch.context() as patch:
        for name in ("storage.inputs.read_blocks", "storage.inputs.small_contents", "text.formats.read_blocks"):
            patch.setattr(f"sparseoco.{name}", refuse)
        patch.setattr(TableFile, "__init__", refuse)
        yield


def test_the_client_reads_no_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = write_inputs(tmp_path / "in")
    expected = run(inputs, tmp_path / "here")
    options = ClusterOptions(workers=2)
    with forked_workers(), connect(options, tmp_path / "scratch") as client, no_reading(monkeypatch):
        assert run(inputs, tmp_path / "there", client) == expected
        with inputs[0].open("ab") as file:
            file.write(b"{\n")
        with raises_code("malformed-record", "a.jsonl, line 151"):
            run(inputs, tmp_path / "bad", client)


def test_a_run_that_resumes_reads_and_writes_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = write_inputs(tmp_path / "in")
    expected = run(inputs, tmp_path / "undisturbed")
    monkeypatch.setattr(stored, "PART_BYTES", 10_000)
    with stopped_at("sparseoco.text.ingest.commit_manifest"):
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
def test_inputs_that_change_are_an_error(tmp_path: Path, name: str, step: str) -> None:
    """Before they are read, or before the commit; a later run resumes. Every two of file, time and change."""
    write_inputs(tmp_path / "before")
    source = tmp_path / "in" / name.partition("/")[0]
    shutil.copytree(tmp_path / "before", tmp_path / "in")
    expected = run([source], tmp_path / "undisturbed")
    real = getattr(sparseoco.text.ingest, step)

    def changed(change: Callable[[Path, bytes], None], *arguments: Any) -> Any:
        path = tmp_path / "in" / name
        change(path, path.read_bytes()[::-1])
        return real(*arguments)

    for change in CHANGES[(NAMES.index(name) + (step == "pass_over")) % 2 :: 2]:
        out = tmp_path / change.__name__
        with patch.object(sparseoco.text.ingest, step, partial(changed, change)), raises_code("input-changed", source):
            run([source], out)
        assert not list(out.glob("manifest-*"))
        shutil.copy2(tmp_path / "before" / name, tmp_path / "in" / name)
        assert run([source], out) == expected


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
            patch.setattr(formats, "read_blocks", read_blocks)
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
def test_parts_in_other_encodings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    """The first bytes show it: then the file is read in order."""
    text = "id,label,text\n" + "".join(f"{k},{'pn'[k % 2]},Élan vécu déjà vu à Noël {k}\n" for k in range(400))
    (tmp_path / "a.csv").write_bytes(text.encode(codec))
    monkeypatch.setattr(stored, "PART_BYTES", 4000)
    options = TextOptions(encoding="auto")
    ingest([str(tmp_path / "a.csv")], tmp_path / "out", options, shard_bytes=1024)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode(codec)))
    ingest([str(tmp_path / "a.csv.gz")], tmp_path / "expected", options, shard_bytes=1024)
    found, expected = (content_names(folder_bytes(tmp_path / name)) for name in ("out", "expected"))
    assert found == expected


# ----------------------------------------------------------------------------------------------------------------------
# CSV and TSV are read as `csv.reader` reads the whole file, wherever the file is split.


PIECES = ['"', '""', ",", "\t", "\n", "\r", "\r\n", "\n\n", " ", "a", "ab", 'é"', "\ufeff", "東京", "x,\r", '5" disk']
PIECES += ["word " * 9, "word " * 40, '"x\r\n,"']


def reference(text: str, delimiter: str, quoted: bool) -> list[list[str]]:
    """The records `csv.reader` finds in the whole file, without blank lines."""
    csv.field_size_limit(1 << 20)  # whatever the reader of an earlier test has set
    text, quotes = text.removeprefix("\ufeff"), csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quotes) if row]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["csv", "tsv"]),
    st.lists(
        st.tuples(st.lists(st.sampled_from(PIECES), max_size=8), st.sampled_from(["\n", "\r", "\r\n"])), max_size=40
    ),
    st.sampled_from(["", "\ufeff", "\n", "\ufeff\r\n"]),
    st.integers(1024, 6000),
    st.sampled_from([1, 2, 7, 1000, 1 << 20]),
    st.booleans(),
)
@example("csv", [(['5" disk', "word " * 40], "\n")] * 20 + [(['"', "\n", "a", '"'], "\n")] * 600, "", 1024, 7, False)
def test_any_split_reads_like_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, lines: list[tuple[list[str], str]], before: str,
    shard_bytes: int, block: int, packed: bool,
) -> None:  # fmt: skip
    quoted, delimiter = form == "csv", DELIMITERS[form]
    text = before + delimiter.join(["id", "label", "text"]) + "\r\n"
    text += "".join(f"{k}{delimiter}p{delimiter}{''.join(pieces)}{end}" for k, (pieces, end) in enumerate(lines))
    path = tmp_path / f"a.{form}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    monkeypatch.setattr(stored, "BLOCK", block)
    if reference(f"{text}\nEND", delimiter, quoted)[-1] != ["END"]:  # a quoted field is open
        with raises_code("unclosed-quote", path):
            documents(path, shard_bytes)
    else:
        rows = documents(path, shard_bytes)
        expected = [row for row in reference(text, delimiter, quoted)[1:] if len(row) == 3 and row[1]]
        assert [list(row[:3]) for row in rows] == expected
        assert rows == documents(path, 1 << 30)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_unclosed_quote(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.csv"
    head = f'id,label,text{end}1,p,"two{end}lines"{end}2,p,"open{end}'
    path.write_bytes((head + f"1,p,words{end}" * 400).encode())
    with raises_code("unclosed-quote", "a.csv, line 4"):
        documents(path, 1024)
    path.write_bytes((head + "more " * 400).encode())
    for shard_bytes in (1024, 1 << 20):
        with raises_code("unclosed-quote", "a.csv, line 4", 999):
            documents(path, shard_bytes, max_line_bytes=999)


@pytest.mark.fault(27)
@pytest.mark.parametrize("shard_bytes", [1024, 1 << 20])
@pytest.mark.parametrize(
    ("name", "head", "row"),
    [("a.csv", "id,label,text\n", "1,p,{}\n"), ("a.jsonl", "", '{{"label":"p","text":"{}"}}\n'), ("a.txt", "", "{}\n")],
)
def test_long_records_at_any_shard_size(tmp_path: Path, name: str, head: str, row: str, shard_bytes: int) -> None:
    path, short, longest = tmp_path / name, row.format("short"), 1000 - len(row.format(""))
    path.write_text(head + short * 300 + row.format("a" * (longest + 1)) + short * 300)
    assert len(documents(path, shard_bytes, max_line_bytes=1001)) == 601
    with raises_code("line-too-long", f"{name}, line {301 + head.count(chr(10))}", 999, "max_line_bytes"):
        documents(path, shard_bytes, max_line_bytes=999)
    if head:
        path.write_text(f"id,label,{'b' * 2000}\n1,p,text\n")
        with raises_code("line-too-long", "a.csv, line 1", 1000):
            documents(path, shard_bytes, max_line_bytes=1000)


def test_carriage_returns_end_records(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,label,text\r1,p,"one\rtwo"\r\r2,q,three\r')
    assert documents(path, 1024) == [("1", "p", "one\rtwo", 2), ("2", "q", "three", 5)]


def test_duplicate_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for name, options in {"text": {}, "label": {}, "id": {}, "split": {"where": {"split": "a"}}}.items():
        path.write_text(f"id,label,text,split,{name}\n1,p,one,a,b\n")
        with raises_code("duplicate-column", "a.csv", f"2 columns {name!r}"):
            documents(path, 1024, **options)
    path.write_text("id,label,text,split,split\n1,p,one,a,b\n")
    assert documents(path, 1024) == [("1", "p", "one", 2)]


def test_positions_of_bad_rows_do_not_depend_on_splits(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    data = "id,label,text\n" + '1,p,"some\nwords"\r\n' * 300 + "2,p\n" + "3,p,words\n" * 300
    path.write_bytes(data.encode())
    for shard_bytes in (1024, 1 << 20):
        bad = [row for batch in batches(path, shard_bytes) for row in batch.bad]
        assert [(row.line, row.offset) for row in bad] == [(602, data.index("2,p\n"))]


# ----------------------------------------------------------------------------------------------------------------------
# orjson and Python's parser agree on every line.


scalars = st.one_of(
    st.text(max_size=12),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False),
    st.sampled_from([None, True, False, [], {}, ["a"], "-0", 0, "\ud83d", "\ude00", "\U0001f600"]),
)
values = scalars | st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
rows = st.dictionaries(st.sampled_from(["text", "label", "id", "é", "split", 'q"']), values, max_size=5)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    row = draw(rows)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]))
    line = json.dumps(row, ensure_ascii=draw(st.booleans()), separators=separators).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(line)))
        line = line[:place] + draw(st.sampled_from(BYTES)) + line[place + draw(st.integers(0, 1)) :]
    return line.replace(b"\n", b" ")


BYTES = [bytes([b]) for b in b'"\\{}[],: 0-9ue.tfn\x00\x1f\r'] + [
    b"\\u", b"\\u00e9", b"\\uD83d\\uDe00", b"\\ud83d", b"null", b"true", b"[[", b"]}",
    b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xc0\x80", b"\xf0\x9f\x98\x80",
]  # fmt: skip


def chunk(data: bytes) -> Chunk:
    padded = np.frombuffer(data + b"\n" + bytes(SLACK - 1), np.uint8).copy()
    return Chunk(padded, len(data), name="f", short="f", line=1, offset=0)


def values_of(documents: Documents) -> Any:
    labels = None if documents.labels is None else documents.labels.tolist()
    columns = {name: values.tolist() for name, values in documents.columns.items()}
    carried = {name: (values.type, values.to_pylist()) for name, values in documents.carried.items()}
    found = documents.texts(), documents.ids.to_pylist(), labels, documents.lines.tolist(), documents.bad, columns
    fields = {name: values.tolist() for name, values in documents.fields.items()}
    return *found, carried, repr(fields)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(lines(), max_size=6),
    st.booleans(),
    st.sampled_from(
        [
            {},
            {"where": {"split": "a"}},
            {"where": {"é": "true", "label": "1"}},
            {"weight_field": "é", "group_field": 'q"', "labels": "multi"},
            {"time_field": "split", "labels": "numbers"},
            {"time_field": "é", "weight_field": "é", "group_field": "id", "where": {"split": "-1.5"}},
            {"carried": ("é", "text", "id", "label", "split", "none")},
            {"carried": ("é", "label"), "labels": "multi", "group_field": "é", "where": {"split": "a"}},
            {"carried": ("é", "label"), "labels": "numbers", "weight_field": "é", "encoding_errors": "replace"},
            {"carried": ("é", "split"), "fields": {"é": {"type": "category"}, "split": {"type": "number"}}},
            {"carried": ("id", "é"), "fields": {"é": {"type": "text"}, "id": {"type": "category"}}},
        ]
    ),
)
@example([b'{"text":"a\\"b\\\\","label":-0}', b'{"text":"","text":"x","label":"a"}'], True, {})
@example([b'{"text":"x","label":12345678901234567890123,"id":12345678901234567890123}'], True, {})
@example([b'\xef\xbb\xbf{"text":"x","label":"a"}', b"", b" \r", b'{"text":"\xe2\x82"', b'{"a":tru'], True, {})
@example([b'{"text":"x","label":1e400}', b'{"text":"x","label":-0.0}'], True, {"labels": "numbers"})
@example(['{"text":"x","é":1e39}'.encode(), '{"text":"x","é":-0.0}'.encode()], False, {"weight_field": "é"})
def test_both_parsers_agree(found: list[bytes], labelled: bool, chosen: dict[str, Any]) -> None:
    options = TextOptions(**chosen)
    data = b"\n".join(found)
    fast = read_jsonl(chunk(data), options, labelled=labelled)
    with patch("sparseoco.text.parsers.orjson.loads", side_effect=orjson.JSONDecodeError("", "", 0)):
        slow = read_jsonl(chunk(data), options, labelled=labelled)
    assert values_of(fast) == values_of(slow)


# ----------------------------------------------------------------------------------------------------------------------
# Files are cut by one rule, in blocks of any size.


CONTENTS = st.lists(st.sampled_from(PIECES), max_size=90).map("".join)
HEADS = {"lines": "", "jsonl": "", "csv": "id,label,text\n", "tsv": "id\tlabel\ttext\r\n"}


def in_order(source: Source, options: TextOptions, shard_bytes: int, data: bytes, block: int) -> list[Cut]:
    """The cuts in one pass over blocks of the file; ends at an error.

    Their bytes stay as they are: Dask's profiler may hold the frames, and the arrays in them, of earlier cuts.
    """
    blocks = (data[begin : begin + block] for begin in range(0, len(data), block))
    found: list[tuple[Cut, memoryview]] = []
    try:
        for _, cut, content in cut_in_order(blocks, source, options, shard_bytes):
            found.append((cut, content))
    except InputError:
        found.append((Cut(-1, 0, 0, 0), memoryview(b"")))
    assert all(bytes(content) == data[cut.start : cut.stop] for cut, content in found)
    return [cut for cut, _ in found]


def by_rule(records: list[Cut], shard_bytes: int, size: int) -> list[Cut]:
    """The cuts of a file of `size` bytes, whose records these are: each ends at the first record beyond an edge."""
    assert all(first.stop == second.start for first, second in pairwise(records))
    assert [cut.stop for cut in records[-1:]] == [size] * bool(records)
    found: list[Cut] = []
    for record in records:
        if not found or found[-1].stop >= (found[-1].number + 1) * shard_bytes:
            found.append(record._replace(number=record.start // shard_bytes))
        found[-1] = found[-1]._replace(stop=record.stop)
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(list(HEADS)), CONTENTS, st.integers(1, 300), st.integers(1, 300), st.integers(1, 200),
    st.booleans(), st.booleans(), st.sampled_from([40, 1 << 20]),
)  # fmt: skip
@example("csv", 'a\n"' + "b\n" * 40 + '"\r\n' * 9, 16, 20, 200, True, False, 1 << 20)
@example("lines", "ab\r", 16, 1, 1, True, False, 1 << 20)
@example("tsv", "word " * 18 + "\n", 64, 1, 1, False, False, 1 << 20)
def test_plans_have_the_cuts_and_digests_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, content: str, part: int, shard_bytes: int, block: int,
    header: bool, mark: bool, longest: int,
) -> None:  # fmt: skip
    options = TextOptions.of({"header": header, "max_line_bytes": longest, "format": kind})
    data = ("\ufeff" * mark + HEADS[kind] + content).encode()
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    (source,) = find_sources([str(path)], options)
    expected = in_order(source, options, shard_bytes, data, block)
    failed = Cut(-1, 0, 0, 0) in expected
    records = in_order(source, options, 1, data, 1 << 20)
    if not failed and Cut(-1, 0, 0, 0) not in records:
        assert expected == by_rule(records, shard_bytes, len(data))
        if kind in ("lines", "jsonl"):
            assert [data[cut.start : cut.stop] for cut in records] == data.splitlines(keepends=True) or b"\r" in data
    monkeypatch.setattr(stored, "PART_BYTES", part)
    monkeypatch.setattr(stored, "BLOCK", block)
    staging = str(tmp_path / digest_value([str(data)]))
    plan = plan_source(0, source, options, shard_bytes, staging)
    cuts = [Cut(split.start // shard_bytes, split.start, split.stop, split.line) for split in plan.splits]
    assert cuts == expected[: len(expected) - failed]
    assert [split.xxh3 for split in plan.splits] == [xxh3_64_intdigest(data[cut.start : cut.stop]) for cut in cuts]
    assert (plan.error is not None) == failed
    if not failed:
        assert plan.sha256 == hashlib.sha256(data).hexdigest() == stored.digest_stored(str(path), "a.txt")
        assert plan_source(0, source, options, shard_bytes, staging) == plan
