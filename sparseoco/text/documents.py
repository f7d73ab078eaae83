"""Documents as every reader gives them: spans of UTF-8 in one buffer, beside their ids, labels and lines."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class BadRow(NamedTuple):
    """A row that could not be read: its line, its byte offset in the (uncompressed) file and why; never its text.

    `counted` rows weigh against max_bad_rows; those skipped by a stated policy do not. `file` is set where the row is
    a file of its own.
    """

    line: int
    offset: int
    reason: str
    counted: bool = True
    file: str = ""


class Documents(NamedTuple):
    """Raw documents in the order of their lines.

    data           uint8; document d is the UTF-8 bytes data[starts[d] : stops[d]]
    ids            strings
    labels         strings (classes) or float64 (numbers); None where labels were not asked for
    lines          int64 line numbers, from 1
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    ids: pa.Array
    labels: pa.Array | NDArray[np.float64] | None
    lines: NDArray[np.int64]
    bad: list[BadRow]

    def __len__(self) -> int:
        return int(self.starts.size)

    def texts(self) -> list[str]:
        """The documents as Python strings."""
        data = self.data.tobytes()
        return [data[a:b].decode() for a, b in zip(self.starts.tolist(), self.stops.tolist(), strict=True)]


class Bags(NamedTuple):
    """Documents that come counted: CSR over names.

    counts   float64 as read; names of features are `names`, each once
    """

    indptr: NDArray[np.int64]
    features: NDArray[np.int64]
    counts: NDArray[np.float64]
    names: pa.Array
    ids: pa.Array
    labels: pa.Array | NDArray[np.float64] | None
    lines: NDArray[np.int64]
    bad: list[BadRow]

    def __len__(self) -> int:
        return int(self.indptr.size - 1)


class Row(NamedTuple):
    """One document on its way from a parser that works a row at a time."""

    text: bytes
    id: str
    label: Any
    line: int


def documents_of(rows: list[Row], bad: list[BadRow], *, numbers: bool, labelled: bool) -> Documents:
    """Collect rows into one buffer."""
    sizes = np.fromiter((len(row.text) for row in rows), np.int64, len(rows))
    stops = np.cumsum(sizes)
    labels: Any = None
    if labelled:
        values = [row.label for row in rows]
        labels = np.array(values, np.float64) if numbers else pa.array(values, pa.string())
    return Documents(
        data=np.frombuffer(b"".join(row.text for row in rows), np.uint8),
        starts=stops - sizes,
        stops=stops,
        ids=pa.array([row.id for row in rows], pa.string()),
        labels=labels,
        lines=np.fromiter((row.line for row in rows), np.int64, len(rows)),
        bad=bad,
    )
