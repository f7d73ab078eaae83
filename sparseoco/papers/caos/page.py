"""The page of the experiments."""

from collections.abc import Sequence
from typing import Any, Final

from sparseoco.core.formatting import NONE, duration, integer, percent
from sparseoco.papers.caos.claims import TESTED_R
from sparseoco.papers.caos.objectives import EPOCHS, ETA0, LENGTHS, METHODS, RADII, VALUES
from sparseoco.papers.caos.played import PLAYED_RADII, RUNS
from sparseoco.papers.caos.regret import ARRANGEMENTS, BEST, FACTORS, LEARNERS, RUN
from sparseoco.papers.page import render
from sparseoco.papers.statistics import mean, mean_and_error
from sparseoco.papers.tables import Records, Row, distinct, select
from sparseoco.report.charts import (
    COLOURS,
    DASHES,
    MARKERS,
    Chart,
    Series,
    linear_axis,
    log_axis,
    values_x,
    values_y,
)
from sparseoco.report.html import plot

FAMILIES: Final = {"examples": "CAOS-ERM and peers", "coordinates": "CAO-RCD"}
TUNED: Final = {"R": "R", "eta0": "η₀", "": ""}


def caos_page(records: Records, inputs: dict[str, Any]) -> str:
    """The HTML of the page."""
    facts = {
        "orders, and repetitions of what is sampled": integer(inputs["repetitions"]),
        "processor time of the methods": duration(sum(row["spent"] for row in records["timings"])),
    }
    return render(
        "caos",
        inputs,
        records,
        facts,
        sections=[_section(records, row) for row in records["sets"]],
        optima=records["optima"],
        edges=edges(records),
        lengths=LENGTHS,
        tuned=TUNED,
        timings=records["timings"],
        titles={row["set"]: row["title"] for row in records["sets"]},
        radii=_listed(RADII),
        first_steps=_listed(ETA0),
        run=RUN,
        tested_R=TESTED_R,
        factors=FACTORS,
        played_radii=_listed(PLAYED_RADII),
        evaluated=RUNS,
    )


def _listed(values: Sequence[float]) -> str:
    *others, last = (f"{value:g}" for value in values)
    return f"{', '.join(others)} and {last}"


def _section(records: Records, data_set: Row) -> dict[str, Any]:
    """A data set: `regret` is a figure of the middle R and rows of every R by arrangement, `objectives` a heading, a
    figure and rows by lengths, α and family."""
    name, title = data_set["set"], data_set["title"]
    regret = []
    for k, arrangement in enumerate(ARRANGEMENTS):
        rows = _mean_regret(select(records["regret"], set=name, arrangement=arrangement))
        middle = sorted({row["R"] for row in rows})[1]
        heading = f"Regret, {title}, documents {arrangement}, R = {middle:g}"
        figure = plot(f"regret-{name}-{k}", heading, mean_regret_figure(select(rows, R=middle)))
        regret.append((figure, select(rows, T=max(row["T"] for row in rows))))
    chosen: dict[tuple[str, float, str], list[Row]] = {}
    for row in select(records["objectives"], chosen=True, set=name):
        chosen.setdefault((row["lengths"], row["alpha"], row["family"]), []).append(row)
    objectives = []
    for (lengths, alpha, family), of_seeds in chosen.items():
        rows = mean_objectives(of_seeds)
        heading = f"{FAMILIES[family]}{LENGTHS[lengths]}, α = {alpha:g}"
        chart = objective_figure(rows, family)
        figure = plot(f"{family}-{name}-{lengths}-{alpha:g}", f"{heading}, {title}", chart)
        objectives.append((heading, figure, _last_rows(rows)))
    return {"row": data_set, "regret": regret, "objectives": objectives, "played": _played(records, name)}


