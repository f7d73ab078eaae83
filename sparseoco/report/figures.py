"""Figures and tables of a report: configurations, features, regret."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparseoco.core.formatting import amount, duration, integer, metric_name, percent, percent_with_error
from sparseoco.learners import find_algorithm
from sparseoco.offline.regret.bounds import Slope
from sparseoco.report import charts
from sparseoco.report.charts import NEUTRAL, Axis, Chart, Level, Points, Series, Style, line
from sparseoco.report.results import LeaderboardRow, Results, pareto_front
from sparseoco.store.manifest import ClassEntry

# ----------------------------------------------------------------------------------------------------------------------
# The figures of the report of a run, one function each.


MAX_LINES: Final = 8
MAX_POINTS: Final = 400


def curves_figure(results: Results, shown: Sequence[LeaderboardRow], style: Style) -> Chart:
    """Progressive error, of numbers loss, against documents seen: mean over folds, a line per configuration."""
    column, scale = ("progressive_loss", 1) if results.numbers else ("progressive_error", 100)
    checkpoints: dict[int, dict[int, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows_shown(results.curves.sort_by("rows"), shown):
        checkpoints[row["configuration"]][row["fold"]].append((row["rows"], row[column]))

    def points(configuration: int) -> Points:
        folds = list(checkpoints.get(configuration, {}).values())
        # Folds differ in size by a document or so, and so do their last checkpoints: the k-th ones belong together.
        means = ([sum(values) / len(folds) for values in zip(*mark, strict=True)] for mark in zip(*folds, strict=False))
        return [
            (rows, scale * value, f"{integer(rows)} documents: {amount(value) if results.numbers else percent(value)}")
            for rows, value in means
        ]

    series = _configuration_lines(shown, style, points)
    # At the end of each epoch the running number of documents, mean over folds.
    ends: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for row in results.metrics.select(["epoch", "fold", "rows", "status"]).to_pylist():
        if row["status"] == "ok":
            ends[row["epoch"]].add((row["fold"], row["rows"]))
    levels = [
        Level(round(sum(rows for _, rows in of) / len(of)), "end of epoch 1" if epoch == 1 else "", vertical=True)
        for epoch, (_, of) in enumerate(sorted(ends.items())[:-1], start=1)
    ]
    label = "progressive loss" if results.numbers else "progressive error, %"
    return charts.line_chart(series, "documents seen", label, log="x")._replace(levels=levels)


def sparsity_figure(results: Results, table: Sequence[LeaderboardRow], style: Style, baseline: float | None) -> Chart:
    """The metric that configurations are ranked by, against features used: a point each, the Pareto front, the chosen.

    Of more than `MAX_POINTS` configurations the best are drawn.
    """
    ranked = [s for s in table if s.rank is not None]
    front = pareto_front(ranked)
    ranked = [s for k, s in enumerate(ranked) if k < MAX_POINTS or s.chosen]
    metric = ranked[0].metric if ranked else "error"
    at, heights = [_at(s) for s in front], [_height(s) for s in front]
    series = [Series("Pareto front", at, heights, NEUTRAL, dash="dash", width=1.5, steps=True)]
    for algorithm in sorted({s.algorithm for s in ranked}):
        of = [s for s in ranked if s.algorithm == algorithm]
        colour, marker = style[algorithm]
        points = [(_at(s), _height(s), _hover(s)) for s in of]
        bars = {"low": [_height(s) - _spread(s) for s in of], "high": [_height(s) + _spread(s) for s in of]}
        series.append(line(algorithm, points, colour, dash="", marker=marker, heading="", **bars))
    series += [
        Series("chosen", [_at(s)], [_height(s)], NEUTRAL, dash="", marker="circle", size=10, hollow=True)
        for s in ranked
        if s.chosen
    ]
    levels = []
    if baseline is not None and metric == "error" and any(_height(s) > 70 * baseline for s in ranked):
        levels.append(Level(100 * baseline, f"{results.simplest}: {percent(baseline)}"))
    return Chart(
        charts.log_axis("features with a nonzero weight (log scale)", charts.values_x(series), counts=True),
        charts.linear_axis(
            ("held-out " if results.held_out else "online ")
            + ("error, %" if metric == "error" else metric_name(metric)),
            [*charts.values_y(series, bands=True), *(level.value for level in levels)],
        ),
        series,
        levels,
    )


def density_figure(results: Results, shown: Sequence[LeaderboardRow], style: Style) -> Chart:
    """Share of weights that are not zero, by how many documents contain the feature."""
    classes = len(results.run.corpus.classes)
    columns = 1 if classes == 2 else max(classes, 1)
    bins: dict[int, dict[int, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows_shown(results.feature_survival, shown):
        bins[row["configuration"]][row["documents_from"]].append((row["features"], row["nonzeros"]))
    order = sorted({key for of in bins.values() for key in of})

    def points(configuration: int) -> Points:
        found = []
        for k, key in enumerate(order):
            own = bins[configuration][key]
            features, nonzeros = sum(f for f, _ in own) * columns, sum(count for _, count in own)
            share = nonzeros / features if features else None
            counts = integer(key) if key == 1 else f"{integer(key)}–{integer(2 * key - 1)}"
            text = (
                f"in {counts} documents: {integer(features / columns / max(len(own), 1))} features,\n"
                f"{percent(share)} nonzero weights"
            )
            found.append((k, None if share is None else 100 * share, text))
        return found

    series = _configuration_lines(shown, style, points, marked=True)
    ticks = tuple((float(k), integer(start)) for k, start in enumerate(order))
    return Chart(
        Axis("document frequency (at least)", -0.5, max(len(order) - 0.5, 0.5), ticks),
        charts.linear_axis("nonzero weights, %", charts.values_y(series), zero=True),
        series,
    )


def _rows_shown(table: pa.Table, shown: Sequence[LeaderboardRow]) -> list[dict[str, Any]]:
    """The rows of the configurations shown; a search may have thousands."""
    drawn = pa.array([s.configuration for s in shown[:MAX_LINES]], pa.int32())
    return list(table.filter(pc.is_in(table["configuration"], drawn)).to_pylist())


def _at(row: LeaderboardRow) -> float:
    return max(row.size or 0.0, charts.ZERO)


def _height(row: LeaderboardRow) -> float:
    """The metric that configurations are ranked by; an error is in per cent."""
    return (100 if row.metric == "error" else 1) * (row.value or 0.0)


def _spread(row: LeaderboardRow) -> float:
    return (100 if row.metric == "error" else 1) * (row.value_error or 0.0)


def _configuration_lines(
    shown: Sequence[LeaderboardRow], style: Style, points: Callable[[int], Points], *, marked: bool = False
) -> list[Series]:
    """A line for each of the first `MAX_LINES` configurations, through the points of its number."""
    drawn = shown[:MAX_LINES]
    algorithms = [row.algorithm for row in drawn]
    series = []
    for row, look in zip(drawn, charts.looks(algorithms, style), strict=True):
        name = (row.label if charts.is_alone(algorithms) else row.algorithm) + (" (chosen)" if row.chosen else "")
        drawing = {"dash": look.dash, "marker": look.marker if marked else "", "width": 3 if row.chosen else 2}
        series.append(
            line(name, points(row.configuration), look.colour, heading=f"{row.algorithm} {row.label}", **drawing)
        )
    return series


def _hover(row: LeaderboardRow) -> str:
    return (
        f"{row.algorithm} {row.label}\n"
        + ("" if row.error is None else f"error {percent_with_error(row.error, row.standard_error)}\n")
        + ("" if row.metric == "error" else f"{metric_name(row.metric)} {row.measured}\n")
        + f"{integer(row.size)} features, {integer(row.nonzeros)} weights\nrank {row.rank}, {duration(row.seconds)}"
    )


# ----------------------------------------------------------------------------------------------------------------------
# The model's features: their number, and the strongest of each class.


MAX_CLASSES: Final = 30


class Panel(NamedTuple):
    """The strongest features of one class: rows of weights.parquet with their `strength`, which is positive."""

    name: str
    features: list[dict[str, Any]]


def strongest(weights: pa.Table | None, classes: Sequence[ClassEntry], limit: int) -> list[Panel]:
    """One panel per class, in class order, for the `MAX_CLASSES` largest classes; none without weights.

    Of two classes that share a column, negative weights indicate the first. Numbers have one column, whose features
    raise or lower the prediction.
    """
    if weights is None:
        return []
    if not classes:
        return [_panel("raise the prediction", weights, 1, limit), _panel("lower the prediction", weights, -1, limit)]
    if share_column(weights, classes):
        return [_panel(classes[0].name, weights, -1, limit), _panel(classes[1].name, weights, 1, limit)]
    largest = sorted(range(len(classes)), key=lambda k: (-classes[k].rows, k))[:MAX_CLASSES]
    columns, names = weights["class"], [classes[k].name for k in sorted(largest)]
    return [_panel(name, weights.filter(pc.equal(columns, name)), 1, limit) for name in names]


def share_column(weights: pa.Table, classes: Sequence[ClassEntry]) -> bool:
    """Whether two classes share one column of weights, which is listed under the second: not if they are labels."""
    return len(classes) == 2 and classes[0].name not in weights["class"].unique().to_pylist()


def _panel(name: str, weights: pa.Table, sign: int, limit: int) -> Panel:
    strength = pc.multiply(weights["weight"], float(sign))
    weights = weights.append_column("strength", strength).filter(pc.greater(strength, 0.0))
    ordered = weights.sort_by([("strength", "descending"), ("feature_id", "ascending")])
    return Panel(name, ordered.slice(0, limit).to_pylist())


# ----------------------------------------------------------------------------------------------------------------------
# What a run's regret tables say: a line a configuration, a figure of streams and one of epoch methods.


DISTANT: Final = 1e3  # bounds above this multiple of the largest regret are not drawn


class Line(NamedTuple):
    """A configuration: its marks in order, `end` a row of `slopes.parquet` or its last mark;
    `label` has its parameters."""

    label: str
    marks: list[dict[str, Any]]
    end: dict[str, Any]

    @property
    def algorithm(self) -> str:
        """Its algorithm."""
        return str(self.end["algorithm"])

    @property
    def heading(self) -> str:
        """Its algorithm and parameters."""
        return f"{self.algorithm} {self.label}"

    @property
    def epochs(self) -> bool:
        """Whether it is an epoch method, whose rounds have all examples and whose marks are its epochs."""
        return not find_algorithm(self.algorithm).online

    @property
    def fit(self) -> Slope | None:
        """The straight line of the logarithms, where one was found."""
        end = self.end
        if end["slope"] is None:
            return None
        return Slope(end["slope"], end["slope_error"], end["intercept"], end["fitted_from"], end["fitted_marks"])


def regret_lines(results: Results, table: Sequence[LeaderboardRow]) -> list[Line]:
    """Configurations whose regret was measured, the best of the leaderboard first; none where it was not."""
    marks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in results.regret.sort_by([("configuration", "ascending"), ("T", "ascending")]).to_pylist():
        marks[row["configuration"]].append(row)
    place = {row.configuration: (k, row.label) for k, row in enumerate(table)}
    ends = sorted(results.slopes.to_pylist(), key=lambda end: place.get(end["configuration"], (len(place), ""))[0])
    return [Line(place.get(end["configuration"], (0, ""))[1], marks[end["configuration"]], end) for end in ends]


def growth_figure(lines: Sequence[Line], style: Style) -> Chart:
    """Regret against rounds on logarithmic axes: marks, a straight line through the later ones, the theorem's bound."""
    top = max((mark["regret"] for run in lines for mark in run.marks), default=0.0)
    series: list[Series] = []
    for run, colour, _ in _styled(lines, style):
        group = str(run.end["configuration"])
        points = [mark for mark in run.marks if mark["regret"] > 0]
        label = "{0} documents: regret {1}"
        marked = [
            (mark["T"], mark["regret"], label.format(integer(mark["T"]), amount(mark["regret"]))) for mark in points
        ]
        marker, shared = style[run.algorithm][1], {"heading": run.heading, "group": group}
        # The true minimum may be lower by the gap; a sampled penalty may be off either way.
        low = [mark["regret"] - mark["penalty_error"] for mark in points]
        high = [mark["regret"] + mark["gap"] + mark["penalty_error"] for mark in points]
        series.append(line(run.algorithm, marked, colour, dash="", marker=marker, low=low, high=high, **shared))
        if run.fit is not None:
            ends = [run.fit.first, run.end["T"]]
            text = f"slope {run.fit.slope:.2f} ± {run.fit.error:.2f}"
            fitted = [run.fit.at(T) for T in ends]
            series.append(Series(text, ends, fitted, colour, labels=[text, text], group=group, legend=False))
        bounds = [(mark["T"], mark["bound"], f"bound {amount(mark['bound'])}") for mark in run.marks if mark["bound"]]
        if bounds and bounds[-1][1] < DISTANT * top:
            series.append(line("bound", bounds, colour, dash="dot", width=1.5, legend=False, **shared))
    series += [Series(name, [], [], NEUTRAL, dash=dash) for name, dash in (("fitted slope", "solid"), ("bound", "dot"))]
    return charts.line_chart(series, "documents seen", "regret, sum of losses", log="xy")


