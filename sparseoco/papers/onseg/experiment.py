"""The experiment of Liu 2019: claims, page, run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import PERCENT, amount, integer
from sparseoco.core.logs import ProgressCallback, no_progress
from sparseoco.papers.claims import (
    Comparison,
    Finding,
    Records,
    Row,
    claim_rows,
    distinct,
    extend,
    format_mean,
    judge_by_rules,
    less,
    mean,
    mean_and_error,
    read_schemas,
    select,
    verdicts_by_rule,
)
from sparseoco.papers.experiment import EXPERIMENT_FOLDER, check_repetitions, find_files, publish, render, run_cells
from sparseoco.papers.onseg.runs import (
    BETAS,
    ERROR,
    IMPLIED,
    LOSS,
    PAIRS,
    PANELS,
    PLAIN,
    SETTINGS,
    SOURCES,
    STANDARDISED,
    STEP_FACTORS,
    TIMED_METHODS,
    PanelData,
    dataset_cells,
    describe,
    given_panel,
    panel_cell,
    read_dataset,
    time_methods,
    tuned_names,
)
from sparseoco.papers.panels import read_panel
from sparseoco.report.charts import COLOURS, Chart, Level, Series, linear_axis, log_axis, values_x
from sparseoco.report.svg import plot
from sparseoco.storage.locks import exclusive_lock

# ----------------------------------------------------------------------------------------------------------------------
# What §4 of Liu et al. (2019) claims, and what was measured.


TITLES: Final = {source.name: source.title for source in SOURCES}
PRINTED: Final = [("", "ONSEG", "OGDEG")]
"""What is compared: a label, a method, and the one that the paper has it outperform."""
LOSSES: Final = "“outperforms”: figures 1 and 2"
RETURNS: Final = f"2.88{PERCENT} against 1.02{PERCENT} per week"
Pairs = Sequence[tuple[str, str, str]]


class Criterion(NamedTuple):
    """How methods are compared on a classification: what the best values are tuned by, and a column of `runs`."""

    title: str
    measure: str
    column: str


CRITERIA: Final = (
    Criterion("tuned and compared by the error rate", ERROR, "error_rate"),
    Criterion("tuned by the loss, compared by the error rate", LOSS, "error_rate"),
    Criterion("tuned and compared by the loss", LOSS, "mean_loss"),
)
"""The paper shows error rates and tunes nothing: its β is that of its theorem."""


def tuned(measure: str) -> Pairs:
    """What is compared of the methods tuned by this measure, as `PRINTED`."""
    names = [(what, tuned_names(measure, suffix)) for what, suffix in PAIRS.items()]
    return [(what, onseg, ogdeg) for what, (ogdeg, onseg) in names]


def onseg_claims(records: Records, criterion: Criterion) -> list[Finding]:
    """All claims but those on run times, with classifications compared by this criterion."""
    best = "at the same δ and γ, β and the step both tuned in hindsight."
    printed = "with the printed β, where OGDEG has δ and γ of its own theorem."
    return [
        *_lower_loss(records, f"ONSEG converges faster than OGDEG {best}", criterion, tuned),
        *_lower_loss(records, f"ONSEG converges faster than OGDEG {printed}", criterion, lambda measure: PRINTED),
        *_portfolios(records, f"ONSEG's portfolios have a higher mean return than OGDEG's {best}", tuned(LOSS)),
        *_portfolios(records, f"ONSEG's portfolios have a higher mean return than OGDEG's {printed}", PRINTED),
        *_theorem(records),
    ]


def onseg_timing_claims(records: Records) -> list[Finding]:
    """Whether a round of ONSEG takes less time than one of OGD and ONS, by turns."""

    def measure(experiment: str) -> Sequence[Any]:
        rows = select(records["timings"], experiment=experiment)
        ns = {
            name: [1e9 * row["seconds"] / row["rounds"] for row in select(rows, method=name)] for name in TIMED_METHODS
        }
        here = ", ".join(f"{name} {amount(mean(ns[name]))}" for name in TIMED_METHODS) + " ns per round"
        return here, *(less(ns["ONSEG"], ns[name], name) for name in ("OGD", "ONS"))

    claim = "A round of ONSEG takes less time than one of the methods that require gradients, ONS and OGD."
    places = [(TITLES[name], name) for name in distinct(records["timings"], "experiment")]
    return claim_rows(claim, "“much more efficient”, no figures", places, measure)


def _experiments(records: Records) -> list[tuple[str, Row]]:
    places = []
    for row in records["experiments"]:
        diameter = f" ({row['D']:.3g})" if row["setting"] == IMPLIED else ""
        places.append((f"{TITLES[row['experiment']]}, {row['setting']}{diameter}", row))
    return places


def _rows(records: Records, table: str, experiment: Row) -> list[Row]:
    return select(records[table], experiment=experiment["experiment"], setting=experiment["setting"])


def _lower_loss(records: Records, claim: str, criterion: Criterion, pairs: Callable[[str], Pairs]) -> list[Finding]:
    """Whether ONSEG's mean loss, or error rate, over T rounds is below OGDEG's, run by run with the same directions;
    `pairs` of a measure that best values are tuned by."""

    def measure(experiment: Row) -> Sequence[Any]:
        runs = _rows(records, "runs", experiment)
        classes = experiment["loss"] == "logistic"
        column = criterion.column if classes else "mean_loss"
        own = pairs(criterion.measure if classes else LOSS)
        here, comparisons = _compared(runs, column, own, column == "error_rate")
        return f"{column.replace('_', ' ')} {here}", *comparisons

    return claim_rows(claim, LOSSES, _experiments(records), measure)


def _portfolios(records: Records, claim: str, pairs: Pairs) -> list[Finding]:
    """Whether ONSEG's mean return is above OGDEG's, draw by draw with the same stocks and directions."""

    def measure(panel: Row) -> Sequence[Any]:
        draws = select(records["draws"], panel=panel["panel"])
        here, comparisons = _compared(draws, "mean_return", pairs, True, higher=True)
        fixed = [format_mean(panel[name], None, percent=True) for name in ("equal_shares", "best_stock")]
        here += f" per {panel['period']}; equal weights {fixed[0]}, the best stock in hindsight {fixed[1]}"
        return here, *comparisons

    return claim_rows(claim, RETURNS, [(panel["title"], panel) for panel in records["panels"]], measure)


def _compared(
    rows: Sequence[Row], column: str, pairs: Pairs, percent: bool, *, higher: bool = False
) -> tuple[str, list[Comparison]]:
    """Means of the methods of every pair that was run, and the comparisons that the first is less, or higher."""
    texts, comparisons = [], []
    methods = distinct(rows, "method")
    for what, *names in (pair for pair in pairs if pair[1] in methods):
        left, right = ([row[column] for row in select(rows, method=name)] for name in names)
        means = [format_mean(*mean_and_error(values), percent=percent) for values in (left, right)]
        texts.append(f"{means[0]} against {means[1]}" + (f" ({what})" if what else ""))
        comparisons.append(less(*((right, left) if higher else (left, right)), what, percent=percent))
    return "; ".join(texts), comparisons


def _theorem(records: Records) -> list[Finding]:
    """Whether Theorem 3.1 says anything about these runs: γ < 1, and a bound below the largest possible regret."""

    def measure(experiment: Row) -> Sequence[Any]:
        gamma, bound = experiment["theorem_gamma"], experiment["theorem_regret"] / (2 * experiment["F"])
        here = f"γ = {gamma:.2f}; the bound is {amount(bound)} times 2F per round, for σ = 1"
        return here, gamma < 1 and bound < 1

    claim = "Theorem 3.1 has γ < 1 and bounds the regret of these runs by less than the trivial 2F per round."
    return claim_rows(claim, "O(T^⅔)", _experiments(records), measure)


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


STYLE: Final = {
    "OGD": (COLOURS[0], "solid"),
    "ONS": (COLOURS[1], "solid"),
    "ONS, β by its theorem": (COLOURS[1], "dash"),
    "OGDEG": (COLOURS[2], "solid"),
    "ONSEG": (COLOURS[3], "solid"),
    "ONSEG, β by its theorem": (COLOURS[3], "dash"),
    **{
        name: (colour, dash)
        for measure in (LOSS, ERROR)
        for suffix, dash in zip(PAIRS.values(), ("dot", "dashdot"), strict=True)
        for name, colour in zip(tuned_names(measure, suffix), COLOURS[2:4], strict=True)
    },
}
"""Colour and dash of each method: a colour per algorithm; dashes for its theorem's and the best parameters."""
LATE: Final = 0.003
"""The share of the rounds after which curves are all within the figure: means of few rounds vary too much."""
ROUNDS: Final = "rounds (log scale)"


