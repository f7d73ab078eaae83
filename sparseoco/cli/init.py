"""The command that writes a first run file."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from sparseoco.cli.app import START, command
from sparseoco.cli.console import names_of_keys, print_line
from sparseoco.cli.options import InputsArgument, local_path
from sparseoco.core.errors import InputError


@command(START)
def init(
    *,
    inputs: InputsArgument,
    out: Annotated[
        Path, typer.Option("--out", parser=local_path, metavar="RUN_FILE", help="The run file to write (.toml).")
    ] = Path("run.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a run file for your data, with comments, after looking at a sample of it.

    It chooses the fields of the text and of the label, finds out whether labels are classes, lists of classes or
    numbers, uses a split into training and test data if there is one, and shows other options in comments. It says what
    would not be read or learned. Otherwise the file runs as it is: check what was chosen, and change what is wrong.

    Example: sparseoco init reviews.jsonl --out reviews.toml
    """
    if out.suffix != ".toml":
        raise InputError(f"{out}: the name of a run file must end in .toml.", code="unknown-format")
    if out.exists() and not force:
        raise InputError(f"{out} exists: replace it with --force, or choose another --out.", code="file-exists")
    import tomllib

    from sparseoco.cli.inputs import describe_kind, print_lists
    from sparseoco.pipeline.proposal import propose
    from sparseoco.pipeline.run_file import parse_run_file
    from sparseoco.pipeline.run_file_template import run_file_text
    from sparseoco.storage.commit import commit_bytes
    from sparseoco.text.folders import check_apart
    from sparseoco.text.options import TextOptions

    check_apart(out, inputs, TextOptions(), written=())
    with names_of_keys():
        found, proposal = propose(list(inputs))
    text = run_file_text(list(inputs), out, proposal)
    name = out.name.removesuffix(".toml")
    run = parse_run_file({"name": name, "out": name} | tomllib.loads(text), source=str(out), folder=out.parent)
    for kind in found.kinds:
        for line in describe_kind(kind, run.ingest.text):
            print_line(line)
    print_lists(found)
    commit_bytes(out, text.encode())
    for warning in proposal.warnings:
        print_line(f"warning: {warning}")
    print_line(f"run file: {out}")
    name = shlex.quote(str(out))
    if proposal.problem is not None:
        print_line(f"warning: {proposal.problem}")
        print_line(f"next: correct the file, then sparseoco doctor {name}")
    else:
        print_line(f"next: sparseoco doctor {name}, then sparseoco run {name}")
