"""The page of the experiments."""

from collections.abc import Sequence
from typing import Any, Final

from sparseoco.papers.onseg.claims import TITLES, onseg_timing_claims
from sparseoco.papers.onseg.datasets import SOURCES
from sparseoco.papers.page import render
from sparseoco.papers.statistics import mean_and_error
from sparseoco.papers.tables import Records, Row, distinct, select
from sparseoco.report.charts import COLOURS, Chart, Level, Series, linear_axis, log_axis, values_x
from sparseoco.report.formatting import integer
from sparseoco.report.html import plot

STYLE: Final = {
    "OGD": (COLOURS[0], "solid"),
    "ONS": (COLOURS[1], "solid"),
    "ONS, β by its theorem": (COLOURS[1], "dash"),
    "OGDEG": (COLOURS[2], "solid"),
    "OGDEG, best step": (COLOURS[2], "dot"),
    "ONSEG": (COLOURS[3], "solid"),
    "ONSEG, β by its theorem": (COLOURS[3], "dash"),
    "ONSEG, best β": (COLOURS[3], "dot"),
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
    return render(
        "onseg",
        inputs,
        records,
        facts,
        timing_claims=onseg_timing_claims(records),
        sections=[_section(records, row) for row in select(records["experiments"], standardised=False)],
        panels=[_panel(records, row) for row in records["panels"]],
        titles=TITLES,
        style=STYLE,
    )


def _section(records: Records, experiment: Row) -> dict[str, Any]:
    name, best_error = experiment["experiment"], experiment["best_error"]
    title = TITLES[name]
    curves = select(records["curves"], experiment=name, standardised=False)
    figures = []
    if best_error is not None:
        columns = ("error_rate", "error_low", "error_high")
        figure = spread_figure(curves, columns, {"best fixed point": best_error}, "error rate so far, %", 100.0)
        figures.append(plot(f"{name}-error", f"Error rate so far, {title}", figure))
    levels = {"best fixed point of the ball": experiment["best_loss"], "x = 0": experiment["zero_loss"]}
    figure = spread_figure(curves, ("mean_loss", "loss_low", "loss_high"), levels, "mean loss so far", 1.0)
    figures.append(plot(f"{name}-loss", f"Mean loss so far, {title}", figure))
    tables = []
    for standardised in (False, True):
        key = {"experiment": name, "standardised": standardised}
        ns = {row["method"]: 1e9 * row["seconds"] / row["rounds"] for row in select(records["timings"], **key)}
        tables.append([row | {"ns": ns[row["method"]]} for row in select(records["methods"], **key)])
    return {
        "title": title,
        "experiment": experiment,
        "beta_ons": next(source.beta_ons for source in SOURCES if source.name == name),
        "plots": figures,
        "methods": tables[0],
        "standardised": tables[1],
    }


def _panel(records: Records, panel: Row) -> dict[str, Any]:
    name = panel["panel"]
    levels = {"equal weights": panel["equal_shares"], "best stock in hindsight": panel["best_stock"]}
    label = f"mean return per {panel['period']} so far, %"
    figure = spread_figure(select(records["returns"], panel=name), ("mean_return", "low", "high"), levels, label, 100.0)
    methods = []
    for method in distinct(records["draws"], "method"):
        draws = select(records["draws"], panel=name, method=method)
        returns = [row["mean_return"] for row in draws]
        mean, error = mean_and_error(sorted(returns))
        methods.append({**draws[0], "mean": mean, "error": error, "least": min(returns), "most": max(returns)})
    return {"panel": panel, "plot": plot(name, f"Mean return so far, {TITLES[name]}", figure), "methods": methods}


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
    late = [row for row in curves if row["t"] >= LATE * max(row["t"] for row in curves)]
    values = [scale * row[name] for row in late for name in columns] + [scale * level for level in levels.values()]
    return Chart(
        log_axis(ROUNDS, values_x(series)),
        linear_axis(label, values),
        series,
        [Level(scale * level, text) for text, level in levels.items()],
    )
