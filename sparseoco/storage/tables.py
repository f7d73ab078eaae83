"""Files with checksums: tables as Parquet, and arrays as npz and npy."""

import errno
import hashlib
import json
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_128_digest

from sparseoco.core.errors import DamagedError, InputError, StorageError
from sparseoco.storage.commit import as_local_file, committed, read_bytes, wrong_checksum
from sparseoco.storage.locations import Location, storage_error

# ----------------------------------------------------------------------------------------------------------------------
# Parquet files with a checksum, and tables from Parquet files in memory.
#
# The 32 bytes before the footer are the SHA-256 of that of all other bytes and of the file's name. Readers of Parquet
# find pages by their offsets and the footer from the end of the file, and ignore these bytes.


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
        with temporary.open("r+b") as file:
            digest = _with_name(hashlib.file_digest(file, "sha256").digest(), path.name)
            start = file.seek(-TAIL_BYTES, 2)
            start = file.seek(start + TAIL_BYTES - _footer_bytes(file.read()))
            footer = file.read()
            file.seek(start)
            file.write(digest + footer)


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


def _footer_bytes(tail: bytes) -> int:
    """Bytes of the footer of a Parquet file with its length and the magic number, from its last bytes."""
    return int.from_bytes(tail[:4], "little") + TAIL_BYTES


