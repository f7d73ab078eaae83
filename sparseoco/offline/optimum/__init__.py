"""The offline optimum: the least regularised loss on all examples at once, with a certificate of how near it is."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.learners.losses import find_loss
from sparseoco.offline.optimum.found import MAX_PASSES, TOLERANCE, Found
from sparseoco.offline.optimum.newton import Newton
from sparseoco.offline.optimum.problem import Problem
from sparseoco.offline.optimum.solver import Solver
from sparseoco.offline.passes import Floats, LocalPasses, Passes
from sparseoco.training.validation import checked_labels, checked_rows

__all__ = ["MAX_PASSES", "TOLERANCE", "Newton", "Optimum", "Problem", "Solver", "minimise", "offline_optimum", "solved"]


class Optimum(NamedTuple):
    """The minimum of Σ_j f_j(x) + α·ψ(x) for each α, and how sure it is.

    weights    (alphas, features), of more than two classes (alphas, features, classes)
    objective  (alphas,) the objective there, the sum over the classes
    dual       (alphas,) a lower bound of the least objective, from the dual
    gap        (alphas,) objective − dual: how far above the least objective it can be at most
    passes     (alphas,) passes over the data until its last class was done
    converged  (alphas,) whether every class reached the gap that was asked for

    Where one α was given instead of a list, every field is without its first axis.
    """

    weights: Any
    objective: Any
    dual: Any
    gap: Any
    passes: Any
    converged: Any


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
) -> Optimum:
    """Minimise Σ_j f_j(x) + α·ψ(x) over the rows of a SciPy CSR, in this process, by proximal Newton steps.

    Beside X there is a copy of it by columns.

    Parameters
    ----------
    X : (rows, features) sparse matrix.
    y : ±1, or 0 and 1; class indices for `n_classes` > 2, one binary problem a class (one-vs-rest); numbers for
        ``loss="squared"``.
    loss : logistic, squared (½(z − y)²), squared_hinge or hinge.
    alpha : the weight of the penalty, or a list, found one after another. With C of scikit-learn, α = 1/C.
    penalty : l1, ψ = ‖x‖₁; l2, ψ = ½‖x‖²; elastic_net, ψ = ρ‖x‖₁ + ½(1 − ρ)‖x‖², ρ = `l1_ratio`.
    box : also |x_i| ≤ box.
    tol : the duality gap asked for, relative to the objective at x = 0. The hinge is reached by rounding its corner
        ever less and takes ten times the passes: ask for 1e-3 or 1e-4 of it.
    start : weights to begin from, shaped as the result's.

    A `UserWarning` says so if `max_passes` went by before the gap was reached; `converged` does always.

    Raises `InputError` for what has no meaning.
    """
    alphas = list(alpha) if isinstance(alpha, Sequence | np.ndarray) else [alpha]
    numbers = find_loss(loss).regression
    problem = Problem.of(loss, alphas, penalty, l1_ratio, box, None if numbers else n_classes)
    if not sp.issparse(X) or X.ndim != 2:
        raise InputError(f"X must be a SciPy sparse matrix of rows, not {type(X).__name__}.", code="invalid-input")
    if X.shape[1] < 1:
        raise InputError("X has no features: there is nothing to optimise.", code="no-features")
    matrix = checked_rows(X, X.shape[1], np.dtype(np.float64))
    labels = checked_labels(y, matrix.shape[0], None if numbers else n_classes)
    several = np.ndim(alpha) > 0
    columns = len(alphas) * len(problem.positive)
    begin = None if start is None else _started(start, matrix.shape[1], columns, several, problem)
    passes = LocalPasses.of(matrix, labels)
    found = _ended(Newton(passes, passes.columns(), problem, tol=tol, max_passes=max_passes, start=begin), problem)
    left = [f"{a:g}" for a, fine in zip(alphas, found.converged, strict=True) if not fine]
    if left:
        warnings.warn(
            f"The optimum was not found to tol={tol:g} for alpha={', '.join(left)}: `gap` says what is left. Allow "
            "more passes (max_passes) or a larger gap (tol).",
            stacklevel=2,
        )
    return found if several else Optimum(*(field[0] for field in found))


def minimise(passes: Passes, problem: Problem, *, tol: float = TOLERANCE, max_passes: int = MAX_PASSES) -> Optimum:
    """The optimum of a problem over whatever `passes` go over.

    Rows that are in this process are gone over by columns, with proximal Newton steps (`Newton`); where they are
    elsewhere, as on a cluster, passes are all there is (`Solver`). Both end at the same gap, certified by the same
    pass.

    Raises `InputError` for a tolerance or a number of passes that has no meaning.
    """
    data = passes.columns()
    if data is None:
        return _ended(Solver(passes, problem, tol=tol, max_passes=max_passes), problem)
    return _ended(Newton(passes, data, problem, tol=tol, max_passes=max_passes), problem)


def _ended(solver: Newton | Solver, problem: Problem) -> Optimum:
    while solver.active:
        solver.step()
    return solved(solver.columns, problem)


def solved(columns: Sequence[Found], problem: Problem) -> Optimum:
    """What a solver has found so far, by α, from its columns."""
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
    )


def _started(start: Any, n_features: int, columns: int, several: bool, problem: Problem) -> Floats:
    """(features, columns) of weights shaped as a result's."""
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
