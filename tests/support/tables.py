"""Tables written in every format that has fields, and the documents that are read from tables."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from sparseoco.text.cutting import SplitReader
from sparseoco.text.documents import Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import find_sources
from sparseoco.text.splits import read_split


def write_stream(table: pa.Table, path: Path, rows: int) -> None:
    """Write a table as an Arrow stream, so many rows a batch."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


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
    "d.arrow": write_stream,
}
"""Write a table with so many rows a row group."""
WRITERS: dict[str, Callable[[pa.Table, Path, int], None]] = {
    "a.jsonl": write_json_lines,
    "a.csv": lambda table, path, _: table.to_pandas().to_csv(path, index=False),
    "a.tsv": lambda table, path, _: table.to_pandas().to_csv(path, index=False, sep="\t"),
    **TABLE_WRITERS,
}
"""Formats that have fields, by the name of a file."""


def documents(path: Path, shard_bytes: int, **options: Any) -> list[tuple[Any, ...]]:
    """(id, label, text, row) of all documents, read in splits of this size."""
    chosen = TextOptions.of(options)
    found: list[tuple[Any, ...]] = []
    for source in find_sources([str(path)], chosen):
        for split, content in SplitReader(0, source, chosen, shard_bytes):
            batch = read_split(split, chosen, labelled=True, content=content)
            assert isinstance(batch, Documents)
            labels: Any = batch.labels
            found += zip(batch.ids.to_pylist(), labels.tolist(), batch.texts(), batch.lines.tolist(), strict=True)
    return found
