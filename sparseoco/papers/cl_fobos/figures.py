"""Figures 1, 2 and 3, and R̄(T) over the steps that were tried."""

from collections.abc import Sequence
from typing import Final

from sparseoco.papers.cl_fobos.published import CL_FOBOS, EXAMPLES, METHODS
from sparseoco.papers.statistics import mean
from sparseoco.papers.tables import Row, distinct, select
from sparseoco.report.charts import (
    COLOURS,
    DASHES,
    HALF,
    MARKERS,
    Chart,
    Series,
    category_axis,
    line_chart,
    linear_axis,
    log_axis,
    values_x,
    values_y,
)

_COLOURS: Final = dict(zip((method.name for method in METHODS), (COLOURS[0], COLOURS[2], COLOURS[3]), strict=False)) | {
    CL_FOBOS.name: COLOURS[1]
}


def method_colour(method: str) -> str:
    """The colour of a method in all figures and tables; L-FOBOS of any other K has that of the first."""
    return _COLOURS.get(method, COLOURS[0])


def _style(method: str) -> tuple[str, str]:
    """The colour of a method and its marker."""
    colour = method_colour(method)
    return colour, MARKERS[COLOURS.index(colour)]


def tradeoff_figure(results: Sequence[Row]) -> Chart:
    """R̄(T) against run time: ours filled, the paper's hollow."""
    series = []
    for row in results:
        name = row["method"]
        colour, marker = _style(name)
        for prefix, whose in (("", "here"), ("paper_", "paper")):
            seconds, objective = row[f"{prefix}seconds"], row[f"{prefix}objective"]
            series.append(
                Series(
                    name,
                    [seconds],
                    [objective],
                    colour,
                    dash="",
                    marker=marker,
                    size=5.0,
                    hollow=whose == "paper",
                    heading=f"{name}, {whose}",
                    labels=[f"{objective:.4f} in {seconds:.3f} s"],
                    group=name,
                    legend=whose == "here",
                )
            )
    x = log_axis("seconds (log scale); hollow: the paper's", values_x(series))
    return Chart(x, linear_axis("R̄(T)", values_y(series)), series, width=HALF, height=360)


def steps_figure(search: Sequence[Row]) -> Chart:
    """R̄(T) of every step that was tried, a line per method, with its smallest value marked."""
    series = []
    finite = [row for row in search if row["objective"] is not None]
    low = min(row["objective"] for row in finite)
    for name in distinct(search, "method"):
        rows = select(finite, method=name)
        (best,) = select(rows, chosen=True)
        steps, objectives = ([row[column] for row in rows] for column in ("eta0", "objective"))
        colour, marker = _style(name)
        dash = DASHES[COLOURS.index(colour)]
        labels = [f"α₀ = {row['eta0']:g}: {row['objective']:.4f}" for row in rows]
        series.append(Series(name, steps, objectives, colour, dash=dash, heading=name, labels=labels, group=name))
        at = ([best["eta0"]], [best["objective"]])
        series.append(Series(name, *at, colour, dash="", marker=marker, size=5.0, group=name, legend=False))
    y = linear_axis("R̄(T)", [], low=low - 0.03, high=low + 0.4)
    return Chart(log_axis("α₀ (log scale)", values_x(series)), y, series, width=HALF, height=360)


def nonzeros_figure(rows: Sequence[Row]) -> Chart:
    """Share of nonzero weights around every K-th round."""
    series = []
    for name in distinct(rows, "method"):
        own = select(rows, method=name)
        rounds, shares = [row["rounds"] for row in own], [100 * row["share"] for row in own]
        labels = [f"{t:,} rounds: {share:.2f} %" for t, share in zip(rounds, shares, strict=True)]
        series.append(Series(name, rounds, shares, method_colour(name), width=1.2, heading=name, labels=labels))
    return line_chart(series, "rounds", "nonzero weights, %", zero="xy")


def snapshots_figure(rows: Sequence[Row], examples: int) -> Chart:
    """Share of right predictions of each snapshot: ours, mean of the repetitions, and the paper's, dotted."""
    series = []
    rounds = sorted({row["rounds"] for row in rows})
    for name in distinct(rows, "method"):
        own = [select(rows, method=name, rounds=t) for t in rounds]
        ours = [100 * mean(row["right"] for row in repetitions) / examples for repetitions in own]
        paper = [100 * repetitions[0]["paper_right"] / EXAMPLES for repetitions in own]
        colour, marker = _style(name)
        for whose, values, dash in (("here", ours, "solid"), ("paper", paper, "dot")):
            label = f"{name}, {whose}"
            series.append(
                Series(
                    label,
                    range(len(rounds)),
                    values,
                    colour,
                    dash=dash,
                    marker=marker,
                    hollow=whose == "paper",
                    heading=label,
                    labels=[f"after {t:,} rounds: {value:.1f} %" for t, value in zip(rounds, values, strict=True)],
                )
            )
    x = category_axis("solution after so many rounds", [f"{t:,}" for t in rounds])
    return Chart(x, linear_axis("right predictions, %", values_y(series)), series)