def onseg_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    facts = {
        "runs of a bandit per data set": integer(inputs["repetitions"]),
        "draws of stocks": integer(inputs["draws"]),
    }
    claims = {row["claim"] for row in select(records["claims"], paper=LOSSES)}
    return render(
        "onseg",
        inputs,
        records,
        facts,
        timing_claims=onseg_timing_claims(records),
        sections=[_section(records, name) for name in distinct(records["experiments"], "experiment")],
        panels=[_panel(records, row) for row in records["panels"]],
        style=STYLE,
        edges=_edges(records),
        betas=_range(BETAS),
        step_factors=_range(STEP_FACTORS),
        rules=[criterion.title for criterion in CRITERIA],
        verdicts=[row for row in verdicts_by_rule(records) if row[0] in claims],
    )


def _range(values: Sequence[float]) -> str:
    return f"{values[0]:g} to {values[-1]:g}".replace("e-0", "e-").replace("-", "−")


def _section(records: Records, name: str) -> dict[str, Any]:
    """A data set, with what its settings have."""
    source = next(source for source in SOURCES if source.name == name)
    settings = [_setting(records, row) for row in select(records["experiments"], experiment=name)]
    return {"title": source.title, "beta_ons": source.beta_ons, "settings": settings}


def _setting(records: Records, experiment: Row) -> dict[str, Any]:
    """An experiment, its figures, unless features are standardised, and the rows of its methods."""
    key = {column: experiment[column] for column in ("experiment", "setting")}
    runs = select(records["runs"], **key)
    methods = []
    for row in select(records["methods"], **key):
        own = select(runs, method=row["method"])
        means = {
            column: _mean_and_error([run[column] for run in own])
            for column in ("mean_loss", "error_rate")
            if own[0][column] is not None
        }
        methods.append(row | means)
    figures = [] if experiment["setting"] == STANDARDISED else _figures(select(records["curves"], **key), experiment)
    return {"experiment": experiment, "figures": figures, "methods": methods}


