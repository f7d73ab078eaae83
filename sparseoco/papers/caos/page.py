"""The page of the experiments."""

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from sparseoco.papers.caos.objectives import EPOCHS, ETA0, LENGTHS, METHODS, RADII, VALUES
from sparseoco.papers.caos.regret import ARRANGEMENTS, BEST, FACTORS, LEARNERS, RUN
from sparseoco.papers.page import DASHES, Plots, add_line, render
from sparseoco.papers.statistics import mean
from sparseoco.papers.tables import Records, Row, distinct, select
from sparseoco.report.figures import COLOURS, axes, decades
from sparseoco.report.wording import NONE, duration, integer, percent

FAMILIES: Final = {"examples": "CAOS-ERM and peers", "coordinates": "CAO-RCD"}
TUNED: Final = {"R": "R", "eta0": "η₀", "": ""}


def caos_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    plots = Plots()
    facts = {
        "orders, and repetitions of what is sampled": integer(inputs["repetitions"]),
        "processor time of the methods": duration(sum(row["spent"] for row in records["timings"])),
    }
    return render(
        "caos",
        inputs,
        records["claims"],
        plots,
        facts,
        sections=[_section(records, row, plots) for row in records["sets"]],
        optima=records["optima"],
        edges=edges(records),
        lengths=LENGTHS,
        tuned=TUNED,
        timings=records["timings"],
        titles={row["set"]: row["title"] for row in records["sets"]},
        radii=_listed(RADII),
        first_steps=_listed(ETA0),
        run=RUN,
        factors=FACTORS,
    )


def _listed(values: Sequence[float]) -> str:
    *others, last = (f"{value:g}" for value in values)
    return f"{', '.join(others)} and {last}"


def _section(records: Records, data_set: Row, plots: Plots) -> dict[str, Any]:
    """A data set: `regret` is a figure of the middle R and rows of every R by arrangement, `objectives` a heading, a
    figure and rows by lengths, α and family."""
    name, title = data_set["set"], data_set["title"]
    regret = []
    for k, arrangement in enumerate(ARRANGEMENTS):
        rows = _mean_rows(select(records["regret"], set=name, arrangement=arrangement))
        middle = sorted({row["R"] for row in rows})[1]
        heading = f"Regret, {title}, documents {arrangement}, R = {middle:g}"
        plot = plots.add(f"regret-{name}-{k}", heading, mean_regret_figure(select(rows, R=middle)))
        regret.append((plot, select(rows, T=max(row["T"] for row in rows))))
    chosen: dict[tuple[str, float, str], list[Row]] = {}
    for row in select(records["objectives"], chosen=True, set=name):
        chosen.setdefault((row["lengths"], row["alpha"], row["family"]), []).append(row)
    objectives = []
    for (lengths, alpha, family), rows in chosen.items():
        heading = f"{FAMILIES[family]}{LENGTHS[lengths]}, α = {alpha:g}"
        figure = objective_figure(rows, family)
        plot = plots.add(f"{family}-{name}-{lengths}-{alpha:g}", f"{heading}, {title}", figure)
        objectives.append((heading, plot, _last_rows(rows)))
    return {"row": data_set, "regret": regret, "objectives": objectives}


def _last_rows(rows: Sequence[Row]) -> list[Row]:
    """The last mark of every method, with its excess at the second."""
    marks = [select(rows, method=method) for method in distinct(rows, "method")]
    return [own[-1] | {"early": percent(own[1]["excess"])} for own in marks]


def edges(records: Records) -> list[str]:
    """Values chosen at an end of their grid, beyond which the best may lie: a line per method and value."""
    titles = {row["set"]: row["title"] for row in records["sets"]}
    places: dict[str, list[str]] = {}
    for row in select(records["steps"], chosen=True):
        if row["factor"] in (FACTORS[0], FACTORS[-1]):
            where = f"{titles[row['set']]} {row['arrangement']}, R = {row['R']:g}"
            places.setdefault(f"{row['algorithm']}, {row['factor']:g} times its step", []).append(where)
    for row in select(records["objectives"], chosen=True):
        grid = VALUES[row["tuned"]]
        if row["tuned"] and row["value"] in (grid[0], grid[-1]):
            where = f"{titles[row['set']]}{LENGTHS[row['lengths']]}, α = {row['alpha']:g}"
            places.setdefault(f"{row['method']}, {TUNED[row['tuned']]} = {row['value']:g}", []).append(where)
    return [f"{method}: {'; '.join(dict.fromkeys(where))}" for method, where in places.items()]


def _mean_rows(rows: Sequence[Row]) -> list[Row]:
    """Means of the orders: a row per method, R and T."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["R"], row["method"], row["T"]), []).append(row)
    means = []
    for own in groups.values():
        first = own[0]
        columns = ("regret", "loss", "optimum", *(("bound",) if first["bound"] is not None else ()))
        step = NONE if first["step"] is None else f"{first['step']:.3g}"
        means.append(first | {name: mean(row[name] for row in own) for name in columns} | {"step": step})
    return means


def mean_regret_figure(rows: Sequence[Row]) -> go.Figure:
    """Regret per round over rounds, a line per method."""
    figure = go.Figure()
    names = [learner.name for learner in LEARNERS]
    for method in distinct(rows, "method"):
        own = select(rows, method=method)
        add_line(
            figure,
            method,
            [row["T"] for row in own],
            [row["regret"] / row["T"] for row in own],
            COLOURS[names.index(method.removesuffix(BEST))],
            "<br>%{x:,} rounds: %{y:.4g} per round",
            mode="lines+markers",
            dash=DASHES[int(method.endswith(BEST))],
        )
    axes(figure, "rounds (log scale)", "regret per round")
    figure.update_xaxes(type="log", **decades([row["T"] for row in rows]))
    values = sorted(row["regret"] / row["T"] for row in rows)
    most = max(abs(values[-1]), 1e-9)
    figure.update_yaxes(range=[1.1 * min(0.0, max(values[0], -most)), 1.1 * most])
    return figure


def objective_figure(rows: Sequence[Row], family: str) -> go.Figure:
    """H/H* − 1 against passes, a line per method with its chosen R or step."""
    figure = go.Figure()
    for k, method in enumerate(method.name for method in METHODS if method.family == family):
        own = select(rows, method=method)
        add_line(
            figure,
            method,
            [row["passes"] for row in own],
            [100 * row["excess"] for row in own],
            COLOURS[k % len(COLOURS)],
            "<br>%{x:.3g} passes: %{y:.3g} %",
            mode="lines+markers",
            dash=DASHES[k // len(COLOURS)],
        )
    axes(figure, "passes (log scale)", "above the optimum, % (log scale)")
    figure.update_xaxes(type="log", **decades([*(row["passes"] for row in rows), 2.0 * EPOCHS[0]]))
    ticks = [1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1000]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return figure
