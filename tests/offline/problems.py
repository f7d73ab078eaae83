"""Random problems and configurations for the tests of epoch methods and optima."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from scipy.optimize import minimize as scipy_minimize

from sparseoco.kernels.coordinate import PREDICTIONS
from sparseoco.learners import find_algorithm
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.epochs import Coordinates, EpochProblem
from sparseoco.offline.passes import LocalPasses, Matrix, Shape, Span, column_major
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, Setting
from sparseoco.training.stream import NO_FOLD
from tests.oracles.losses import SLOPES, VALUES


def parameters(**given: Any) -> dict[str, Any]:
    """A configuration of cao-rcd, with defaults for what is not given."""
    return find_algorithm("cao-rcd").configuration(given)


def local_passes_over(X: Any, y: np.ndarray, span: Span) -> LocalPasses:
    """Passes over a span of a matrix in this process."""
    return LocalPasses(Matrix(X, y), Shape(*X.shape, X.nnz), span)


def coordinates(
    A: Any,
    y: np.ndarray,
    *configurations: dict[str, Any],
    loss: str = "logistic",
    penalty: str = "l1",
    positive: tuple[int, ...] = (1,),
    seed: int = 0,
    weights: np.ndarray | None = None,
    intercept: bool = False,
) -> Coordinates:
    """cao-rcd on a matrix, dense or sparse, whose last column is the intercept's if there is one."""
    definition = find_algorithm("cao-rcd").under(find_penalty(penalty))
    columns = positive, A.shape[1] - intercept, intercept
    problem = EpochProblem(definition, find_loss(loss), find_penalty(penalty), configurations, *columns)
    return Coordinates(problem, column_major(sp.csr_matrix(A), y), seed, weights)


Examples = tuple[np.ndarray, np.ndarray]
"""Dense rows and their labels."""


