"""What a run's regret tables say: a line a configuration, two figures of streams and one of epoch methods."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go

from sparseoco.learners import find_algorithm
from sparseoco.offline.regret.tables import Slope
from sparseoco.report.figures import NEUTRAL, Style, axes, decades
from sparseoco.report.leaderboard import LeaderboardRow
from sparseoco.report.results import Results
from sparseoco.report.wording import amount, integer, percent

DASHES: Final = ("solid", "dash", "dot", "dashdot")
DISTANT: Final = 1e3  # bounds above this multiple of the largest regret are hidden at first


class Line(NamedTuple):
    """A configuration: its marks in order and its row of `slopes.parquet`, with `label` for its parameters."""

    label: str
    marks: list[dict[str, Any]]
    end: dict[str, Any]

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


def regret_figure(lines: Sequence[Line], style: Style) -> go.Figure:
    """Regret against rounds on plain axes, a line a configuration."""
    figure = go.Figure()
    for line, colour, dash in _styled(lines, style):
        figure.add_scatter(
            x=[0, *(mark["T"] for mark in line.marks)],
            y=[0, *(mark["regret"] for mark in line.marks)],
            name=escape(line.end["algorithm"]),
            mode="lines+markers",
            marker={"color": colour, "size": 5},
            line={"color": colour, "width": 2, "dash": dash},
            # The true minimum may be lower by the gap; a sampled penalty may be off either way.
            error_y={
                "array": [0, *(mark["gap"] + mark["penalty_error"] for mark in line.marks)],
                "arrayminus": [0, *(mark["penalty_error"] for mark in line.marks)],
                "thickness": 1,
                "width": 3,
                "color": colour,
            },
            hovertext=["", *_hovers(line)],
            hoverinfo="text",
        )
    axes(figure, "documents seen", "regret, sum of losses")
    figure.update_xaxes(rangemode="tozero")
    return figure


def growth_figure(lines: Sequence[Line], style: Style) -> go.Figure:
    """The same on logarithmic axes: marks, the straight line through the later ones, the theorem's bound."""
    figure = go.Figure()
    top = max((mark["regret"] for line in lines for mark in line.marks), default=0.0)
    seen: list[float] = []
    for line, colour, _ in _styled(lines, style):
        group = {"legendgroup": str(line.end["configuration"]), "hoverinfo": "text"}
        points = [mark for mark in line.marks if mark["regret"] > 0]
        figure.add_scatter(
            x=[mark["T"] for mark in points],
            y=[mark["regret"] for mark in points],
            name=escape(line.end["algorithm"]),
            mode="markers",
            marker={"color": colour, "symbol": style[line.end["algorithm"]][1], "size": 8},
            hovertext=_hovers(line, positive=True),
            **group,
        )
        seen += [mark["regret"] for mark in points]
        if line.fit is not None:
            ends = [line.fit.first, line.end["T"]]
            figure.add_scatter(
                x=ends,
                y=[line.fit.at(T) for T in ends],
                mode="lines",
                line={"color": colour, "width": 2},
                showlegend=False,
                hovertext=f"slope {line.fit.slope:.2f} ± {line.fit.error:.2f}",
                **group,
            )
        bounds = [(mark["T"], mark["bound"]) for mark in line.marks if mark["bound"]]
        if bounds and bounds[-1][1] < DISTANT * top:
            figure.add_scatter(
                x=[T for T, _ in bounds],
                y=[bound for _, bound in bounds],
                mode="lines",
                line={"color": colour, "width": 1.5, "dash": "dot"},
                showlegend=False,
                hovertext=[f"bound {amount(bound)}" for _, bound in bounds],
                **group,
            )
            seen += [bound for _, bound in bounds]
    for name, dash in (("fitted slope", "solid"), ("bound", "dot")):
        figure.add_scatter(
            x=[None], y=[None], name=name, mode="lines", line={"color": NEUTRAL, "width": 2, "dash": dash}
        )
    axes(figure, "documents seen (log scale)", "regret, sum of losses (log scale)")
    figure.update_xaxes(type="log", **decades([mark["T"] for line in lines for mark in line.marks]))
    ticks = decades(seen) if seen and min(seen) >= 1 and max(seen) < 1e12 else {"dtick": 1, "exponentformat": "power"}
    figure.update_yaxes(type="log", **ticks)
    return figure


def suboptimality_figure(lines: Sequence[Line], style: Style) -> go.Figure:
    """The objective above its optimum after every epoch, of epoch methods, against passes over the data."""
    figure = go.Figure()
    for line, colour, dash in _styled(lines, style):
        # Points nearer to the optimum than its certified gap are left out.
        points = [mark for mark in line.marks if mark["suboptimality"] > mark["gap"] / mark["T"]]
        figure.add_scatter(
            x=[mark["passes"] for mark in points],
            y=[mark["suboptimality"] for mark in points],
            name=escape(line.end["algorithm"]),
            mode="lines+markers",
            marker={"color": colour, "symbol": style[line.end["algorithm"]][1], "size": 8},
            line={"color": colour, "width": 2, "dash": dash},
            hovertext=[
                f"<b>{escape(line.end['algorithm'])}</b> {escape(line.label)}<br>epoch {mark['epoch']}, "
                f"{mark['passes']:.3g} passes:<br>{amount(mark['suboptimality'])} above the optimum, "
                f"{percent(mark['suboptimality'] * mark['T'] / mark['optimum'] if mark['optimum'] else None)}"
                for mark in points
            ],
            hoverinfo="text",
        )
    axes(figure, "passes over the data", "objective above the optimum (log scale)")
    figure.update_xaxes(rangemode="tozero")
    seen = [y for trace in figure.data for y in trace.y]
    ticks = decades(seen) if seen and min(seen) >= 1 and max(seen) < 1e12 else {"dtick": 1, "exponentformat": "power"}
    figure.update_yaxes(type="log", **ticks)
    return figure


def distant(lines: Sequence[Line]) -> int:
    """The number of bounds too far above every regret to be in the figure."""
    top = max((mark["regret"] for line in lines for mark in line.marks), default=0.0)
    return sum(line.end["bound"] is not None and line.end["bound"] >= DISTANT * top for line in lines)


def _styled(lines: Sequence[Line], style: Style) -> list[tuple[Line, str, str]]:
    """The lines with marks, with their colour and dash."""
    count: dict[str, int] = defaultdict(int)
    out = []
    for line in lines:
        algorithm = line.end["algorithm"]
        if line.marks:
            colour, _ = style[algorithm]
            out.append((line, colour, DASHES[count[colour] % len(DASHES)]))
            count[colour] += 1
    return out


def _hovers(line: Line, *, positive: bool = False) -> list[str]:
    return [
        f"<b>{escape(line.end['algorithm'])}</b> {escape(line.label)}<br>{integer(mark['T'])} documents: "
        f"regret {amount(mark['regret'])}"
        for mark in line.marks
        if mark["regret"] > 0 or not positive
    ]
