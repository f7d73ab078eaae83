"""Commands before a run: fetch, generate, init."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from sparseoco.cli.app import START, command
from sparseoco.cli.console import names_of_keys, print_line, print_next, print_table, progress_bars
from sparseoco.cli.options import Count, size_in_bytes
from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location

# ----------------------------------------------------------------------------------------------------------------------
# The command that writes a first run file.


@command(START)
def init(inputs: list[str], *, out: Path = Path("run.toml"), force: bool = False) -> None:
    """Write a run file for your data, with comments, after looking at a sample of it.

    It chooses the fields of the text and of the label, finds out whether labels are classes, lists of classes or
    numbers, uses a split into training and test data if there is one, and shows other options in comments. It says what
    would not be read or learned. Otherwise the file runs as it is: check what was chosen, and change what is wrong.

    Example: sparseoco init reviews.jsonl --out reviews.toml

    Parameters
    ----------
    out : RUN_FILE
        The run file to write (.toml).
    force
        Replace the file if it exists.
    """
    if out.suffix != ".toml":
        raise InputError(f"{out}: the name of a run file must end in .toml.", code="unknown-format")
    if out.exists() and not force:
        raise InputError(f"{out} exists: replace it with --force, or choose another --out.", code="file-exists")
    import tomllib

    from sparseoco.cli.summaries import describe_kind, print_lists
    from sparseoco.pipeline.init import propose, run_file_text
    from sparseoco.pipeline.run_file import parse_run_file
    from sparseoco.storage.commit import commit_bytes
    from sparseoco.storage.locations import absolute_path
    from sparseoco.text.options import TextOptions
    from sparseoco.text.sources import check_apart

    check_apart(out, inputs, TextOptions(), is_file=True)
    if any(absolute_path(item) == absolute_path(str(out.with_suffix(""))) for item in inputs):
        raise InputError(
            f"A run of {out} is written to the folder {out.stem} beside it, which is an input: choose another --out, "
            f"such as {out.stem}-run.toml.",
            code="unsupported-combination",
        )
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


# ----------------------------------------------------------------------------------------------------------------------
# Commands that get corpora: public ones, and synthetic ones.


@command(START)
def fetch(
    corpus: str | None = None,
    *,
    out: Path = Path("corpora"),
    local: Annotated[Path | None, typer.Option("--from")] = None,
) -> None:
    """Download a public corpus and verify its checksum.

    It prints the [ingest] table of a run file for the corpus. **--from** takes a copy that you have downloaded.

    Example: sparseoco fetch imdb --out corpora

    Parameters
    ----------
    corpus : NAME
        A corpus; by default, list them.
    out : FOLDER
        Local folder of the corpora.
    local : PATH
        The downloaded file, or a folder of such files, to use instead of the network.
    """
    from sparseoco.datasets import corpora

    if corpus is None:
        if local is not None:
            raise InputError("--from is a copy of a corpus: name it too.", code="unsupported-combination")
        cards = corpora.list_cards()
        print_table(("name", "title", "licence"), [(card.name, card.title, card.licence) for card in cards])
        return
    with progress_bars() as progress:
        fetched = corpora.fetch(corpus, out, local=local, progress=progress)
    print_line(fetched.folder)
    print(f"In a run file:\n\n{fetched.ingest_table()}")
    print_next("writes a whole run file", "init", *fetched.inputs)


@command(START)
def generate(
    out: Location,
    *,
    size: Annotated[str, typer.Option("--bytes")],
    files: Count = None,
    vocabulary: int = 1_000_000,
    exponent: float = 1.1,
    classes: int = 2,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Generate a synthetic corpus: JSON lines of Zipf-distributed words, labelled by the few words in planted.json.

    Use it to measure ingest and search at a size of your choice; the same options give the same bytes.

    Example: sparseoco generate corpus --bytes 1MB --vocabulary 5000

    Parameters
    ----------
    out : OUT
        Folder of the corpus: OUT/text and OUT/planted.json.
    size : SIZE
        Total size of the files: 500MB, 5GB.
    files : N
        Number of files; by default one per 256 MiB.
    vocabulary : N
        Number of distinct words.
    exponent : X
        Exponent of Zipf's law.
    classes : N
        Number of classes.
    seed : N
        Seed of the text.
    """
    from sparseoco.datasets import synthetic

    total = size_in_bytes(size, "--bytes")
    corpus = synthetic.SyntheticCorpus(
        total, files or -(-total // synthetic.FILE_BYTES), vocabulary, exponent, classes, seed
    )
    with progress_bars() as progress:
        synthetic.generate(corpus, out, progress=progress)
    print_line(out / "text")
    print_next("converts it to shards", "ingest", out / "text", "--out", "STORE")