@st.composite
def problems(draw: st.DrawFn, kinds: tuple[str, ...] = ("real", "tenths", "counts")) -> Examples:
    """Features in every row, in few and in none; rows without features; real values, and tenths or counts, with which
    gradients are often exactly 0 or equal, and margins, with R a power of two, exactly at the kink yz = 1."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, features = draw(st.integers(1, 20)), draw(st.integers(1, 11))
    A = rng.normal(0, 1, (rows, features)) * (rng.random((rows, features)) < rng.choice([0.0, 0.1, 0.5, 1.0], features))
    values = draw(st.sampled_from(kinds))
    if values != "real":
        A = np.abs(A).round(1) if values == "tenths" else np.ceil(np.abs(A))
        A *= rng.choice([-1.0, 1.0], A.shape) if draw(st.booleans()) else 1.0
    return A, rng.integers(0, 2, rows).astype(float)


CONFIGURATIONS = st.fixed_dictionaries(
    {
        "R": st.sampled_from([0.0371, 0.31, 1.03, 0.1, 0.25, 1.0]),
        "alpha": st.sampled_from([0.0, 1.37e-3, 0.119, 1.03, 11.3, 0.1, 0.5, 1.0]),
        "rounds": st.integers(1, 40),
        "batch": st.sampled_from([1, 1, 2, 3, 20]),
        "partition": st.sampled_from(["consecutive", "random"]),
        "predict_gradient": st.sampled_from(tuple(PREDICTIONS)),
        "sample": st.sampled_from(["uniform", "lipschitz"]),
        "scale": st.sampled_from(["none", "max_abs"]),
    }
)


def sorted_problem(rows: int = 300, features: int = 40, classes: int = 2) -> tuple[sp.csr_matrix, np.ndarray]:
    """Sparse rows with something to learn in them, sorted by their class."""
    rng = np.random.default_rng(11)
    frequent = rng.random((rows, features)) < 1.5 / np.arange(1, features + 1)
    X = rng.integers(1, 5, (rows, features)) * frequent
    margins = (X > 0) @ rng.normal(0, 1, (features, classes)) + rng.normal(0, 0.5, (rows, classes))
    y = margins.argmax(axis=1)
    order = np.argsort(y, kind="stable")
    return sp.csr_matrix(X[order]), y[order]


def random_problem(rows: int, features: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    chance = rng.random((3, features)) ** 4
    y = rng.integers(0, 3, rows)
    return sp.csr_matrix((rng.random((rows, features)) < chance[y]) * rng.geometric(0.6, (rows, features))), y


# ----------------------------------------------------------------------------------------------------------------------
# Small random problems for the tests of the optimum, and their objective.


SMOOTH = ("logistic", "squared_hinge", "squared")


PENALTIES = (("l1", 1.0), ("l2", 0.0), ("elastic_net", 0.4))


def problem(loss: str, rows: int, features: int, seed: int) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(seed)
    X = sp.random(rows, features, 0.4, format="csr", random_state=random, data_rvs=lambda n: random.integers(1, 6, n))
    truth = random.normal(size=features) * (random.random(features) < 0.5)
    z = X @ truth + random.normal(size=rows)
    return X.astype(np.int64), z if loss == "squared" else np.where(z > 0, 1.0, -1.0)


def objective(loss: str, X: Any, y: np.ndarray, alpha: float, rho: float, w: np.ndarray) -> float:
    return float(VALUES[loss](X @ w, y).sum() + alpha * (rho * np.abs(w).sum() + (1 - rho) * (w @ w) / 2))


# ----------------------------------------------------------------------------------------------------------------------
# Blocks of epoch methods.


PREVIOUS = {"estimate": "sampled", "predict_gradient": "previous"}
WAYS = [
    {"estimate": "sampled", "placement": "serial"},
    {"estimate": "corrected", "placement": "serial"},
    {"estimate": "corrected", "placement": "dealt"},
    {"estimate": "sampled", "placement": "dealt"},
    {"estimate": "sampled", "placement": "serial", **PREVIOUS},
    {"estimate": "sampled", "placement": "dealt", **PREVIOUS},
    {"estimate": "sampled", "placement": "serial", "predict_gradient": "last"},
    {"estimate": "corrected", "placement": "dealt", "predict_gradient": "last"},
]


def caos_erm_grid(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"alpha": alpha, "R": R, **parameters} for alpha, R in ((1.0, 0.3), (5.0, 1.0))]


SETTING: dict[str, Any] = {"loss": "logistic", "penalty": "l1", "dtype": "float32", "seed": 5, "range_rows": 1}


def epoch_block(store: Store, name: str, grid: list[dict[str, Any]], *, fold: int = NO_FOLD, **own: Any) -> Block:
    folds = 4 if fold != NO_FOLD else 1
    setting = Setting(manifest=store.manifest.digest, fold=fold, folds=folds, **SETTING | own)
    definition = find_algorithm(name).under(find_penalty(setting.penalty))
    configurations = tuple(definition.configuration(entry) for entry in grid)
    return Block(setting=setting, algorithm=name, configurations=configurations)


# ----------------------------------------------------------------------------------------------------------------------
# Optima by SciPy.


def minimum(
    X: Any, y: np.ndarray, alpha: np.ndarray, R: Any, weights: Any = 1.0, loss: str = "logistic", rho: float = 1.0
) -> float:
    """An upper bound of min Σ ω·ℓ(⟨x, w⟩, y) + Σ_i α_i(ρ|w_i| + (1 − ρ)w_i²/2), |w_i| ≤ R_i, by L-BFGS-B over
    w = u − v."""
    d = X.shape[1]

    def value(z: np.ndarray) -> tuple[float, np.ndarray]:
        w, l1 = z[:d] - z[d:], rho * np.tile(alpha, 2)
        margins = X @ w
        g = X.T @ (weights * SLOPES[loss](margins, y)) + (1 - rho) * alpha * w
        losses = (weights * VALUES[loss](margins, y)).sum()
        return losses + (1 - rho) * alpha @ w**2 / 2 + l1 @ z, np.concatenate([g, -g]) + l1

    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9}
    bounds = [(0, bound) for bound in (R if isinstance(R, list) else [R] * d)] * 2
    found = scipy_minimize(value, np.zeros(2 * d), jac=True, bounds=bounds, options=options)
    w = found.x[:d] - found.x[d:]
    return float(value(np.maximum(0, np.concatenate([w, -w])))[0])
