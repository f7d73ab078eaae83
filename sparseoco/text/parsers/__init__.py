"""One parser a format: a run of whole lines (or records) in, `Documents` or `Bags` out."""

from typing import Protocol

from sparseoco.text.documents import Bags, Documents
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk
from sparseoco.text.parsers.delimited import read_csv, read_tsv
from sparseoco.text.parsers.jsonl import read_jsonl
from sparseoco.text.parsers.lines import read_lines
from sparseoco.text.parsers.processed import read_processed
from sparseoco.text.parsers.svmlight import read_svmlight


class Parser(Protocol):
    """Parses a chunk; `labelled` says whether labels must be there."""

    def __call__(self, chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents | Bags: ...


PARSERS: dict[str, Parser] = {
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_tsv,
    "lines": read_lines,
    "svmlight": read_svmlight,
    "processed": read_processed,
}

__all__ = ["PARSERS", "Chunk", "Parser"]
