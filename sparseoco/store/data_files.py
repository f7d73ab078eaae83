"""Data files of a store: Parquet tables that are named by their content, and verified when they are read."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import commit_bytes, digest_file
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import Location
from sparseoco.storage.parquet import read_parquet
from sparseoco.storage.remote import RemotePath, map_concurrently
from sparseoco.store.manifest import FileEntry


def write_data_file(folder: Location, kind: str, table: pa.Table, **encoding: Any) -> FileEntry:
    """Write a table as a file of a kind, with the options of `pyarrow.parquet.write_table`; returns its entry."""
    sink = pa.BufferOutputStream()
    # Written once and read many times: LZ4 takes 12 to 33 % more space than zstd and half the time. No query uses
    # ranges, so there are no statistics.
    pq.write_table(table, sink, compression="lz4", write_statistics=False, **encoding)
    data = sink.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    name = data_file_name(kind, digest)
    path = folder / name
    entry = FileEntry(file=name, bytes=len(data), sha256=digest)
    if not isinstance(path, Path) or not is_written(folder, entry):  # uploading takes no longer than reading
        commit_bytes(path, data)
    return entry


def data_file_name(kind: str, digest: str) -> str:
    """The name of a file of a kind whose bytes have this SHA-256."""
    return f"{kind}-{digest[:24]}.parquet"


def read_verified(folder: Location, entry: FileEntry) -> bytes:
    """The content of a data file. Raises `StorageError` if it is missing or its SHA-256 is not the committed one."""
    path = folder / entry.file
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise StorageError(
            f"{path} is missing, but the manifest lists it. Ingest again into a new folder.", code="missing-file"
        ) from error
    except OSError as error:
        raise storage_error(error, path) from error
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise StorageError(
            f"{path} is corrupt: its SHA-256 is not the committed one. Ingest again into a new folder.",
            code="corrupt-file",
        )
    return data


def read_table(folder: Location, entry: FileEntry, columns: Sequence[str] | None = None) -> pa.Table:
    """A data file as a table, or some of its columns. Raises as `read_verified`."""
    return parse_table(folder / entry.file, read_verified(folder, entry), columns)


def parse_table(
    path: Location, data: bytes, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """The table of the verified content of a data file, as `read_parquet`. Raises `StorageError` if there is none."""
    try:
        return read_parquet(data, columns=columns, where=where)
    except pa.ArrowException as error:
        raise unlike_manifest(path, "it is not a table with the columns that are listed") from error


def unlike_manifest(path: Location, fault: str) -> StorageError:
    """The error for a file that does not agree with the manifest that lists it; `fault` ends a sentence."""
    return StorageError(
        f"{path} or its manifest is corrupt: {fault}. Ingest again into a new folder.", code="corrupt-file"
    )


def read_all_verified(folder: Location, entries: Sequence[FileEntry]) -> list[bytes]:
    """The contents of data files, remote ones requested concurrently. Raises as `read_verified`."""
    if isinstance(folder, RemotePath) and len(entries) > 1:
        return map_concurrently(lambda entry: read_verified(folder, entry), entries)
    return [read_verified(folder, entry) for entry in entries]


def is_written(folder: Location, entry: FileEntry) -> bool:
    """Whether a data file exists with the content of its entry. Raises `StorageError` if it cannot be read."""
    path = folder / entry.file
    return path.exists() and digest_file(path) == entry.sha256
