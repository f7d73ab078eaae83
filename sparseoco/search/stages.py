"""Where a search stops to think: the rungs of successive halving, the ends of epochs where patience is asked after.

All of it is a function of the data's size, the options and the figures of the configurations: nothing depends on
workers, on grouping or on time.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sparseoco.training.block import StreamPosition
from sparseoco.training.options import Halving, SearchOptions

Figures = Mapping[str, Sequence[dict[str, Any]]]
"""By configuration, the rows of the metrics at one place, one a fold."""


class Stage(NamedTuple):
    """Run to `goal`, committing a cell at each of `milestones`, then see who goes on, by this rule."""

    goal: StreamPosition
    milestones: tuple[StreamPosition, ...]
    rule: Literal["halving", "patience", "end"]


def plan_stages(options: SearchOptions, n_rows: int, configurations: int) -> list[Stage]:
    """The stages of a search in order; without halving and patience there is one."""
    rungs = [] if options.halving is None else rung_positions(options.halving, n_rows, configurations)
    stops: dict[StreamPosition, Literal["halving", "patience", "end"]] = {
        StreamPosition(1, position): "halving" for position in rungs
    }
    if options.patience is not None:
        # An epoch without improvement is the second at the earliest.
        stops |= {StreamPosition(epoch, n_rows): "patience" for epoch in range(1 + options.patience, options.epochs)}
    stops[StreamPosition(options.epochs, n_rows)] = "end"
    milestones = sorted({*full_run(options, n_rows).milestones, *stops})
    return [
        Stage(goal, tuple(milestone for milestone in milestones if milestone <= goal), stops[goal])
        for goal in sorted(stops)
    ]


def full_run(options: SearchOptions, n_rows: int) -> Stage:
    """All epochs, a leg each, with nobody taken out."""
    ends = tuple(StreamPosition(epoch, n_rows) for epoch in range(1, options.epochs + 1))
    return Stage(ends[-1], ends, "end")


def rung_positions(halving: Halving, n_rows: int, configurations: int) -> list[int]:
    """Rows of the first pass at which configurations are dropped, rows of the held-out fold counted.

    By default as many as lead to one configuration, each `factor` times as far as the one before, the last a
    `factor`-th of the pass; none before `min_rows`.
    """
    shares = halving.rungs
    if shares is None:
        depth = max(1, math.ceil(math.log(configurations) / math.log(halving.factor) - 1e-9))
        shares = tuple(halving.factor**-k for k in range(1, depth + 1))
    return sorted({p for p in (round(share * n_rows) for share in shares) if halving.min_rows <= p < n_rows})


def survivors(figures: Figures, factor: float) -> set[str]:
    """The best of the configurations, in the order given where they are equal: one in `factor` of them, at least one.

    Best is the smallest mean over folds of the progressive error, then of the progressive loss. What has diverged in
    any fold is last and never survives.
    """

    def rank(entry: tuple[int, str]) -> tuple[bool, float, float, int]:
        number, name = entry
        rows = figures[name]
        broken = any(row["status"] != "ok" for row in rows)
        return broken, _mean(rows, "progressive_error"), _mean(rows, "progressive_loss"), number

    ranked = sorted(enumerate(figures), key=rank)
    best = [name for _, name in ranked[: max(1, math.ceil(len(ranked) / factor - 1e-9))]]
    return {name for name in best if all(row["status"] == "ok" for row in figures[name])}


def epochs_without_improvement(epochs: Sequence[Sequence[dict[str, Any]]], min_improvement: float) -> int:
    """How many of the last epochs did not improve a configuration; `epochs` has the rows of each, one a fold.

    An epoch improves it if its mean held-out error over folds (the progressive one where nothing is held out) is more
    than `min_improvement` below that of the last epoch that did.
    """
    best, since = math.inf, 0
    for rows in epochs:
        held_out = (rows[0]["held_out_rows"] or 0) > 0
        error = _mean(rows, "held_out_error" if held_out else "progressive_error")
        if error < best - min_improvement:
            best, since = error, 0
        else:
            since += 1
    return since


def _mean(rows: Sequence[dict[str, Any]], figure: str) -> float:
    return math.fsum(row[figure] for row in rows) / len(rows)
