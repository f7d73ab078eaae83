"""The figures of the report of a run, one function each."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparseoco.core.formatting import (
    amount,
    duration,
    integer,
    metric_name,
    metric_with_error,
    percent,
    percent_with_error,
)
from sparseoco.report.charts import (
    COLOURS,
    MARKERS,
    NEUTRAL,
    ZERO,
    Chart,
    Level,
    Series,
    Style,
    category_axis,
    dashes,
    line_chart,
    linear_axis,
    log_axis,
    values_x,
    values_y,
)
from sparseoco.report.leaderboard import LeaderboardRow, pareto_front
from sparseoco.report.results import Results
from sparseoco.search.selection import COMPLETE

MAX_LINES: Final = 8
MAX_POINTS: Final = 400


def curves_figure(results: Results, shown: Sequence[LeaderboardRow], style: Style) -> Chart:
    """Progressive error, of numbers loss, against documents seen: mean over folds, a line per configuration."""
    series = []
    column, scale = ("progressive_loss", 1) if results.numbers else ("progressive_error", 100)
    checkpoints: dict[int, dict[int, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows_shown(results.curves.sort_by("rows"), shown):
        checkpoints[row["configuration"]][row["fold"]].append((row["rows"], row[column]))
    for entry, look in _looks(shown, style):
        folds = list(checkpoints.get(entry.configuration, {}).values())
        # Folds differ in size by a document or so, and so do their last checkpoints: the k-th ones belong together.
        points = [
            tuple(sum(values) / len(folds) for values in zip(*mark, strict=True)) for mark in zip(*folds, strict=False)
        ]
        series.append(
            Series(
                look.name,
                [rows for rows, _ in points],
                [scale * value for _, value in points],
                look.colour,
                dash=look.dash,
                width=3 if entry.chosen else 2,
                heading=_heading(entry),
                labels=[
                    f"{integer(rows)} documents: {amount(value) if results.numbers else percent(value)}"
                    for rows, value in points
                ],
            )
        )
    levels = [
        Level(rows, "end of epoch 1" if epoch == 1 else "", vertical=True)
        for epoch, rows in enumerate(_epoch_ends(results)[:-1], start=1)
    ]
    label = "progressive loss" if results.numbers else "progressive error, %"
    return line_chart(series, "documents seen", label, log="x", levels=levels)


def sparsity_figure(
    table: Sequence[LeaderboardRow],
    style: Style,
    baseline: float | None,
    held_out: bool,
    simplest: str = "the largest class",
) -> Chart:
    """The metric that configurations are ranked by, against features used: a point each, the Pareto front, the chosen.

    Of more than `MAX_POINTS` configurations the best are drawn.
    """
    ranked = [s for s in table if s.rank is not None]
    front = pareto_front(ranked)
    ranked = [s for k, s in enumerate(ranked) if k < MAX_POINTS or s.chosen]
    metric = ranked[0].metric if ranked else "error"
    series = [
        Series(
            "Pareto front",
            [_at(s) for s in front],
            [_height(s) for s in front],
            NEUTRAL,
            dash="dash",
            width=1.5,
            steps=True,
        )
    ]
    for algorithm in sorted({s.algorithm for s in ranked}):
        of = [s for s in ranked if s.algorithm == algorithm]
        colour, marker = style[algorithm]
        series.append(
            Series(
                algorithm,
                [_at(s) for s in of],
                [_height(s) for s in of],
                colour,
                dash="",
                marker=marker,
                low=[_height(s) - _spread(s) for s in of],
                high=[_height(s) + _spread(s) for s in of],
                labels=[_hover(s) for s in of],
            )
        )
    chosen = [s for s in ranked if s.chosen]
    if chosen:
        at, heights = [_at(s) for s in chosen], [_height(s) for s in chosen]
        series.append(Series("chosen", at, heights, NEUTRAL, dash="", marker="circle", size=10, hollow=True))
    levels = []
    if baseline is not None and metric == "error" and any(_height(s) > 70 * baseline for s in ranked):
        levels.append(Level(100 * baseline, f"{simplest}: {percent(baseline)}"))
    return Chart(
        log_axis("features with a nonzero weight (log scale)", values_x(series), counts=True),
        linear_axis(
            ("held-out " if held_out else "online ") + ("error, %" if metric == "error" else metric_name(metric)),
            [*values_y(series, bands=True), *(level.value for level in levels)],
        ),
        series,
        levels,
    )


def density_figure(results: Results, shown: Sequence[LeaderboardRow], style: Style) -> Chart:
    """Share of weights that are not zero, by how many documents contain the feature."""
    series = []
    classes = len(results.run.corpus.classes)
    columns = 1 if classes == 2 else max(classes, 1)
    bins: dict[int, dict[int, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows_shown(results.feature_survival, shown):
        bins[row["configuration"]][row["documents_from"]].append((row["features"], row["nonzeros"]))
    order = sorted({key for of in bins.values() for key in of})
    for entry, look in _looks(shown, style):
        of = bins.get(entry.configuration, {})
        shares: list[float | None] = []
        texts = []
        for key in order:
            features = sum(f for f, _ in of.get(key, [])) * columns
            nonzeros = sum(count for _, count in of.get(key, []))
            shares.append(100 * nonzeros / features if features else None)
            folds = max(len(of.get(key, [])), 1)
            texts.append(
                f"in {_bin(key)} documents: {integer(features / columns / folds)} features,\n"
                f"{percent(nonzeros / features if features else None)} nonzero weights"
            )
        series.append(
            Series(
                look.name,
                range(len(order)),
                shares,
                look.colour,
                dash=look.dash,
                marker=look.marker,
                width=3 if entry.chosen else 2,
                heading=_heading(entry),
                labels=texts,
            )
        )
    return Chart(
        category_axis("document frequency (at least)", [integer(start) for start in order]),
        linear_axis("nonzero weights, %", values_y(series), zero=True),
        series,
    )


def _rows_shown(table: pa.Table, shown: Sequence[LeaderboardRow]) -> list[dict[str, Any]]:
    """The rows of the configurations shown; a search may have thousands."""
    drawn = pa.array([s.configuration for s in shown[:MAX_LINES]], pa.int32())
    rows: list[dict[str, Any]] = table.filter(pc.is_in(table["configuration"], drawn)).to_pylist()
    return rows


def _at(row: LeaderboardRow) -> float:
    return max(row.size or 0.0, ZERO)


def _height(row: LeaderboardRow) -> float:
    """The metric that configurations are ranked by; an error is in per cent."""
    return (100 if row.metric == "error" else 1) * (row.value or 0.0)


def _spread(row: LeaderboardRow) -> float:
    return (100 if row.metric == "error" else 1) * (row.value_error or 0.0)


def _bin(start: int) -> str:
    """The whole numbers of a bin that starts at a power of two: '1', '2–3', '1,024–2,047'."""
    return integer(start) if start == 1 else f"{integer(start)}–{integer(2 * start - 1)}"


def _heading(row: LeaderboardRow) -> str:
    return f"{row.algorithm} {row.label}"


class _Look(NamedTuple):
    name: str
    colour: str
    marker: str
    dash: str


def _looks(shown: Sequence[LeaderboardRow], style: Style) -> list[tuple[LeaderboardRow, _Look]]:
    """How the first `MAX_LINES` configurations are drawn: each algorithm in its colour or, of one, each in its own."""
    drawn = shown[:MAX_LINES]
    alone = len(drawn) > 1 and len({row.algorithm for row in drawn}) == 1
    looks = []
    for k, (row, dash) in enumerate(zip(drawn, dashes(len(drawn)), strict=True)):
        colour, marker = (COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]) if alone else style[row.algorithm]
        name = row.label if alone else row.algorithm
        looks.append((row, _Look(name + (" (chosen)" if row.chosen else ""), colour, marker, dash)))
    return looks


def _hover(row: LeaderboardRow) -> str:
    return (
        f"{_heading(row)}\n"
        + ("" if row.error is None else f"error {percent_with_error(row.error, row.standard_error)}\n")
        + ("" if row.metric == "error" else f"{metric_name(row.metric)} {_value(row)}\n")
        + f"{integer(row.size)} features, {integer(row.nonzeros)} weights\nrank {row.rank}, {duration(row.seconds)}"
    )


def _value(row: LeaderboardRow) -> str:
    return metric_with_error(row.metric, row.value, row.value_error)


def _epoch_ends(results: Results) -> list[int]:
    """The running number of documents at the end of each epoch, mean over folds."""
    ends: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for row in results.metrics.select(["epoch", "fold", "rows", "status"]).to_pylist():
        if row["status"] in COMPLETE:
            ends[row["epoch"]].add((row["fold"], row["rows"]))
    return [round(sum(rows for _, rows in of) / len(of)) for _, of in sorted(ends.items())]
