"""One online learner on a table of numbers: metrics along the rows and named weights, both in Parquet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.datasets.tables import Scaling, Table, standardise
from sparseoco.learners import find_algorithm
from sparseoco.learners.bandit import bandit_terms
from sparseoco.learners.domains import ball_constants
from sparseoco.learners.losses import PORTFOLIO_LOSSES
from sparseoco.storage.commit import commit_json, digest_file
from sparseoco.storage.locations import is_inside
from sparseoco.storage.locks import FolderKind, check_folder, exclusive_lock
from sparseoco.storage.tables import write_result_table
from sparseoco.training.learner import Learner
from sparseoco.training.stream import START, MatrixRows, Order, StreamPosition, train_stream
from sparseoco.training.validation import checked_labels, checked_rows

INTERCEPT: Final = "(intercept)"
FIT_METRICS: Final = pa.schema(
    [
        ("rows", pa.int64()),  # learned, in all epochs; spaced logarithmically
        # Both are null from the row at which the learner diverged.
        ("progressive_loss", pa.float64()),  # mean, each row predicted (bandits: played) before the update
        ("progressive_error", pa.float64()),  # error rate; null if labels are numbers
    ]
)
FIT_WEIGHTS: Final = pa.schema(
    [
        ("feature", pa.string()),
        ("class", pa.string()),  # the second of two classes; null if labels are numbers
        ("weight", pa.float64()),  # of (x − mean)/deviation
        ("mean", pa.float64()),
        ("deviation", pa.float64()),
    ]
)

FIT_FOLDER: Final = FolderKind("a fitted table", ("fit.json",), ("metrics.parquet", "weights.parquet"))


class Fitted(NamedTuple):
    """The result of `fit_table`: all parameters, and the metrics at the end."""

    algorithm: str
    parameters: dict[str, Any]
    loss: str
    rows: int
    progressive_loss: float | None
    progressive_error: float | None
    computed: dict[str, float]
    """The computed values of a bandit's parameters."""
    diverged: int
    """The row at which the learner diverged, or 0."""
    constant: tuple[str, ...]
    """Constant columns, which were standardised to 0."""


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
    """Train a learner on the rows in their order; write ``metrics.parquet``, ``weights.parquet`` and ``fit.json``.

    Missing parameters that follow from the rows are computed: T, and F and G of squared and logistic loss on the ball
    (`sparseoco.learners.domains`; for the simplex, on the ball of radius 1 around it). α is not computed: for
    logistic loss it is so small that ons would hardly learn.

    Parameters
    ----------
    table : Table
        As returned by `sparseoco.read_table`.
    out : Path
        Folder of the files.
    loss : str, optional
        By default squared for numbers and logistic for classes.
    standardised : bool
        Scale the columns to mean 0 and standard deviation 1.
    intercept : bool
        Add a column of ones.
    epochs : int
        Passes over the rows.
    source : Path, optional
        The table's file, whose SHA-256 is recorded.

    Raises
    ------
    InputError
        For an algorithm, parameters or a loss that do not fit the table, or a folder with other results.
    """
    if epochs < 1:
        raise InputError(f"epochs={epochs} must be at least 1.", code="invalid-option")
    check_folder(out, FIT_FOLDER)
    if source is not None and is_inside(source, out):
        raise InputError(f"{source} is in {out}, the folder of the results: choose another.", code="file-exists")
    loss = loss or ("logistic" if table.classes else "squared")
    if loss in PORTFOLIO_LOSSES:
        raise InputError(f"loss={loss!r} is for portfolios, not for tables.", code="unsupported-combination")
    rows, scaling = standardise(table) if standardised else (table, _no_scaling(table))
    if intercept:
        rows, scaling = _with_intercept(rows, scaling)
    n_classes = len(table.classes) or None
    given = {} if parameters is None else dict(parameters)
    chosen = _with_computed(algorithm, given, rows, loss, epochs)
    learner = Learner(algorithm, loss=loss, grid=[chosen], n_features=len(rows.names), n_classes=n_classes)
    metrics = _train(learner, rows, epochs)
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
    with exclusive_lock(out, FIT_FOLDER):
        write_result_table(out / "metrics.parquet", metrics, FIT_METRICS)
        write_result_table(out / "weights.parquet", described, FIT_WEIGHTS)
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


def _no_scaling(table: Table) -> Scaling:
    d = len(table.names)
    return Scaling(np.zeros(d), np.ones(d), ())


def _with_intercept(table: Table, scaling: Scaling) -> tuple[Table, Scaling]:
    if INTERCEPT in table.names:
        raise InputError(f"The table has a column named {INTERCEPT!r}: leave it out.", code="reserved-name")
    features = np.column_stack([table.features, np.ones(len(table.features))])
    extended = Scaling(np.append(scaling.mean, 0.0), np.append(scaling.deviation, 1.0), scaling.constant)
    return table._replace(features=features, names=(*table.names, INTERCEPT)), extended


def _with_computed(algorithm: str, given: dict[str, Any], table: Table, loss: str, epochs: int) -> dict[str, Any]:
    """The parameters, with those computed from the rows."""
    definition = find_algorithm(algorithm, online=True)
    names = {parameter.name for parameter in definition.parameters}
    found: dict[str, Any] = {"T": len(table.features) * epochs} if "T" in names else {}
    configuration = definition.configuration(given)
    wanted = {"F", "G"} & names - given.keys()
    if definition.touches_all_features and "D" in configuration and loss in ("squared", "logistic") and wanted:
        D = 2.0 if configuration["domain"] == "simplex" else configuration["D"]
        constants = ball_constants(table.features, table.labels, loss, D)._asdict()
        found |= {name: constants[name] for name in wanted}
    return found | given


def _computed(learner: Learner) -> dict[str, float]:
    """δ, γ and β of a bandit."""
    configuration = learner.configurations[0]
    if "repetition" not in configuration:
        return {}
    terms = bandit_terms(configuration, learner.n_features)
    return {name: getattr(terms, name) for name in ("delta", "gamma", "beta") if name in configuration}


def _train(learner: Learner, table: Table, epochs: int) -> list[dict[str, Any]]:
    """Train the learner; the metrics at logarithmically spaced numbers of rows, the last at the end."""
    matrix = checked_rows(table.rows, learner.n_features, learner.dtype)
    n = len(table.labels)
    source = MatrixRows(matrix, checked_labels(table.labels, n, learner.n_classes))
    metrics, reached = [], START
    for mark in sorted({round((n * epochs) ** (k / 40)) for k in range(41)}):
        epoch = -(-mark // n)
        goal = StreamPosition(epoch, mark - (epoch - 1) * n)
        for _ in train_stream(learner, source, Order(), reached, goal):
            pass
        reached = goal
        progress, finite = learner.progress, learner.diverged[0] == 0  # the sums of a diverged learner stop
        error = float(progress.error_count[0]) / mark if finite and table.classes else None
        mean = float(progress.loss_sum[0]) / mark if finite else None
        metrics.append({"rows": mark, "progressive_loss": mean, "progressive_error": error})
    return metrics


def _outputs(table: Table) -> list[str | None]:
    """The class of each column of weights."""
    if not table.classes:
        return [None]
    return list(table.classes if len(table.classes) > 2 else table.classes[-1:])
