"""The memory of columns of state, and the limit for dense learners."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.learners import find_algorithm
from sparseoco.learners.dense import DenseRule
from sparseoco.learners.penalties import find_penalty
from sparseoco.training.stream import CHUNK_ROWS

DTYPES = ("float32", "float64")
DENSE_BYTES = 1 << 30
"""The limit for a column of a learner that keeps d² numbers: 11,584 features."""

CHUNK_NUMBERS = 1 << 29
"""Numbers of the state of dense learners that are updated between two reports of progress: about a second."""


def column_dtype(dtype: Any) -> np.dtype[Any]:
    """The type of a column's weights. Raises `InputError` unless it is float32 or float64."""
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        result = np.dtype(object)
    if result.name not in DTYPES:
        raise InputError(f"dtype={dtype!r} must be float32 or float64.", code="invalid-option")
    return result


def bytes_per_column(
    algorithm: str,
    n_features: int,
    dtype: Any,
    *,
    loss: str | None = None,
    penalty: str = "l1",
    parameters: Mapping[str, Any] | None = None,
) -> int:
    """Bytes of state per column of a configuration, by default with the default parameters: the numbers of every
    coordinate, and the column's share of the time stamps, which 16 columns have in common."""
    penalty_ = find_penalty(penalty)
    definition = find_algorithm(algorithm).under(penalty_)
    rule = definition.rule(definition.loss(loss), penalty_, definition.configuration(parameters or {}))
    if isinstance(rule, DenseRule):
        return int(8 * n_features * (1 + rule.memory(n_features)))
    return int(n_features * (len(rule.slots) * column_dtype(dtype).itemsize + (rule.clock_time is not None)))


def chunk_rows(algorithm: str, n_features: int, columns: int) -> int | None:
    """Rows to learn between two reports of progress: fewer for dense learners, whose rows cost up to d² numbers each;
    None for as many as usual.

    Results do not depend on it.
    """
    if not find_algorithm(algorithm).touches_all_features:
        return None
    numbers = bytes_per_column(algorithm, n_features, "float64") // 8 * columns
    return min(CHUNK_ROWS, max(1, CHUNK_NUMBERS // max(numbers, 1)))


def check_size(algorithm: str, n_features: int) -> None:
    """Raises `InputError`, with the figure, where a column of a dense learner is larger than `DENSE_BYTES`."""
    if not find_algorithm(algorithm).touches_all_features:
        return
    needed = bytes_per_column(algorithm, n_features, "float64")
    if needed >= 8 * n_features**2 and needed > DENSE_BYTES:
        raise InputError(
            f"{algorithm} keeps d² numbers per column: {n_features:,} features need {needed / 1e9:,.1f} GB, and "
            f"{DENSE_BYTES / 1e9:,.1f} GB is the limit. Keep fewer features at ingest (--max-features, --min-df), or "
            "learn on those that a sparse model selected: --features-from MODEL.",
            code="too-many-features",
        )
