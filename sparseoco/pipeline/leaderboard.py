"""Runs ranked on the same test documents, with paired intervals of what each is worse than the first."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError, unsupported
from sparseoco.learners.losses import find_loss
from sparseoco.pipeline.evaluation import CONFIDENCE
from sparseoco.report.predictions import PredictionSet, prediction_sets
from sparseoco.report.results import Results, leaderboard_rows, read_results
from sparseoco.storage.locations import Location
from sparseoco.training.metrics import Difference, PairedRows, label_kind, paired_difference
from sparseoco.training.options import METRICS

_OF_LOSSES = ("loss", "log_loss")


class RankedRun(NamedTuple):
    """A run on the test documents.

    Parameters
    ----------
    run : the folder.
    name, algorithm, parameters : of the run, and of its model.
    value, interval : of the metric, as recorded in the evaluation.
    difference : its metric minus that of the first run, with its 95 % interval; None for the first.
    features : with a nonzero weight for any class.
    """

    run: str
    name: str
    algorithm: str
    parameters: dict[str, Any]
    value: float
    interval: tuple[float, float] | None
    difference: Difference | None
    features: int


class _Tested(NamedTuple):
    folder: Location
    results: Results
    found: PredictionSet


def rank_runs(runs: Sequence[Location], metric: str | None = None) -> tuple[str, list[RankedRun]]:
    """The metric, by default that of the first run's search, and the runs by it, the best first.

    Differences are of predictions at each model's threshold, paired by document.

    Raises
    ------
    InputError
        For runs without test documents or with other ones, other classes, and a metric that is not defined for them.
    """
    tested = [_read(run) for run in runs]
    first = tested[0]
    if metric is None:
        metric = first.results.metric
        if metric in _OF_LOSSES:
            metric = "rmse" if first.results.numbers else "error"
    if metric not in METRICS or metric in _OF_LOSSES:
        raise unsupported(
            f"Runs are ranked by a metric of predictions or rankings, such as error or rmse, and {metric} is none: "
            "choose one with --metric."
        )
    for other in tested[1:]:
        _check_same(first, other)
    values: list[float] = []
    for each in tested:
        value = getattr(each.results.evaluation, metric, None)
        if value is None:
            raise unsupported(f"metric {metric} is not defined for the documents of {each.folder}.")
        values.append(value)
    sign = -1 if METRICS[metric].greater_is_better else 1
    order = sorted(range(len(runs)), key=lambda k: (sign * values[k], k))
    best = tested[order[0]]
    return metric, [_row(tested[k], values[k], best, metric) for k in order]


def _read(run: Location) -> _Tested:
    results = read_results(run)
    found = {each.name: each for each in prediction_sets(run, results)}.get("test")
    if found is None or results.evaluation is None:
        raise InputError(f"{run} has no test documents that its model was evaluated on.", code="no-results")
    return _Tested(run, results, found)


def _check_same(first: _Tested, other: _Tested) -> None:
    if sorted(first.found.classes) != sorted(other.found.classes) or first.found.several != other.found.several:
        raise InputError(
            f"{first.folder} and {other.folder} predict different classes: runs of the same labels are compared.",
            code="different-classes",
        )
    positives = {each.found.classes[each.found.positive] for each in (first, other) if len(each.found.classes) == 2}
    if len(positives) > 1:
        raise InputError(
            f"{first.folder} and {other.folder} have other positive classes, to which F1 and rankings refer: set "
            "positive_class in [search] of both.",
            code="different-classes",
        )
    ids = first.found.found.ids
    common = int(pc.sum(pc.is_in(ids, value_set=other.found.found.ids)).as_py() or 0)
    if common < max(len(ids), other.found.rows) or len(ids.unique()) < len(ids):
        raise InputError(
            f"{first.folder} and {other.folder} were evaluated on different documents: {common:,} ids of "
            f"{len(ids):,} and {other.found.rows:,} are the same. Name one test set in [evaluate] of both.",
            code="different-documents",
        )


def _row(own: _Tested, value: float, best: _Tested, metric: str) -> RankedRun:
    evaluation, weights = own.results.evaluation, own.results.weights
    choice = next(row for row in leaderboard_rows(own.results) if row.chosen)
    assert evaluation is not None
    return RankedRun(
        str(own.folder),
        own.results.run.name,
        choice.algorithm,
        choice.parameters,
        value,
        evaluation.intervals.get(metric),
        None if own is best else _difference(own, best, metric),
        0 if weights is None else len(weights["feature_id"].unique()),
    )


def _difference(own: _Tested, best: _Tested, metric: str) -> Difference | None:
    found = own.found
    labels, margins = _aligned(own.found, best.found)
    own_labels, best_margins = best.found.found.labels, best.found.found.margins - best.found.cut
    if not np.array_equal(labels, own_labels):
        raise InputError(
            f"Documents of {own.folder} and {best.folder} have other labels: their texts were labelled again.",
            code="different-documents",
        )
    joint = tuple(bool(find_loss(each.results.run.search["loss"]).joint) for each in (own, best))
    kind = label_kind(len(found.classes), label_sets=found.several)
    pair = PairedRows(kind, own_labels, margins, best_margins, (joint[0], joint[1]), best.found.positive)
    return paired_difference(pair, metric, CONFIDENCE)


def _aligned(own: PredictionSet, best: PredictionSet) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels and margins, less the thresholds, in the order of the other's documents and classes."""
    rows = pc.index_in(best.found.ids, value_set=own.found.ids).to_numpy()
    labels, margins = own.found.labels[rows], own.found.margins[rows] - own.cut
    if own.classes == best.classes:
        return labels, margins
    order = [own.classes.index(name) for name in best.classes]
    if labels.ndim == 2:
        return labels[:, order], margins[:, order]
    renumbered = np.argsort(order)[labels]
    return renumbered, -margins if margins.shape[1] == 1 else margins[:, order]
