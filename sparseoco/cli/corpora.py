"""Commands that get corpora: public ones, and synthetic ones."""

from pathlib import Path
from typing import Annotated

import typer

from sparseoco.cli.app import START, command
from sparseoco.cli.completion import CORPUS
from sparseoco.cli.console import cell, output, print_line, print_next, progress_bars
from sparseoco.cli.options import local_path, path_or_uri, size_in_bytes
from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location


@command(START)
def fetch(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A corpus; by default, list them.", autocompletion=CORPUS),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", parser=local_path, metavar="FOLDER", help="Local folder of the corpora.")
    ] = Path("corpora"),
    local: Annotated[
        Path | None,
        typer.Option(
            "--from",
            parser=local_path,
            metavar="PATH",
            help="The downloaded file, or a folder of such files, to use instead of the network.",
        ),
    ] = None,
) -> None:
    """Download a public corpus and verify its checksum.

    It prints the [ingest] table of a run file for the corpus. **--from** takes a copy that you have downloaded.

    Example: sparseoco fetch imdb --out corpora
    """
    from rich.table import Table

    from sparseoco.datasets import corpora

    if name is None:
        if local is not None:
            raise InputError("--from is a copy of a corpus: name it too.", code="unsupported-combination")
        table = Table("name", "title", "licence")
        for entry in corpora.list_cards():
            table.add_row(*map(cell, (entry.name, entry.title, entry.licence)))
        output.print(table)
        return
    with progress_bars() as progress:
        fetched = corpora.fetch(name, out, local=local, progress=progress)
    print_line(fetched.folder)
    print(f"In a run file:\n\n{fetched.ingest_table()}")
    print_next("writes a whole run file", "init", *fetched.inputs)


@command(START)
def generate(
    out: Annotated[
        Location,
        typer.Argument(parser=path_or_uri, metavar="OUT", help="Folder of the corpus: OUT/text and OUT/planted.json."),
    ],
    size: Annotated[str, typer.Option("--bytes", metavar="SIZE", help="Total size of the files: 500MB, 5GB.")],
    files: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of files; by default one per 256 MiB.")
    ] = None,
    vocabulary: Annotated[int, typer.Option(metavar="N", help="Number of distinct words.")] = 1_000_000,
    exponent: Annotated[float, typer.Option(metavar="X", help="Exponent of Zipf's law.")] = 1.1,
    classes: Annotated[int, typer.Option(metavar="N", help="Number of classes.")] = 2,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the text.")] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Files written concurrently, by default one per core; does not change the text."
        ),
    ] = None,
) -> None:
    """Generate a synthetic corpus: JSON lines of Zipf-distributed words, labelled by the few words in planted.json.

    Use it to measure ingest and search at a size of your choice; the same options give the same bytes.

    Example: sparseoco generate corpus --bytes 1MB --vocabulary 5000
    """
    from sparseoco.datasets import synthetic

    total = size_in_bytes(size, "--bytes")
    corpus = synthetic.SyntheticCorpus(
        total, files or -(-total // synthetic.FILE_BYTES), vocabulary, exponent, classes, seed
    )
    with progress_bars() as progress:
        synthetic.generate(corpus, out, threads=threads, progress=progress)
    print_line(out / "text")
    print_next("converts it to shards", "ingest", out / "text", "--out", "STORE")
