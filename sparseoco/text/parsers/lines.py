"""Plain text, a document a line, without labels."""

from sparseoco.text.documents import BadRow, Documents, Row, documents_of
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk, UnreadableError, utf8


def read_lines(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Every line is a document, empty ones too. There are no labels: `labelled` is not asked."""
    rows: list[Row] = []
    bad: list[BadRow] = []
    for line, offset, text in chunk.texts(options):
        try:
            rows.append(Row(utf8(text, options), f"{chunk.short}:{line}", None, line))
        except UnreadableError as error:
            bad.append(error.at(line, offset))
    return documents_of(rows, bad, numbers=False, labelled=False)
