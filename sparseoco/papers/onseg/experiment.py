"""The experiment of Liu 2019: claims, page, run."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import amount
from sparseoco.core.logs import report_progress
from sparseoco.papers.claims import Measured, Pair, find_evidence, format_mean, judge_by_rules, read_claims
from sparseoco.papers.experiment import Experiment, Run, check_repetitions, lines_by, read_schemas, render
from sparseoco.papers.onseg import runs
from sparseoco.papers.rows import Records, Row, column, distinct, extend, grouped, mean, mean_and_error, select
from sparseoco.papers.sources import find_file, no_input_files
from sparseoco.report import charts

# ----------------------------------------------------------------------------------------------------------------------
# Measures of the claims in claims.toml.


CLAIMS: Final = read_claims(__file__)
RUN_TIMES: Final = read_claims(__file__, "run_times")
"""Whether a round of ONSEG takes less time than one of OGD and ONS, by turns."""
TITLES: Final = {source.name: source.title for source in runs.SOURCES}
Pairs = Sequence[tuple[str, str, str]]
"""A label, a method, and the one that the paper has it outperform."""


class Criterion(NamedTuple):
    """How methods are compared on a classification: what the best values are tuned by, and a column of `runs`."""

    title: str
    measure: str
    column: str


CRITERIA: Final = (
    Criterion("tuned and compared by the error rate", runs.ERROR, "error_rate"),
    Criterion("tuned by the loss, compared by the error rate", runs.LOSS, "error_rate"),
    Criterion("tuned and compared by the loss", runs.LOSS, "mean_loss"),
)
"""The paper shows error rates and tunes nothing: its β is that of its theorem."""


class Measures(NamedTuple):
    """What the claims are tested on: `measure` in claims.toml is the name of a method.

    Classifications are compared by the criterion.
    """

    records: Records
    criterion: Criterion = CRITERIA[0]

    def round_times(self) -> Iterator[Measured]:
        for experiment in distinct(self.records["timings"], "experiment"):
            rows = select(self.records["timings"], experiment=experiment)
            ns = {
                name: [1e9 * row["seconds"] / row["rounds"] for row in select(rows, method=name)]
                for name in runs.TIMED_METHODS
            }
            here = ", ".join(f"{name} {amount(mean(ns[name]))}" for name in runs.TIMED_METHODS) + " ns per round"
            yield Measured(TITLES[experiment], here, [Pair(ns["ONSEG"], ns[name], name) for name in ("OGD", "ONS")])

    def losses(self, pairs: str) -> Iterator[Measured]:
        """Mean loss, or error rate, over T rounds, run by run with the same directions."""
        for experiment in self.records["experiments"]:
            key = {name: experiment[name] for name in ("experiment", "setting")}
            classes = experiment["loss"] == "logistic"
            name = self.criterion.column if classes else "mean_loss"
            named = _named_pairs(pairs, self.criterion.measure if classes else runs.LOSS)
            here, values = _compared(select(self.records["runs"], **key), name, named, name == "error_rate")
            yield Measured(_title(experiment), f"{name.replace('_', ' ')} {here}", values)

    def printed_steps(self) -> Iterator[Measured]:
        """What the printed β say of D, by data set."""
        for row in self.records["printed"]:
            own = (
                f"{row['D_onseg']:.1f}"
                if row["D_onseg"]
                else f"none (at most {row['beta_onseg_largest']:.2g} for any D)"
            )
            here = (
                f"D = {row['D_ons']:.1f} by β of ONS; ONSEG's β is {row['beta_onseg_at_D_ons']:.2g} there and printed "
                f"{row['beta_onseg']:.3g}; D by β of ONSEG: {own}"
            )
            near = abs(row["beta_onseg_at_D_ons"] / row["beta_onseg"] - 1) < 0.1
            yield Measured(TITLES[row["experiment"]], here.replace("e-0", "e-").replace("e-", "e−"), [near])

    def returns(self, pairs: str) -> Iterator[Measured]:
        """Mean return of portfolios, draw by draw with the same stocks and directions."""
        for panel, within in product(self.records["panels"], runs.SETS):
            draws = select(self.records["draws"], panel=panel["panel"], within=within)
            here, values = _compared(draws, "mean_return", _named_pairs(pairs, runs.LOSS), True)
            fixed = [format_mean(panel[name], None, percent=True) for name in ("equal_shares", "best_stock")]
            here += f" per {panel['period']}; equal weights {fixed[0]}, the best stock in hindsight {fixed[1]}"
            more = [pair._replace(left=pair.right, right=pair.left) for pair in values]
            yield Measured(f"{panel['title']}, {within}", here, more)

    def theorem(self) -> Iterator[Measured]:
        """Whether Theorem 3.1 says anything about these runs: γ < 1, and a bound below the largest possible regret."""
        for experiment in self.records["experiments"]:
            gamma, bound = experiment["theorem_gamma"], experiment["theorem_regret"] / (2 * experiment["F"])
            here = f"γ = {gamma:.2f}; the bound is {amount(bound)} times 2F per round, for σ = 1"
            yield Measured(_title(experiment), here, [gamma < 1 and bound < 1])


OWN_SETTING: Final = next(iter(runs.PAIRS))
"""Of `runs.PAIRS`, the paper's."""