def write_result_table(path: Location, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Commit rows as a Parquet file with these columns and a checksum. Raises `StorageError`."""
    write_parquet(path, pa.Table.from_pylist(list(rows), schema=schema))


# ----------------------------------------------------------------------------------------------------------------------
# Checkpoint files: an npz file with arrays and a JSON description, without pickle.
#
# Members are not compressed, and equal contents give equal bytes. Reading verifies the CRC-32 of every member, and the
# name of the file, which is in the description. Arrays are written from and read into place in pieces, without full
# copies.


PIECE_BYTES = 1 << 20
ARRAY_DIGEST_BYTES = 16
DESCRIPTION = "description.json"
NAME = "file name"
"""The key of the description that has the name of the file."""
HEADER = re.compile(rb"\{'descr': '([<>|=]\w+)', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n")
DAMAGE = (
    *(OSError, EOFError, KeyError, TypeError, ValueError, SyntaxError, InputError, zipfile.BadZipFile),
    *(RuntimeError, zlib.error),  # flags for encryption, compression, another version
)


def write_checkpoint(
    path: Location, description: dict[str, Any], arrays: Iterable[tuple[str, np.ndarray]], *, named: bool = True
) -> None:
    """Write a checkpoint as `committed` does.

    Parameters
    ----------
    path : Location
        The target.
    description : dict
        A JSON value.
    arrays : iterable of (str, array)
        Named arrays with at least one axis and any strides.
    named : bool
        Whether the file can be read under this name only.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    with committed(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        described = {**description, NAME: path.name} if named else description
        archive.writestr(zipfile.ZipInfo(DESCRIPTION), json.dumps(described, sort_keys=True, allow_nan=False))
        for name, array in arrays:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                header = {
                    "descr": np.lib.format.dtype_to_descr(array.dtype),
                    "fortran_order": False,
                    "shape": array.shape,
                }
                np.lib.format.write_array_header_1_0(file, header)
                for piece in _pieces(array):
                    file.write(np.ascontiguousarray(piece).data.cast("B"))


@contextmanager
def read_checkpoint(path: Location) -> Iterator[tuple[dict[str, Any], Callable[..., np.ndarray]]]:
    """Open a checkpoint within the `with` block.

    Yields
    ------
    description : dict
        The description.
    read : callable
        ``read(name)`` returns an array; ``read(name, into)`` fills one of the same shape and dtype, with any strides.

    Raises
    ------
    DamagedError
        If the file is missing or corrupt, or that of another name, or its content is invalid in the block.
    StorageError
        If the file exists and cannot be read.
    """
    with _damage_of(path), as_local_file(path) as local, zipfile.ZipFile(local) as archive:

        def read(name: str, into: np.ndarray | None = None) -> np.ndarray:
            member = archive.getinfo(f"{name}.npy")
            with archive.open(member) as file:
                return read_array(file, member.file_size, name, into)

        yield _description(archive, path), read


@contextmanager
def _damage_of(path: Location) -> Iterator[None]:
    """Turn errors of reading a file into `DamagedError`, or `StorageError` if the system cannot read it."""
    try:
        yield
    except FileNotFoundError:
        raise DamagedError(f"{path} does not exist.", code="missing-file") from None
    except StorageError:
        raise
    except DAMAGE as error:
        # An invalid offset (EINVAL) comes from the file itself.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise storage_error(error, path) from error
        raise DamagedError(f"{path} is corrupt: {error}.", code="corrupt-file") from error


def is_complete(path: Location) -> bool:
    """Whether a checkpoint exists and passes its checksums."""
    if not path.exists():
        return False
    with as_local_file(path) as local, suppress(*DAMAGE), zipfile.ZipFile(local) as archive:
        _description(archive, path)
        return archive.testzip() is None
    return False


def _description(archive: zipfile.ZipFile, path: Location) -> dict[str, Any]:
    """The description in a checkpoint. Raises one of `DAMAGE`, also for a checkpoint that has another name."""
    found: dict[str, Any] = dict(json.loads(archive.read(DESCRIPTION)))
    if found.pop(NAME, path.name) != path.name:
        raise ValueError("it is a copy of another file")
    return found


def write_array(path: Location, array: np.ndarray) -> None:
    """Write an array as an npy file that ends with the XXH3 digest of it and of the file's name.

    Raises `StorageError`.
    """
    with committed(path) as temporary:
        with temporary.open("wb") as file:
            np.save(file, array)
        digest = _named_digest(np.memmap(temporary, np.uint8, "r"), path)
        with temporary.open("ab") as file:
            file.write(digest)


def map_array(path: Location, dtype: Any = None) -> np.ndarray:
    """The array of a file of `write_array`, verified and mapped.

    Raises `DamagedError` if it is missing, corrupt, that of another name or of another dtype, `StorageError` if it
    cannot be read.
    """
    with _damage_of(path), as_local_file(path) as local:  # a copy stays mapped after it is unlinked
        data = np.asarray(np.memmap(local, np.uint8, "r"))
        if data[-ARRAY_DIGEST_BYTES:].tobytes() != _named_digest(data[:-ARRAY_DIGEST_BYTES], path):
            raise ValueError("its checksum does not match")
        with local.open("rb") as file:
            found, shape = read_header(file, path.name)
            start = file.tell()
        if dtype is not None and found != dtype:
            raise ValueError(f"it has values of {found}, not {dtype}")
        return np.asarray(data[start:-ARRAY_DIGEST_BYTES].view(found).reshape(shape))


def _named_digest(data: np.ndarray, path: Location) -> bytes:
    return xxh3_128_digest(xxh3_128_digest(data.data) + path.name.encode())


def read_array(file: IO[bytes], size: int, name: str, into: np.ndarray | None = None) -> np.ndarray:
    """Read an array of `size` bytes in npy format, into `into` if given. Raises one of `DAMAGE`."""
    dtype, shape = read_header(file, name)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"{name} is not a plain array of its size")
    array = np.empty(shape, dtype) if into is None else into
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{name} has shape {shape} of {dtype}, not {array.shape} of {array.dtype}")
    for piece in _pieces(array):
        data = file.read(piece.nbytes)
        piece[...] = np.frombuffer(data, dtype).reshape(piece.shape)  # ValueError where the member is too short
    if file.read(1):
        raise ValueError(f"{name} is longer than its header says")
    return array


def read_header(file: IO[bytes], name: str) -> tuple[np.dtype, tuple[int, ...]]:
    """Read dtype and shape of an array in npy format; its values follow in the file. Raises one of `DAMAGE`.

    NumPy's own reader parses the header with `ast`, which in Python 3.11 sometimes fails in threads (CPython issue
    106905).
    """
    magic, length = file.read(8), int.from_bytes(file.read(2), "little")
    header = HEADER.fullmatch(file.read(length))
    if magic != np.lib.format.magic(1, 0) or header is None:
        raise ValueError(f"{name} is not a plain array")
    return np.dtype(header[1].decode()), tuple(int(side) for side in header[2].split(b",") if side.strip())


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Slices along the first axis of a bounded size."""
    if array.size:
        step = max(1, PIECE_BYTES * len(array) // array.nbytes)
        for first in range(0, len(array), step):
            yield array[first : first + step]
