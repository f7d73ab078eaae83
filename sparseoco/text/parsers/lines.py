"""Plain text, one document per line, without labels."""

from sparseoco.text.documents import Documents, ParsedRow
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk
from sparseoco.text.parsers.fields import encode_text


def read_lines(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Every line is a document, even an empty one. There are no labels, requested or not."""

    def parse(text: str, line: int) -> ParsedRow:
        return ParsedRow(encode_text(text, options), f"{chunk.short}:{line}", None, line)

    return Documents.from_rows(*chunk.parse_lines(options, parse), None)
