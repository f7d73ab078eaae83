"""Parquet and Arrow give the stores of the same rows as JSON lines, by any types, row groups and splits."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import location
from sparseoco.text.documents import Documents
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.passes import SplitReader
from sparseoco.text.readers import read_documents
from sparseoco.text.sources import find_sources
from sparseoco.text.splits import read_split
from sparseoco.text.tables import TableFile
from tests.support.errors import raises_code
from tests.support.ingests import random_texts, write_files
from tests.support.tables import TABLE_WRITERS, WRITERS, batches, documents


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
                assert isinstance(batch, Documents)
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
