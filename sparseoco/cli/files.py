"""Commands about models and text: predict, evaluate, fetch, generate."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from sparseoco.cli.app import FILES, command
from sparseoco.cli.console import output, progress_bars
from sparseoco.cli.options import Inputs, SavedModel, Where, local_place, pairs, place, size_in_bytes
from sparseoco.datasets.corpora import fetch, list_cards
from sparseoco.datasets.synthetic import FILE_BYTES, SyntheticCorpus, generate
from sparseoco.pipeline.evaluation import evaluate_model
from sparseoco.pipeline.prediction import predict_files, predict_lines
from sparseoco.storage.locations import Location
from sparseoco.training.model import Model


@command(rich_help_panel=FILES)
def predict(
    model: SavedModel,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Files as for ingest; without any, lines of standard input."),
    ] = None,
    margins: Annotated[
        bool, typer.Option("--margins", help="Print the margin of each class beside the prediction.")
    ] = False,
    where: Where = None,
    format: Annotated[str, typer.Option(metavar="FORMAT", help="As for ingest.")] = "auto",
    text_field: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Field or column of the text; by default as the model learned it."),
    ] = None,
) -> None:
    """Predict new text: a line out for a line in; for files the document's id, a tab, the prediction."""
    opened = Model(model)
    if inputs:
        options = {"where": pairs(where, "--where"), "format": format}
        if text_field is not None:
            options["text_field"] = text_field
        predict_files(opened, inputs, options, sys.stdout, margins=margins)
    else:
        predict_lines(opened, sys.stdin.buffer, sys.stdout, margins=margins)


@command(rich_help_panel=FILES)
def evaluate(
    model: SavedModel,
    inputs: Inputs,
    where: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare predictions with the labels of text the model has not seen."""
    with progress_bars() as progress:
        result = evaluate_model(Model(model), inputs, pairs(where, "--where"), progress)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    print(
        f"error {result['error']:.2%} of {result['rows']:,} documents "
        f"(always the largest class: {result['majority_error']:.2%})"
    )
    table = Table("class", "documents", "precision", "recall", "F1")
    for row in result["classes"]:
        figures = (f"{row[name]:.3f}" for name in ("precision", "recall", "f1"))
        table.add_row(Text(row["name"]), f"{row['rows']:,}", *figures)
    output.print(table)


@command(rich_help_panel=FILES, name="fetch")
def fetch_corpus(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A corpus; without it, the list of them.")] = None,
    out: Annotated[
        Path,
        typer.Option("--out", parser=local_place, metavar="FOLDER", help="Where it goes: a folder of this machine."),
    ] = Path("corpora"),
    local: Annotated[
        Path | None,
        typer.Option(
            "--from",
            parser=local_place,
            metavar="PATH",
            help="The file you have, or a folder of them: no network is used.",
        ),
    ] = None,
) -> None:
    """Get a public corpus by name, checked against its digest."""
    if name is None:
        table = Table("name", "what", "licence")
        for entry in list_cards():
            table.add_row(*map(Text, (entry.name, entry.title, entry.licence)))
        output.print(table)
        return
    with progress_bars() as progress:
        fetched = fetch(name, out, local=local, progress=progress)
    print(f"{fetched.folder}\nIn a run file:\n\n{fetched.ingest_table()}")


@command(rich_help_panel=FILES, name="generate")
def generate_corpus(
    out: Annotated[
        Location,
        typer.Argument(parser=place, metavar="OUT", help="Folder of the corpus: OUT/text and OUT/planted.json."),
    ],
    size: Annotated[str, typer.Option("--bytes", metavar="SIZE", help="Size of all files: 500MB, 5GB.")],
    files: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of files; by default one every 256 MiB.")
    ] = None,
    vocabulary: Annotated[int, typer.Option(metavar="N", help="Number of different words.")] = 1_000_000,
    exponent: Annotated[float, typer.Option(metavar="S", help="Exponent of Zipf's law.")] = 1.1,
    classes: Annotated[int, typer.Option(metavar="N", help="Number of classes.")] = 2,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Another one makes other text.")] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Files written at once, by default one a processor; no byte depends on it."
        ),
    ] = None,
) -> None:
    """Make a corpus to try things on: JSON lines in Zipf's law, labels decided by the few words in planted.json."""
    wanted = size_in_bytes(size, "--bytes")
    made = SyntheticCorpus(wanted, files or -(-wanted // FILE_BYTES), vocabulary, exponent, classes, seed)
    with progress_bars() as progress:
        generate(made, out, threads=threads, progress=progress)
    print(out / "text")
