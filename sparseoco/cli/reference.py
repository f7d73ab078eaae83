"""Commands that print the reference: what the codes of errors mean, and the JSON Schema of run files."""

import json
from typing import Annotated

import typer

from sparseoco.cli.app import INFORMATION, command
from sparseoco.cli.console import print_line
from sparseoco.core.error_codes import GROUPS, error_entries
from sparseoco.core.errors import InputError
from sparseoco.core.suggestions import did_you_mean


@command(INFORMATION)
def errors(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="The code in brackets at the end of an error; by default all.")
    ] = None,
) -> None:
    """Explain the code of an error.

    It prints what the error means, what to do, and the exit code of a command that ends with it; without a code, all
    codes.

    Example: sparseoco errors missing-field
    """
    entries = error_entries()
    if code is None:
        for group, title in GROUPS.items():
            print_line(f"{title}: {', '.join(name for name, entry in entries.items() if entry.group == group)}")
        return
    name = code.strip("[]")
    if name not in entries:
        hint = did_you_mean(name, entries) or "sparseoco errors lists them."
        raise InputError(f"There is no error with the code {name!r}: {hint}", code="unknown-error-code")
    entry = entries[name]
    print_line(entry.meaning)
    print_line(entry.remedy)
    print_line(f"exit code {' or '.join(map(str, entry.exit))}")


@command(INFORMATION)
def schema() -> None:
    """Print the JSON Schema of run files.

    With it editors complete keys, show what they mean and mark mistakes; the first line of a run file names it:
    #:schema ./run-file.schema.json

    Example: sparseoco schema
    """
    from sparseoco.pipeline.run_file_schema import run_file_schema

    print(json.dumps(run_file_schema(), indent=1, ensure_ascii=False))
