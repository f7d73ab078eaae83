"""The stages of a search: rungs of successive halving, and ends of epochs at which patience may stop configurations.

Decisions are functions of the size of the data, the options and the metrics; nothing depends on workers, grouping or
time.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from sparseoco.search.selection import mean_cost
from sparseoco.storage.metrics import Row
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.options.selection import Halving
from sparseoco.training.stream import StreamPosition

Metrics = Mapping[str, Sequence[Row]]
"""By configuration, its metrics at one position, one row per fold."""


class Stage(NamedTuple):
    """Run to `goal`, committing a cell at each of `milestones`, then decide by `rule` which configurations continue."""

    goal: StreamPosition
    milestones: tuple[StreamPosition, ...]
    rule: Literal["halving", "patience", "end"]


def plan_stages(options: SearchOptions, n_rows: int, configurations: int) -> list[Stage]:
    """The stages of a search, in order; without halving and patience there is one."""
    rungs = [] if options.halving is None else rung_positions(options.halving, n_rows, configurations)
    stops: dict[StreamPosition, Literal["halving", "patience", "end"]] = {
        StreamPosition(1, position): "halving" for position in rungs
    }
    if options.patience is not None:
        # The first epoch always improves, so the first without improvement is the second.
        stops |= {StreamPosition(epoch, n_rows): "patience" for epoch in range(1 + options.patience, options.epochs)}
    stops[StreamPosition(options.epochs, n_rows)] = "end"
    milestones = sorted({*full_run(options, n_rows).milestones, *stops})
    return [
        Stage(goal, tuple(milestone for milestone in milestones if milestone <= goal), stops[goal])
        for goal in sorted(stops)
    ]


def full_run(options: SearchOptions, n_rows: int) -> Stage:
    """All epochs, with a milestone at the end of each and no decisions."""
    ends = tuple(StreamPosition(epoch, n_rows) for epoch in range(1, options.epochs + 1))
    return Stage(ends[-1], ends, "end")


def rung_positions(halving: Halving, n_rows: int, configurations: int) -> list[int]:
    """Positions in the first pass at which configurations are dropped, rows of the held-out fold counted.

    By default there are as many as reduce the search to one configuration: the last at 1/`factor` of the pass, each
    earlier one at 1/`factor` of the next, none before `min_rows`.
    """
    fractions = halving.rungs
    if fractions is None:
        depth = max(1, math.ceil(math.log(configurations) / math.log(halving.factor) - 1e-9))
        fractions = tuple(halving.factor**-k for k in range(1, depth + 1))
    return sorted({p for p in (round(f * n_rows) for f in fractions) if halving.min_rows <= p < n_rows})


def survivors(metrics: Metrics, factor: float, metric: str = "error") -> set[str]:
    """The best configurations: one in `factor`, at least one.

    Configurations are compared by the mean of the metric over folds, then of the loss, then by their order.
    Error and loss are progressive, other metrics of the held-out rows under the weights of this rung. A configuration
    that diverged in any fold is last and does not survive.
    """

    def rank(entry: tuple[int, str]) -> tuple[bool, float, float, int]:
        number, name = entry
        rows = metrics[name]
        broken = any(row["status"] != "ok" for row in rows)
        return broken, mean_cost(rows, metric), mean_cost(rows, "loss"), number

    ranked = sorted(enumerate(metrics), key=rank)
    best = [name for _, name in ranked[: max(1, math.ceil(len(ranked) / factor - 1e-9))]]
    return {name for name in best if all(row["status"] == "ok" for row in metrics[name])}


def epochs_without_improvement(epochs: Sequence[Sequence[Row]], min_improvement: float, metric: str = "error") -> int:
    """The number of epochs since the last improvement; `epochs` has, for each epoch, one row per fold.

    An epoch improves a configuration if its metric, mean over folds, is by more than `min_improvement` better than that
    of the last improvement.
    """
    best, since = math.inf, 0
    for rows in epochs:
        cost = mean_cost(rows, metric)
        if cost < best - min_improvement:
            best, since = cost, 0
        else:
            since += 1
    return since
