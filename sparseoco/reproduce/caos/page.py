"""The tables of the experiments → one HTML file that needs nothing else."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go

from sparseoco.report.figures import COLOURS, axes, decades
from sparseoco.report.html import Plot, environment, plot, plotly_script
from sparseoco.report.wording import NONE, duration, integer, percent
from sparseoco.reproduce.caos.minimising import ALPHAS, EPOCHS, ETA0, METHODS, RADII
from sparseoco.reproduce.caos.streams import ARRANGEMENTS, BEST, FACTORS, PLAYERS, RUN
from sparseoco.reproduce.page import context_of
from sparseoco.reproduce.records import Records, Row

DASHES: Final = ("solid", "dash", "dot")


class SetSection(NamedTuple):
    """A set on the page."""

    row: Row
    regret: list[tuple[str, Plot, list[Row]]]
    """By arrangement: the figure, of the middle R, and a row a method and R."""
    objectives: list[tuple[str, Plot, list[Row]]]
    """By α and family."""


def render(records: Records, inputs: dict[str, Any]) -> str:
    """The page as text."""
    sections = [_section(records, row) for row in records["sets"]]
    context = {
        "inputs": inputs,
        **context_of(records["claims"]),
        "facts": {
            "orders, and repetitions of what is drawn": integer(inputs["repetitions"]),
            "processor's time, of orders and repetitions": duration(
                sum(row["seconds"] for row in records["timings"]) * inputs["repetitions"]
            ),
        },
        "sections": sections,
        "optima": records["optima"],
        "chances": records["chances"],
        "timings": records["timings"],
        "titles": {row["set"]: row["title"] for row in records["sets"]},
        "radii": RADII,
        "first_steps": ETA0,
        "run": RUN,
        "factors": FACTORS,
        "plots": [p for s in sections for _, p, _ in (*s.regret, *s.objectives)],
        "plotly": plotly_script(),
    }
    return environment("sparseoco.reproduce").get_template("caos.html.j2").render(context)


def _section(records: Records, of: Row) -> SetSection:
    name, title = of["set"], of["title"]
    regret = []
    for k, arrangement in enumerate(ARRANGEMENTS):
        rows = _means([r for r in records["regret"] if (r["set"], r["arrangement"]) == (name, arrangement)])
        middle = sorted({row["R"] for row in rows})[1]
        figure = regret_figure([row for row in rows if row["R"] == middle])
        heading = f"Regret, {title}, documents {arrangement}, R = {middle:g}"
        last = max(row["T"] for row in rows)
        ends = [row for row in rows if row["T"] == last]
        regret.append((arrangement, plot(f"regret-{name}-{k}", heading, figure), ends))
    objectives = []
    for alpha in ALPHAS:
        for family, words in (("examples", "CAOS-ERM and peers"), ("coordinates", "CAO-RCD")):
            rows = [
                row
                for row in records["objectives"]
                if row["chosen"] and (row["set"], row["alpha"], row["family"]) == (name, alpha, family)
            ]
            heading = f"{words}, α = {alpha:g}"
            figure = plot(f"{family}-{name}-{alpha:g}", f"{heading}, {title}", objective_figure(rows, family))
            ends = [row | {"early": percent(_early(rows, row))} for row in rows if _last(rows, row)]
            objectives.append((heading, figure, ends))
    return SetSection(of, regret, objectives)


def _early(rows: Sequence[Row], of: Row) -> float | None:
    """The excess at the second mark."""
    own = [row for row in rows if row["method"] == of["method"]]
    value: float = own[1]["excess"]
    return value


def _last(rows: Sequence[Row], of: Row) -> bool:
    return bool(of["passes"] == max(row["passes"] for row in rows if row["method"] == of["method"]))


def _means(rows: Sequence[Row]) -> list[Row]:
    """A row a method, R and T: means of the orders."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row["R"], row["method"], row["T"]), []).append(row)
    means = []
    for own in found.values():
        totals = {key: sum(row[key] for row in own) / len(own) for key in ("regret", "loss", "optimum")}
        bound = None if own[0]["bound"] is None else sum(row["bound"] for row in own) / len(own)
        step = NONE if own[0]["step"] is None else f"{own[0]['step']:.3g}"
        means.append(own[0] | totals | {"bound": bound, "step": step})
    return means


def regret_figure(rows: Sequence[Row]) -> go.Figure:
    """Regret a round over rounds, a line a method."""
    figure = go.Figure()
    names = [player.name for player in PLAYERS]
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        colour = COLOURS[names.index(method.removesuffix(BEST))]
        figure.add_scatter(
            x=[row["T"] for row in own],
            y=[row["regret"] / row["T"] for row in own],
            name=method,
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": DASHES[int(method.endswith(BEST))]},
            hovertemplate=f"<b>{method}</b><br>%{{x:,}} rounds: %{{y:.4g}} a round<extra></extra>",
        )
    axes(figure, "rounds (log scale)", "regret a round")
    figure.update_xaxes(type="log", **decades([row["T"] for row in rows]))
    seen = sorted(row["regret"] / row["T"] for row in rows)
    most = max(abs(seen[-1]), 1e-9)
    figure.update_yaxes(range=[1.1 * min(0.0, max(seen[0], -most)), 1.1 * most])
    return figure


def objective_figure(rows: Sequence[Row], family: str) -> go.Figure:
    """H/H* − 1 against passes, a line a method, of its chosen R or step."""
    figure = go.Figure()
    names = [method.name for method in METHODS if method.family == family]
    for k, method in enumerate(names):
        own = [row for row in rows if row["method"] == method]
        figure.add_scatter(
            x=[row["passes"] for row in own],
            y=[100 * row["excess"] for row in own],
            name=method,
            mode="lines+markers",
            line={"color": COLOURS[k % len(COLOURS)], "width": 2, "dash": DASHES[k // len(COLOURS)]},
            hovertemplate=f"<b>{method}</b><br>%{{x:.3g}} passes: %{{y:.3g}} %<extra></extra>",
        )
    axes(figure, "passes (log scale)", "above the optimum, % (log scale)")
    figure.update_xaxes(type="log", **decades([*(row["passes"] for row in rows), 2.0 * EPOCHS[0]]))
    ticks = [1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1000]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return figure