def _mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error; None for a single value."""
    return mean_and_error(values) if len(values) > 1 else (values[0], None)


def _figures(curves: Sequence[Row], experiment: Row) -> list[Any]:
    name, best_error = f"{experiment['experiment']}-{experiment['D']:.3g}", experiment["best_error"]
    title = f"{TITLES[experiment['experiment']]}, {experiment['setting']}"
    figures = []
    if best_error is not None:
        columns = ("error_rate", "error_low", "error_high")
        own = _not_tuned_by(curves, LOSS)
        figure = spread_figure(own, columns, {"best fixed point": best_error}, "error rate so far, %", 100.0)
        figures.append(plot(f"{name}-error", f"Error rate so far, {title}", figure))
    levels = {"best fixed point of the ball": experiment["best_loss"], "x = 0": experiment["zero_loss"]}
    columns = ("mean_loss", "loss_low", "loss_high")
    figure = spread_figure(_not_tuned_by(curves, ERROR), columns, levels, "mean loss so far", 1.0)
    return [*figures, plot(f"{name}-loss", f"Mean loss so far, {title}", figure)]


def _not_tuned_by(curves: Sequence[Row], measure: str) -> list[Row]:
    """The curves without those of the methods whose best values have the least of this measure."""
    names = {name for suffix in PAIRS.values() for name in tuned_names(measure, suffix)}
    return [row for row in curves if row["method"] not in names]


def _edges(records: Records) -> list[str]:
    """Where the value chosen in hindsight was at an end of its grid, beyond which the best may lie."""
    titles = {row["panel"]: row["title"] for row in records["panels"]}
    places = [(f"{TITLES[row['experiment']]}, {row['setting']}", row) for row in records["methods"]]
    places += [(titles[row["panel"]], row) for row in records["panel_methods"]]
    return [f"{row['method']}: {place}" for place, row in places if row["at_edge"]]


def _panel(records: Records, panel: Row) -> dict[str, Any]:
    name = panel["panel"]
    levels = {"equal weights": panel["equal_shares"], "best stock in hindsight": panel["best_stock"]}
    label = f"mean return per {panel['period']} so far, %"
    figure = spread_figure(select(records["returns"], panel=name), ("mean_return", "low", "high"), levels, label, 100.0)
    methods = []
    for method in select(records["panel_methods"], panel=name):
        returns = [row["mean_return"] for row in select(records["draws"], panel=name, method=method["method"])]
        average, error = mean_and_error(sorted(returns))
        methods.append(method | {"mean": average, "error": error, "least": min(returns), "most": max(returns)})
    return {"panel": panel, "plot": plot(name, f"Mean return so far, {panel['title']}", figure), "methods": methods}


def spread_figure(
    curves: Sequence[Row], columns: tuple[str, str, str], levels: dict[str, float], label: str, scale: float
) -> Chart:
    """A line per method with its spread; `columns` are mean, low and high, `levels` horizontal lines."""
    series = []
    mean, low, high = columns
    for name in (name for name in STYLE if select(curves, method=name)):
        rows = select(curves, method=name)
        colour, dash = STYLE[name]
        spread = dash == "solid" and any(row[low] != row[high] for row in rows)
        series.append(
            Series(
                name,
                [row["t"] for row in rows],
                [scale * row[mean] for row in rows],
                colour,
                dash=dash,
                low=[scale * row[low] for row in rows] if spread else (),
                high=[scale * row[high] for row in rows] if spread else (),
                band=spread,
                heading=name,
                labels=[f"{row['t']:,} rounds: {scale * row[mean]:.4g}" for row in rows],
            )
        )
    first = LATE * max(row["t"] for row in curves)
    late = [row for row in curves if row["t"] >= first]
    values = [scale * row[name] for row in late for name in columns] + [scale * level for level in levels.values()]
    return Chart(
        log_axis(ROUNDS, values_x(series)),
        linear_axis(label, values),
        series,
        [Level(scale * level, text) for text, level in levels.items()],
    )


# ----------------------------------------------------------------------------------------------------------------------
# Data files → tables, a page, and which of the paper's claims hold.


REPETITIONS: Final = 20
DRAWS: Final = 100
SCHEMAS: Final = read_schemas(__file__)


def reproduce_onseg(
    data: Path,
    out: Path,
    *,
    repetitions: int = REPETITIONS,
    draws: int = DRAWS,
    panel: Sequence[Path] = (),
    progress: ProgressCallback = no_progress,
) -> Path:
    """Run the experiments whose files are there; write OUT/*.parquet, OUT/inputs.json and OUT/onseg.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files and numbers give equal bytes, except
    for run times, in timings.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of the files of `datasets.SOURCES` and `portfolios.PANELS`, in it or in its subfolders.
    out : Path
        Folder of the results.
    repetitions, draws : int
        Runs of a bandit on a data set, and draws of stocks.
    panel : sequence of Path
        Further panels of prices or relatives, wherever they are (`sparseoco.papers.panels`).

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, one is invalid, or two panels have the same name.
    """
    check_repetitions(repetitions=repetitions, draws=draws)
    names = [source.file for source in (*SOURCES, *PANELS)]
    files = find_files(data, names, required=not panel)
    datasets = [
        read_dataset(source, files[source.file], setting)
        for source in SOURCES
        if source.file in files
        for setting in SETTINGS
    ]
    panels = [
        PanelData(source, read_panel(files[source.file], from_one=source.from_one))
        for source in PANELS
        if source.file in files
    ]
    for path in panel:
        if path.name in files:
            raise InputError(f"{path}: there is a panel of this name already.", code="duplicate-name")
        files[path.name] = path
        panels.append(PanelData(given_panel(path), read_panel(path)))
    records: Records = {name: [] for name in SCHEMAS}
    with exclusive_lock(out, EXPERIMENT_FOLDER):
        records["experiments"] = [describe(dataset) for dataset in datasets]
        cells = [cell for dataset in datasets for cell in dataset_cells(dataset, repetitions)]
        cells += [panel_cell(each, draws) for each in panels]
        for part in run_cells(out / "cells", "play", cells, progress):
            extend(records, part)
        timed = [dataset for dataset in datasets if dataset.setting == PLAIN]
        for done, dataset in enumerate(timed, start=1):
            records["timings"] += time_methods(dataset, select(records["methods"], **dataset.key))
            progress("time", done, len(timed))
        tested = {criterion.title: onseg_claims(records, criterion) for criterion in CRITERIA}
        extend(records, judge_by_rules(tested, CRITERIA[0].title))
        missing = [name for name in names if name not in files]
        inputs = {"repetitions": repetitions, "draws": draws, "missing": missing}
        return publish(out, "onseg", records, SCHEMAS, inputs, files, onseg_page)
