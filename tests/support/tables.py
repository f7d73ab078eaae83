"""Tables written in every format that has fields, and the documents that are read from tables."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from sparseoco.text.documents import Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.passes import SplitReader
from sparseoco.text.sources import find_sources
from sparseoco.text.splits import read_split


def write_arrow(table: pa.Table, path: Path, rows: int | None = None) -> None:
    """Write a table as an Arrow file, so many rows a batch."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_json_lines(table: pa.Table, path: Path, _: int = 0) -> None:
    """Write each row as an object."""
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist()))


TABLE_WRITERS: dict[str, Callable[[pa.Table, Path, int], None]] = {
    "a.parquet": lambda table, path, rows: pq.write_table(table, path, row_group_size=rows),
    "b.pq": lambda table, path, rows: pq.write_table(table, path, row_group_size=rows, data_page_size=64),
    "c.feather": lambda table, path, rows: pyarrow.feather.write_feather(table, path, chunksize=rows),
    "d.arrow": write_arrow,
}
"""Write a table with so many rows a row group."""
WRITERS: dict[str, Callable[[pa.Table, Path, int], None]] = {
    "a.jsonl": write_json_lines,
    "a.csv": lambda table, path, _: table.to_pandas().to_csv(path, index=False),
    "a.tsv": lambda table, path, _: table.to_pandas().to_csv(path, index=False, sep="\t"),
    **TABLE_WRITERS,
}
"""Formats that have fields, by the name of a file."""


def batches(path: Path, shard_bytes: int, **options: Any) -> list[Documents]:
    """All documents of a file or folder, read in splits of this size."""
    chosen = TextOptions.of(options)
    found: list[Documents] = []
    for source in find_sources([str(path)], chosen):
        for split, content in SplitReader(0, source, chosen, shard_bytes):
            found.append(read_split(split, chosen, labelled=True, content=content))
    return found


def documents(path: Path, shard_bytes: int, **options: Any) -> list[tuple[Any, ...]]:
    """(id, label, text, row) of all documents, read in splits of this size."""
    found: list[tuple[Any, ...]] = []
    for batch in batches(path, shard_bytes, **options):
        labels = [None] * len(batch) if batch.labels is None else batch.labels.tolist()
        found += zip(batch.ids.to_pylist(), labels, batch.texts(), batch.lines.tolist(), strict=True)
    return found


TYPED = pa.table(
    {
        "text": [f"word{i}" for i in range(20)],
        "a.b": pa.array([None, *range(19)], pa.int8()),
        "url": pa.array(["a", None, "", "é", "b"] * 4, pa.large_string()),
        "lang": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2] * 5, pa.int8()), pa.array(["en", "de", "fr"])),
        "tags": pa.array([["x"], None, [], ["y", None]] * 5, pa.list_(pa.field("element", pa.string_view()))),
        "meta": pa.array([{"k": i, "s": None} for i in range(20)], pa.struct({"k": pa.int16(), "s": pa.string()})),
        "day": pa.array(range(20), pa.timestamp("us", tz="UTC")),
        "price": pa.array([None, *range(19)], pa.decimal128(10, 2)),
        "view": pa.array([f"a long enough string {i}" for i in range(20)], pa.string_view()),
        "uuid": pa.array([bytes([i] * 16) for i in range(20)], pa.uuid()),
    }
).replace_schema_metadata({"key": "value"})
"""Documents with columns of many types."""


def write_typed(folder: Path, form: str) -> Path:
    """`TYPED` as Parquet or Arrow, in several row groups."""
    path = folder / f"x.{form}"
    if form == "parquet":
        pq.write_table(TYPED, path, row_group_size=7)
    else:
        write_arrow(TYPED, path, 7)
    return path
