"""Columns that are carried from the input to the scores, and rows that are written in the format of their input."""

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
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import location
from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.formats import FORMATS
from sparseoco.text.options import IngestOptions, TextOptions
from sparseoco.text.passes import SplitReader
from sparseoco.text.readers import read_documents
from sparseoco.text.sources import find_sources
from sparseoco.text.splits import Split, file_suffix, read_split, unwritable_reason, write_rows
from tests.support.errors import raises_code
from tests.support.ingests import COMPRESSORS
from tests.support.tables import TYPED, WRITERS, write_arrow, write_typed

# ----------------------------------------------------------------------------------------------------------------------
# Columns that are carried from the input to the scores, from files of all formats.


def read(path: Path, *, batch_bytes: int = 1 << 20, **chosen: Any) -> list[Documents | CountedDocuments]:
    options = TextOptions(**chosen)
    return list(read_documents([str(path)], options, labelled=False, batch_bytes=batch_bytes))


def carried(path: Path, *names: str, **chosen: Any) -> dict[str, list[Any]]:
    found = read(path, carried=names, **chosen)
    return {name: [value for batch in found for value in batch.carried[name].to_pylist()] for name in names}


def test_json_values_are_carried_as_text(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl.gz"
    values = ['"a\\n\\u00e9"', "1.50", "12345678901234567890123", "true", "null", '{"b": [1.0, "é"],  "a": null}', "-0"]
    values += ["[123456789012345678901]", '"\\ud800"']
    values += ["1e400", '"\udcff"']  # which decide about no document
    lines = [f'{{"text": "t", "c": {value}}}' for value in values] + ['{"text": "t"}']
    path.write_bytes(gzip.compress("\n".join(lines).encode("utf-8", "surrogateescape")))
    texts = ["a\né", "1.5", values[2], "true", None, '{"b":[1.0,"é"],"a":null}', "0", values[7], "\ufffd"]
    texts += ["Infinity", "\ufffd", None]
    assert carried(path, "c", "text") == {"c": texts, "text": ["t"] * len(texts)}


simple = st.one_of(st.text(max_size=9), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.booleans())
nested = st.recursive(simple | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(simple | st.none() | nested, min_size=1, max_size=8),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
)
@example(["\u2028", 1e22, -0.0, [2**64]], "\n", True)
def test_json_text_is_the_value(tmp_path: Path, values: list[Any], newline: str, ascii_only: bool) -> None:
    path = tmp_path / "texts.jsonl"
    rows = [json.dumps({"text": "t", "c": value}, ensure_ascii=ascii_only) for value in values]
    path.write_bytes(b"\xef\xbb\xbf" + newline.join(rows).encode("utf-8", "surrogatepass"))
    for value, text in zip(values, carried(path, "c", batch_bytes=20)["c"], strict=True):
        assert text == value if isinstance(value, str | None) else json.loads(text) == value


def test_columns_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    rows = [('"text"', '"url"', '"id"'), ("a", '"x\r\n""y"""', "1"), ("b", "", "2"), ("c", "1.50", "3")]
    path.write_text("\r\n".join(map(",".join, rows)), newline="")
    found = carried(path, "url", "id", batch_bytes=10)
    assert found == {"url": ['x\r\n"y"', "", "1.50"], "id": ["1", "2", "3"]}
    with raises_code("missing-field", "lang", "'text', 'url', 'id'"):
        carried(path, "lang")


def test_columns_of_csv_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("a,x\nb,y\n")
    assert carried(path, "2", header=False, text_field="1") == {"2": ["x", "y"]}
    with pytest.raises(InputError):
        carried(path, "3", header=False, text_field="1")


KINDS_OF_COLUMNS = [pa.string_view(), pa.list_(pa.string_view()), pa.uuid(), pa.large_list(pa.float16()), pa.null()]


@pytest.mark.parametrize("kind", KINDS_OF_COLUMNS)
def test_unusual_types_of_tables(tmp_path: Path, kind: pa.DataType) -> None:
    storage = pa.array([None, None, None], kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)
    values = pa.ExtensionArray.from_storage(kind, storage) if isinstance(kind, pa.BaseExtensionType) else storage
    table = pa.table({"text": ["a", None, "c"], "x": values})
    write_arrow(table, tmp_path / "x.arrow")
    (documents,) = read(tmp_path / "x.arrow", carried=("x",), max_bad_rows=1)
    assert (len(documents), documents.carried["x"].type, len(documents.carried["x"])) == (2, kind, 2)


@pytest.mark.parametrize("name", WRITERS)
def test_values_stay_with_their_documents(tmp_path: Path, name: str) -> None:
    rows = [{"id": f"d{i}", "text": f"w{i}", "split": "ab"[i % 2], "copy": f"d{i}"} for i in range(60)]
    WRITERS[name](pa.Table.from_pylist(rows), tmp_path / name, 7)
    found = read(tmp_path / name, carried=("copy",), where={"split": "a"}, holdout=0.3, batch_bytes=300)
    ids = [name for batch in found for name in batch.ids.to_pylist()]
    assert 0 < len(ids) < 30
    assert ids == [name for batch in found for name in batch.carried["copy"].to_pylist()]


def test_options() -> None:
    options, columns = TextOptions(), TextOptions(carried=("url",))
    assert "carried" not in options.plain()
    assert TextOptions.of(columns.plain()) == columns
    assert columns.counting_digest != options.counting_digest
    assert "carried" not in IngestOptions.model_fields


# ----------------------------------------------------------------------------------------------------------------------
# Rows written in the format of their input are those that were selected, whatever the splits.


QUIET = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


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
    return [text for path in paths for batch in read_again(path, **given) for text in batch.texts()]


def read_again(path: Path, **given: Any) -> list[Documents]:
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
    path.write_bytes(COMPRESSORS[suffix](b"\xef\xbb\xbf" * bom + content))
    chosen = data.draw(st.sets(st.integers(1, len(lines) + 2)))
    for form in ("jsonl", "lines"):
        (one,) = write(path, folder / form, 1 << 20, sorted(chosen), format=form) or [None]
        whole = b"" if one is None else decompress(one)
        for read in (True, False)[: 1 if suffix else 2]:  # the content that was read, or the range of the file
            cut = write(path, folder / f"{form} cut", size, sorted(chosen), read=read, format=form)
            assert b"".join(map(decompress, cut)) == whole
        assert all(file.name.endswith({"jsonl": ".jsonl", "lines": ".txt"}[form] + suffix) for file in cut)
        every = write(path, folder / f"{form} all", size, format=form)
        assert texts(every, format=form) == texts([path], format=form)
        expected = [text.removesuffix(b"\r") + b"\n" for text in content.split(b"\n")]
        documents = [k for batch in read_again(path, format=form) for k in batch.lines.tolist()]
        assert whole == b"".join(expected[k - 1] for k in documents if k in chosen)


QUOTE = '"'
cell = st.text(st.sampled_from('a"é,\t\r\n x'), max_size=6)
KINDS: dict[str, dict[str, Any]] = {
    "csv": {},
    "csv without header": {"header": False, "id_field": "1", "text_field": "2"},
    "tsv": {"format": "tsv", "text_field": '"'},
}


def record(values: Sequence[str], kind: str) -> str:
    """A record with quotes where they are needed; of TSV, nowhere."""
    if kind == "tsv":
        return "\t".join(values)
    quoted = (f'"{value.replace(QUOTE, QUOTE * 2)}"' for value in values)
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
    lines = [k for batch in read_again(path, **given) for k in batch.lines.tolist()]
    chosen = data.draw(st.sets(st.sampled_from(lines))) if lines else set()
    wanted = [value for (_, value), k in zip(rows, lines, strict=True) if k in chosen]
    assert texts(write(path, folder / "some", size, sorted(chosen), **given), **given) == wanted
    for out in write(path, folder / "none", size, [], **given):
        assert out.read_bytes() == (record(header[0], kind) + "\n" if header else "").encode()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("size", [50, 1 << 20])
@pytest.mark.parametrize("rows", [range(1, 21), [], [1, 2, 8, 9, 20]])
def test_tables(tmp_path: Path, form: str, size: int, rows: Sequence[int]) -> None:
    """Columns keep their types."""
    path = write_typed(tmp_path, form)
    found = read(path, carried=tuple(TYPED.column_names), batch_bytes=size)
    for name in TYPED.column_names:
        arrays = [batch.carried[name] for batch in found]
        assert {array.type for array in arrays} == {TYPED.schema.field(name).type}
        assert pa.chunked_array(arrays).to_pylist() == TYPED[name].to_pylist()
    with raises_code("missing-field", "none", "'text', 'a.b'"):
        read(path, carried=("none",))
    files = write(path, tmp_path / "out", size, rows)
    assert (len(files) > 1) == (size == 50)
    assert all(file.suffix == ".parquet" for file in files)
    tables = [pq.read_table(file) for file in files]
    assert {table.schema for table in tables} == {TYPED.schema}
    assert all(table.schema.metadata == TYPED.schema.metadata for table in tables)
    expected = [row for k, row in enumerate(TYPED.to_pylist(), 1) if k in rows]
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


def test_a_range_that_changed(tmp_path: Path) -> None:
    path, options = tmp_path / "x.jsonl", TextOptions()
    path.write_text("".join(f'{{"text": "w{i}"}}\n' for i in range(30)))
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


def test_types_that_parquet_lacks(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"], "x": pa.nulls(1, pa.run_end_encoded(pa.int32(), pa.string()))})
    write_arrow(table, tmp_path / "x.arrow")
    assert len(read(tmp_path / "x.arrow")) == 1
    with raises_code("unsupported-format", "'x'", "run_end_encoded"):
        read(tmp_path / "x.arrow", carried=("x",))
    with raises_code("unsupported-format"):
        write(tmp_path / "x.arrow", tmp_path / "out", 1 << 20)


@pytest.mark.parametrize(("name", "content"), [("x.svmlight", "1 1:1\n-1 2:3 # é\n"), ("x.review", "a:1 #label#:p\n")])
def test_counted_documents_are_lines(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    (out,) = write(tmp_path / name, tmp_path / "out", 1 << 20)
    assert (out.suffix, out.read_text()) == (Path(name).suffix, content)


def test_folders_cannot_be_written() -> None:
    assert [form for form in FORMATS if unwritable_reason(form)] == ["folder", "files"]
