"""Parquet and Arrow give the stores of the same rows as JSON lines; columns that are carried, rows that are written."""

import gzip
import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import location
from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.formats import FOLDERS, FORMATS
from sparseoco.text.ingest import ingest
from sparseoco.text.options import IngestOptions, TextOptions
from sparseoco.text.passes import SplitReader
from sparseoco.text.readers import read_documents
from sparseoco.text.sources import find_sources
from sparseoco.text.splits import Split, file_suffix, read_split, write_rows
from sparseoco.text.tables import TableFile
from tests.support.errors import raises_code
from tests.support.ingests import COMPRESSORS, decompress, random_texts, write_files
from tests.support.tables import TABLE_WRITERS, TYPED, WRITERS, batches, documents, write_arrow, write_typed

# ----------------------------------------------------------------------------------------------------------------------
# Tables are read as JSON lines, by any types, row groups and splits.


def rows_of(n: int) -> list[dict[str, Any]]:
    return [
        {"id": f"d{k}", "label": "pn"[k % 2], "text": text, "n": k / 4, "g": f"g{k % 3}", "t": 86400.0 * k}
        for k, text in enumerate(random_texts(n))
    ]


TYPES: dict[str, Callable[[pa.Array], pa.Array]] = {
    "large": lambda array: array.cast(pa.large_string()),
    "view": lambda array: array.cast(pa.string_view()),
    "binary": lambda array: array.cast(pa.binary()),
    "large binary": lambda array: array.cast(pa.large_binary()),
    "dictionary": lambda array: array.dictionary_encode(),
    "dictionary of views": lambda array: pa.DictionaryArray.from_arrays(
        array.dictionary_encode().indices, array.unique().cast(pa.string_view())
    ),
    "runs": lambda array: pa.compute.run_end_encode(array),
    "extension": lambda array: pa.ExtensionArray.from_storage(pa.json_(pa.string()), array),
    "sliced": lambda array: pa.concat_arrays([pa.array(["é", None]), array]).slice(2),
}


@pytest.mark.parametrize("kind", TYPES)
def test_types_of_text(tmp_path: Path, kind: str) -> None:
    rows = [row | {"text": row["text"] if k % 5 else ""} for k, row in enumerate(rows_of(60))]
    expected = [(row["id"], row["label"], row["text"], k) for k, row in enumerate(rows, 1)]
    columns = {name: TYPES[kind](pa.array([row[name] for row in rows])) for name in ("id", "label", "text")}
    for name, write in TABLE_WRITERS.items():
        if name != "d.arrow" and (kind in ("runs", "dictionary of views") or (kind == "dictionary" and "c." in name)):
            continue  # PyArrow does not write them
        write(pa.table(columns), tmp_path / name, 13)
        for size in (1 << 10, 1 << 20):
            assert documents(tmp_path / name, size) == expected


def test_types_of_other_columns(tmp_path: Path) -> None:
    moments = [datetime(2024, 1, 1, 12, k, tzinfo=UTC) for k in range(3)]
    table = pa.table(
        {
            "text": ["one two", "three", ""],
            "whole": pa.array([1, 0, 1], pa.int8()),
            "flag": [True, False, True],
            "price": pa.array([0.5, 1.5, 2.0]).cast(pa.decimal128(6, 2)),
            "names": [["a", "b"], [], ["b"]],
            "time": pa.array(moments, pa.timestamp("ns", tz="Europe/Paris")),
            "day": [date(2024, 1, day) for day in (1, 2, 3)],
            "seconds": pa.array([m.replace(tzinfo=None) for m in moments], pa.timestamp("s")),
            "written": [moment.isoformat() for moment in moments],
            "dotted.name": ["p", "q", "r"],
        }
    )
    for name, write in TABLE_WRITERS.items():
        path = tmp_path / name
        write(table, path, 2)
        assert [row[1] for row in documents(path, 1024, label_field="whole")] == ["1", "0", "1"]
        assert [row[0] for row in documents(path, 1024, label_field="flag")] == [f"{name}:{k}" for k in (1, 2, 3)]
        flags = documents(path, 1024, label_field="flag", id_field="whole")
        assert [row[1] for row in flags] == ["true", "false", "true"]
        assert [row[1] for row in documents(path, 1024, label_field="price", labels="numbers")] == [0.5, 1.5, 2.0]
        assert [row[1] for row in documents(path, 1024, label_field="names", labels="multi")] == [["a", "b"], [], ["b"]]
        assert [row[1] for row in documents(path, 1024, label_field="dotted.name")] == ["p", "q", "r"]
        for field, unit in (("time", 60.0), ("seconds", 60.0), ("written", 60.0), ("day", 86400.0)):
            found_batches = batches(path, 1024, label_field="whole", time_field=field)
            times = np.concatenate([batch.columns["time"] for batch in found_batches])
            assert np.diff(times).tolist() == [unit] * 2
            assert datetime.fromtimestamp(times[0], UTC).date() == date(2024, 1, 1)
        wanted = ("flag", "false", 1), ("day", "2024-01-02", 1), ("price", "2.00", 1), ("names", "a", 0)
        for field, value, found in wanted:
            assert len(documents(path, 1024, label_field="whole", where={field: value})) == found


