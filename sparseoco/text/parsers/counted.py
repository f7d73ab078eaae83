"""Common code of formats whose documents are pairs of a feature name and a count."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from sparseoco.text.documents import CountedDocuments, label_array
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk
from sparseoco.text.parsers.fields import MAX_FLOAT32, MalformedRowError

Pairs = list[tuple[str, float]]


def read_counted(
    chunk: Chunk, options: TextOptions, parse: Callable[[str], tuple[Pairs, Any] | None], *, labelled: bool
) -> CountedDocuments:
    """Documents of all lines; parse(text) returns the pairs and the label of a line, or None for a blank line.

    Counts of a repeated name in a line are summed, and counts of zero are omitted.
    """

    def parse_row(text: str, line: int) -> tuple[int, dict[str, float], Any] | None:
        parsed = parse(text)
        if parsed is None:
            return None
        sums: dict[str, float] = {}
        for name, count in parsed[0]:
            sums[name] = sums.get(name, 0.0) + count
        if not all(abs(value) <= MAX_FLOAT32 for value in sums.values()):
            raise MalformedRowError(f"a count is larger than {MAX_FLOAT32:.3g}")
        return line, {name: value for name, value in sums.items() if value != 0.0}, parsed[1]

    rows, bad = chunk.parse_lines(options, parse_row)
    numbers: dict[str, int] = {}
    features = [numbers.setdefault(name, len(numbers)) for _, counts, _ in rows for name in counts]
    counts = np.array([value for _, counts, _ in rows for value in counts.values()], np.float64)
    return CountedDocuments(
        indptr=np.cumsum([0, *(len(counts) for _, counts, _ in rows)], dtype=np.int64),
        features=np.array(features, np.int64),
        counts=counts,
        names=pa.array(list(numbers), pa.string()),
        ids=pa.array([f"{chunk.short}:{line}" for line, _, _ in rows], pa.string()),
        labels=label_array([label for _, _, label in rows], options.labels if labelled else None),
        lines=np.array([line for line, _, _ in rows], np.int64),
        bad=bad,
    )
