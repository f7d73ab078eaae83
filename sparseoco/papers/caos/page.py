"""The tables of the experiments → one HTML file that needs nothing else."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go

from sparseoco.papers.caos.minimising import EPOCHS, ETA0, METHODS, RADII, VALUES, WHAT
from sparseoco.papers.caos.streams import ARRANGEMENTS, BEST, FACTORS, PLAYERS, RUN
from sparseoco.papers.claims import shown
from sparseoco.papers.page import context_of
from sparseoco.papers.records import Records, Row
from sparseoco.report.figures import COLOURS, axes, decades
from sparseoco.report.html import Plot, environment, plot, plotly_script
from sparseoco.report.wording import NONE, duration, integer, percent

DASHES: Final = ("solid", "dash", "dot")
FAMILIES: Final = {"examples": "CAOS-ERM and peers", "coordinates": "CAO-RCD"}
TUNED: Final = {"R": "R", "eta0": "η₀", "": ""}


class SetSection(NamedTuple):
    """A set on the page."""

    row: Row
    regret: list[tuple[str, Plot, list[Row]]]
    """By arrangement: the figure, of the middle R, and a row a method and R."""
    objectives: list[tuple[str, Plot, list[Row]]]
    """By lengths, α and family."""


def render(records: Records, inputs: dict[str, Any]) -> str:
    """The page as text."""
    sections = [_section(records, row) for row in records["sets"]]
    context = {
        "inputs": inputs,
        **context_of(records["claims"]),
        "facts": {
            "orders, and repetitions of what is drawn": integer(inputs["repetitions"]),
            "processor's time of the methods": duration(sum(row["spent"] for row in records["timings"])),
        },
        "sections": sections,
        "optima": records["optima"],
        "edges": edges(records),
        "what": WHAT,
        "tuned": TUNED,
        "timings": records["timings"],
        "shown": shown,
        "titles": {row["set"]: row["title"] for row in records["sets"]},
        "radii": _listed(RADII),
        "first_steps": _listed(ETA0),
        "run": RUN,
        "factors": FACTORS,
        "plots": [p for s in sections for _, p, _ in (*s.regret, *s.objectives)],
        "plotly": plotly_script(),
    }
    return environment("sparseoco.papers").get_template("caos.html.j2").render(context)


def _listed(values: Sequence[float]) -> str:
    *others, last = (f"{value:g}" for value in values)
    return f"{', '.join(others)} and {last}"


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
    chosen: dict[tuple[str, float, str], list[Row]] = {}
    for row in records["objectives"]:
        if row["chosen"] and row["set"] == name:
            chosen.setdefault((row["lengths"], row["alpha"], row["family"]), []).append(row)
    objectives = []
    for (lengths, alpha, family), rows in chosen.items():
        heading = f"{FAMILIES[family]}{WHAT[lengths]}, α = {alpha:g}"
        figure = objective_figure(rows, family)
        named = plot(f"{family}-{name}-{lengths}-{alpha:g}", f"{heading}, {title}", figure)
        objectives.append((heading, named, _ends(rows)))
    return SetSection(of, regret, objectives)


def _ends(rows: Sequence[Row]) -> list[Row]:
    """A row a method: the last mark's, and what its excess was at the second."""
    by_method: dict[str, list[Row]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row)
    return [own[-1] | {"early": percent(own[1]["excess"])} for own in by_method.values()]


def edges(records: Records) -> list[str]:
    """What was chosen at the end of its grid, where the best may lie beyond: a line a method and value."""
    titles = {row["set"]: row["title"] for row in records["sets"]}
    found: dict[str, list[str]] = {}
    for row in records["steps"]:
        if row["chosen"] and row["factor"] in (FACTORS[0], FACTORS[-1]):
            where = f"{titles[row['set']]} {row['arrangement']}, R = {row['R']:g}"
            found.setdefault(f"{row['algorithm']}, {row['factor']:g} times its step", []).append(where)
    for row in records["objectives"]:
        grid = VALUES[row["tuned"]]
        if row["chosen"] and row["tuned"] and row["value"] in (grid[0], grid[-1]):
            where = f"{titles[row['set']]}{WHAT[row['lengths']]}, α = {row['alpha']:g}"
            found.setdefault(f"{row['method']}, {TUNED[row['tuned']]} = {row['value']:g}", []).append(where)
    return [f"{method}: {'; '.join(dict.fromkeys(places))}" for method, places in found.items()]


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