def suboptimality_figure(lines: Sequence[Line], style: Style) -> Chart:
    """The objective above its optimum after every epoch, of epoch methods, against passes over the data."""
    series = []
    for run, colour, dash in _styled(lines, style):
        # Points nearer to the optimum than its certified gap are left out.
        points = [mark for mark in run.marks if mark["suboptimality"] > mark["gap"] / mark["T"]]
        labelled = [
            (
                mark["passes"],
                mark["suboptimality"],
                f"epoch {mark['epoch']}, {mark['passes']:.3g} passes:\n"
                f"{amount(mark['suboptimality'])} above the optimum, "
                f"{percent(mark['suboptimality'] * mark['T'] / mark['optimum'] if mark['optimum'] else None)}",
            )
            for mark in points
        ]
        name, marker = run.algorithm, style[run.algorithm][1]
        series.append(line(name, labelled, colour, dash=dash, marker=marker, heading=run.heading))
    return charts.line_chart(series, "passes over the data", "objective above the optimum", log="y", zero="x")


def _styled(lines: Sequence[Line], style: Style) -> list[tuple[Line, str, str]]:
    """The lines with marks, with their colour and dash."""
    drawn = [run for run in lines if run.marks]
    colours = [style[run.algorithm][0] for run in drawn]
    return list(zip(drawn, colours, charts.dashes(len(drawn)), strict=True))
