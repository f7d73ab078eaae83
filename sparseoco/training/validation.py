"""Checks of what learners are given: rows, labels, weights, sizes."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import scipy  # loads scipy.sparse when it is used

from sparseoco.core.errors import InputError, unsupported
from sparseoco.learners import find_algorithm
from sparseoco.learners.contract import Algorithm, DenseRule
from sparseoco.learners.losses import Loss, find_loss
from sparseoco.learners.penalties import Penalty, find_penalty
from sparseoco.store.shards import Store, csr_fault, index_fault
from sparseoco.training.options import SearchOptions
from sparseoco.training.stream import CHUNK_ROWS

# ----------------------------------------------------------------------------------------------------------------------
# The memory of columns of state, and the limit for dense learners.


DTYPES = ("float32", "float64")
DENSE_BYTES = 1 << 30
"""The limit for a column of a learner that keeps d² numbers: 11,584 features."""

GROUP_NUMBERS = 11
"""Numbers of a column with groups of features, for each feature: 4 of its own, 6 of its group, and its weight."""
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
    feature_groups: bool = False,
) -> int:
    """Bytes of state per column of a configuration, by default with the default parameters: the numbers of every
    coordinate, and the column's share of the time stamps, which 16 columns have in common."""
    penalty_ = find_penalty(penalty)
    definition = find_algorithm(algorithm).under(penalty_)
    if feature_groups:  # at most a group for each feature
        return 8 * n_features * GROUP_NUMBERS
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


# ----------------------------------------------------------------------------------------------------------------------
# Checks of the rows, labels, weights and classes a user passes, before any of them is learned.


def check_integer(name: str, value: Any) -> int:
    """An integer from 1 to 2⁵³ − 1. Raises `InputError` naming the option."""
    try:
        if not isinstance(value, bool) and int(value) == value and 1 <= value < 2**53:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{name}={value!r} must be a whole number of at least 1.", code="invalid-option")


def checked_rows(X: Any, n_features: int, dtype: np.dtype[Any]) -> "scipy.sparse.csr_matrix":
    """X as CSR with sorted unique indices, no explicit zeros, and values finite in `dtype`.

    The caller's matrix is not changed. Raises `InputError` naming the first bad row (from 0).
    """
    if not scipy.sparse.issparse(X):
        raise InputError(f"X must be a SciPy sparse matrix, not {type(X).__name__}.", code="invalid-rows")
    if X.ndim != 2 or X.shape[1] != n_features:
        raise InputError(f"X has shape {X.shape}; this learner takes (rows, {n_features}).", code="invalid-rows")
    if X.dtype.kind not in "biuf":
        raise InputError(f"X holds {X.dtype}; counts must be integers or real numbers.", code="invalid-rows")
    matrix = checked_sparse("X", X, "invalid-rows").tocsr()
    copied = False
    if not matrix.has_canonical_format:
        matrix = matrix.astype(np.float64)  # a copy in which sums of small integers do not wrap around
        matrix.sum_duplicates()
        copied = True
    largest = np.finfo(dtype).max
    if matrix.dtype.kind == "f" and not (np.abs(matrix.data) <= largest).all():
        entry = int(np.flatnonzero(~(np.abs(matrix.data) <= largest))[0])
        row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        raise InputError(f"X has NaN, an infinity or a value too large for {dtype} in row {row}.", code="invalid-rows")
    if not matrix.data.all():
        matrix = matrix if copied else matrix.copy()
        matrix.eliminate_zeros()
    return matrix


def checked_sparse(name: str, matrix: Any, code: str) -> Any:
    """The matrix itself. Raises `InputError` for a SciPy sparse matrix whose indices are outside its shape.

    SciPy checks neither them nor row offsets that were changed, and its own compiled code would use them.
    """
    fault, shape = None, matrix.shape
    if matrix.format in ("csr", "csc"):
        size = int(matrix.indptr[-1]) if matrix.indptr.size else 0  # further entries are free space
        if not 0 <= size <= min(matrix.indices.size, matrix.data.size):
            fault = "its offsets are not those of its entries"
        else:
            lines, across = shape if matrix.format == "csr" else shape[::-1]
            fault = csr_fault(matrix.indptr, matrix.indices[:size], lines, across)
    elif matrix.format == "coo":
        fault = index_fault(matrix.row, shape[0]) or index_fault(matrix.col, shape[1])
    if fault is not None:
        raise InputError(f"{name} is not a valid sparse matrix: {fault}.", code=code)
    return matrix