LABEL, RECORD, MISSING = "invalid-labels", "malformed-record", "missing-field"
HOSTILE = {
    "text": ("text", [b"okay", None, b"\xff\xfe", b"good"], {2: MISSING, 3: "encoding"}),
    "label": ("label", ["p", None, "", "n"], {2: MISSING, 3: LABEL}),
    "numbers": ("label", [1.0, float("nan"), float("inf"), 2.0], {2: LABEL, 3: LABEL}),
    "weight": ("n", [1.0, -1.0, None, 0.0], {2: RECORD, 3: MISSING}),
    "group": ("g", ["a", None, "b", "c"], {2: MISSING}),
    "float ids": ("id", [1.5, None, None, None], {1: RECORD}),
    "float labels": ("label", [1.0, 2.0, None, 1.0], {1: LABEL, 2: LABEL, 3: MISSING, 4: LABEL}),
    "lists": ("label", [["p"], [], None, ["n"]], {1: LABEL, 2: LABEL, 3: MISSING, 4: LABEL}),
    "numbers as text": ("text", [1, 2, None, 4], {1: RECORD, 2: RECORD, 3: MISSING, 4: RECORD}),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("name", ["a.parquet", "d.arrow"])
def test_bad_rows_have_the_errors_of_json_lines(tmp_path: Path, case: str, name: str) -> None:
    field, values, bad = HOSTILE[case]
    columns: dict[str, Any] = {"text": ["ww", "xx", "yy", "zz"], "label": ["p", "n", "p", "n"]}
    columns |= {"n": [1.0] * 4, "g": ["a"] * 4}
    TABLE_WRITERS[name](pa.table(columns | {field: values}), tmp_path / name, 3)
    options = {"weight_field": "n", "group_field": "g"} | ({"labels": "numbers"} if case == "numbers" else {})
    first, code = next(iter(bad.items()))
    if len(bad) < 4:
        unit = "row group" if name == "a.parquet" else "record batch"
        with raises_code(code, f"{name}, {unit} {(first + 2) // 3}, row {first}: "):
            ingest([str(tmp_path / name)], tmp_path / "stop", TextOptions.of(options))
        chosen = TextOptions.of(options | {"max_bad_rows": 4})
        manifest = ingest([str(tmp_path / name)], tmp_path / "out", chosen, shard_bytes=1024)
        assert (manifest.rows, manifest.quarantined_rows) == (4 - len(bad), len(bad))
        table = pq.read_table(tmp_path / "out" / manifest.quarantine[0].file).to_pylist()
        assert [row["line"] for row in table] == list(bad)
        assert f"row {first}: " in table[0]["reason"]
    found = [row for batch in batches(tmp_path / name, 1024, **options, max_bad_rows=4) for row in batch.bad]
    assert {row.line: row.code for row in found} == bad


def test_random_tables_are_read_as_json_lines(tmp_path: Path) -> None:
    """Nulls, empty strings, kinds of values and row groups at random: the same documents and the same bad rows."""
    random = np.random.default_rng(0)
    values = {
        "id": [None, "x", "é", ""],
        "label": [None, "p", "n", ""],
        "text": [None, "", "alpha beta", "Épée 東京"],
        "w": [None, 0.0, 1.5, -1.0],
        "g": [None, "a", "b", ""],
        "s": [None, "a", "b", "1"],
    }
    options = {"weight_field": "w", "group_field": "g", "max_bad_rows": 10**6, "where": {"s": "a"}}
    for number in range(12):
        chosen = TextOptions.of(options | ({} if number % 2 else {"where": {}}))
        weights = [0.1 if number % 3 else 0.0, 0.5, 0.3, 0.1 if number % 3 else 0.2]
        n = int(random.integers(1, 60))
        rows = [{name: kinds[random.choice(4, p=weights)] for name, kinds in values.items()} for _ in range(n)]
        schema = pa.schema([(name, pa.float64() if name == "w" else pa.string()) for name in values])
        found = {}
        for name in ("a.jsonl", *TABLE_WRITERS):
            WRITERS[name](pa.Table.from_pylist(rows, schema), tmp_path / name, int(random.integers(1, 20)))
            (source,) = find_sources([str(tmp_path / name)], chosen)
            parts = []
            for split, content in SplitReader(0, source._replace(short="x"), chosen, 1024):
                batch = read_split(split, chosen, labelled=True, content=content)
                labels: Any = batch.labels
                columns = [batch.ids.to_pylist(), labels.to_pylist(), batch.texts(), batch.lines.tolist()]
                columns += [batch.columns[column].tolist() for column in ("weight", "group")]
                parts += list(zip(*columns, strict=True))
                parts += [(row.line, row.reason, row.code) for row in batch.bad]
            found[name] = sorted(parts, key=str)
        assert all(rows == found["a.jsonl"] for rows in found.values())


def test_fields_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"], "label": ["p"], "s": [{"y": "z"}]}), path)
    for options in ({"text_field": "body"}, {"label_field": "s.y"}, {"where": {"lang": "en"}}, {"weight_field": "w"}):
        with raises_code("missing-field", "a.parquet", "there is no such column"):
            ingest([str(path)], tmp_path / "out", TextOptions.of(options))
    pq.write_table(pa.table([["a"], ["b"], ["p"]], names=["text", "text", "label"]), path)
    with raises_code("duplicate-column", "a.parquet", "text"):
        ingest([str(path)], tmp_path / "out", TextOptions())
    pq.write_table(pa.table({"text": ["a"]}), path)
    (batch,) = read_documents([str(path)], TextOptions(), labelled=False)
    assert (len(batch), batch.labels) == (1, None)
    pq.write_table(pa.table({"text": pa.array([], pa.string()), "label": pa.array([], pa.string())}), path)
    with raises_code("no-documents", "a.parquet"):
        ingest([str(path)], tmp_path / "out", TextOptions())


# Damage, order, and remote files


@pytest.mark.parametrize("name", TABLE_WRITERS)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    TABLE_WRITERS[name](pa.Table.from_pylist(rows_of(40)), tmp_path / name, 10)
    data = (tmp_path / name).read_bytes()
    path = tmp_path / f"x{name}"
    cases = [data[: len(data) * k // 7] for k in range(1, 7)]
    cases += [b"PAR1", b"text\n" * 99, data[:99] + bytes(200) + data[299:]]
    codes = set()
    for damaged in cases:
        path.write_bytes(damaged)
        try:
            ingest([str(path)], tmp_path / "out", TextOptions(max_bad_rows=40))
        except InputError as error:
            codes.add(error.code)
        else:  # without checksums, damage to a value cannot be known
            assert damaged is cases[-1]
            for file in (tmp_path / "out").glob("manifest*"):
                file.unlink()
    assert codes <= {"corrupt-file", "unsupported-format", "no-documents", "duplicate-id"}
    assert "corrupt-file" in codes


def test_parts_in_any_order(tmp_path: Path) -> None:
    table = pa.table({"text": [f"row {k}" for k in range(1000)]})
    for name, write in TABLE_WRITERS.items():
        write(table, tmp_path / name, 400)
        file = TableFile(str(tmp_path / name), "parquet" if name in ("a.parquet", "b.pq") else "arrow")
        for start, stop in ((300, 350), (0, 10), (350, 900), (100, 150), (900, 1000), (0, 1000)):
            found = pa.Table.from_batches(file.read(["text"], start, stop))
            assert found["text"].to_pylist() == [f"row {k}" for k in range(start, stop)]


@pytest.mark.parametrize("name", TABLE_WRITERS)
def test_remote_files_are_read_by_range(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Parquet, only the columns that are read."""
    rows = [row | {"other": row["id"] * 5000} for row in rows_of(200)]
    TABLE_WRITERS[name](pa.Table.from_pylist(rows), tmp_path / name, 50)
    remote = location(f"memory://tables/{name}")
    commit_bytes(remote, (tmp_path / name).read_bytes())
    requests: list[int] = []
    read = type(remote).read_chunks
    monkeypatch.setattr("sparseoco.storage.inputs.REMOTE_BUFFER", 1 << 12)

    def counted(path: Any, *arguments: Any, span: tuple[int, int], **options: Any) -> Any:  # a range, never the file
        requests.append(span[1] - span[0])
        return read(path, *arguments, span=span, **options)

    monkeypatch.setattr(type(remote), "read_chunks", counted)
    assert ingest([str(remote)], tmp_path / "there", TextOptions(), shard_bytes=1024).rows == 200
    assert name != "a.parquet" or sum(requests) < (tmp_path / name).stat().st_size


def test_strings_whose_offsets_are_damaged(tmp_path: Path) -> None:
    """Arrow itself ends the process when it meets them."""
    offsets = pa.py_buffer(np.array([0, 2, -5, 4], np.int32))
    text = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"abcd"))
    batch = pa.record_batch({"text": text, "label": ["p", "n", "p"]})
    with pa.ipc.new_file(tmp_path / "d.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    with raises_code("corrupt-file", "d.arrow"):
        ingest([str(tmp_path / "d.arrow")], tmp_path / "out", TextOptions())


def test_times_that_python_does_not_have(tmp_path: Path) -> None:
    """They are bad rows, as other times, where names or numbers are wanted."""
    far = pa.array([10**15] * 2, pa.timestamp("s"))
    for number, column in enumerate((far, pa.array([1, 2], pa.timestamp("us", "No/Where")), far.dictionary_encode())):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"label": column, "text": ["a b", "c d"], "n": column}), path)
        for options, reason in (({}, "neither a string"), ({"labels": "numbers"}, "not a number")):
            with raises_code("invalid-labels", "row group 1, row 1", reason):
                ingest([str(path)], tmp_path / "out", TextOptions.of(options))


def test_an_arrow_stream_is_refused(tmp_path: Path) -> None:
    """It has no footer, so that its batches cannot be read one by one."""
    table = pa.table({"text": ["a b"], "label": ["p"]})
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    with raises_code("unsupported-format", "a.arrow is an Arrow stream", "Parquet"):
        ingest([str(tmp_path / "a.arrow")], tmp_path / "out", TextOptions())


def test_datasets_of_hugging_face_are_refused(tmp_path: Path) -> None:
    """Their descriptions are no documents, and would be read as some; the files that are chosen are plain tables."""
    write_files(tmp_path / "in", {"README.md": "about", "data/x": ""})
    write_files(tmp_path / "disk", {"state.json": '{\n  "_data_files": []\n}', "x": ""})
    cases = ("in", "data/train-0.parquet", "mixed-folder"), ("disk", "d.parquet", "malformed-record")
    for folder, name, code in cases:
        pq.write_table(pa.table({"text": ["a b"], "label": [1]}), tmp_path / folder / name)
        with raises_code(code, tmp_path / folder):
            ingest([str(tmp_path / folder)], tmp_path / "out", TextOptions())
        found = documents(tmp_path / folder, 1024, include=["*.parquet"])
        assert found == [(f"{Path(name).name}:1", "1", "a b", 1)]


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


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
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
    write_arrow(pa.table({"text": ["a", None, "c"], "x": values}), tmp_path / "x.arrow")
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


QUIET = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


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
    return read(path, encoding_errors="replace", max_bad_rows=1000, **given)


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
    assert [form for form in FORMATS if form in FOLDERS] == ["folder", "files"]
