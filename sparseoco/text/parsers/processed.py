"""The processed form of the Multi-Domain Sentiment data: `feature:count … #label#:positive`, one document per line."""

from typing import Any

from sparseoco.text.documents import CountedDocuments
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk
from sparseoco.text.parsers.counted import Pairs, read_counted
from sparseoco.text.parsers.fields import MalformedRowError, encode_text, parse_label, parse_number

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