def checked_labels(y: Any, rows: int, n_classes: int | None, *, multilabel: bool = False) -> np.ndarray:
    """Labels as float64: class indices (−1 read as 0 where there are two classes), or numbers for regression.

    With `multilabel`, an indicator matrix (rows, classes) of bool. Raises `InputError` naming the first bad row (from
    0).
    """
    if multilabel:
        return checked_indicator(y, rows, n_classes or 0)
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise InputError(f"y has shape {labels.shape}; X has {rows} rows.", code="invalid-labels")
    if labels.dtype.kind not in "biuf":
        raise InputError(
            f"y holds {labels.dtype}; labels must be {'numbers' if n_classes is None else 'class indices'}.",
            code="invalid-labels",
        )
    labels = labels.astype(np.float64)
    if n_classes is None:
        good = np.isfinite(labels)
        wanted = "a finite number"
    elif n_classes <= 2:
        labels = np.where(labels == -1, 0.0, labels) if not (labels == 0).any() else labels
        good = (labels == 0) | (labels == 1)
        wanted = "0 or 1 (or −1 or +1)"
    else:
        good = (labels >= 0) & (labels < n_classes) & (labels == np.floor(labels))
        wanted = f"a class index 0 … {n_classes - 1}"
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise InputError(f"y of row {row} is {np.asarray(y)[row]!r}; it must be {wanted}.", code="invalid-labels")
    return labels


def checked_sample_weights(weights: Any, rows: int) -> np.ndarray | None:
    """Sample weights as float64, or None for None. Raises `InputError` naming the first bad row (from 0)."""
    if weights is None:
        return None
    values = np.asarray(weights)
    if values.shape != (rows,) or values.dtype.kind not in "biuf":
        message = f"sample_weight is {values.dtype} of shape {values.shape}; it must be numbers of shape ({rows},)."
        raise InputError(message, code="invalid-sample-weights")
    values = values.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size:
        message = f"sample_weight of row {bad[0]} is {values[bad[0]]}; it must be a finite number of at least 0."
        raise InputError(message, code="invalid-sample-weights")
    return values


def checked_slopes(slopes: Any, rows: int, outputs: int, *, needed: bool) -> np.ndarray | None:
    """Predicted slopes as float64 (rows, outputs). Raises `InputError` unless they are given exactly if needed."""
    if (slopes is not None) != needed:
        message = "needs predicted_slopes, one for each row and output" if needed else "alone uses predicted_slopes"
        raise unsupported(f"predict_gradient='given' {message}: see Learner.partial_fit.")
    if slopes is None:
        return None
    values = np.asarray(slopes)
    if outputs == 1 and values.ndim == 1:
        values = values[:, None]
    if values.shape != (rows, outputs) or values.dtype.kind not in "biuf":
        message = f"predicted_slopes is {values.dtype} of shape {values.shape}; it must be numbers of shape"
        raise InputError(f"{message} ({rows}, {outputs}).", code="invalid-option")
    values = values.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        raise InputError(f"predicted_slopes of row {bad[0]} is not finite.", code="invalid-option")
    return values


def checked_indicator(y: Any, rows: int, n_classes: int) -> np.ndarray:
    """(rows, n_classes) bool from an indicator matrix, sparse or dense.

    Raises `InputError` naming the first bad row (from 0).
    """
    is_matrix = scipy.sparse.issparse(y) or isinstance(y, np.ndarray)
    if not is_matrix or y.shape != (rows, n_classes) or y.dtype.kind not in "biuf":
        raise InputError(
            f"y must be an indicator matrix ({rows}, {n_classes}) of numbers, a NumPy array or sparse.",
            code="invalid-labels",
        )
    indicator = np.asarray(checked_sparse("y", y, "invalid-labels").toarray() if scipy.sparse.issparse(y) else y)
    good = ((indicator == 0) | (indicator == 1)).all(axis=1)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise InputError(f"y of row {row} has an entry other than 0 and 1.", code="invalid-labels")
    return indicator.astype(np.bool_)


def checked_weights(weights: Any, n_features: int, widths: Collection[int], dtype: np.dtype[Any]) -> np.ndarray:
    """Weights (n_features, one of `widths`) as an array of real numbers that are finite in `dtype`.

    Raises `InputError`.
    """
    values = np.asarray(weights)
    if values.ndim != 2 or len(values) != n_features or values.shape[1] not in widths or values.dtype.kind not in "iuf":
        wanted = " or ".join(f"({n_features}, {width})" for width in sorted(widths))
        message = f"weights are {values.dtype} of shape {values.shape}; this learner takes numbers of {wanted}."
        raise InputError(message, code="invalid-weights")
    largest = np.finfo(dtype).max
    if not (values.max(initial=0) <= largest and values.min(initial=0) >= -largest):  # NaN is neither
        raise InputError(f"weights hold NaN, an infinity or a value too large for {dtype}.", code="invalid-weights")
    return values


def check_groups_apply(algorithm: Algorithm, penalty: Penalty) -> None:
    """Raises `InputError` unless the learner takes groups of features with this penalty."""
    if not penalty.grouped or algorithm.group_rules is None:
        raise unsupported(
            "Groups of features are for penalty='group' of fobos, l-fobos and cl-fobos, not for "
            f"penalty={penalty.name!r} of {algorithm.name}."
        )


