"""Folders with one document per file: staged listings, their cuts, and the documents of some of their files."""

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa

from sparseoco.storage.locations import Location, is_remote_uri, remote_location
from sparseoco.text.array_files import Arrays, load_arrays, save_arrays, store_strings, string_array
from sparseoco.text.charsets import NotTextError
from sparseoco.text.documents import BadRow, Documents, ParsedRow
from sparseoco.text.folders import FolderFile, document_label
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import line_too_long
from sparseoco.text.parsers.fields import MalformedRowError, encode_text, parse_label
from sparseoco.text.sources import COMPRESSIONS
from sparseoco.text.stored import Pin, small_contents
from sparseoco.text.streams import Stream

NO_FILES = "0" * 64
"""The digest of a folder without files."""


def save_listing(path: Location, folder: str, files: Sequence[FolderFile]) -> None:
    """Stage the files of a folder, an absolute path or URI, for the tasks that read some of them."""
    arrays: Arrays = {}
    store_strings(arrays, "name", pa.array([file.name for file in files], pa.string()))
    store_strings(arrays, "e_tag", pa.array([file.pin.e_tag or "" for file in files], pa.string()))
    for name in ("bytes", "modified_ns", "inode"):
        arrays[name] = np.array([getattr(file.pin, name) for file in files], np.int64)
    save_arrays(path, arrays, {"folder": folder})


def load_listing(path: Location, start: int, stop: int) -> list[FolderFile]:
    """Files [start, stop) of a staged listing. Raises `StorageError`."""
    arrays, facts = load_arrays(path)
    folder = facts["folder"]

    def strings(name: str) -> list[str]:
        offsets = arrays[f"{name}_offsets"][start : stop + 1]
        data = arrays[f"{name}_bytes"][offsets[0] : offsets[-1]]
        return string_array(data, offsets - offsets[0]).to_pylist()  # type: ignore[no-any-return]

    numbers = [arrays[name][start:stop].tolist() for name in ("bytes", "modified_ns", "inode")]
    rows = zip(strings("name"), strings("e_tag"), *numbers, strict=True)
    return [
        FolderFile(name, _file_path(folder, name), Pin(size, modified, e_tag or None, inode))
        for name, e_tag, size, modified, inode in rows
    ]


def _file_path(folder: str, name: str) -> str:
    return str(remote_location(folder) / name) if is_remote_uri(folder) else os.path.join(folder, name)


def cut_files(files: Sequence[FolderFile], shard_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(first, last + 1, bytes) of runs of files, cut by the rule for lines: after a file that reaches an edge."""
    ends = np.cumsum([file.pin.bytes for file in files], dtype=np.int64)
    begins = np.concatenate([[0], ends[:-1]])
    stops = np.flatnonzero(ends // shard_bytes > begins // shard_bytes) + 1
    bounds = np.unique(np.concatenate([[0], stops, [len(files)]])).tolist()
    for start, stop in itertools.pairwise(bounds):
        yield start, stop, int(ends[stop - 1] - begins[start])


def read_files(folder: str, short: str, form: str, files: Sequence[FolderFile], options: TextOptions) -> Documents:
    """The documents in some files of a folder, and the sum of the digests of the files.

    Raises `InputError` for a file that is too long, corrupt or has changed, and `StorageError`.
    """
    rows: list[ParsedRow] = []
    bad: list[BadRow] = []
    digest = NO_FILES
    contents = small_contents((file.path, file.pin) for file in files)
    for file, content in zip(files, contents, strict=True):
        compression = COMPRESSIONS.get(PurePosixPath(file.name).suffix.lower())
        stream = Stream(file.path, compression, options.max_inflation, content, options.encoding, file.pin)
        try:
            data = b"".join(stream)
            if len(data) > options.max_line_bytes:
                raise line_too_long(file.path, None, options)
            text = encode_text(data.decode("utf-8-sig", "surrogateescape"), options)
            rows.append(ParsedRow(text, f"{short}/{file.name}", _label(file.name, folder, form, options), 1))
        except NotTextError as error:
            bad.append(BadRow(1, 0, error.reason, error.code, file=file.name))
        except MalformedRowError as error:
            bad.append(error.at(1, 0)._replace(file=file.name))
        own = hashlib.sha256(f"{stream.sha256} {file.name}".encode()).hexdigest()
        digest = add_digests(digest, own)
    return Documents.from_rows(rows, bad, None if form == "files" else options.labels, digest=digest)


def add_digests(first: str, second: str) -> str:
    """The digest of a folder from those of two parts of its files, in any order: the sum modulo 2^256."""
    return f"{(int(first, 16) + int(second, 16)) % 2**256:064x}"


def _label(name: str, folder: str, form: str, options: TextOptions) -> Any:
    return None if form == "files" else parse_label(document_label(name, folder, options.label_depth), options)
