"""The page of the experiments."""

from collections.abc import Sequence
from typing import Any, Final

from sparseoco.core.formatting import integer
from sparseoco.papers.claims import verdicts_by_rule
from sparseoco.papers.onseg.claims import CRITERIA, LOSSES, TITLES, onseg_timing_claims
from sparseoco.papers.onseg.datasets import SOURCES, STANDARDISED
from sparseoco.papers.onseg.tuning import BETAS, ERROR, LOSS, PAIRS, STEP_FACTORS, tuned_names
from sparseoco.papers.page import render
from sparseoco.papers.statistics import mean_and_error
from sparseoco.papers.tables import Records, Row, distinct, select
from sparseoco.report.charts import COLOURS, Chart, Level, Series, linear_axis, log_axis, values_x
from sparseoco.report.html import plot

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
