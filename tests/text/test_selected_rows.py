"""Rows written in the format of their input are those that were selected, whatever the splits."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparseoco.storage.locations import location
from sparseoco.text.cutting import SplitReader
from sparseoco.text.documents import Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import read_documents
from sparseoco.text.sources import find_sources
from sparseoco.text.splits import Split, file_suffix, read_split, unwritable_reason, write_rows
from tests.support.errors import raises_code
from tests.support.tables import write_arrow

QUIET = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
COMPRESS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}


def decompress(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return zstandard.ZstdDecompressor().decompress(data) if path.suffix == ".zst" else data


def parts(path: Path, options: TextOptions, size: int, *, read: bool = True) -> list[tuple[Split, Any]]:
    """The splits of a file, with a copy of their content if `read`."""
    (source,) = find_sources([str(path)], options)
    splits = SplitReader(0, source, options, size)
    return [(split, content.copy() if read and isinstance(content, np.ndarray) else None) for split, content in splits]


def write(
    path: Path, out: Path, size: int, chosen: Sequence[int] | None = None, *, read: bool = True, **given: Any
) -> list[Path]:
    """Write the chosen rows, or those of all documents, of each split; returns the files."""
    options = TextOptions(encoding_errors="replace", max_bad_rows=1000, **given)
    found = []
    for k, (split, content) in enumerate(parts(path, options, size, read=read)):
        copy = None if content is None else content.copy()
        rows = read_split(split, options, labelled=False, content=copy).lines
        if chosen is not None:
            rows = rows[np.isin(rows, chosen)]
        found.append(out / f"{k}{file_suffix(split)}")
        write_rows(split, content, rows, location(found[-1]), options)
    return found


def texts(paths: Sequence[Path], **given: Any) -> list[Any]:
    return [text for path in paths for batch in read(path, **given) for text in batch.texts()]


def read(path: Path, **given: Any) -> list[Documents]:
    options = TextOptions(encoding_errors="replace", max_bad_rows=1000, **given)
    return [batch for batch in read_documents([str(path)], options, labelled=False) if isinstance(batch, Documents)]


line = st.one_of(
    st.dictionaries(st.sampled_from(["text", "n", "é"]), st.text(max_size=9) | st.lists(st.integers())).map(
        lambda row: json.dumps(row, ensure_ascii=len(row) > 1).encode("utf-8", "surrogatepass")
    ),
    st.sampled_from([b"", b" ", b"{", b'{"text": "\xff"}', b'{"text": "\\r\\n\\u2028"}', b'{"text":"a"}\r']),
)


@QUIET
@given(
    st.lists(st.tuples(line, st.sampled_from([b"\n", b"\r\n"])), max_size=12),
    st.sampled_from([b"", b"a", b"\r", b"\xff\r", b"{"]),
    st.booleans(),
    st.sampled_from(["", ".gz", ".zst"]),
    st.sampled_from([1, 30, 1000]),
    st.data(),
)
def test_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: Any, tail: bytes, bom: bool, suffix: str, size: int, data: Any
) -> None:
    folder = tmp_path_factory.mktemp("x")
    content = b"".join(text + end for text, end in lines) + tail
    path = folder / f"x.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](b"\xef\xbb\xbf" * bom + content))
    chosen = data.draw(st.sets(st.integers(1, len(lines) + 2)))
    for form in ("jsonl", "lines"):
        (one,) = write(path, folder / form, 1 << 20, sorted(chosen), format=form) or [None]
        whole = b"" if one is None else decompress(one)
        cut = write(path, folder / f"{form} cut", size, sorted(chosen), format=form)
        assert b"".join(map(decompress, cut)) == whole
        assert all(file.name.endswith({"jsonl": ".jsonl", "lines": ".txt"}[form] + suffix) for file in cut)
        every = write(path, folder / f"{form} all", size, format=form)
        assert texts(every, format=form) == texts([path], format=form)
        expected = [text.removesuffix(b"\r") + b"\n" for text in content.split(b"\n")]
        documents = [k for batch in read(path, format=form) for k in batch.lines.tolist()]
        assert whole == b"".join(expected[k - 1] for k in documents if k in chosen)


QUOTE = '"'
cell = st.text(st.sampled_from('a"é,\t\r\n x'), max_size=6)
KINDS: dict[str, dict[str, Any]] = {
    "csv": {},
    "csv without header": {"header": False, "id_field": "1", "text_field": "2"},
    "quoted tsv": {"format": "tsv", "text_field": '"te,xt'},
    "tsv": {"format": "tsv", "text_field": '"'},
}


def record(values: Sequence[str], kind: str) -> str:
    """A record with quotes where they are needed; of quoted TSV, everywhere; of TSV, nowhere."""
    if kind == "tsv":
        return "\t".join(values)
    quoted = (f'"{value.replace(QUOTE, QUOTE * 2)}"' for value in values)
    if kind == "quoted tsv":
        return "\t".join(quoted)
    return ",".join(q if set(v) & set('",\r\n') or not v else v for q, v in zip(quoted, values, strict=True))


@QUIET
@given(
    st.lists(st.tuples(cell, cell), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(list(KINDS)),
    st.booleans(),
    st.sampled_from([1, 20, 1000]),
    st.data(),
)
def test_records(
    tmp_path_factory: pytest.TempPathFactory, rows: Any, end: str, kind: str, closed: bool, size: int, data: Any
) -> None:
    folder = tmp_path_factory.mktemp("x")
    given = {"format": "csv", "text_field": '"te,\rxt"'} | KINDS[kind]
    if kind == "tsv":
        rows = [tuple("".join(c for c in value if c not in "\t\r\n") or "-" for value in row) for row in rows]
    header = [("id", given["text_field"])] if given.get("header", True) else []
    path = folder / f"x.{given['format']}"
    content = end.join(record(values, kind) for values in [*header, *rows])
    path.write_bytes(("\ufeff" + content + end * closed).encode())
    every = write(path, folder / "all", size, **given)
    assert texts(every, **given) == texts([path], **given) == [value for _, value in rows]
    lines = [k for batch in read(path, **given) for k in batch.lines.tolist()]
    chosen = data.draw(st.sets(st.sampled_from(lines))) if lines else set()
    wanted = [value for (_, value), k in zip(rows, lines, strict=True) if k in chosen]
    assert texts(write(path, folder / "some", size, sorted(chosen), **given), **given) == wanted
    for out in write(path, folder / "none", size, [], **given):
        assert out.read_bytes() == (record(header[0], kind) + "\n" if header else "").encode()


TABLE = pa.table(
    {
        "text": [f"word{i}" for i in range(20)],
        "a.b": pa.array([None, *range(19)], pa.int8()),
        "lang": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2] * 5, pa.int8()), pa.array(["en", "de", "fr"])),
        "tags": pa.array([["x"], None, [], ["y", None]] * 5, pa.list_(pa.field("element", pa.string_view()))),
        "meta": pa.array([{"k": i, "s": None} for i in range(20)], pa.struct({"k": pa.int16(), "s": pa.string()})),
        "day": pa.array(range(20), pa.timestamp("us", tz="UTC")),
        "view": pa.array([f"a long enough string {i}" for i in range(20)], pa.string_view()),
        "uuid": pa.array([bytes([i] * 16) for i in range(20)], pa.uuid()),
    }
)
TABLE = TABLE.replace_schema_metadata({"key": "value"})


def table_file(folder: Path, form: str) -> Path:
    path = folder / f"x.{form}"
    if form == "parquet":
        pq.write_table(TABLE, path, row_group_size=7)
    else:
        write_arrow(TABLE, path, 7)
    return path


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("size", [50, 1 << 20])
@pytest.mark.parametrize("rows", [range(1, 21), [], [1, 2, 8, 9, 20]])
def test_tables(tmp_path: Path, form: str, size: int, rows: Sequence[int]) -> None:
    files = write(table_file(tmp_path, form), tmp_path / "out", size, rows)
    assert (len(files) > 1) == (size == 50)
    assert all(file.suffix == ".parquet" for file in files)
    tables = [pq.read_table(file) for file in files]
    assert {table.schema for table in tables} == {TABLE.schema}
    assert all(table.schema.metadata == TABLE.schema.metadata for table in tables)
    expected = [row for k, row in enumerate(TABLE.to_pylist(), 1) if k in rows]
    assert [row for table in tables for row in table.to_pylist()] == expected
    assert all(pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD" for file in files if rows)


def test_dictionaries_and_bytes_do_not_depend_on_what_was_read_before(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    values = pa.array([f"v{i * i % 397}" for i in range(400)]).dictionary_encode()
    table = pa.table({"text": [f"word{i}" for i in range(400)], "d": values})
    pq.write_table(table, path)
    options = TextOptions(carried=("d",))
    found = []
    for number in range(2):
        splits = parts(path, options, 500)
        assert len(splits) > 3
        written = []
        for k, (split, _) in sorted(enumerate(splits), reverse=bool(number)):
            out = tmp_path / str(number) / f"{k}.parquet"
            documents = read_split(split, options, labelled=False)
            write_rows(split, None, documents.lines[::2], location(out), options)
            written.append((k, out.read_bytes()))
            dictionary = documents.carried["d"].dictionary.to_pylist()
            assert dictionary == list(dict.fromkeys(documents.carried["d"].to_pylist()))
        found.append(sorted(written))
        path.touch()  # another version: nothing of it is open
    assert found[0] == found[1]


def test_a_range_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f'{{"text": "w{i}"}}\n' for i in range(30)))
    read = write(path, tmp_path / "content", 100, [3, 4, 29])
    again = write(path, tmp_path / "range", 100, [3, 4, 29], read=False)
    assert [a.read_bytes() for a in read] == [b.read_bytes() for b in again]
    options = TextOptions()
    (split, _), *_ = parts(path, options, 100)
    path.write_text(path.read_text().replace("w0", "v0"))
    with raises_code("input-changed"):
        write_rows(split, None, np.array([1]), location(tmp_path / "out.jsonl"), options)
    assert not (tmp_path / "out.jsonl").exists()


def test_other_encodings_become_utf8(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes("é\r\nü\r\n".encode("utf-16"))
    (out,) = write(path, tmp_path / "out", 1 << 20, [2], encoding="utf-16")
    assert out.read_bytes() == "ü\n".encode()


def test_columns_that_parquet_lacks(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"], "x": pa.nulls(1, pa.run_end_encoded(pa.int32(), pa.string()))})
    write_arrow(table, tmp_path / "x.arrow")
    with raises_code("unsupported-format"):
        write(tmp_path / "x.arrow", tmp_path / "out", 1 << 20)


@pytest.mark.parametrize(("name", "content"), [("x.svmlight", "1 1:1\n-1 2:3 # é\n"), ("x.review", "a:1 #label#:p\n")])
def test_counted_documents_are_lines(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    (out,) = write(tmp_path / name, tmp_path / "out", 1 << 20)
    assert (out.suffix, out.read_text()) == (Path(name).suffix, content)


def test_folders_cannot_be_written() -> None:
    assert unwritable_reason("folder")
    assert unwritable_reason("files")
    assert unwritable_reason("jsonl") is None