def _named_pairs(pairs: str, measure: str) -> Pairs:
    """The methods with the printed β, or tuned by this measure."""
    if pairs == "printed":
        return [("", "ONSEG", "OGDEG")]
    if pairs == "two-point":
        return [("", "two-point", "ONSEG")]
    names = [(what, runs.tuned_names(measure, suffix)) for what, suffix in runs.PAIRS.items()]
    if pairs == "two-point, tuned":
        return [(what, "two-point", onseg) for what, (_, onseg) in names]
    return [(what, onseg, ogdeg) for what, (ogdeg, onseg) in names]


def _title(experiment: Row) -> str:
    diameter = f" ({experiment['D']:.3g})" if experiment["setting"] == runs.IMPLIED else ""
    return f"{TITLES[experiment['experiment']]}, {experiment['setting']}{diameter}"


def _compared(rows: Sequence[Row], name: str, pairs: Pairs, percent: bool) -> tuple[str, list[Pair]]:
    """Means of the methods of every pair that was run, and their values, with the mean of the second as unit.

    δ and γ of Theorem 3.1 are the paper's setting, where they differ from the largest ones.
    """
    texts, values = [], []
    methods = distinct(rows, "method")
    for what, *names in (pair for pair in pairs if {*pair[1:]} <= {*methods}):
        left, right = (column(select(rows, method=method), name) for method in names)
        means = [format_mean(*mean_and_error(own), percent=percent) for own in (left, right)]
        texts.append(f"{means[0]} against {means[1]}" + (f" ({what})" if what else ""))
        elsewhere = what != "" and what != OWN_SETTING
        values.append(Pair(left, right, what, percent, unit=abs(mean(right)), elsewhere=elsewhere))
    return "; ".join(texts), values


# ----------------------------------------------------------------------------------------------------------------------
# The page of the experiments.


STYLE: Final = {
    "OGD": (charts.COLOURS[0], "solid"),
    "ONS": (charts.COLOURS[1], "solid"),
    "ONS, β by its theorem": (charts.COLOURS[1], "dash"),
    "OGDEG": (charts.COLOURS[2], "solid"),
    "ONSEG": (charts.COLOURS[3], "solid"),
    "ONSEG, β by its theorem": (charts.COLOURS[3], "dash"),
    "two-point": (charts.COLOURS[4], "solid"),
    **{
        name: (colour, dash)
        for measure in (runs.LOSS, runs.ERROR)
        for suffix, dash in zip(runs.PAIRS.values(), ("dot", "dashdot"), strict=True)
        for name, colour in zip(runs.tuned_names(measure, suffix), charts.COLOURS[2:4], strict=True)
    },
}
"""Colour and dash of each method: a colour per algorithm; dashes for its theorem's and the best parameters."""
LATE: Final = 0.003
"""The share of the rounds after which curves are all within the figure: means of few rounds vary too much."""


