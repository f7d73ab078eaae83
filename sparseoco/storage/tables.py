"""Parquet files with a checksum, and tables from Parquet files in memory.

The 32 bytes before the footer are the SHA-256 of that of all other bytes and of the file's name. Readers of Parquet
find pages by their offsets and the footer from the end of the file, and ignore these bytes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparseoco.storage.commit import committed, read_bytes, wrong_checksum
from sparseoco.storage.locations import Location

DIGEST_BYTES = 32
TAIL_BYTES = 8  # the length of the footer and the magic number
Row = dict[str, Any]
"""A row of a table, by column."""


def read_parquet(data: bytes, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table, or some columns of it. Raises `pyarrow.ArrowException`.

    Reads in this thread: an Arrow thread that releases Python bytes while the interpreter exits would abort it
    (apache/arrow#34314).
    """
    chosen = None if columns is None else list(columns)
    with pq.ParquetFile(pa.BufferReader(data)) as file:  # without `pyarrow.dataset`, which imports pandas
        names = file.schema_arrow.names
        for name in chosen or ():
            if name not in names:
                raise pa.ArrowInvalid(f"There is no column {name!r}.")
        table = file.read(columns=chosen, use_threads=False)
    return table if chosen is None else table.select(chosen)


@contextmanager
def parquet_writer(path: Location, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a writer of a Parquet file with a checksum, which is committed on a clean exit. Raises `StorageError`."""
    with committed(path) as temporary:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            yield writer
        _add_digest(temporary, path.name)


def write_parquet(path: Location, table: pa.Table) -> None:
    """Commit a table as a Parquet file with a checksum. Raises `StorageError`."""
    with parquet_writer(path, table.schema) as writer:
        writer.write_table(table)


def read_parquet_file(path: Location, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of a Parquet file of `parquet_writer`, or some columns of it, verified before it is parsed.

    Raises `DamagedError` if the file is missing or its checksum does not match, `StorageError` if it cannot be read.
    """
    data = read_bytes(path)
    footer = _footer_bytes(data[-TAIL_BYTES:])
    rows = memoryview(data)[: -footer - DIGEST_BYTES]
    digest = hashlib.sha256(rows)
    digest.update(memoryview(data)[-footer:])
    expected = _with_name(digest.digest(), path.name), digest.digest()  # earlier versions left out the name
    if data[len(rows) : len(rows) + DIGEST_BYTES] not in expected:
        raise wrong_checksum(path)
    return read_parquet(data, columns=columns)


def _with_name(digest: bytes, name: str) -> bytes:
    return hashlib.sha256(digest + name.encode()).digest()


def _add_digest(path: Path, name: str) -> None:
    with path.open("r+b") as file:
        digest = _with_name(hashlib.file_digest(file, "sha256").digest(), name)
        start = file.seek(-TAIL_BYTES, 2)
        start = file.seek(start + TAIL_BYTES - _footer_bytes(file.read()))
        footer = file.read()
        file.seek(start)
        file.write(digest + footer)


def _footer_bytes(tail: bytes) -> int:
    """Bytes of the footer of a Parquet file with its length and the magic number, from its last bytes."""
    return int.from_bytes(tail[:4], "little") + TAIL_BYTES


def write_result_table(path: Location, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Commit rows as a Parquet file with these columns and a checksum. Raises `StorageError`."""
    write_parquet(path, pa.Table.from_pylist(list(rows), schema=schema))
