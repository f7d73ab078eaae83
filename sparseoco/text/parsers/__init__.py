"""One parser per format: whole lines or records in, `Documents` or `CountedDocuments` out."""

from functools import partial
from importlib import import_module
from typing import Any

from sparseoco.text.documents import CountedDocuments, Documents
from sparseoco.text.formats import FORMATS
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.rows import Chunk


def parse(form: str, chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents | CountedDocuments:
    """The documents of whole lines of this format, with labels if `labelled`."""
    module, name = FORMATS[form].parser.split(".")
    parser: Any = getattr(import_module(f"{__package__}.{module}"), name)
    if FORMATS[form].delimiter:
        parser = partial(parser, delimiter=FORMATS[form].delimiter)
    found: Documents | CountedDocuments = parser(chunk, options, labelled=labelled)
    return found


__all__ = ["Chunk", "parse"]
