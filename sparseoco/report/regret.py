"""What a run's regret tables say: a line a configuration, two figures of streams and one of epoch methods."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sparseoco.core.formatting import amount, integer, percent
from sparseoco.learners import find_algorithm
from sparseoco.offline.regret.tables import Slope
from sparseoco.report.charts import NEUTRAL, Chart, Series, Style, dashes, line_chart
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
    series = [
        Series(
            line.end["algorithm"],
            [0, *(mark["T"] for mark in line.marks)],
            [0, *(mark["regret"] for mark in line.marks)],
            colour,
            dash=dash,
            marker="circle",
            size=2.5,
            # The true minimum may be lower by the gap; a sampled penalty may be off either way.
            low=[0, *(mark["regret"] - mark["penalty_error"] for mark in line.marks)],
            high=[0, *(mark["regret"] + mark["gap"] + mark["penalty_error"] for mark in line.marks)],
            heading=line.heading,
            labels=["", *map(_label, line.marks)],
        )
        for line, colour, dash in _styled(lines, style)
    ]
    return line_chart(series, "documents seen", "regret, sum of losses", zero="xy")


def growth_figure(lines: Sequence[Line], style: Style) -> Chart:
    """The same on logarithmic axes: marks, the straight line through the later ones, the theorem's bound."""
    top = max((mark["regret"] for line in lines for mark in line.marks), default=0.0)
    series: list[Series] = []
    for line, colour, _ in _styled(lines, style):
        group = str(line.end["configuration"])
        points = [mark for mark in line.marks if mark["regret"] > 0]
        T, regret = [mark["T"] for mark in points], [mark["regret"] for mark in points]
        series.append(
            Series(
                line.end["algorithm"],
                T,
                regret,
                colour,
                dash="",
                marker=style[line.end["algorithm"]][1],
                heading=line.heading,
                labels=list(map(_label, points)),
                group=group,
            )
        )
        if line.fit is not None:
            ends = [line.fit.first, line.end["T"]]
            text = f"slope {line.fit.slope:.2f} ± {line.fit.error:.2f}"
            fitted = [line.fit.at(T) for T in ends]
            series.append(Series(text, ends, fitted, colour, labels=[text, text], group=group, legend=False))
        bounds = [(mark["T"], mark["bound"]) for mark in line.marks if mark["bound"]]
        if bounds and bounds[-1][1] < DISTANT * top:
            series.append(
                Series(
                    "bound",
                    [T for T, _ in bounds],
                    [bound for _, bound in bounds],
                    colour,
                    dash="dot",
                    width=1.5,
                    heading=line.heading,
                    labels=[f"bound {amount(bound)}" for _, bound in bounds],
                    group=group,
                    legend=False,
                )
            )
    series += [Series(name, [], [], NEUTRAL, dash=dash) for name, dash in (("fitted slope", "solid"), ("bound", "dot"))]
    return line_chart(series, "documents seen", "regret, sum of losses", log="xy")


def suboptimality_figure(lines: Sequence[Line], style: Style) -> Chart:
    """The objective above its optimum after every epoch, of epoch methods, against passes over the data."""
    series = []
    for line, colour, dash in _styled(lines, style):
        # Points nearer to the optimum than its certified gap are left out.
        points = [mark for mark in line.marks if mark["suboptimality"] > mark["gap"] / mark["T"]]
        series.append(
            Series(
                line.end["algorithm"],
                [mark["passes"] for mark in points],
                [mark["suboptimality"] for mark in points],
                colour,
                dash=dash,
                marker=style[line.end["algorithm"]][1],
                heading=line.heading,
                labels=[
                    f"epoch {mark['epoch']}, {mark['passes']:.3g} passes:\n"
                    f"{amount(mark['suboptimality'])} above the optimum, "
                    f"{percent(mark['suboptimality'] * mark['T'] / mark['optimum'] if mark['optimum'] else None)}"
                    for mark in points
                ],
            )
        )
    return line_chart(series, "passes over the data", "objective above the optimum", log="y", zero="x")


def distant(lines: Sequence[Line]) -> int:
    """The number of bounds too far above every regret to be in the figure."""
    top = max((mark["regret"] for line in lines for mark in line.marks), default=0.0)
    return sum(line.end["bound"] is not None and line.end["bound"] >= DISTANT * top for line in lines)


def _styled(lines: Sequence[Line], style: Style) -> list[tuple[Line, str, str]]:
    """The lines with marks, with their colour and dash."""
    drawn = [line for line in lines if line.marks]
    colours = [style[line.end["algorithm"]][0] for line in drawn]
    return list(zip(drawn, colours, dashes(len(drawn)), strict=True))


def _label(mark: dict[str, Any]) -> str:
    return f"{integer(mark['T'])} documents: regret {amount(mark['regret'])}"
