"""The command that shows regret."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from sparseoco.cli.app import STEPS, command
from sparseoco.cli.console import output, progress_bars
from sparseoco.cli.options import Cluster, Memory, Run, Scheduler, Threads, Workers, cluster_options, place
from sparseoco.offline.regret.rounds import MARKS
from sparseoco.offline.regret.run import TOL
from sparseoco.pipeline import steps
from sparseoco.report import write_report
from sparseoco.report.wording import amount, plus_minus
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import read_result_table


@command(rich_help_panel=STEPS)
def regret(
    run: Run,
    configuration: Annotated[
        list[int] | None,
        typer.Option(
            "--configuration",
            metavar="N",
            help="A configuration by its number in the leaderboard; repeatable. By default the best of each algorithm.",
        ),
    ] = None,
    marks: Annotated[
        int, typer.Option(min=3, metavar="N", help="Rounds at which regret is looked at, even in the logarithm.")
    ] = MARKS,
    tol: Annotated[
        float, typer.Option(metavar="GAP", help="Gap to which optima are found, a share of the objective at w = 0.")
    ] = TOL,
    store: Annotated[
        Location | None,
        typer.Option(
            parser=place, metavar="STORE", help="Folder of the shards; by default where the run had them from."
        ),
    ] = None,
    cluster_file: Cluster = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    threads: Threads = None,
    memory: Memory = None,
) -> None:
    """What learners lost along the stream beyond the best fixed weights: curves, slopes, the papers' bounds.

    Of epoch methods, how their objective over all documents came to its optimum.
    """
    cluster = cluster_options(cluster_file, scheduler, workers, threads, memory)
    with progress_bars() as progress:
        folder = steps.regret(
            run, cluster, numbers=configuration, marks=marks, tol=tol, store_folder=store, progress=progress
        )
        page = write_report(run)
    table = Table("no.", "algorithm", "regret", "per round", "slope", "bound")
    for end in read_result_table(folder / "slopes.parquet").to_pylist():
        if end["regret"] is None:
            figures = [f"{end['status']}: {end['reason']}", "", "", ""]
        else:
            slope = plus_minus(end["slope"], end["slope_error"])
            figures = [amount(end["regret"]), amount(end["per_round"]), slope, amount(end["bound"])]
        table.add_row(*map(Text, (str(end["configuration"]), end["algorithm"], *figures)))
    output.print(table)
    print(f"report: {page}")
