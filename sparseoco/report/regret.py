"""What a run's regret tables say: a line a configuration, two figures of streams and one of epoch methods."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import amount, integer, percent
from sparseoco.learners import find_algorithm
from sparseoco.offline.regret.tables import Slope
from sparseoco.report.charts import NEUTRAL, Chart, Series, Style, dashes, line, line_chart
from sparseoco.report.results import LeaderboardRow, Results

DISTANT: Final = 1e3  # bounds above this multiple of the largest regret are hidden at first


class Line(NamedTuple):
    """A configuration: its marks in order and its row of `slopes.parquet`, with `label` for its parameters."""

    label: str
    marks: list[dict[str, Any]]
    end: dict[str, Any]

    @property
    def heading(self) -> str:
        """Its algorithm and parameters."""
        return f"{self.end['algorithm']} {self.label}"

    @property
    def epochs(self) -> bool:
        """Whether it is an epoch method, whose rounds have all examples and whose marks are its epochs."""
        return not find_algorithm(self.end["algorithm"]).online

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


def regret_figure(lines: Sequence[Line], style: Style) -> Chart:
    """Regret against rounds on plain axes, a line a configuration."""
    series = []
    for run, colour, dash in _styled(lines, style):
        points = [(0, 0, ""), *((mark["T"], mark["regret"], _label(mark)) for mark in run.marks)]
        # The true minimum may be lower by the gap; a sampled penalty may be off either way.
        low = [0, *(mark["regret"] - mark["penalty_error"] for mark in run.marks)]
        high = [0, *(mark["regret"] + mark["gap"] + mark["penalty_error"] for mark in run.marks)]
        look = {"dash": dash, "marker": "circle", "size": 2.5, "low": low, "high": high, "heading": run.heading}
        series.append(line(run.end["algorithm"], points, colour, **look))
    return line_chart(series, "documents seen", "regret, sum of losses", zero="xy")


def growth_figure(lines: Sequence[Line], style: Style) -> Chart:
    """The same on logarithmic axes: marks, the straight line through the later ones, the theorem's bound."""
    top = max((mark["regret"] for run in lines for mark in run.marks), default=0.0)
    series: list[Series] = []
    for run, colour, _ in _styled(lines, style):
        group = str(run.end["configuration"])
        points = [mark for mark in run.marks if mark["regret"] > 0]
        marked = [(mark["T"], mark["regret"], _label(mark)) for mark in points]
        marker, shared = style[run.end["algorithm"]][1], {"heading": run.heading, "group": group}
        series.append(line(run.end["algorithm"], marked, colour, dash="", marker=marker, **shared))
        if run.fit is not None:
            ends = [run.fit.first, run.end["T"]]
            text = f"slope {run.fit.slope:.2f} ± {run.fit.error:.2f}"
            fitted = [run.fit.at(T) for T in ends]
            series.append(Series(text, ends, fitted, colour, labels=[text, text], group=group, legend=False))
        bounds = [(mark["T"], mark["bound"], f"bound {amount(mark['bound'])}") for mark in run.marks if mark["bound"]]
        if bounds and bounds[-1][1] < DISTANT * top:
            series.append(line("bound", bounds, colour, dash="dot", width=1.5, legend=False, **shared))
    series += [Series(name, [], [], NEUTRAL, dash=dash) for name, dash in (("fitted slope", "solid"), ("bound", "dot"))]
    return line_chart(series, "documents seen", "regret, sum of losses", log="xy")


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
        name, marker = run.end["algorithm"], style[run.end["algorithm"]][1]
        series.append(line(name, labelled, colour, dash=dash, marker=marker, heading=run.heading))
    return line_chart(series, "passes over the data", "objective above the optimum", log="y", zero="x")


def distant(lines: Sequence[Line]) -> int:
    """The number of bounds too far above every regret to be in the figure."""
    top = max((mark["regret"] for run in lines for mark in run.marks), default=0.0)
    return sum(run.end["bound"] is not None and run.end["bound"] >= DISTANT * top for run in lines)


def _styled(lines: Sequence[Line], style: Style) -> list[tuple[Line, str, str]]:
    """The lines with marks, with their colour and dash."""
    drawn = [run for run in lines if run.marks]
    colours = [style[run.end["algorithm"]][0] for run in drawn]
    return list(zip(drawn, colours, dashes(len(drawn)), strict=True))


def _label(mark: dict[str, Any]) -> str:
    return f"{integer(mark['T'])} documents: regret {amount(mark['regret'])}"
