"""Plain text, SVMlight, processed reviews and other formats with one document per line."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from sparseoco.text.documents import CountedDocuments, Documents, ParsedRow, label_array
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.rows import MAX_FLOAT32, Chunk, MalformedRowError, encode_text, parse_label, parse_number

# ----------------------------------------------------------------------------------------------------------------------
# Plain text, one document per line, without labels.


def read_lines(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Every line is a document, even an empty one. There are no labels, requested or not."""

    def parse(raw: bytes, line: int) -> ParsedRow:
        return ParsedRow(encode_text(_decoded(raw), options), f"{chunk.short}:{line}", None, line)

    return Documents.from_rows(*chunk.parse_lines(options, parse), None)


def _decoded(raw: bytes) -> str:
    """A line without its end; invalid UTF-8 becomes surrogates."""
    return raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


# ----------------------------------------------------------------------------------------------------------------------
# Common code of formats whose documents are pairs of a feature name and a count.


Pairs = list[tuple[str, float]]


def read_counted(
    chunk: Chunk, options: TextOptions, parse: Callable[[str], tuple[Pairs, Any] | None], *, labelled: bool
) -> CountedDocuments:
    """Documents of all lines; parse(text) returns the pairs and the label of a line, or None for a blank line.

    Counts of a repeated name in a line are summed, and counts of zero are omitted.
    """

    def parse_row(raw: bytes, line: int) -> tuple[int, dict[str, float], Any] | None:
        parsed = parse(_decoded(raw))
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


# ----------------------------------------------------------------------------------------------------------------------
# SVMlight and LIBSVM: `label [qid:q] index:value … [# comment]`, one document per line.
#
# With any number of labels per document, they are separated by commas, and a document without one begins with its
# values.


MAX_INDEX = 2**63 - 1
MAX_DIGITS = len(str(MAX_INDEX))


def read_svmlight(chunk: Chunk, options: TextOptions, *, labelled: bool) -> CountedDocuments:
    """The name of a feature is its index as in the file."""

    def parse(text: str) -> tuple[Pairs, Any] | None:
        items = text.partition("#")[0].split()
        if not items:
            return None
        label = items[0] if ":" not in items[0] else None
        pairs: Pairs = []
        for item in items if label is None else items[1:]:
            index, colon, value = item.partition(":")
            if index != "qid":
                pairs.append((_feature(index, colon), parse_number(value, "a value")))
        return pairs, parse_label(_label(label, options), options) if labelled else None

    return read_counted(chunk, options, parse, labelled=labelled)


def _feature(index: str, colon: str) -> str:
    if not colon or not (index.isascii() and index.isdigit()):
        raise MalformedRowError("an item is not of the form index:value")
    name = index.lstrip("0") or "0"
    if len(name) > MAX_DIGITS or int(name) > MAX_INDEX:
        raise MalformedRowError(f"an index is greater than {MAX_INDEX}")
    return name


def _label(label: str | None, options: TextOptions) -> str | list[str] | None:
    if options.labels == "multi":
        return [_class_name(name) for name in label.split(",")] if label is not None else []
    return label if label is None or options.labels == "numbers" else _class_name(label)


def _class_name(label: str) -> str:
    """One name for +1, 1 and 1.0. Numbers that are not finite are no class."""
    try:
        value = float(label)
    except ValueError:
        return label
    if "_" in label:
        raise MalformedRowError("the label is not a number", code="invalid-labels")
    if not math.isfinite(value):
        raise MalformedRowError(f"the label is {value}, which is not a class", code="invalid-labels")
    return str(int(value)) if value.is_integer() else str(value)


# ----------------------------------------------------------------------------------------------------------------------
# The processed form of the Multi-Domain Sentiment data: `feature:count … #label#:positive`, one document per line.


LABEL = "#label#"


def read_processed(chunk: Chunk, options: TextOptions, *, labelled: bool) -> CountedDocuments:
    """Names may contain colons and any Unicode; the count follows the last colon."""

    def parse(text: str) -> tuple[Pairs, Any] | None:
        if not text.strip(" \t"):
            return None
        label = None
        pairs: Pairs = []
        for item in filter(None, text.split(" ")):
            name, colon, value = item.rpartition(":")
            if name == LABEL:
                if label is not None:
                    raise MalformedRowError("two labels", code="invalid-labels")
                label = value
                continue
            if not colon or not name:
                raise MalformedRowError("an item is not of the form feature:count")
            pairs.append((encode_text(name, options).decode(), parse_number(value, "a count")))
        return pairs, parse_label(label, options) if labelled else None

    return read_counted(chunk, options, parse, labelled=labelled)
