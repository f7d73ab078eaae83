"""A learner on a table: file → metrics along the rows and weights by the names of columns, both Parquet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.datasets.tables import Scaling, Table, standardise
from sparseoco.learners import find_algorithm
from sparseoco.learners.bandit import terms_of
from sparseoco.learners.domain_constants import ball_constants
from sparseoco.learners.losses import PORTFOLIO_LOSSES
from sparseoco.storage.commit import commit_json, digest_file, exclusive_lock
from sparseoco.storage.metrics import write_result_table
from sparseoco.training.learner import Learner

INTERCEPT: Final = "(intercept)"
METRICS: Final = pa.schema(
    [
        ("rows", pa.int64()),  # learned so far, all epochs; even in the logarithm
        # Both are null from the row on at which the learner diverged.
        ("progressive_loss", pa.float64()),  # mean so far, each row predicted (bandits: played) before it was learned
        ("progressive_error", pa.float64()),  # share of wrong answers so far; null where labels are numbers
    ]
)
WEIGHTS: Final = pa.schema(
    [
        ("feature", pa.string()),
        ("class", pa.string()),  # the second of two classes; null where labels are numbers
        ("weight", pa.float64()),  # of (x − mean)/deviation
        ("mean", pa.float64()),
        ("deviation", pa.float64()),
    ]
)


class Fitted(NamedTuple):
    """What was learned: parameters with all that was computed, and how it went."""

    algorithm: str
    parameters: dict[str, Any]
    loss: str
    rows: int
    progressive_loss: float | None
    progressive_error: float | None
    computed: dict[str, float]
    """Of a bandit, what came of the parameters that were auto."""
    diverged: int
    """The row at which the learner diverged, or 0."""
    constant: tuple[str, ...]
    """Columns that have one value and were standardised to 0."""


def fit_table(
    table: Table,
    out: Path,
    *,
    algorithm: str = "ons",
    parameters: Mapping[str, Any] | None = None,
    loss: str | None = None,
    standardised: bool = False,
    intercept: bool = False,
    epochs: int = 1,
    source: Path | None = None,
) -> Fitted:
    """Learn the rows in their order, `epochs` times; write OUT/metrics.parquet, weights.parquet and fit.json.

    table : as `sparseoco.read_table` gives it. loss : by default squared for numbers, else logistic. `intercept` adds
    a column of ones. What `parameters` leave open and the rows say is taken from them: T, and F and G for squared and
    logistic loss (`sparseoco.learners.domain_constants`) on the ball or, the simplex being inside it, on the ball of
    radius 1; not α,
    which for logistic loss is so small that ons would hardly move. `source` is the file, for its digest.

    Raises `InputError` for what learner, parameters and labels do not allow.
    """
    if epochs < 1:
        raise InputError(f"epochs={epochs} must be at least 1.")
    if not (out / "fit.json").exists() and any((out / name).exists() for name in ("model.json", "weights.parquet")):
        raise InputError(f"{out} holds something else, which would be written over: choose another folder.")
    loss = loss or ("logistic" if table.classes else "squared")
    if loss in PORTFOLIO_LOSSES:
        raise InputError(f"loss={loss!r} is of portfolios, whose rows are returns: a table has a column to predict.")
    rows, scaling = standardise(table) if standardised else (table, _as_it_is(table))
    if intercept:
        rows, scaling = _with_intercept(rows, scaling)
    n_classes = len(table.classes) or None
    given = {} if parameters is None else dict(parameters)
    chosen = _completed(algorithm, given, rows, loss, epochs)
    learner = Learner(algorithm, loss=loss, grid=[chosen], n_features=len(rows.names), n_classes=n_classes)
    metrics = _learn(learner, rows, epochs)
    weights = learner.weights()
    described = [
        {"feature": name, "class": label, "weight": float(weights[j, k]), "mean": mean, "deviation": deviation}
        for k, label in enumerate(_outputs(table))
        for j, (name, mean, deviation) in enumerate(
            zip(rows.names, scaling.mean.tolist(), scaling.deviation.tolist(), strict=True)
        )
    ]
    last = metrics[-1]
    fitted = Fitted(
        algorithm,
        learner.configurations[0],
        loss,
        learner.progress.rows,
        last["progressive_loss"],
        last["progressive_error"],
        _computed(learner),
        int(learner.diverged[0]),
        scaling.constant,
    )
    with exclusive_lock(out):
        write_result_table(out / "metrics.parquet", metrics, METRICS)
        write_result_table(out / "weights.parquet", described, WEIGHTS)
        record = fitted._asdict() | {
            "classes": table.classes,
            "epochs": epochs,
            "left_out": table.left_out,
            "standardised": standardised,
            "sparseoco": __version__,
            "source_sha256": None if source is None else digest_file(source),
        }
        commit_json(out / "fit.json", record)
    return fitted


def _as_it_is(table: Table) -> Scaling:
    d = len(table.names)
    return Scaling(np.zeros(d), np.ones(d), ())


def _with_intercept(table: Table, scaling: Scaling) -> tuple[Table, Scaling]:
    if INTERCEPT in table.names:
        raise InputError(f"The table has a column {INTERCEPT!r} of its own: leave it out.")
    features = np.column_stack([table.features, np.ones(len(table.features))])
    grown = Scaling(np.append(scaling.mean, 0.0), np.append(scaling.deviation, 1.0), scaling.constant)
    return table._replace(features=features, names=(*table.names, INTERCEPT)), grown


def _completed(algorithm: str, given: dict[str, Any], table: Table, loss: str, epochs: int) -> dict[str, Any]:
    """The parameters, with those that the rows say."""
    definition = find_algorithm(algorithm, online=True)
    names = {parameter.name for parameter in definition.parameters}
    found: dict[str, Any] = {"T": len(table.features) * epochs} if "T" in names else {}
    configuration = definition.configuration(given)
    wanted = {"F", "G"} & names - given.keys()
    if definition.driver == "dense" and "D" in configuration and loss in ("squared", "logistic") and wanted:
        D = 2.0 if configuration["domain"] == "simplex" else configuration["D"]
        constants = ball_constants(table.features, table.labels, loss, D)._asdict()
        found |= {name: constants[name] for name in wanted}
    return found | given


def _computed(learner: Learner) -> dict[str, float]:
    """δ, γ and β of a bandit."""
    configuration = learner.configurations[0]
    if "repetition" not in configuration:
        return {}
    terms = terms_of(configuration, learner.n_features)
    return {name: getattr(terms, name) for name in ("delta", "gamma", "beta") if name in configuration}


def _learn(learner: Learner, table: Table, epochs: int) -> list[dict[str, Any]]:
    """Metrics at marks; the last is the end."""
    matrix, n = table.rows, len(table.labels)
    marks = sorted({round((n * epochs) ** (k / 40)) for k in range(41)})
    metrics, played = [], 0
    for mark in marks:
        while played < mark:
            first = played % n
            part = slice(first, min(n, first + mark - played))
            learner.partial_fit(matrix[part], table.labels[part])
            played += part.stop - first
        progress, fine = learner.progress, learner.diverged[0] == 0  # the sums of one that diverged stand still
        error = float(progress.error_count[0]) / mark if fine and table.classes else None
        mean = float(progress.loss_sum[0]) / mark if fine else None
        metrics.append({"rows": mark, "progressive_loss": mean, "progressive_error": error})
    return metrics


def _outputs(table: Table) -> list[str | None]:
    """The class that each column of weights speaks for."""
    if not table.classes:
        return [None]
    return list(table.classes if len(table.classes) > 2 else table.classes[-1:])
