"""Inputs of commands: standard input as a file, and what is understood of raw text before it is counted."""

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sparseoco.cli.console import print_error, print_line, spelled
from sparseoco.core.errors import SparseocoError
from sparseoco.core.formatting import plural
from sparseoco.storage.locations import Location
from sparseoco.storage.temporary import temporary_folder
from sparseoco.text.options import TextOptions
from sparseoco.text.preview import Kind
from sparseoco.text.readers import ReadOutcome
from sparseoco.text.sources import WITH_FIELDS
from sparseoco.text.stored import Pin, changed, local_pin

if TYPE_CHECKING:
    from sparseoco.text.ingest import Preview

STDIN = "-"
FORMATS = {
    "jsonl": "JSON lines, one document per object",
    "csv": "CSV, one document per record",
    "tsv": "TSV, one document per record",
    "lines": "plain text, one document per line, without labels",
    "folder": "one document per file",
    "files": "one document per file, without labels",
    "svmlight": "SVMlight, one document per line",
    "processed": "processed reviews, one document per line",
    "parquet": "Parquet, one document per row",
    "arrow": "Arrow, one document per row",
}
SHOWN = 12  # fields or classes, at most
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5": ".zst"}


@contextmanager
def with_stdin(inputs: Sequence[str]) -> Iterator[list[str]]:
    """The inputs, with standard input (`-`) copied to a file, which is deleted afterwards; errors do not name it."""
    if STDIN not in inputs:
        yield list(inputs)
        return
    with temporary_folder() as folder:
        pin = _stdin_pin()
        start: bytes = sys.stdin.buffer.read(2)
        path = folder / f"stdin{_MAGIC.get(start, '')}"
        with path.open("wb") as file:
            file.write(start)
            shutil.copyfileobj(sys.stdin.buffer, file)
        if _stdin_pin() != pin:
            raise changed("Standard input")
        try:
            yield [str(path) if item == STDIN else item for item in inputs]
        except SparseocoError as error:
            error.args = tuple(argument.replace(str(path), "standard input") for argument in error.args)
            raise


def _stdin_pin() -> Pin | None:
    """The version of the file that is standard input, if it is one."""
    with suppress(OSError):
        status = os.fstat(sys.stdin.buffer.fileno())
        return local_pin(status) if stat.S_ISREG(status.st_mode) else None
    return None


def describe_kind(kind: Kind, options: TextOptions) -> list[str]:
    """What is understood of sources, in lines."""
    first = kind.sources[0]
    details = [FORMATS[kind.format]]
    if kind.quoted is not None:
        details.append("fields may be quoted" if kind.quoted else "quotes are text")
    details += [f"encoding {kind.codec}"] * (kind.codec != "utf-8")
    more = f" and {len(kind.sources) - 1:,} more" if len(kind.sources) > 1 else ""
    lines = [f"{first.path}{more}: {', '.join(details)} ({_size(kind.bytes)})"]
    if kind.format in WITH_FIELDS and kind.fields:
        columns = {name: name for name in options.fields} or {"text": options.text_field}
        columns["label"] = options.label_field
        columns |= {str(name): field for name, field in options.columns.items()}
        used = [f"{name} from {field!r}" for name, field in columns.items()]
        named = options.id_field in kind.fields
        used.append(
            f"id from {options.id_field!r}" if named else f"no field {options.id_field!r}: ids by file and line"
        )
        lines.append(f"  fields: {_shown(kind.fields)}; {', '.join(used)}")
        parts: dict[str, set[str]] = {}
        for name, value in (pair for source in kind.sources for pair in source.facts.all):
            parts.setdefault(name, set()).add(str(value))
        lines += [f"  by path: {name} = {_shown(sorted(values))}" for name, values in parts.items()]
    if kind.format == "folder":
        label = "the folder of the file" if options.label_depth is None else f"folder {options.label_depth} of its path"
        lines.append(f"  label: {label}")
    elif kind.hint:
        lines.append(f"  its lines look like {kind.hint}: if they are, set --format")
    count = "first " * (kind.format not in ("folder", "files")) + plural(kind.documents, "document")
    classes = _shown([f"{name} ({number:,})" for name, number in kind.classes.items()])
    if kind.first_id is not None:
        lines.append(f"  {count}{f', {classes}' if classes else ''}; first id: {kind.first_id}")
    if kind.bad is not None:
        lines.append(f"  {kind.bad.place or f'line {kind.bad.line}'}: {kind.bad.reason}")
    return lines


def print_inputs(inputs: list[str], out: Location | None, options: TextOptions) -> None:
    """Print what an ingest into the store `out` will understand of new inputs, and the empty and hidden files."""
    from sparseoco.text.ingest import preview

    found = preview(inputs, out, options)
    for kind in found.kinds:
        for line in describe_kind(kind, options):
            print_line(spelled(line))
    print_lists(found)


def print_lists(found: "Preview") -> None:
    """Print the empty and the hidden files among the inputs."""
    if found.empty:
        print_line(f"empty files: {_shown(found.empty)}")
    if found.hidden:
        print_line(f"hidden, and left out: {_shown(found.hidden)}")


def print_missing(field: str, missing: int, documents: int) -> None:
    """Print, as an error, how many documents have no value of a field."""
    if missing:
        print_error(f"{field}: no value in {missing:,} of {plural(documents, 'document')}")


def print_multiline(records: int) -> None:
    """Print, as an error, how many records of CSV and TSV span several lines."""
    if records:
        spans = plural(records, "record spans", "records span")
        print_error(f"{spans} several lines, in quoted fields; if quotes are text, set --quoting none")


def print_outcome(outcome: ReadOutcome) -> None:
    """Print, as errors, which rows and files gave no prediction of their own."""
    if outcome.bad_rows:
        print_error(f"{plural(outcome.bad_rows, 'malformed row')} left out")
    print_multiline(outcome.multiline_rows)
    for name, missing in outcome.missing.items():
        print_missing(name, missing, outcome.documents)
    if outcome.empty:
        print_error(f"empty files: {_shown(outcome.empty)}")
    if outcome.hidden:
        print_error(f"hidden, and left out: {_shown(outcome.hidden)}")


def checked_lines(lines: Iterable[bytes], options: TextOptions) -> Iterator[bytes]:
    """The lines of standard input; an error line is printed if they look like another format than plain text.

    With fields, lines are records.
    """
    for number, line in enumerate(lines):
        if number == 0 and not options.fields and line.lstrip().startswith((b'{"', b'{ "')):
            print_error(
                "standard input looks like JSON lines, and is read as plain text, one document per line: "
                "--format jsonl reads its fields"
            )
        yield line


def _shown(names: Sequence[str]) -> str:
    cut = [name if len(name) <= 40 else f"{name[:39]}…" for name in names[:SHOWN]]
    return ", ".join(cut) + (f", … ({len(names):,})" if len(names) > SHOWN else "")


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} GB"
