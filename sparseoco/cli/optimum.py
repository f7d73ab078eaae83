"""The command for the offline optimum."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from sparseoco.cli.app import STEPS, command
from sparseoco.cli.console import errors, output, progress_bars
from sparseoco.cli.options import (
    Cluster,
    Memory,
    Scheduler,
    Store,
    Threads,
    Workers,
    checked,
    cluster_options,
    number_or_word,
    place,
)
from sparseoco.core.errors import InputError
from sparseoco.offline.cluster.optimum import OptimumOptions
from sparseoco.pipeline import steps
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import read_result_table


@command(rich_help_panel=STEPS)
def optimum(
    store: Store,
    out: Annotated[
        Location, typer.Option("--out", parser=place, metavar="FOLDER", help="Folder of the tables and models.")
    ],
    alpha: Annotated[
        str,
        typer.Option(
            "--alpha",
            metavar="A,A,…",
            help="Weights of the penalty, beside the sum of losses over all documents; an optimum each.",
        ),
    ] = "1",
    loss: Annotated[
        str, typer.Option(metavar="NAME", help="logistic, squared_hinge, hinge; squared for numbers.")
    ] = "logistic",
    penalty: Annotated[str, typer.Option(metavar="NAME", help="l1, l2 or elastic_net.")] = "l1",
    l1_ratio: Annotated[
        float, typer.Option("--l1-ratio", metavar="ρ", help="Share of l1 in the elastic net.")
    ] = OptimumOptions.model_fields["l1_ratio"].default,
    box: Annotated[
        float | None, typer.Option(metavar="R", help="Keep every weight within ±R too; by default none is bounded.")
    ] = None,
    tol: Annotated[
        float, typer.Option(metavar="GAP", help="Duality gap to reach, relative to the objective at 0.")
    ] = OptimumOptions.model_fields["tol"].default,
    max_passes: Annotated[
        int, typer.Option(metavar="N", help="Passes over the data after which to stop.")
    ] = OptimumOptions.model_fields["max_passes"].default,
    cluster_file: Cluster = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    threads: Threads = None,
    memory: Memory = None,
) -> None:
    """Find the least regularised loss on all the data, with a bound on what is left to gain, for each alpha."""
    options = checked(
        OptimumOptions,
        {
            "alphas": _numbers(alpha),
            "loss": loss,
            "penalty": penalty,
            "l1_ratio": l1_ratio,
            "box": box,
            "tol": tol,
            "max_passes": max_passes,
        },
    )
    cluster = cluster_options(cluster_file, scheduler, workers, threads, memory)
    with progress_bars() as progress:
        folder = steps.optimum(store, out, options, cluster, progress=progress)
    table = Table("alpha", "class", "objective", "gap", "of the objective at 0", "passes", "nonzeros")
    rows = read_result_table(folder / "optimum.parquet").to_pylist()
    for row in rows:
        figures = (f"{row['objective']:.9g}", f"{row['gap']:.2g}", f"{row['relative_gap']:.1e}", f"{row['passes']:,}")
        table.add_row(f"{row['alpha']:g}", Text(row["class"]), *figures, f"{row['nonzeros']:,}")
    output.print(table)
    print(f"models: {folder}/alpha-*")
    if not all(row["converged"] for row in rows):
        errors.print(f"Not every gap came to {tol:g}: allow more passes (--max-passes) or a larger gap (--tol).")


def _numbers(text: str) -> list[float]:
    """Numbers with commas between them. Raises `InputError` for anything else."""
    values = [number_or_word(value) for value in text.split(",")]
    if words := [value for value in values if isinstance(value, str)]:
        raise InputError(
            f"--alpha {text}: {words[0]!r} is not a number; several have commas between them, such as 1,10."
        )
    return [float(value) for value in values]