def _played(records: Records, name: str) -> list[Row]:
    """The regret per round of the iterates of every α and method after the last round, with its standard error."""
    rows = select(records["played"], set=name, chosen=True)
    rows = select(rows, T=max(row["T"] for row in rows))
    means = []
    for own in _grouped(rows, "alpha", "method"):
        regret, error = mean_and_error([row["regret"] / row["T"] for row in own])
        bound = None if own[0]["bound"] is None else own[0]["bound"] / own[0]["T"]
        means.append(own[0] | {"regret": regret, "error": error, "bound": bound})
    return means


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
    for row in select(records["played"], chosen=True):
        if row["R"] in (PLAYED_RADII[0], PLAYED_RADII[-1]):
            where = f"{titles[row['set']]}, α = {row['alpha']:g}"
            places.setdefault(f"{row['method']}, regret of the iterates, R = {row['R']:g}", []).append(where)
    return [f"{method}: {'; '.join(dict.fromkeys(where))}" for method, where in places.items()]


def _grouped(rows: Sequence[Row], *columns: str) -> list[list[Row]]:
    """The rows of equal values in these columns, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return list(groups.values())


def mean_objectives(rows: Sequence[Row]) -> list[Row]:
    """Means of the seeds: a row per method and mark, with the standard error of the excess."""
    means = []
    for own in _grouped(rows, "method", "passes"):
        excess, error = mean_and_error([row["excess"] for row in own])
        objective = mean(row["objective"] for row in own)
        means.append(own[0] | {"objective": objective, "excess": excess, "excess_error": error})
    return means


def _mean_regret(rows: Sequence[Row]) -> list[Row]:
    """Means of the orders: a row per method, R and T."""
    means = []
    for own in _grouped(rows, "R", "method", "T"):
        first = own[0]
        columns = ("regret", "loss", "optimum", *(("bound",) if first["bound"] is not None else ()))
        step = NONE if first["step"] is None else f"{first['step']:.3g}"
        means.append(first | {name: mean(row[name] for row in own) for name in columns} | {"step": step})
    return means


def mean_regret_figure(rows: Sequence[Row]) -> Chart:
    """Regret per round over rounds, a line per method."""
    series = []
    names = [learner.name for learner in LEARNERS]
    for method in distinct(rows, "method"):
        own = select(rows, method=method)
        k = names.index(method.removesuffix(BEST))
        values = [row["regret"] / row["T"] for row in own]
        series.append(
            Series(
                method,
                [row["T"] for row in own],
                values,
                COLOURS[k],
                dash=DASHES[int(method.endswith(BEST))],
                marker=MARKERS[k % len(MARKERS)],
                size=3.0,
                heading=method,
                labels=[f"{row['T']:,} rounds: {value:.4g} per round" for row, value in zip(own, values, strict=True)],
            )
        )
    most = max(max(values_y(series)), 1e-9)
    low = 1.1 * min(0.0, max(min(values_y(series)), -most))
    x = log_axis("rounds (log scale)", values_x(series))
    return Chart(x, linear_axis("regret per round", [], low=low, high=1.1 * most), series)


def objective_figure(rows: Sequence[Row], family: str) -> Chart:
    """H/H* − 1 against passes, a line per method with its chosen R or step."""
    series = []
    for k, method in enumerate(method.name for method in METHODS if method.family == family):
        own = select(rows, method=method)
        series.append(
            Series(
                method,
                [row["passes"] for row in own],
                [100 * row["excess"] for row in own],
                COLOURS[k % len(COLOURS)],
                dash=DASHES[k // len(COLOURS)],
                marker=MARKERS[k % len(MARKERS)],
                size=3.0,
                heading=method,
                labels=[f"{row['passes']:.3g} passes: {100 * row['excess']:.3g} %" for row in own],
            )
        )
    x = log_axis("passes (log scale)", [*values_x(series), 2.0 * EPOCHS[0]])
    return Chart(x, log_axis("above the optimum, % (log scale)", values_y(series)), series)
