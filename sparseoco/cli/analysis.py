"""Commands that analyse learners: the offline optimum, regret, a single learner on a table of numbers."""

from pathlib import Path
from typing import Annotated, Any, Literal

from sparseoco.cli.app import ANALYSIS, command
from sparseoco.cli.console import cell, output, print_error, print_line, progress_bars
from sparseoco.cli.options import (
    ALGORITHM,
    BY_FIELD,
    ClusterFlags,
    FeatureFlags,
    ModelOptions,
    RunArgument,
    StoreArgument,
    argument,
    local_path,
    option,
    parameter_values,
    path_or_uri,
)
from sparseoco.core.option_models import validate
from sparseoco.offline.options import OptimumOptions
from sparseoco.storage.locations import Location
from sparseoco.store.terms import FeatureOptions

MAX_WEIGHTS_SHOWN = 10


@command(ANALYSIS)
def optimum(
    *,
    store: StoreArgument,
    out: Annotated[Location, option("FOLDER", "Folder of the tables and models.", parser=path_or_uri)],
    given: Annotated[dict[str, Any], ModelOptions(OptimumOptions, flags={"alphas": "--alpha"})],
    features: FeatureFlags,
    cluster: ClusterFlags,
) -> None:
    """Minimise the regularised loss over all the data, to a certified duality gap, for each alpha.

    The weights of each alpha are saved as a model: the best that any learner of the same objective can reach.

    Example: sparseoco optimum shards --out optimum --alpha 1,10
    """
    options = validate(OptimumOptions, given | {"weighting": validate(FeatureOptions, features).weighting})
    from rich.table import Table

    from sparseoco.pipeline import steps
    from sparseoco.storage.tables import read_parquet_file

    with progress_bars() as progress:
        folder = steps.optimum(store, out, options, cluster, progress=progress)
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
    *,
    run: RunArgument,
    configuration: Annotated[
        list[int] | None,
        option("N", "Number of a configuration in the leaderboard; by default the best of each algorithm. Repeatable."),
    ] = None,
    marks: Annotated[
        int | None, option("N", "Rounds at which regret is computed, spaced logarithmically; by default 12.", min=3)
    ] = None,
    tol: Annotated[
        float | None, option("X", "Duality gap of the optima, relative to the objective at 0; by default 0.001.")
    ] = None,
    store: Annotated[
        Location | None, option("STORE", "Folder of the shards; by default that of the run itself.", parser=path_or_uri)
    ] = None,
    cluster: ClusterFlags,
) -> None:
    """Compute the regret of learners against the best fixed weights: curves, slopes and the papers' bounds.

    For epoch methods, the convergence of the objective to its optimum.

    Example: sparseoco regret run --configuration 1
    """
    given: dict[str, Any] = {name: value for name, value in (("marks", marks), ("tol", tol)) if value is not None}
    from rich.table import Table

    from sparseoco.core.formatting import amount, plus_minus
    from sparseoco.pipeline import steps
    from sparseoco.report import write_report
    from sparseoco.storage.tables import read_parquet_file

    with progress_bars() as progress:
        folder = steps.regret(run, cluster, numbers=configuration, store_folder=store, progress=progress, **given)
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


@command(ANALYSIS)
def table(
    file: Annotated[Path, argument("FILE", "CSV (also .gz, .bz2, .zst) or Parquet.", parser=local_path)],
    target: Annotated[str, option("COLUMN", "The column to predict; without a header, columns are named 1, 2, 3, …")],
    out: Annotated[Path, option("FOLDER", "Folder of the metrics and weights.", parser=local_path)],
    labels: Annotated[
        Literal["classes", "numbers"], option(None, "Whether the target is a class or a number.")
    ] = "classes",
    leave_out: Annotated[list[str] | None, option("COLUMN", "A column to ignore. Repeatable.")] = None,
    header: Annotated[
        bool | None,
        option(
            None,
            "Whether the first line names the columns; by default, if none of its cells is a number.",
            "--header/--no-header",
        ),
    ] = None,
    delimiter: Annotated[
        str | None, option("CHARACTER", "Separator of columns; by default a comma, in .tsv a tab.")
    ] = None,
    missing: Annotated[
        Literal["error", "leave-out"], option(None, "What to do with rows that have missing cells.")
    ] = "error",
    standardise: Annotated[
        bool, option(None, "Scale every column to mean 0 and standard deviation 1.", "--standardise")
    ] = False,
    intercept: Annotated[bool, option(None, "Add a column of ones.", "--intercept")] = False,
    algorithm: Annotated[str, option("NAME", "The learner (see sparseoco algorithms).", complete=ALGORITHM)] = "ons",
    settings: Annotated[
        list[str] | None, option("PARAMETER=VALUE", "A parameter of the learner. Repeatable.", "--set")
    ] = None,
    loss: Annotated[
        str | None, option("NAME", "By default logistic for classes, squared for numbers.", complete=BY_FIELD["loss"])
    ] = None,
    epochs: Annotated[int, option("N", "Passes over the rows, in their order.", min=1)] = 1,
) -> None:
    """Train one online learner on a table of numbers, one row after another.

    Each row is predicted before it is learned, which gives the progressive loss and error. For text, use search or
    train.

    Example: sparseoco table measurements.csv --target species --out weights --set D=2 --standardise
    """
    values = parameter_values(settings)
    from sparseoco.core.formatting import amount, parameters, percent, plural
    from sparseoco.datasets.tables import read_table
    from sparseoco.pipeline.tabular import fit_table
    from sparseoco.storage.tables import read_parquet_file

    rows = read_table(
        file,
        target=target,
        labels=labels,
        leave_out=leave_out or [],
        header=header,
        delimiter=delimiter,
        missing=missing,
    )
    fitted = fit_table(
        rows,
        out,
        algorithm=algorithm,
        parameters=values,
        loss=loss,
        standardised=standardise,
        intercept=intercept,
        epochs=epochs,
        source=file,
    )
    if rows.left_out:
        print_error(f"{plural(len(rows.left_out), 'row')} with missing cells left out")
    if fitted.constant:
        print_error(f"constant columns, set to 0: {', '.join(fitted.constant)}")
    n, d = rows.features.shape
    print_line(f"{file}: {plural(n, 'row')}, {plural(d, 'feature')}")
    print_line(f"{fitted.algorithm}: {parameters(fitted.parameters | fitted.computed)}")
    if fitted.diverged:
        print_error(f"Diverged at row {fitted.diverged:,}: choose smaller steps, or standardise the columns.")
    error = "" if fitted.progressive_error is None else f", error {percent(fitted.progressive_error)}"
    print_line(f"progressive loss {amount(fitted.progressive_loss)}{error}, over {plural(fitted.rows, 'row')}")
    weights = read_parquet_file(out / "weights.parquet").to_pylist()
    largest = sorted(weights, key=lambda row: -abs(row["weight"]))[:MAX_WEIGHTS_SHOWN]
    several = len(rows.classes) > 2
    shown = [f"{row['feature']}{' → ' + row['class'] if several else ''} {row['weight']:+.3g}" for row in largest]
    print_line("largest weights: " + ", ".join(shown))