def checked_groups(groups: Any, n_features: int) -> np.ndarray:
    """(n_features,) int64: the groups of features, numbered from 0 by their numbers.

    Raises `InputError` for groups that are no integers of this shape.
    """
    values = np.asarray(groups)
    if values.shape != (n_features,) or values.dtype.kind not in "iu":
        message = f"feature_groups must be integers of shape ({n_features},), a group for each feature."
        raise InputError(message, code="invalid-groups")
    return np.unique(values, return_inverse=True)[1].astype(np.int64).reshape(-1)


def check_combination(
    algorithm: Algorithm, penalty: Penalty, n_classes: int | None, *, multilabel: bool, intercept: bool, by_class: bool
) -> None:
    """Raises `InputError` for labels, a penalty or an intercept that the algorithm is not defined for.

    `by_class`: groups are those of classes, not of features.
    """
    if multilabel and algorithm.touches_all_features:
        raise unsupported(f"{algorithm.name} takes one label per row: train one per class, or choose another learner.")
    if penalty.grouped and by_class and (n_classes is None or (n_classes <= 2 and not multilabel)):
        raise unsupported(
            "penalty='group' needs more than two classes, or groups of features: over the one column of two it is "
            "penalty='l1'."
        )
    if intercept and not algorithm.takes_intercept(penalty):
        raise unsupported(
            f"{algorithm.name} with penalty={penalty.name!r} learns in a convex set, and an intercept has no bound: "
            "choose intercept=False."
        )


def output_shape(loss: Loss, n_classes: int | None, *, multilabel: bool = False) -> tuple[int, str]:
    """Columns per configuration, and the response of its margins (a function of `kernels.responses`).

    `n_classes` is None for regression. Raises `InputError` if the loss is not defined for that many classes, or for
    `multilabel` rows.
    """
    if multilabel:
        if loss.joint or loss.regression or n_classes is None:
            other = f"loss={loss.joint!r}" if loss.joint else "a loss of two classes, such as loss='logistic'"
            raise unsupported(f"loss={loss.name!r} needs one label per row: with any number of them use {other}.")
        return check_integer("n_classes", n_classes), "label_sets"
    if n_classes is None:
        if not loss.regression:
            raise unsupported(
                f"loss={loss.name!r} needs classes: set n_classes, or choose loss='squared' for regression."
            )
        return 1, "regression"
    classes = check_integer("n_classes", n_classes)
    if loss.joint and classes <= 2:
        raise unsupported(f"loss={loss.name!r} needs more than two classes: for two use loss={loss.joint!r}.")
    if classes > 2:
        return classes, "joint" if loss.joint else "one_vs_rest"
    return 1, "binary"


# ----------------------------------------------------------------------------------------------------------------------
# Whether the labels of a store fit what is to be learned from them.


ID_CLASSES, ID_SHARE = 50, 0.9  # classes, per document


def check_labels(store: Store) -> None:
    """Raises `InputError` for a store without documents, or whose labels are none, all the same, or all different."""
    if store.n_rows == 0:
        raise InputError("There are no documents: there is nothing to learn from.", code="no-documents")
    if store.n_classes is None:
        return
    if not store.classes:
        raise InputError("The documents have no labels: there is nothing to learn.", code="no-labels")
    if len(store.classes) < 2:
        raise InputError(
            f"There is one class only ({store.classes[0]}): a classifier needs two; check --label-field and --where.",
            code="one-class",
        )
    counts, options = [entry.rows for entry in store.manifest.labels.classes], store.manifest.options
    if not store.is_multilabel and options.get("classes") is None and are_ids(counts):
        field = options.get("label_field", "label")
        each = "one document each" if max(counts) == 1 else f"{sum(counts):,} documents"
        raise InputError(
            f"Label field {field!r} has {len(counts):,} classes of {each}: it looks like an id; choose another "
            "--label-field.",
            code="invalid-labels",
        )


def are_ids(counts: Collection[int]) -> bool:
    """Whether classes with these numbers of documents are rather ids of documents."""
    return len(counts) >= ID_CLASSES and len(counts) > ID_SHARE * sum(counts)


def check_loss(options: SearchOptions, store: Store) -> None:
    """Raises `InputError` for a loss or a learner that is not defined for the labels."""
    output_shape(find_loss(options.loss), store.n_classes, multilabel=store.is_multilabel)
    for name in options.algorithms:
        if not find_algorithm(name).online:
            check_single_label(store, f"{name}, which makes many passes over the same rows,")


def check_single_label(store: Store, what: str) -> None:
    """Raises `InputError` for documents with any number of labels, which `what` does not take."""
    if store.is_multilabel:
        raise unsupported(f"{what} takes one label per document, and those of {store.folder} have any number.")
