"""The output of parsers: documents as texts, or documents that are counted already."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from sparseoco.store.manifest import Column
from sparseoco.store.shards import NO_COLUMNS
from sparseoco.text.array_files import string_buffers

# ----------------------------------------------------------------------------------------------------------------------
# XXH64 of strings.


def hash_strings(strings: pa.Array, seed: int, bits: int) -> NDArray[np.int64]:
    """The low `bits` bits of XXH64 of each string."""
    mask = (1 << bits) - 1
    encoded = strings.cast(pa.binary()).to_pylist()
    return np.array([xxh64_intdigest(string, seed) & mask for string in encoded], np.int64)


Labels: TypeAlias = pa.Array | NDArray[np.float64] | None
LabelKind = Literal["classes", "multi", "numbers"]
NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
NO_LINES: NDArray[np.int64] = np.empty(0, np.int64)


class BadRow(NamedTuple):
    """A row that could not be read. Never holds its text.

    Parameters
    ----------
    line, offset : int
        Line number, from 1, and byte offset in the uncompressed file.
    reason : str
        What is wrong, for messages and for the quarantine table.
    code : str
        Error code, if the ingest fails because of this row.
    counted : bool
        Whether the row counts against ``max_bad_rows``; rows skipped by an option do not.
    file : str
        Name of the row's own file, in a folder with one document per file.
    place : str
        Row group and row in a table, in words.
    """

    line: int
    offset: int
    reason: str
    code: str
    counted: bool = True
    file: str = ""
    place: str = ""


class Texts(NamedTuple):
    """Texts as spans of one UTF-8 buffer: text d is ``data[starts[d] : stops[d]]``."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    @classmethod
    def of(cls, strings: pa.Array) -> "Texts":
        """Strings without nulls."""
        data, offsets = string_buffers(strings)
        return cls(data, offsets[:-1], offsets[1:])


class ParsedRow(NamedTuple):
    """One document, from a parser that works row by row."""

    text: bytes
    id: str
    label: Any
    line: int
    columns: tuple[Any, ...] = ()
    fields: tuple[bytes | float | list[float], ...] = ()
    carried: tuple[str | None, ...] = ()


class Documents(NamedTuple):
    """Raw documents in the order of their lines.

    Parameters
    ----------
    strings : pyarrow.Array of strings
        The texts.
    ids : pyarrow.Array of strings
    labels : pyarrow.Array of strings (classes) or of lists of strings (multi), ndarray of float64 (numbers), or None
        None if they were not requested.
    lines : ndarray of int64
        Line numbers, from 1.
    bad : list of BadRow
    columns : mapping
        The optional columns of shards, by name.
    multiline : ndarray of int64
        Those of `lines` whose records span several lines.
    fields : mapping
        The fields of records, by name, if the options name any: strings without nulls of texts and categories, "" for
        none; float64 of numbers, and (documents, size) of vectors, NaN for none. The documents themselves are then
        empty.
    digest : str
        Digest of the set of files, if each document is a file.
    carried : mapping
        The columns that ``TextOptions.carried`` names, as arrays; null where a record has no value. Those of tables
        have their own type, all others are strings.
    """

    strings: pa.Array
    ids: pa.Array
    labels: Labels
    lines: NDArray[np.int64]
    bad: list[BadRow]
    columns: Mapping[Column, NDArray[Any]] = NO_COLUMNS
    multiline: NDArray[np.int64] = NO_LINES
    fields: Mapping[str, pa.Array | NDArray[np.float64]] = NO_FIELDS
    digest: str = ""
    carried: Mapping[str, pa.Array] = NO_FIELDS

    @classmethod
    def from_rows(cls, rows: list[ParsedRow], bad: list[BadRow], labels: LabelKind | None, **others: Any) -> Self:
        """Collect the texts, ids and labels of rows; `others` are other attributes."""
        return cls(
            strings=pa.array([row.text for row in rows], pa.large_binary()).view(pa.large_string()),
            ids=pa.array([row.id for row in rows], pa.string()),
            labels=label_array([row.label for row in rows], labels),
            lines=np.fromiter((row.line for row in rows), np.int64, len(rows)),
            bad=bad,
            **others,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def missing(self) -> dict[str, int]:
        """The number of documents without a value, by field."""
        return {name: int(np.count_nonzero(is_missing(values))) for name, values in self.fields.items()}

    def texts(self) -> list[str]:
        """The texts as Python strings."""
        return self.strings.to_pylist()  # type: ignore[no-any-return]


class CountedDocuments(NamedTuple):
    """Documents given as counts of named features: a CSR matrix.

    Parameters
    ----------
    indptr : ndarray of int64, shape (n_documents + 1,)
    features : ndarray of int64, shape (n_nonzeros,)
        Position of the feature in `names`.
    counts : ndarray of float64, shape (n_nonzeros,)
        As in the file.
    names : pyarrow.Array of strings
        Distinct names of features.
    ids, labels, lines, bad, columns, carried
        As in `Documents`.
    """

    indptr: NDArray[np.int64]
    features: NDArray[np.int64]
    counts: NDArray[np.float64]
    names: pa.Array
    ids: pa.Array
    labels: Labels
    lines: NDArray[np.int64]
    bad: list[BadRow]
    columns: Mapping[Column, NDArray[Any]] = NO_COLUMNS
    multiline: NDArray[np.int64] = NO_LINES
    carried: Mapping[str, pa.Array] = NO_FIELDS

    def __len__(self) -> int:
        return int(self.indptr.size - 1)


LABEL_LISTS = pa.list_(pa.field("element", pa.string(), nullable=False))


def label_array(values: list[Any], kind: LabelKind | None) -> Labels:
    """Labels of the rows of a parser as an array of their kind."""
    if kind is None:
        return None
    if kind == "numbers":
        return np.array(values, np.float64)
    return pa.array(values, LABEL_LISTS if kind == "multi" else pa.string())


def is_missing(values: pa.Array | NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values of a field, as in `Documents.fields`, are none."""
    if isinstance(values, np.ndarray):
        return np.asarray(np.isnan(values) if values.ndim == 1 else np.isnan(values).any(axis=1))
    return np.asarray(pc.equal(pc.binary_length(values), 0).to_numpy(zero_copy_only=False), np.bool_)
