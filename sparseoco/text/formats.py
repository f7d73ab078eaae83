"""The formats of inputs: their names, what shows them, and what their documents have.

A format whose documents are lines is an entry of `FORMATS` and one of `PARSERS`. Nothing else knows its name.
"""

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias


class InputFormat(NamedTuple):
    """A format of files, or of folders with one document per file.

    Parameters
    ----------
    description : str
        Of a file, in messages.
    suffixes : tuple of str
        Of file names; the first one is that of files of kept documents.
    fields : bool
        Whether a document is a record of named fields.
    labels : bool
        Whether documents have labels.
    counted : bool
        Whether documents are counts of features, not texts.
    first_line : str
        Regular expression of the beginning of the first line that is not blank, if it shows the format.
    delimiter : str
        Between the fields of a record of delimited text.
    """

    description: str
    suffixes: tuple[str, ...] = ()
    fields: bool = False
    labels: bool = True
    counted: bool = False
    first_line: str = ""
    delimiter: str = ""


FORMATS: dict[str, InputFormat] = {
    "jsonl": InputFormat(
        "JSON lines, one document per object", (".jsonl", ".ndjson", ".json"), fields=True, first_line=r"\{"
    ),
    "csv": InputFormat("CSV, one document per record", (".csv",), fields=True, delimiter=","),
    "tsv": InputFormat("TSV, one document per line, quotes are text", (".tsv", ".tab"), fields=True, delimiter="\t"),
    "lines": InputFormat("plain text, one document per line, without labels", (".txt",), labels=False),
    "folder": InputFormat("one document per file"),
    "processed": InputFormat(
        "processed reviews, one document per line", (".review",), counted=True, first_line=r".*#label#:"
    ),
    "svmlight": InputFormat(
        "SVMlight, one document per line",
        (".svmlight", ".libsvm", ".svm"),
        counted=True,
        first_line=r"[+-]?[\w.]+(\s+qid:\d+)?(\s+\d+:[-+.\deE]+)+\s*(#.*)?$",
    ),
    "parquet": InputFormat("Parquet, one document per row", (".parquet", ".pq"), fields=True),
    "arrow": InputFormat("Arrow, one document per row", (".arrow", ".ipc", ".feather"), fields=True),
    "files": InputFormat("one document per file, without labels", labels=False),
}
TABLES = frozenset({"parquet", "arrow"})
FOLDERS = frozenset({"folder", "files"})  # with one document per file; `files` without labels
WITH_FIELDS = frozenset(name for name, form in FORMATS.items() if form.fields)
UNLABELLED = frozenset(name for name, form in FORMATS.items() if not form.labels)
COUNTED = frozenset(name for name, form in FORMATS.items() if form.counted)
DELIMITERS = {name: form.delimiter for name, form in FORMATS.items() if form.delimiter}
SUFFIXES = {suffix: name for name, form in FORMATS.items() for suffix in form.suffixes}

if TYPE_CHECKING:
    Format: TypeAlias = str
else:
    Format = Literal["auto", *(name for name in FORMATS if name != "files")]


def format_of_line(line: bytes) -> str | None:
    """The format that the first line of a file shows, if any."""
    patterns = ((name, form.first_line.encode()) for name, form in FORMATS.items() if form.first_line)
    return next((name for name, pattern in patterns if re.match(pattern, line.strip())), None)
