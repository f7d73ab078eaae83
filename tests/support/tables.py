"""Tables as Arrow streams, and the documents that are read from tables."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from sparseoco.text.cutting import SplitReader
from sparseoco.text.documents import Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import find_sources
from sparseoco.text.splits import read_split


def write_stream(table: pa.Table, path: Path, rows: int) -> None:
    """Write a table as an Arrow stream, so many rows a batch."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


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
