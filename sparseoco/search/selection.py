"""The configuration that a search selects, and the stages of successive halving."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import scipy  # loads scipy.special when it is used

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.learners import find_algorithm
from sparseoco.learners.penalties import find_penalty
from sparseoco.storage.tables import Row
from sparseoco.store.shards import Store
from sparseoco.store.weighting import Weighting
from sparseoco.training.block import positive_class
from sparseoco.training.metrics import baseline
from sparseoco.training.models import Model
from sparseoco.training.options import METRICS, SIZED_GRID, AtMost, Halving, SearchOptions, Select
from sparseoco.training.stream import StreamPosition

# ----------------------------------------------------------------------------------------------------------------------
# Model selection: the best configuration of a search by its metric and a documented rule.


class Candidate(NamedTuple):
    """A configuration after an epoch, averaged over the folds; ordered by the metric, best first, then by nonzeros."""

    cost: float
    """The metric, negated if more of it is better."""
    nonzeros: float
    epoch: int
    configuration: int
    standard_error: float
    features: float
    """Features with a nonzero weight for any class: the most of any fold."""
    algorithm: str
    parameters: str
    error: float | None

    def value(self, metric: str) -> float:
        """The metric."""
        return -self.cost if METRICS[metric].greater_is_better else self.cost


def fold_values(rows: Sequence[Row], metric: str) -> list[float]:
    """The metric of the held-out rows or, without them, of the progressive predictions, in each of the folds where it
    is defined and finite."""
    held_out = any(row.get("held_out_rows") for row in rows)
    values = (row.get(f"held_out_{metric}" if held_out else f"progressive_{metric}") for row in rows)
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def mean_cost(rows: Sequence[Row], metric: str) -> float:
    """The mean of a metric over folds, negated if more is better; infinite if it is not defined in any."""
    values = fold_values(rows, metric)
    if not values:
        return math.inf
    mean = math.fsum(values) / len(values)
    return -mean if METRICS[metric].greater_is_better else mean


def candidates(metrics: Sequence[Row], metric: str = "error") -> list[Candidate]:
    """Every (configuration, epoch) that was completed in all its folds, best first.

    Metrics are those of the held-out rows; without any, of the progressive predictions, and those of an epoch method
    are then of its training rows, on which they are better than on other documents. A fold in which a metric is not
    defined, such as recall without positives, does not count. The standard error is the standard deviation over the k
    folds divided by √k; with one fold, √(e(1 − e)/n) of the error and 0 of other metrics.
    """
    groups: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in metrics:
        groups[row["configuration"], row["epoch"]].append(row)
    folds = {row["fold"] for row in metrics}
    found = []
    for (configuration, epoch), rows in groups.items():
        if len(rows) < len(folds) or any(row["status"] != "ok" for row in rows):
            continue
        cost = mean_cost(rows, metric)
        if not math.isfinite(cost):
            continue
        error = mean_cost(rows, "error")
        found.append(
            Candidate(
                cost=cost,
                nonzeros=math.fsum(row["nonzeros"] for row in rows) / len(rows),
                epoch=epoch,
                configuration=configuration,
                standard_error=standard_error(rows, metric, epoch),
                features=max(row.get("features") or 0 for row in rows),
                algorithm=rows[0]["algorithm"],
                parameters=rows[0]["parameters"],
                error=error if math.isfinite(error) else None,
            )
        )
    return sorted(found, key=lambda candidate: candidate[:4])


def standard_error(rows: Sequence[Row], metric: str, epoch: int) -> float:
    """The standard error of the mean of a metric over the folds, see `candidates`."""
    values = fold_values(rows, metric)
    if len(values) > 1:
        return mean_error(values)
    if metric != "error":
        return 0.0
    rows_tried = rows[0]["held_out_rows"] or rows[0]["rows"] / epoch
    return math.sqrt(values[0] * (1 - values[0]) / max(rows_tried, 1))


def mean_error(values: Sequence[float]) -> float:
    """The standard error of the mean of two values or more."""
    mean = math.fsum(values) / len(values)
    spread = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(spread / len(values))


def choose(metrics: Sequence[Row], select: Select = "best", metric: str = "error") -> Candidate:
    """The candidate that a rule selects by a metric.

    Parameters
    ----------
    metrics : rows of `sparseoco.training.search_tables.METRICS_SCHEMA`.
    select : "best"; "one-standard-error", the sparsest within one standard error of the best; or the best of those
        with at most so many features in every fold. If there are none, the one with the fewest: the model of all the
        data is then cut to its strongest features.

    Raises
    ------
    SparseocoError
        With the first reason, if no configuration was completed.
    """
    found = candidates(metrics, metric)
    if not found:
        reason = next((row["reason"] for row in metrics if row["reason"]), None)
        reason = reason or (f"{metric} is not defined in any fold" if metrics else "nothing was run")
        raise SparseocoError(f"The search completed no configuration: {reason}.", code="no-candidate")
    if isinstance(select, AtMost):
        small = [candidate for candidate in found if candidate.features <= select.at_most]
        return small[0] if small else min(found, key=lambda candidate: (candidate.features, candidate[:4]))
    if select == "best":
        return found[0]
    bound = found[0].cost + found[0].standard_error
    return min((c for c in found if c.cost <= bound), key=lambda c: (c.nonzeros, c[:4]))


class Edge(NamedTuple):
    """A parameter of a configuration whose value is the smallest or the largest of its grid."""

    name: str
    value: float
    way: Literal["smaller", "larger"]
    further: float | None
    """The next value on that side, None next to 0."""


def grid_edges(chosen: Mapping[str, Any], grid: Sequence[Mapping[str, Any]]) -> list[Edge]:
    """The parameters of a configuration whose values are the smallest or the largest of those in the grid."""
    found = []
    for name, value in chosen.items():
        values = sorted({other[name] for other in grid if isinstance(other.get(name), int | float)})
        if not isinstance(value, int | float) or len(values) < 2:
            continue
        if value == values[0]:
            found.append(Edge(name, value, "smaller", _further(values[::-1])))
        elif value == values[-1]:
            found.append(Edge(name, value, "larger", _further(values)))
    return found


def _further(values: Sequence[float]) -> float | None:
    """The value after the last, at the ratio of the two before it: 30 after 1, 3, 10; and 3.3 after 0.3, 1."""
    earlier, before, last = (0.0, *values)[-3:]
    if not before or not last:
        return None
    further = float(f"{last * (before / earlier if earlier else last / before):.2g}")
    return None if further == last else further


# ----------------------------------------------------------------------------------------------------------------------
# A default grid grows where the best value is its first or last: `search_store` runs the wider grid, which has all
# earlier configurations, until the best is inside, `FURTHER_VALUES` are added, or a wider grid is no better by more
# than noise: then it is left out again.
#
# The results of earlier configurations are their cells. What is added depends on metrics only.


FURTHER_VALUES = 3
"""Values added on each side of a grid at most."""
Grids = Mapping[str, Mapping[str, Sequence[Any]]]
"""Values by learner and parameter."""


def default_grids(options: SearchOptions) -> Grids:
    """The parameters of each learner that have the values of a default grid."""
    if options.samples is not None:
        return {}
    found: dict[str, dict[str, list[Any]]] = {}
    for name, grid in options.algorithms.items():
        known = find_algorithm(name).under(find_penalty(options.penalty)).grid, SIZED_GRID.get(name, {})
        found[name] = {
            key: values
            for key, values in grid.items()
            if isinstance(values, list) and values in [each.get(key) for each in known]
        }
    return found


def has_unfinished(metrics: Sequence[Row]) -> bool:
    """Whether a configuration is unfinished at the time limit."""
    return any(row["status"] == "unfinished" for row in metrics)


class Leading(NamedTuple):
    """The candidates that decide whether a grid grows: the one that the rule chooses and, if that is the sparsest
    within one standard error, the best; with the costs of each by fold."""

    candidates: list[Candidate]
    costs: list[dict[int, float]]

    @classmethod
    def of(cls, metrics: Sequence[Row], options: SearchOptions) -> "Leading":
        """Those of a search. Raises as `choose`."""
        metric = options.selection_metric
        found = [choose(metrics, options.select, metric)]
        if options.select == "one-standard-error":
            found.append(choose(metrics, "best", metric))
        sign, costs = -1 if METRICS[metric].greater_is_better else 1, []
        for each in found:
            rows = [row for row in metrics if (row["configuration"], row["epoch"]) == (each.configuration, each.epoch)]
            values = ((row["fold"], fold_values([row], metric)) for row in rows)
            costs.append({fold: sign * value for fold, found in values for value in found})
        return cls(found, costs)

    def improves_on(self, earlier: "Leading") -> bool:
        """Whether a cost is less by more than noise, at 95 % over the folds, or the sparsest is sparser."""
        if len(self.candidates) > 1 and self.candidates[0].nonzeros < earlier.candidates[0].nonzeros:
            return True
        for costs, before in zip(self.costs, earlier.costs, strict=True):
            gains = [before[fold] - cost for fold, cost in costs.items() if fold in before]
            k = len(gains)
            noise = mean_error(gains) * float(scipy.special.stdtrit(k - 1, 0.95)) if k > 1 else 0.0
            if gains and math.fsum(gains) / k > noise:
                return True
        return False


def wider_grids(options: SearchOptions, defaults: Grids, leading: Leading) -> SearchOptions:
    """The options with a further value where the value of a leading candidate is the first or last of a default grid.

    The same object if there is none to add.
    """
    algorithms = {name: dict(grid) for name, grid in options.algorithms.items()}
    for candidate in leading.candidates:
        name = candidate.algorithm
        for edge in grid_edges(json.loads(candidate.parameters), _alike(options, candidate)):
            values, own = algorithms[name].get(edge.name), defaults.get(name, {}).get(edge.name)
            if own is None or not isinstance(values, list) or edge.further in values:
                continue
            added = [value for value in values if (value > max(own) if edge.way == "larger" else value < min(own))]
            if edge.further is not None and len(added) < FURTHER_VALUES and _is_valid(edge, name, options):
                algorithms[name][edge.name] = sorted([*values, edge.further])
    return options if algorithms == options.algorithms else options.model_copy(update={"algorithms": algorithms})


def _is_valid(edge: Edge, algorithm: str, options: SearchOptions) -> bool:
    """Whether the learner takes the further value; None is no value."""
    with suppress(InputError):
        find_algorithm(algorithm).under(find_penalty(options.penalty)).configuration({edge.name: edge.further})
        return True
    return False


def _alike(options: SearchOptions, candidate: Candidate) -> list[dict[str, Any]]:
    """The parameters of the configurations of a candidate's learner and weighting."""
    every = options.configurations()
    own = every[candidate.configuration]
    return [c.parameters for c in every if (c.algorithm, c.weighting) == (own.algorithm, own.weighting)]


