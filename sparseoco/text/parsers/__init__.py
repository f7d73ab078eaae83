"""One parser per format: whole lines or records in, `Documents` or `CountedDocuments` out."""

from functools import partial
from typing import Protocol

from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.delimited import DELIMITERS, read_delimited
from sparseoco.text.parsers.jsonl import read_jsonl
from sparseoco.text.parsers.lines import read_lines, read_processed, read_svmlight
from sparseoco.text.parsers.rows import Chunk


class Parser(Protocol):
    """Parses a chunk, with labels if `labelled`."""

    def __call__(self, chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents | CountedDocuments: ...


PARSERS: dict[str, Parser] = {
    "jsonl": read_jsonl,
    **{name: partial(read_delimited, delimiter=delimiter) for name, delimiter in DELIMITERS.items()},
    "lines": read_lines,
    "svmlight": read_svmlight,
    "processed": read_processed,
}

__all__ = ["DELIMITERS", "PARSERS", "Chunk", "Parser"]
