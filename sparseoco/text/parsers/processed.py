"""The processed form of the Multi-Domain Sentiment data: `feature:count … #label#:positive`, a document a line."""

from sparseoco.text.documents import Bags
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk, UnreadableError, number, settle_label, utf8
from sparseoco.text.parsers.counted import BagRows

LABEL = "#label#"


def read_processed(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Bags:
    """Names may hold colons and any Unicode; the number stands after the last colon."""
    rows = BagRows(chunk, options, labelled=labelled)
    for line, offset, text in chunk.texts(options):
        if not text.strip(" \t"):
            continue
        try:
            label = None
            pairs: list[tuple[str, float]] = []
            for item in text.split(" "):
                name, colon, value = item.rpartition(":")
                if not item:
                    continue
                if name == LABEL and label is not None:
                    raise UnreadableError("two labels")
                if name == LABEL:
                    label = value
                    continue
                if not colon or not name:
                    raise UnreadableError("an item is not of the form feature:count")
                pairs.append((utf8(name, options).decode(), number(value, "a count")))
            rows.add(line, pairs, settle_label(label, options) if labelled else None)
        except UnreadableError as error:
            rows.bad.append(error.at(line, offset))
    return rows.bags()