def onseg_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    sources = {source.name: source for source in runs.SOURCES}
    # Where the value chosen in hindsight was at an end of its grid, beyond which the best may lie.
    panels = {row["panel"]: row["title"] for row in records["panels"]}
    places = [(f"{TITLES[row['experiment']]}, {row['setting']}", row) for row in records["methods"]]
    places += [(f"{panels[row['panel']]}, {row['within']}", row) for row in records["panel_methods"]]
    return render(
        "onseg",
        records,
        find_evidence(RUN_TIMES, Measures(records)),
        inputs=inputs,
        sections=[
            (sources[rows[0]["experiment"]], [(row, _figures(records, row)) for row in rows])
            for rows in grouped(records["experiments"], "experiment")
        ],
        panels=[
            (panel, [(name, _panel_figure(records, panel, name)) for name in runs.SETS]) for panel in records["panels"]
        ],
        mean_and_error=_mean_and_error,
        style=STYLE,
        edges=[f"{row['method']}: {place}" for place, row in places if row["at_edge"]],
        betas=_range(runs.BETAS),
        step_factors=_range(runs.STEP_FACTORS),
        titles=TITLES,
        rules=[criterion.title for criterion in CRITERIA],
        on_losses=[claim.text for claim in CLAIMS if claim.measure == "losses"],
    )


def _range(values: Sequence[float]) -> str:
    return f"{values[0]:g} to {values[-1]:g}".replace("e-0", "e-").replace("-", "−")


def _mean_and_error(rows: Sequence[Row], name: str) -> tuple[float | None, float | None]:
    """Mean and standard error of a column; None for the error of a single value, and without the column."""
    values = [row[name] for row in rows if name in row]
    return mean_and_error(values) if len(values) > 1 else (values[0] if values else None, None)


def _figures(records: Records, experiment: Row) -> list[charts.Plot]:
    """Of an experiment, unless features are standardised."""
    if experiment["setting"] == runs.STANDARDISED:
        return []
    curves = select(records["curves"], experiment=experiment["experiment"], setting=experiment["setting"])
    name, best_error = f"{experiment['experiment']}-{experiment['D']:.3g}", experiment["best_error"]
    title = f"{TITLES[experiment['experiment']]}, {experiment['setting']}"
    figures = []
    if best_error is not None:
        columns = ("error_rate", "error_low", "error_high")
        own = _not_tuned_by(curves, runs.LOSS)
        figure = spread_figure(own, columns, {"best fixed point": best_error}, "error rate so far, %", 100.0)
        figures.append(charts.plot(f"{name}-error", f"Error rate so far, {title}", figure))
    levels = {"best fixed point of the ball": experiment["best_loss"], "x = 0": experiment["zero_loss"]}
    columns = ("mean_loss", "loss_low", "loss_high")
    figure = spread_figure(_not_tuned_by(curves, runs.ERROR), columns, levels, "mean loss so far", 1.0)
    return [*figures, charts.plot(f"{name}-loss", f"Mean loss so far, {title}", figure)]


def _not_tuned_by(curves: Sequence[Row], measure: str) -> list[Row]:
    """The curves without those of the methods whose best values have the least of this measure."""
    names = {name for suffix in runs.PAIRS.values() for name in runs.tuned_names(measure, suffix)}
    return [row for row in curves if row["method"] not in names]


def _panel_figure(records: Records, panel: Row, within: str) -> charts.Plot:
    returns, columns = select(records["returns"], panel=panel["panel"], within=within), ("mean_return", "low", "high")
    levels = {"equal weights": panel["equal_shares"], "best stock in hindsight": panel["best_stock"]}
    figure = spread_figure(returns, columns, levels, f"mean return per {panel['period']} so far, %", 100.0)
    name = f"{panel['panel']}-{runs.SETS[within]['domain']}"
    return charts.plot(name, f"Mean return so far, {panel['title']}, {within}", figure)