# ----------------------------------------------------------------------------------------------------------------------
# What search/best.json says of the choice.


def describe_choice(
    metrics: Sequence[dict[str, Any]],
    options: SearchOptions,
    store: Store,
    defaults: Grids | None = None,
    tried: SearchOptions | None = None,
) -> dict[str, Any]:
    """The contents of best.json: the chosen configuration, notes on the choice, and the number of unfinished ones.

    `defaults` are the grids before values were added, `tried` the widest options that were tried. Raises
    `SparseocoError` if no configuration was completed.
    """
    metric = options.selection_metric
    at_most = options.select.at_most if isinstance(options.select, AtMost) else None
    best = choose(metrics, options.select, metric)
    leader = candidates(metrics, metric)[0]
    row = next(row for row in metrics if row["configuration"] == best.configuration)
    unfinished = {row["configuration"] for row in metrics if row["status"] == "unfinished"}
    reference = baseline_value(metrics, leader, store, options)
    least = leader.cost + leader.standard_error
    sign = -1 if METRICS[metric].greater_is_better else 1
    beaten = reference is None or least < sign * reference
    notes = []
    if not beaten:
        other = {"numbers": "the mean", "multi": "no label", "classes": "the largest class"}
        notes.append(
            f"no configuration beats always predicting {other[store.manifest.labels.kind]} by more than a standard "
            f"error: {metric} {leader.value(metric):.4g} against {reference:.4g}"
        )
    # A model of the same documents may have chosen the features or the start.
    named = [name for name, path in options.models.items() if Model(path).has_learned(store)]
    if named:
        notes.append(
            f"the held-out figures are optimistic: the model of {' and '.join(named)} was trained on these documents, "
            "also on those that the folds hold out"
        )
    if at_most is not None and best.features > at_most:
        notes.append(
            f"no configuration has at most {at_most:,} features: the one with the fewest, {best.features:,.0f}, is cut "
            f"to its {at_most:,} strongest; a larger lam may be better"
        )
    if options.samples is None:
        notes += _grid_notes(best, options, defaults or {}, tried or options)
    return ({"unfinished": len(unfinished)} if unfinished else {}) | {
        "configuration": best.configuration,
        "algorithm": best.algorithm,
        "parameters": json.loads(best.parameters),
        "weighting": Weighting.of(row).model_dump(mode="json"),
        "epochs": best.epoch,
        "rule": options.select if at_most is None else "at-most",
        "at_most": at_most,
        "metric": metric,
        "value": best.value(metric),
        "standard_error": best.standard_error,
        "held_out_error" if options.folds > 1 else "progressive_error": best.error,
        "nonzeros": best.nonzeros,
        "features": best.features,
        "baseline": reference,
        "beats_baseline": beaten,
        "notes": notes,
    }


