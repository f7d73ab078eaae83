"""The output of parsers: documents as spans of one UTF-8 buffer, or documents that are counted already."""

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Labels: TypeAlias = pa.Array | NDArray[np.float64] | None
LabelKind = Literal["classes", "numbers"]


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
    """

    line: int
    offset: int
    reason: str
    code: str
    counted: bool = True
    file: str = ""


class Documents(NamedTuple):
    """Raw documents in the order of their lines.

    Parameters
    ----------
    data : ndarray of uint8
        UTF-8; document d is ``data[starts[d] : stops[d]]``.
    starts, stops : ndarray of int64, shape (n_documents,)
    ids : pyarrow.Array of strings
    labels : pyarrow.Array of strings (classes), ndarray of float64 (numbers), or None if not requested
    lines : ndarray of int64
        Line numbers, from 1.
    bad : list of BadRow
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    ids: pa.Array
    labels: Labels
    lines: NDArray[np.int64]
    bad: list[BadRow]

    @classmethod
    def from_rows(cls, rows: list["ParsedRow"], bad: list[BadRow], labels: LabelKind | None) -> "Documents":
        """Collect rows into one buffer."""
        sizes = np.fromiter((len(row.text) for row in rows), np.int64, len(rows))
        stops = np.cumsum(sizes)
        return cls(
            data=np.frombuffer(b"".join(row.text for row in rows), np.uint8),
            starts=stops - sizes,
            stops=stops,
            ids=pa.array([row.id for row in rows], pa.string()),
            labels=label_array([row.label for row in rows], labels),
            lines=np.fromiter((row.line for row in rows), np.int64, len(rows)),
            bad=bad,
        )

    def __len__(self) -> int:
        return int(self.starts.size)

    def texts(self) -> list[str]:
        """The documents as Python strings."""
        data = self.data.tobytes()
        return [data[a:b].decode() for a, b in zip(self.starts.tolist(), self.stops.tolist(), strict=True)]


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
    ids, labels, lines, bad
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

    def __len__(self) -> int:
        return int(self.indptr.size - 1)


class ParsedRow(NamedTuple):
    """One document, from a parser that works row by row."""

    text: bytes
    id: str
    label: Any
    line: int


def label_array(values: list[Any], kind: LabelKind | None) -> Labels:
    """Labels of the rows of a parser as an array of their kind."""
    if kind is None:
        return None
    return np.array(values, np.float64) if kind == "numbers" else pa.array(values, pa.string())
