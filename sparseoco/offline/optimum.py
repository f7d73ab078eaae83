"""The offline optimum: the minimum of the regularised loss over all examples, certified by a duality gap."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads scipy.sparse when it is used
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.learners.losses import find_loss
from sparseoco.offline.newton import Newton
from sparseoco.offline.optimum_problem import ColumnProgress, OptimumProblem, solve
from sparseoco.offline.options import MAX_PASSES, TOLERANCE
from sparseoco.offline.passes import Floats, LocalPasses, WeightedRowPasses
from sparseoco.training.validation import checked_labels, checked_rows, checked_sample_weights


class Optimum(NamedTuple):
    """The minimum of Σ_j f_j(x) + α·ψ(x) for each α, and its certificate.

    For a single α instead of a list, fields have no first axis.

    Attributes
    ----------
    weights : (alphas, features), or (alphas, features, classes) for more than two classes
        The minimisers.
    objective : (alphas,)
        The objective at the weights, summed over the classes.
    dual : (alphas,)
        A lower bound on the minimum, from the dual.
    gap : (alphas,)
        `objective` − `dual`, an upper bound on the suboptimality.
    passes : (alphas,)
        Passes over the data until the last class converged.
    converged : (alphas,)
        Whether every class reached the gap `tol`.
    intercept : (alphas,), or (alphas, classes)
        0 without an intercept.
    """

    weights: Any
    objective: Any
    dual: Any
    gap: Any
    passes: Any
    converged: Any
    intercept: Any


def offline_optimum(
    X: Any,
    y: Any,
    *,
    loss: str = "logistic",
    alpha: float | Sequence[float] = 1.0,
    penalty: str = "l1",
    l1_ratio: float = 0.5,
    box: float | None = None,
    tol: float = TOLERANCE,
    max_passes: int = MAX_PASSES,
    n_classes: int = 2,
    start: Any = None,
    sample_weight: Any = None,
    fit_intercept: bool = False,
) -> Optimum:
    """Minimise Σ_j f_j(x) + α·ψ(x) over the rows of a SciPy sparse matrix by proximal Newton steps.

    Memory: one copy of X, by columns.

    Parameters
    ----------
    X : (rows, features) sparse matrix
    y : (rows,) array
        ±1, or 0 and 1; class indices for `n_classes` > 2, one binary problem per class (one-vs-rest); numbers for
        ``loss="squared"``.
    loss : {"logistic", "squared", "squared_hinge", "hinge"}
    alpha : float or sequence of float
        Weight of the penalty; 1/C in scikit-learn. Values of a sequence are solved one after another.
    penalty : {"l1", "l2", "elastic_net"}
        ψ = ‖x‖₁; ½‖x‖²; or ρ‖x‖₁ + ½(1 − ρ)‖x‖², ρ = `l1_ratio`.
    box : float, optional
        Also require |x_i| ≤ box.
    tol : float
        Duality gap to reach, relative to the objective at x = 0. The hinge is minimised through smooth approximations
        and takes ten times as many passes: use 1e-3 or 1e-4.
    start : array, optional
        Weights to start from, with the shape of the result's.
    sample_weight : (rows,) array, optional
        Factors ≥ 0 of the losses f_j.
    fit_intercept : bool
        Minimise over an intercept too, which the penalty and the box leave out.

    Returns
    -------
    Optimum

    Warns
    -----
    UserWarning
        `max_passes` passes did not reach the gap; see `converged` for which alpha.

    Raises
    ------
    InputError
        An argument is unknown, invalid or does not fit the others.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> X = csr_matrix([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 2.0]])
    >>> found = offline_optimum(X, np.array([1, 0, 1, 0]), alpha=0.5)
    >>> found.weights.round(2), bool(found.converged)
    (array([ 1.43, -0.61]), True)
    """
    alphas = list(alpha) if isinstance(alpha, Sequence | np.ndarray) else [alpha]
    numbers = find_loss(loss).regression
    problem = OptimumProblem.of(loss, alphas, penalty, l1_ratio, box, None if numbers else n_classes)
    if not scipy.sparse.issparse(X) or X.ndim != 2:
        raise InputError(f"X must be a SciPy sparse matrix of rows, not {type(X).__name__}.", code="invalid-input")
    if X.shape[1] < 1:
        raise InputError("X has no features: there is nothing to optimise.", code="no-features")
    matrix = checked_rows(X, X.shape[1], np.dtype(np.float64))
    labels = checked_labels(y, matrix.shape[0], None if numbers else n_classes)
    several = np.ndim(alpha) > 0
    columns = len(alphas) * len(problem.positive)
    begin = None if start is None else _start_weights(start, matrix.shape[1], columns, several, problem)
    weights = checked_sample_weights(sample_weight, matrix.shape[0])
    passes = local_passes(matrix, labels, weights, fit_intercept=fit_intercept)
    found = minimise(passes, problem, tol=tol, max_passes=max_passes, start=begin)
    unfinished = [f"{a:g}" for a, fine in zip(alphas, found.converged, strict=True) if not fine]
    if unfinished:
        warnings.warn(
            f"The duality gap did not reach tol={tol:g} for alpha={', '.join(unfinished)} (see `gap`): increase "
            "max_passes or tol.",
            stacklevel=2,
        )
    return found if several else Optimum(*(field[0] for field in found))


def local_passes(matrix: Any, labels: NDArray[Any], weights: Floats | None, *, fit_intercept: bool) -> LocalPasses:
    """Passes over a checked matrix in this process."""
    if weights is None and not fit_intercept:
        return LocalPasses.of(matrix, labels)
    return WeightedRowPasses(matrix, labels, weights, intercept=fit_intercept)


def minimise(passes: LocalPasses, problem: OptimumProblem, **options: Any) -> Optimum:
    """The optimum of a problem over rows in this process, or the best point within the solver's passes.

    `options` are those of `Newton`. Raises `InputError` for an invalid tolerance or number of passes.
    """
    solver = Newton(passes, problem, **options)
    solve(solver)
    return solved(solver.columns, problem)


def solved(columns: Sequence[ColumnProgress], problem: OptimumProblem) -> Optimum:
    """The current result of a solver, by α."""
    shape = (len(problem.alphas), len(problem.positive))
    weights = np.stack([column.best for column in columns]).reshape(*shape, -1)

    def by_alpha(name: str) -> NDArray[Any]:
        return np.array([getattr(column, name) for column in columns]).reshape(shape)

    return Optimum(
        weights[:, 0] if shape[1] == 1 else weights.transpose(0, 2, 1).copy(),
        by_alpha("objective").sum(axis=1),
        by_alpha("dual").sum(axis=1),
        by_alpha("gap").sum(axis=1),
        by_alpha("passes").max(axis=1),
        by_alpha("converged").all(axis=1),
        by_alpha("best_intercept")[:, 0] if shape[1] == 1 else by_alpha("best_intercept"),
    )


def _start_weights(start: Any, n_features: int, columns: int, several: bool, problem: OptimumProblem) -> Floats:
    """(features, columns), from weights with the shape of `Optimum.weights`."""
    outputs = len(problem.positive)
    shape = (n_features,) if outputs == 1 else (n_features, outputs)
    shape = (len(problem.alphas), *shape) if several else shape
    values = np.asarray(start, np.float64)
    if values.shape != shape or not np.isfinite(values).all():
        raise InputError(
            f"start must be finite numbers of shape {shape}, not of shape {values.shape}.", code="invalid-option"
        )
    if (np.abs(values) > problem.box).any():
        raise InputError("start has weights outside the box.", code="invalid-option")
    by_alpha = values.reshape(len(problem.alphas), n_features, outputs)
    return np.ascontiguousarray(by_alpha.transpose(1, 0, 2).reshape(n_features, columns))
