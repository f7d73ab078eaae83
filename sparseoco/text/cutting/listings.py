"""Folders with one document per file: staged listings, their cuts, and the documents of some of their files."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.storage.locations import Location, is_remote_uri, remote_location
from sparseoco.text.array_files import Arrays, load_arrays, save_arrays, store_strings, stored_strings
from sparseoco.text.charsets import NotTextError
from sparseoco.text.documents import BadRow, Documents, ParsedRow
from sparseoco.text.folders import FolderFile, document_label
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import line_too_long
from sparseoco.text.parsers.fields import MalformedRowError, encode_text, parse_label
from sparseoco.text.sources import compression_by_name
from sparseoco.text.stored import Pin, SetDigest, small_contents
from sparseoco.text.streams import Stream

LISTED = 1 << 16  # files in one file of a listing: a task reads no more of it than it needs


class Listing(NamedTuple):
    """The files of a folder, in order.

    Parameters
    ----------
    folder : str
        Absolute path or URI.
    names, e_tags : pyarrow.Array of strings
    numbers : ndarray of int64, shape (n_files, 4)
        Size, times of the last change of the content and of the metadata in nanoseconds, and inode.
    """

    folder: str
    names: pa.Array
    e_tags: pa.Array
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, folder: str, files: Iterable[FolderFile]) -> "Listing":
        """Sort files that come in any order."""
        names: list[pa.Array] = [pa.array([], pa.large_string())]
        e_tags, numbers = names.copy(), [np.empty((0, 4), np.int64)]
        remaining = iter(files)
        while batch := list(itertools.islice(remaining, LISTED)):
            names.append(pa.array([file.name for file in batch], pa.large_string()))
            e_tags.append(pa.array([file.pin.e_tag or "" for file in batch], pa.large_string()))
            pins = [(pin.bytes, pin.modified_ns, pin.changed_ns, pin.inode) for pin in (file.pin for file in batch)]
            numbers.append(np.array(pins, np.int64))
        united = pa.concat_arrays(names)
        order = pc.sort_indices(pc.replace_substring(united, "/", "\0"))  # as `in_order`
        sorted_numbers = np.concatenate(numbers)[order.to_numpy()]
        return cls(folder, united.take(order), pa.concat_arrays(e_tags).take(order), sorted_numbers)

    def save(self, path: Location, start: int, stop: int) -> None:
        """Stage files [start, stop)."""
        arrays: Arrays = {"numbers": self.numbers[start:stop].reshape(-1)}
        store_strings(arrays, "name", self.names[start:stop])
        store_strings(arrays, "e_tag", self.e_tags[start:stop])
        save_arrays(path, arrays, {"folder": self.folder})

    @classmethod
    def load(cls, path: Location) -> "Listing":
        """The files that `save` staged. Raises `StorageError`."""
        arrays, facts = load_arrays(path)
        names, e_tags = stored_strings(arrays, "name"), stored_strings(arrays, "e_tag")
        return cls(facts["folder"], names, e_tags, arrays["numbers"].reshape(-1, 4))

    def files(self, start: int, stop: int) -> list[FolderFile]:
        """Files [start, stop)."""
        part = slice(start, stop)
        rows = zip(
            self.names[part].to_pylist(), self.e_tags[part].to_pylist(), self.numbers[part].tolist(), strict=True
        )
        return [
            FolderFile(name, _file_path(self.folder, name), Pin(size, modified, e_tag or None, changed, inode))
            for name, e_tag, (size, modified, changed, inode) in rows
        ]

    def cuts(self, shard_bytes: int) -> Iterator[tuple[int, int, int]]:
        """(first, last + 1, bytes) of runs of files, cut by the rule for lines: after a file that reaches an edge.

        A run also ends after every `LISTED` files.
        """
        ends = np.cumsum(self.numbers[:, 0])
        begins = np.concatenate([[0], ends[:-1]])
        stops = np.flatnonzero(ends // shard_bytes > begins // shard_bytes) + 1
        bounds = np.unique(np.concatenate([np.arange(0, ends.size, LISTED), stops, [ends.size]])).tolist()
        for start, stop in itertools.pairwise(bounds):
            yield start, stop, int(ends[stop - 1] - begins[start])


def _file_path(folder: str, name: str) -> str:
    return str(remote_location(folder) / name) if is_remote_uri(folder) else os.path.join(folder, name)


def read_files(folder: str, short: str, form: str, files: Sequence[FolderFile], options: TextOptions) -> Documents:
    """The documents in some files of a folder, and the digest of the set of these files.

    Raises `InputError` for a file that is too long, corrupt or has changed, and `StorageError`.
    """
    rows: list[ParsedRow] = []
    bad: list[BadRow] = []
    digest = SetDigest()
    contents = small_contents((file.path, file.pin) for file in files)
    for file, content in zip(files, contents, strict=True):
        compression = compression_by_name(file.name)
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
        digest.add(f"{stream.sha256} {file.name}")
    return Documents.from_rows(rows, bad, None if form == "files" else options.labels, digest=digest.hexdigest())


def _label(name: str, folder: str, form: str, options: TextOptions) -> Any:
    return None if form == "files" else parse_label(document_label(name, folder, options.label_depth), options)
