"""Commands that analyse learners: the offline optimum and regret."""

from typing import Annotated, Any

import typer

from sparseoco.cli.app import ANALYSIS, command
from sparseoco.cli.console import cell, output, print_error, print_line, progress_bars
from sparseoco.cli.options import ClusterFlags, FeatureFlags, ModelOptions, stated
from sparseoco.core.option_models import validate
from sparseoco.offline.options import OptimumOptions
from sparseoco.storage.locations import Location
from sparseoco.store.weighting import FeatureOptions


@command(ANALYSIS)
def optimum(
    store: Location,
    *,
    out: Location,
    given: Annotated[dict[str, Any], ModelOptions(OptimumOptions, flags={"alphas": "--alpha"})],
    features: FeatureFlags,
    cluster: ClusterFlags,
) -> None:
    """Minimise the regularised loss over all the data, to a certified duality gap, for each alpha.

    The weights of each alpha are saved as a model: the best that any learner of the same objective can reach.

    Example: sparseoco optimum shards --out optimum --alpha 1,10

    Parameters
    ----------
    out : FOLDER
        Folder of the tables and models.
    """
    options = validate(OptimumOptions, given | {"weighting": validate(FeatureOptions, features).weighting})
    from rich.table import Table

    from sparseoco.pipeline import comparators
    from sparseoco.storage.tables import read_parquet_file

    with progress_bars() as progress:
        folder = comparators.optimum(store, out, options, cluster, progress=progress)
    table = Table("alpha", "class", "objective", "gap", "relative gap", "passes", "nonzeros")
    rows = read_parquet_file(folder / "optimum.parquet").to_pylist()
    for row in rows:
        figures = (f"{row['objective']:.9g}", f"{row['gap']:.2g}", f"{row['relative_gap']:.1e}", f"{row['passes']:,}")
        table.add_row(f"{row['alpha']:g}", cell(row["class"]), *figures, f"{row['nonzeros']:,}")
    output.print(table)
    print_line(f"models: {folder}/alpha-*")
    if not all(row["converged"] for row in rows):
        print_error(f"Not converged to {options.tol:g}: allow more passes (--max-passes) or a larger gap (--tol).")


@command(ANALYSIS)
def regret(
    run: Location,
    *,
    configuration: list[int] | None = None,
    marks: Annotated[int | None, typer.Option(min=3)] = None,
    tol: float | None = None,
    store: Location | None = None,
    cluster: ClusterFlags,
) -> None:
    """Compute the regret of learners against the best fixed weights: curves, slopes and the papers' bounds.

    For epoch methods, the convergence of the objective to its optimum.

    Example: sparseoco regret run --configuration 1

    Parameters
    ----------
    configuration : N
        Number of a configuration in the leaderboard; by default the best of each algorithm. Repeatable.
    marks : N
        Rounds at which regret is computed, spaced logarithmically; by default 12.
    tol : X
        Duality gap of the optima, relative to the objective at 0; by default 0.001.
    store : STORE
        Folder of the shards; by default that of the run itself.
    """
    given = stated(marks=marks, tol=tol)
    from rich.table import Table

    from sparseoco.core.formatting import amount, plus_minus
    from sparseoco.pipeline import comparators
    from sparseoco.report import write_report
    from sparseoco.storage.tables import read_parquet_file

    with progress_bars() as progress:
        folder = comparators.regret(run, cluster, numbers=configuration, store_folder=store, progress=progress, **given)
        page = write_report(run)
    table = Table("no.", "algorithm", "regret", "per round", "slope", "bound")
    for end in read_parquet_file(folder / "slopes.parquet").to_pylist():
        if end["regret"] is None:
            figures = [f"{end['status']}: {end['reason']}", "", "", ""]
        else:
            slope = plus_minus(end["slope"], end["slope_error"])
            figures = [amount(end["regret"]), amount(end["per_round"]), slope, amount(end["bound"])]
        table.add_row(*map(cell, (str(end["configuration"]), end["algorithm"], *figures)))
    output.print(table)
    print_line(f"report: {page}")