def _grid_notes(best: Candidate, options: SearchOptions, defaults: Grids, tried: SearchOptions) -> list[str]:
    """What was tried beyond default grids, and the values of the choice at the edges of other grids."""
    notes, extended = [], set()
    for name, grid in defaults.items():
        for key, values in grid.items():
            wider, widest = options.algorithms[name][key], tried.algorithms[name][key]
            for added, outcome in (
                ([value for value in wider if value not in values], "as the best value was at an edge of its grid"),
                ([value for value in widest if value not in wider], "which is no better by more than noise"),
            ):
                if added:
                    more = ", ".join(f"{value:g}" for value in added)
                    notes.append(f"{name}: {key} was also tried at {more}, {outcome}")
                    extended.add((name, key))
    for edge in grid_edges(json.loads(best.parameters), _alike(options, best)):
        if (best.algorithm, edge.name) not in extended:
            extreme = "smallest" if edge.way == "smaller" else "largest"
            such = f", such as {edge.further:g}," if _is_valid(edge, best.algorithm, options) else ""
            notes.append(
                f"{best.algorithm}: {edge.name} = {edge.value:g} is the {extreme} value of its grid: "
                f"a {edge.way} one{such} may be better"
            )
    return notes


def baseline_value(metrics: Sequence[Row], leader: Candidate, store: Store, options: SearchOptions) -> float | None:
    """The metric of always predicting the largest class, no label or the mean of numbers; None if it is not known."""
    rows = [row for row in metrics if (row["configuration"], row["epoch"]) == (leader.configuration, leader.epoch)]
    metric, labels = options.selection_metric, store.manifest.labels
    if labels.kind == "numbers":
        # R² = 1 − (rmse / rmse of the mean)².
        pairs = [(row["held_out_rmse"], row["held_out_r2"]) for row in rows if row.get("held_out_r2") is not None]
        if not pairs or metric not in ("r2", "rmse"):
            return None
        means = [rmse / math.sqrt(1 - r2) for rmse, r2 in pairs if r2 < 1]
        return 0.0 if metric == "r2" else math.fsum(means) / len(means) if means else None
    shares = fold_values(rows, "majority_error")
    if metric == "error" and shares:
        return math.fsum(shares) / len(shares)
    if labels.kind == "multi":
        return {"roc_auc": 0.5, "f1_macro": 0.0, "f1_micro": 0.0, "f1_weighted": 0.0}.get(metric)
    counts = [entry.rows for entry in labels.classes]
    return baseline(metric, counts, positive_class(labels.classes, options.positive_class))


