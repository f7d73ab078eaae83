"""CSV and TSV are read as `csv.reader` reads the whole file, wherever the file is split."""

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import sparseoco.storage.inputs
from sparseoco.text.cutting import SplitReader
from sparseoco.text.documents import Documents
from sparseoco.text.formats import DELIMITERS
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import find_sources
from sparseoco.text.splits import read_split
from tests.support.errors import raises_code

PIECES = ['"', '""', ",", "\t", "\n", "\r", "\r\n", " ", "a", 'é"', "\ufeff", "word " * 40, "x,\r", '5" disk']


def read(path: Path, shard_bytes: int, **options: Any) -> tuple[list[tuple[Any, ...]], int]:
    """(id, label, text, line) of all documents, and the number of splits they came in."""
    chosen = TextOptions.of(options)
    (source,) = find_sources([str(path)], chosen)
    rows: list[tuple[Any, ...]] = []
    splits = list(SplitReader(0, source, chosen, shard_bytes))
    for split, content in splits:
        found = read_split(split, chosen, labelled=True, content=content)
        assert isinstance(found, Documents)
        assert all(row.code in ("malformed-record", "invalid-labels") for row in found.bad)
        labels: Any = found.labels
        rows += zip(found.ids.to_pylist(), labels.to_pylist(), found.texts(), found.lines.tolist(), strict=True)
    return rows, len(splits)


def reference(text: str, delimiter: str, quoted: bool) -> list[list[str]]:
    """The records `csv.reader` finds in the whole file, without blank lines."""
    text, quotes = text.removeprefix("\ufeff"), csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quotes) if row]


def is_open(text: str, delimiter: str, quoted: bool) -> bool:
    """Does the file end in a quoted field? Then another line is not another record."""
    return reference(f"{text}\nEND", delimiter, quoted)[-1] != ["END"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["csv", "tsv", "quoted tsv"]),
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lines: list[tuple[list[str], str]], before: str,
    shard_bytes: int, block: int, packed: bool,
) -> None:  # fmt: skip
    form, quoted = kind.split()[-1], kind != "tsv"
    delimiter = DELIMITERS[form]
    names = ["id", "label", "text"]
    text = before + delimiter.join([f'"{name}"' for name in names] if kind == "quoted tsv" else names) + "\r\n"
    text += "".join(f"{k}{delimiter}p{delimiter}{''.join(pieces)}{end}" for k, (pieces, end) in enumerate(lines))
    path = tmp_path / f"a.{form}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    monkeypatch.setattr(sparseoco.storage.inputs, "BLOCK", block)
    if is_open(text, delimiter, quoted):
        with raises_code("unclosed-quote", path):
            read(path, shard_bytes)
    else:
        rows, _ = read(path, shard_bytes)
        expected = [row for row in reference(text, delimiter, quoted)[1:] if len(row) == 3 and row[1]]
        assert [list(row[:3]) for row in rows] == expected
        whole, splits = read(path, 1 << 30)
        assert splits <= 1
        assert rows == whole


def test_many_splits(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    body = "".join(f'{k},p,a 5" disk\n{k}x,q,"two\nlines, ""{k}"""\n' for k in range(500))
    path.write_text("id,label,text\n" + body)
    rows, splits = read(path, 1024)
    assert splits > 10
    assert len(rows) == 1000
    assert rows[998:] == [("499", "p", 'a 5" disk', 1499), ("499x", "q", 'two\nlines, "499"', 1500)]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_unclosed_quote(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.csv"
    head = f'id,label,text{end}1,p,"two{end}lines"{end}2,p,"open{end}'
    path.write_bytes((head + f"1,p,words{end}" * 400).encode())
    with raises_code("unclosed-quote", "a.csv, line 4"):
        read(path, 1024)
    path.write_bytes((head + "more " * 400).encode())
    for shard_bytes in (1024, 1 << 20):
        with raises_code("unclosed-quote", "a.csv, line 4", 999):
            read(path, shard_bytes, max_line_bytes=999)


def test_long_records_at_any_shard_size(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,label,text\n" + "1,p,short\n" * 300 + f"2,p,{'a' * 1000}\n" + "3,p,short\n" * 300)
    for shard_bytes in (1024, 1 << 20):
        with raises_code("line-too-long", "a.csv, line 302", 1000):
            read(path, shard_bytes, max_line_bytes=1000)
    path.write_text(f"id,label,{'b' * 2000}\n1,p,text\n")
    with raises_code("line-too-long", "a.csv, line 1", 1000):
        read(path, 1024, max_line_bytes=1000)


def test_carriage_returns_end_records(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,label,text\r1,p,"one\rtwo"\r\r2,q,three\r')
    assert read(path, 1024)[0] == [("1", "p", "one\rtwo", 2), ("2", "q", "three", 5)]


def test_duplicate_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for name, options in {"text": {}, "label": {}, "id": {}, "split": {"where": {"split": "a"}}}.items():
        path.write_text(f"id,label,text,split,{name}\n1,p,one,a,b\n")
        with raises_code("duplicate-column", "a.csv", f"2 columns {name!r}"):
            read(path, 1024, **options)
    path.write_text("id,label,text,split,split\n1,p,one,a,b\n")
    assert read(path, 1024)[0] == [("1", "p", "one", 2)]


@pytest.mark.parametrize("label", ["nan", "NaN", "-nan", ""])
def test_missing_labels(tmp_path: Path, label: str) -> None:
    good = {"csv": "1,p,some words\n", "svm": "1 1:1\n"}
    rows = {"csv": f"2,{label},some words\n", "svm": f"{label} 1:1\n"}
    missing, invalid = "missing-field", "invalid-labels"
    codes = {"csv": missing if label else invalid, "svm": invalid if label else missing}
    for form, code in codes.items():
        path = tmp_path / f"a.{form}"
        header = "id,label,text\n" if form == "csv" else ""
        data = header + good[form] + rows[form]
        path.write_text(data)
        line = data.count("\n")
        with raises_code(code, f"a.{form}, line {line}: "):
            ingest([str(path)], tmp_path / f"stop-{form}", TextOptions())
        manifest = ingest([str(path)], tmp_path / form, TextOptions(max_bad_rows=1))
        assert (manifest.rows, manifest.quarantined_rows) == (1, 1)
        assert len(manifest.labels.classes) == 1


def test_infinity_is_not_a_class(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    for label in ("inf", "-Infinity"):
        path.write_text(f"1 1:1\n{label} 1:1\n")
        with raises_code("invalid-labels", "a.svm, line 2"):
            ingest([str(path)], tmp_path / "out", TextOptions())


def test_positions_of_bad_rows_do_not_depend_on_splits(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    data = "id,label,text\n" + '1,p,"some\nwords"\r\n' * 300 + "2,p\n" + "3,p,words\n" * 300
    path.write_bytes(data.encode())
    options = TextOptions()
    (source,) = find_sources([str(path)], options)
    for shard_bytes in (1024, 1 << 20):
        splits = SplitReader(0, source, options, shard_bytes)
        bad = [row for split, data in splits for row in read_split(split, options, labelled=True, content=data).bad]
        assert [(row.line, row.offset) for row in bad] == [(602, data.index("2,p\n"))]
