"""SVMlight and LIBSVM: `label [qid:q] index:value … [# comment]`, one document per line.

With any number of labels per document, they are separated by commas, and a document without one begins with its values.
"""

import math
from typing import Any

from sparseoco.text.documents import CountedDocuments
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk
from sparseoco.text.parsers.counted import Pairs, read_counted
from sparseoco.text.parsers.fields import MalformedRowError, parse_label, parse_number

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
                pairs.append((_feature(index, colon, options), parse_number(value, "a value")))
        return pairs, parse_label(_label(label, options), options) if labelled else None

    return read_counted(chunk, options, parse, labelled=labelled)


def _feature(index: str, colon: str, options: TextOptions) -> str:
    if not colon or not (index.isascii() and index.isdigit()):
        raise MalformedRowError("an item is not of the form index:value")
    name = index.lstrip("0") or "0"
    if len(name) > MAX_DIGITS or int(name) > MAX_INDEX:
        raise MalformedRowError(f"an index is greater than {MAX_INDEX}")
    if options.index_base == 1 and name == "0":
        raise MalformedRowError("index 0, although index_base is 1")
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