def spread_figure(
    curves: Sequence[Row], columns: tuple[str, str, str], levels: dict[str, float], label: str, scale: float
) -> charts.Chart:
    """A line per method with its spread; `columns` are mean, low and high, `levels` horizontal lines."""
    middle, low, high = columns
    series = []
    for name, (colour, dash) in STYLE.items():
        rows = select(curves, method=name)
        band: dict[str, Any] = {}
        if dash == "solid" and any(row[low] != row[high] for row in rows):
            band = {edge: [scale * row[of] for row in rows] for edge, of in (("low", low), ("high", high))}
            band["band"] = True
        looks = {name: {"colour": colour, "dash": dash, **band}}
        series += lines_by(rows, "method", "t", middle, looks, label="{t:,} rounds: {value:.4g}", scale=scale)
    first = LATE * max(row["t"] for row in curves)
    late = [row for row in curves if row["t"] >= first]
    values = [scale * row[name] for row in late for name in columns] + [scale * level for level in levels.values()]
    lines = [charts.Level(scale * level, text) for text, level in levels.items()]
    return charts.Chart(
        charts.log_axis("rounds (log scale)", charts.values_x(series)), charts.linear_axis(label, values), series, lines
    )


# ----------------------------------------------------------------------------------------------------------------------
# Data files → tables, a page, and which of the paper's claims hold.


ONSEG: Final = Experiment("onseg", read_schemas(__file__), onseg_page)


def reproduce_onseg(data: Path, out: Path, *, repetitions: int = 20, draws: int = 100) -> Path:
    """Run the experiments whose files are there; write OUT/*.parquet, OUT/inputs.json and OUT/onseg.html.

    Results of parts stay in OUT/cells, so an interrupted run resumes. Equal files and numbers give equal bytes, except
    for run times, in timings.parquet and on the page.

    Parameters
    ----------
    data : Path
        Folder of the files that sources.toml names, in it or in its subfolders.
    out : Path
        Folder of the results.
    repetitions, draws : int
        Runs of a bandit on a data set, and draws of stocks.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InputError
        If none of the files is there, or one is invalid.
    """
    check_repetitions(repetitions=repetitions, draws=draws)
    names = [source.file for source in runs.SOURCES] + [source.file for source in runs.PANELS]
    files = {name: path for name in names if (path := find_file(data, name))}
    if not files:
        raise no_input_files(data, names)
    datasets = [
        runs.read_dataset(source, files[source.file], setting)
        for source in runs.SOURCES
        if source.file in files
        for setting in runs.SETTINGS
    ]
    panels = [(source, runs.read_panel(source, files[source.file])) for source in runs.PANELS if source.file in files]

    def compute(run: Run) -> Records:
        records: Records = {
            "experiments": [runs.describe(dataset) for dataset in datasets],
            "printed": [runs.printed_steps(dataset) for dataset in datasets if dataset.setting == runs.IMPLIED],
            "panels": [runs.describe_panel(*each, draws) for each in panels],
        }
        contests = [(runs.dataset_contest(dataset), repetitions) for dataset in datasets]
        contests += [(runs.panel_contest(*each, within), draws) for each in panels for within in runs.SETS]
        for part in run.cells("play", [cell for contest in contests for cell in runs.contest_cells(*contest)]):
            extend(records, part)
        timed = [dataset for dataset in datasets if dataset.setting == runs.PLAIN]
        for done, dataset in enumerate(timed, start=1):
            extend(records, {"timings": runs.time_methods(dataset, select(records["methods"], **dataset.key))})
            report_progress("time", done, len(timed))
        tested = {criterion.title: find_evidence(CLAIMS, Measures(records, criterion)) for criterion in CRITERIA}
        return records | judge_by_rules(tested, CRITERIA[0].title)

    missing = [name for name in names if name not in files]
    inputs = {"repetitions": repetitions, "draws": draws, "missing": missing}
    return ONSEG.run(Run(out), compute, inputs, files)
