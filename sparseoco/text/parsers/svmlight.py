"""SVMlight and LIBSVM: `label [qid:q] index:value … [# comment]`, a document a line."""

import math

from sparseoco.text.documents import Bags
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk, UnreadableError, number, settle_label
from sparseoco.text.parsers.counted import BagRows

MAX_INDEX = 2**63 - 1
MAX_DIGITS = len(str(MAX_INDEX))


def read_svmlight(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Bags:
    """A feature's name is its index as written; index_base = 1 refuses the index 0."""
    rows = BagRows(chunk, options, labelled=labelled)
    for line, offset, text in chunk.texts(options):
        items = text.partition("#")[0].split()
        if not items:
            continue
        try:
            pairs: list[tuple[str, float]] = []
            label = items[0] if ":" not in items[0] else None
            for item in items if label is None else items[1:]:
                name, colon, value = item.partition(":")
                if name == "qid":
                    continue
                if not colon or not (name.isascii() and name.isdigit()):
                    raise UnreadableError("an item is not of the form index:value")
                index = name.lstrip("0") or "0"
                if len(index) > MAX_DIGITS or int(index) > MAX_INDEX:
                    raise UnreadableError(f"an index is greater than {MAX_INDEX}")
                if options.index_base == 1 and index == "0":
                    raise UnreadableError("index 0 where indices were said to start at 1")
                pairs.append((index, number(value, "a value")))
            rows.add(line, pairs, settle_label(_class(label, options), options) if labelled else None)
        except UnreadableError as error:
            rows.bad.append(error.at(line, offset))
    return rows.bags()


def _class(label: str | None, options: TextOptions) -> str | None:
    """+1 and 1 are one class, as are 1 and 1.0. Raises `UnreadableError` for numbers that stand for no class."""
    if label is None or options.labels == "numbers":
        return label
    try:
        value = float(label)
    except ValueError:
        return label
    if "_" in label:
        raise UnreadableError("the label is not a number")
    if not math.isfinite(value):
        raise UnreadableError(f"the label is {value}, which names no class")
    return str(int(value)) if value.is_integer() else str(value)
