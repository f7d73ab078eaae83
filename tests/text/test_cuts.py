"""CSV, TSV and JSON lines are read as Python reads the whole file, wherever it is cut; and where files are cut."""

import csv
import gzip
import hashlib
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from sparseoco.core.errors import InputError
from sparseoco.storage import inputs as stored
from sparseoco.storage.commit import digest_value
from sparseoco.text.documents import Documents
from sparseoco.text.formats import DELIMITERS
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers import read_jsonl
from sparseoco.text.parsing import SLACK, Chunk
from sparseoco.text.passes import Cut, cut_in_order, plan_source
from sparseoco.text.sources import Source, find_sources
from tests.support.errors import raises_code
from tests.support.tables import batches, documents

# ----------------------------------------------------------------------------------------------------------------------
# CSV and TSV are read as `csv.reader` reads the whole file, wherever the file is split.


PIECES = ['"', '""', ",", "\t", "\n", "\r", "\r\n", "\n\n", " ", "a", "ab", 'é"', "\ufeff", "東京", "x,\r", '5" disk']
PIECES += ["word " * 9, "word " * 40, '"x\r\n,"']


def reference(text: str, delimiter: str, quoted: bool) -> list[list[str]]:
    """The records `csv.reader` finds in the whole file, without blank lines."""
    text, quotes = text.removeprefix("\ufeff"), csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quotes) if row]


def is_open(text: str, delimiter: str, quoted: bool) -> bool:
    """Does the file end in a quoted field? Then another line is not another record."""
    return reference(f"{text}\nEND", delimiter, quoted)[-1] != ["END"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    if is_open(text, delimiter, quoted):
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


def refuse(raw: bytes) -> Any:
    raise orjson.JSONDecodeError("", "", 0)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparseoco.text.parsers.orjson.loads", refuse)
        slow = read_jsonl(chunk(data), options, labelled=labelled)
    assert values_of(fast) == values_of(slow)


# ----------------------------------------------------------------------------------------------------------------------
# Files are cut by one rule, in blocks of any size.


CONTENTS = st.lists(st.sampled_from(PIECES), max_size=90).map("".join)
HEADS = {
    "lines": "",
    "jsonl": "",
    "csv": "id,label,text\n",
    "tsv": "id\tlabel\ttext\r\n",
}


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


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    assert plan is not None
    cuts = [Cut(split.start // shard_bytes, split.start, split.stop, split.line) for split in plan.splits]
    assert cuts == expected[: len(expected) - failed]
    assert [split.xxh3 for split in plan.splits] == [xxh3_64_intdigest(data[cut.start : cut.stop]) for cut in cuts]
    assert (plan.error is not None) == failed
    if not failed:
        assert plan.sha256 == hashlib.sha256(data).hexdigest() == stored.digest_stored(str(path), "a.txt")
        assert plan_source(0, source, options, shard_bytes, staging) == plan