# ----------------------------------------------------------------------------------------------------------------------
# The stages of a search: rungs of successive halving, and the end.
#
# Decisions are functions of the size of the data, the options and the metrics; nothing depends on workers, grouping or
# time.


Metrics = Mapping[str, Sequence[Row]]
"""By configuration, its metrics at one position, one row per fold."""


class Stage(NamedTuple):
    """Run to `goal`, committing a cell at each of `milestones`; unless it is the last, some configurations then end."""

    goal: StreamPosition
    milestones: tuple[StreamPosition, ...]
    is_last: bool


def plan_stages(options: SearchOptions, n_rows: int, configurations: int) -> list[Stage]:
    """The stages of a search, in order; without halving there is one."""
    last = full_run(options, n_rows)
    rungs = [] if options.halving is None else rung_positions(options.halving, n_rows, configurations)
    goals = [StreamPosition(1, position) for position in rungs]
    milestones = sorted({*last.milestones, *goals})
    stages = [Stage(goal, tuple(each for each in milestones if each <= goal), is_last=False) for goal in goals]
    return [*stages, last._replace(milestones=tuple(milestones))]


def full_run(options: SearchOptions, n_rows: int) -> Stage:
    """All epochs, with a milestone at the end of each and no decisions."""
    ends = tuple(StreamPosition(epoch, n_rows) for epoch in range(1, options.epochs + 1))
    return Stage(ends[-1], ends, is_last=True)


MIN_RUNG_ROWS = 1000  # of the stream, before the first rung


def rung_positions(halving: Halving, n_rows: int, configurations: int) -> list[int]:
    """Positions in the first pass at which configurations are dropped, rows of the held-out fold counted.

    By default there are as many as reduce the search to one configuration: the last at 1/`factor` of the pass, each
    earlier one at 1/`factor` of the next, none before `MIN_RUNG_ROWS`.
    """
    fractions = halving.rungs
    if fractions is None:
        depth = max(1, math.ceil(math.log(configurations) / math.log(halving.factor) - 1e-9))
        fractions = tuple(halving.factor**-k for k in range(1, depth + 1))
    return sorted({p for p in (round(f * n_rows) for f in fractions) if MIN_RUNG_ROWS <= p < n_rows})


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
