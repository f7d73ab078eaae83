"""Collecting documents that come as (name, count) pairs."""

from typing import Any

import numpy as np
import pyarrow as pa

from sparseoco.text.documents import BadRow, Bags
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk, UnreadableError


class BagRows:
    """Rows of counted names; a name twice in a row is summed, a count of zero is as good as absent."""

    def __init__(self, chunk: Chunk, options: TextOptions, *, labelled: bool) -> None:
        self.chunk = chunk
        self.options = options
        self.labelled = labelled
        self.bad: list[BadRow] = []
        self._numbers: dict[str, int] = {}
        self._features: list[int] = []
        self._counts: list[float] = []
        self._ends: list[int] = [0]
        self._labels: list[Any] = []
        self._lines: list[int] = []

    def add(self, line: int, pairs: list[tuple[str, float]], label: Any) -> None:
        """Add a document. Raises `UnreadableError` if a sum is not finite."""
        sums: dict[str, float] = {}
        for name, count in pairs:
            sums[name] = sums.get(name, 0.0) + count
        if not all(np.isfinite(value) for value in sums.values()):
            raise UnreadableError("the counts of a feature add up to infinity")
        for name, value in sums.items():
            if value != 0.0:
                self._features.append(self._numbers.setdefault(name, len(self._numbers)))
                self._counts.append(1.0 if self.options.binary else value)
        self._ends.append(len(self._features))
        self._labels.append(label)
        self._lines.append(line)

    def bags(self) -> Bags:
        """All rows added so far."""
        labels: Any = None
        if self.labelled:
            numbers = self.options.labels == "numbers"
            labels = np.array(self._labels, np.float64) if numbers else pa.array(self._labels, pa.string())
        return Bags(
            indptr=np.array(self._ends, np.int64),
            features=np.array(self._features, np.int64),
            counts=np.array(self._counts, np.float64),
            names=pa.array(list(self._numbers), pa.string()),
            ids=pa.array([f"{self.chunk.short}:{line}" for line in self._lines], pa.string()),
            labels=labels,
            lines=np.array(self._lines, np.int64),
            bad=self.bad,
        )
