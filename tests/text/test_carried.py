"""Columns that are carried from the input to the scores, from files of all formats."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparseoco.core.errors import InputError
from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.options import IngestOptions, TextOptions
from sparseoco.text.readers import read_documents
from tests.support.errors import raises_code
from tests.support.tables import write_arrow

DAY = pa.timestamp("us", tz="UTC")
COLUMNS = {
    "text": pa.array([f"word{i}" for i in range(7)]),
    "url": pa.array(["a", None, "", "é", "b", "c", "d"], pa.large_string()),
    "lang": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0, 1, 1, 0], pa.int8()), pa.array(["en", "de"])),
    "tags": pa.array([["x"], None, [], ["y", None], [], [], ["z"]], pa.list_(pa.string())),
    "meta": pa.array([{"k": i, "s": None} for i in range(7)], pa.struct({"k": pa.int16(), "s": pa.string()})),
    "day": pa.array(range(7), DAY),
    "price": pa.array([None, *range(6)], pa.decimal128(10, 2)),
}
TABLE = pa.table(COLUMNS)


def read(path: Path, *, batch_bytes: int = 1 << 20, **chosen: Any) -> list[Documents | CountedDocuments]:
    options = TextOptions(**chosen)
    return list(read_documents([str(path)], options, labelled=False, batch_bytes=batch_bytes))


def carried(path: Path, *names: str, **chosen: Any) -> dict[str, list[Any]]:
    found = read(path, carried=names, **chosen)
    return {name: [value for batch in found for value in batch.carried[name].to_pylist()] for name in names}


def parquet(path: Path, form: str = "parquet") -> Path:
    if form == "parquet":
        pq.write_table(TABLE, path, row_group_size=3)
    else:
        write_arrow(TABLE, path, 3)
    return path


def test_json_values_are_carried_as_text(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl.gz"
    values = ['"a\\n\\u00e9"', "1.50", "12345678901234567890123", "true", "null", '{"b": [1.0, "é"],  "a": null}', "-0"]
    values += ["[123456789012345678901]", '"\\ud800"']
    lines = [f'{{"text": "t", "c": {value}}}' for value in values] + ['{"text": "t"}']
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    texts = ["a\né", "1.5", values[2], "true", None, '{"b":[1.0,"é"],"a":null}', "0", values[7], "\ufffd", None]
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


def test_carrying_decides_about_no_document(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_bytes(b'{"text": "a", "c": "\xff"}\n{"text": "b", "c": 1e400}\n')
    assert carried(path, "c") == {"c": ["\ufffd", "Infinity"]}


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_columns_of_csv(tmp_path: Path, suffix: str, delimiter: str) -> None:
    path = tmp_path / f"texts.{suffix}"
    rows = [('"text"', '"url"', '"id"'), ("a", '"x\r\n""y"""', "1"), ("b", "", "2"), ("c", "1.50", "3")]
    path.write_text("\r\n".join(delimiter.join(row) for row in rows), newline="")
    found = carried(path, "url", "id", batch_bytes=10)
    assert found == {"url": ['x\r\n"y"', "", "1.50"], "id": ["1", "2", "3"]}
    with raises_code("missing-field", "lang", "text, url, id"):
        carried(path, "lang")


def test_columns_of_csv_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("a,x\nb,y\n")
    assert carried(path, "2", header=False, text_field="1") == {"2": ["x", "y"]}
    with pytest.raises(InputError):
        carried(path, "3", header=False, text_field="1")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("batch_bytes", [20, 1 << 20])
def test_columns_of_tables_keep_their_types(tmp_path: Path, form: str, batch_bytes: int) -> None:
    path = parquet(tmp_path / f"texts.{form}", form)
    names = [*TABLE.column_names, "meta.k"]
    schema = pq.read_schema(path) if form == "parquet" else TABLE.schema  # the item of a list has another name
    found = read(path, carried=tuple(names), batch_bytes=batch_bytes)
    assert len(found) == 1 or batch_bytes == 20
    for name in TABLE.column_names:
        arrays = [batch.carried[name] for batch in found]
        assert {array.type for array in arrays} == {schema.field(name).type}
        assert pa.chunked_array(arrays).to_pylist() == TABLE[name].to_pylist()
    assert [k for batch in found for k in batch.carried["meta.k"].to_pylist()] == list(range(7))
    with raises_code("missing-field", "none", "text, url"):
        read(path, carried=("none",))


@pytest.mark.parametrize(
    "kind",
    [
        pa.string_view(),
        pa.list_(pa.string_view()),
        pa.uuid(),
        pa.large_list(pa.float16()),
        pa.null(),
    ],
)
def test_unusual_types_of_tables(tmp_path: Path, kind: pa.DataType) -> None:
    storage = pa.array([None, None, None], kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)
    values = pa.ExtensionArray.from_storage(kind, storage) if isinstance(kind, pa.BaseExtensionType) else storage
    table = pa.table({"text": ["a", None, "c"], "x": values})
    write_arrow(table, tmp_path / "x.arrow")
    (documents,) = read(tmp_path / "x.arrow", carried=("x",), max_bad_rows=1)
    assert (len(documents), documents.carried["x"].type, len(documents.carried["x"])) == (2, kind, 2)


def test_types_that_parquet_lacks(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"], "x": pa.nulls(1, pa.run_end_encoded(pa.int32(), pa.string()))})
    write_arrow(table, tmp_path / "x.arrow")
    assert len(read(tmp_path / "x.arrow")) == 1
    with raises_code("unsupported-format", "'x'", "run_end_encoded"):
        read(tmp_path / "x.arrow", carried=("x",))


def test_partitions_are_strings(tmp_path: Path) -> None:
    (tmp_path / "year=2024").mkdir()
    parquet(tmp_path / "year=2024" / "part.parquet")
    assert carried(tmp_path, "year") == {"year": ["2024"] * 7}


def test_values_stay_with_their_documents(tmp_path: Path) -> None:
    lines = [{"id": f"d{i}", "text": f"w{i}", "split": "ab"[i % 2], "copy": f"d{i}"} for i in range(60)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "texts.csv").write_text(
        "id,text,split,copy\n" + "".join(",".join(line.values()) + "\n" for line in lines)
    )
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "texts.parquet")
    for suffix in ("jsonl", "csv", "parquet"):
        found = read(
            tmp_path / f"texts.{suffix}", carried=("copy",), where={"split": "a"}, holdout=0.3, batch_bytes=300
        )
        ids = [name for batch in found for name in batch.ids.to_pylist()]
        assert 0 < len(ids) < 30
        assert ids == [name for batch in found for name in batch.carried["copy"].to_pylist()]


@pytest.mark.parametrize(
    ("name", "content"), [("texts.txt", "a b\n"), ("rows.svmlight", "1 1:1\n"), ("x.review", "a:1 #label#:p\n")]
)
def test_formats_without_fields(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert all(not batch.carried for batch in read(tmp_path / name))
    with raises_code("unsupported-combination"):
        read(tmp_path / name, carried=("url",))


def test_options() -> None:
    options, columns = TextOptions(), TextOptions(carried=("url",))
    assert "carried" not in options.plain()
    assert TextOptions.of(columns.plain()) == columns
    assert columns.counting_digest != options.counting_digest
    assert "carried" not in IngestOptions.model_fields
    with pytest.raises(InputError):
        TextOptions.of({"carried": ["a", "a"]})
