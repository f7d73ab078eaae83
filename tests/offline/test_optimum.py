"""The gap is never less than what is left to gain; optima satisfy their conditions; fits of epoch methods."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from sparseoco import offline_optimum
from sparseoco.learners.losses import LOSSES, smoothed_hinge_curvature, smoothed_hinge_slope
from sparseoco.offline.epochs import bytes_needed, fit_epochs
from sparseoco.offline.optimum import Newton, OptimumProblem, minimise
from sparseoco.offline.passes import LocalPasses, Span
from sparseoco.offline.quasi_newton import QuasiNewton
from sparseoco.training.options import OptimumOptions
from tests.offline import problems
from tests.offline.problems import local_passes_over
from tests.oracles.losses import VALUES
from tests.support.errors import raises_code


def problem_of(loss: str, alpha: float, penalty: str = "l1", rho: float = 0.5, box: float | None = None) -> Any:
    ratio = {"l1_ratio": rho} if penalty == "elastic_net" else {}
    options = OptimumOptions(alphas=(alpha,), loss=loss, penalty=penalty, box=box, **ratio)
    return OptimumProblem.of(options, None if loss == "squared" else 2)


@given(
    loss=st.sampled_from([*problems.SMOOTH, "hinge"]),
    penalty=st.sampled_from(problems.PENALTIES),
    alpha=st.sampled_from([0.03, 1.0, 8.0]),
    box=st.sampled_from([None, None, 0.2]),
    size=st.tuples(st.integers(1, 12), st.integers(1, 6)),
    seed=st.integers(0, 1000),
    steps=st.integers(1, 25),
)
@settings(max_examples=25, deadline=None)
def test_no_point_is_below_the_dual(
    loss: str, penalty: tuple[str, float], alpha: float, box: float | None, size: tuple[int, int], seed: int, steps: int
) -> None:
    X, y = problems.problem(loss, *size, seed)
    labels = y if loss == "squared" else (y > 0).astype(np.float64)
    solver = QuasiNewton(LocalPasses.of(X, labels), problem_of(loss, alpha, *penalty, box), tol=1e-9, max_passes=steps)
    (column,) = solver.columns
    history = []
    while solver.active:
        solver.step()
        history.append((column.objective, -column.dual))
    reached = problems.objective(loss, X, y, alpha, penalty[1], column.best)
    assert np.abs(column.best).max() <= (box or np.inf)
    assert column.objective == pytest.approx(reached, rel=1e-12, abs=1e-12)
    assert (np.diff(history, axis=0) <= 0).all()
    rounding = 1e-11 * max(1.0, column.at_zero)
    assert column.dual <= reached + rounding
    least = problems.minimum(X, y, np.full(X.shape[1], alpha), box, loss=loss, rho=penalty[1])
    assert column.dual <= least + rounding


EXTENDED = [("logistic", penalty) for penalty, _ in problems.PENALTIES] + [("squared_hinge", "l1"), ("squared", "l1")]


@pytest.mark.parametrize(
    ("loss", "penalty", "box", "extended"),
    [
        *(
            (loss, penalty, (None, 0.15)[(k + number) % 2], False)
            for k, loss in enumerate(problems.SMOOTH)
            for number, (penalty, _) in enumerate(problems.PENALTIES)
        ),
        *((loss, penalty, None, True) for loss, penalty in EXTENDED),
    ],
)
def test_the_optimality_conditions_hold(loss: str, penalty: str, box: float | None, extended: bool) -> None:
    """`extended`: with weights of rows and an intercept, whose condition is that the slopes add up to 0."""
    rho = dict(problems.PENALTIES)[penalty]
    X, y = problems.problem(loss, 120, 24, 3)
    alpha = 60.0 if loss == "squared" else 2.0
    weights = np.random.default_rng(4).choice([0.0, 0.5, 1.0, 3.0] if extended else [1.0], 120)
    own = {"sample_weight": weights if extended else None, "fit_intercept": extended, "tol": 1e-11}
    found = offline_optimum(X, y, loss=loss, alpha=alpha, penalty=penalty, l1_ratio=rho, box=box, **own)
    w, limit = found.weights, box or np.inf
    slopes = weights * [LOSSES[loss].slope(z, t) for z, t in zip(X @ w + found.intercept, y, strict=True)]
    g = X.T @ slopes + alpha * (1 - rho) * w
    assert (found.intercept != 0) == extended
    assert not extended or abs(slopes.sum()) <= 1e-3
    l1, close = alpha * rho, 1e-3 * alpha
    inside = (w != 0) & (np.abs(w) < limit)
    assert found.converged
    assert (np.abs(g[w == 0]) <= l1 + close).all()
    np.testing.assert_allclose(g[inside], -l1 * np.sign(w[inside]), atol=close)
    at_box = np.abs(w) >= limit
    assert (-(g * np.sign(w))[at_box] >= l1 - close).all()
    assert inside.any()
    assert at_box.any() == (box is not None)
    assert (w == 0).any() == (penalty != "l2")


def test_too_few_passes_raise_a_warning() -> None:
    X, y = problems.problem("logistic", 300, 60, 1)
    with pytest.warns(UserWarning, match="did not reach tol=1e-06 for alpha=1"):
        found = offline_optimum(X, y, alpha=[100.0, 1.0], max_passes=3)
    assert found.converged.tolist() == [True, False]
    assert found.passes.tolist() == [found.passes[0], 3]


@pytest.mark.formulas
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_the_hinge_is_certified_by_its_own_gap(penalty: str) -> None:
    X, y = problems.problem("hinge", 60, 12, 5)
    found = offline_optimum(X, y, loss="hinge", alpha=1.0, penalty=penalty, tol=3e-3)
    assert found.objective == pytest.approx(
        problems.objective("hinge", X, y, 1.0, 1.0 if penalty == "l1" else 0.0, found.weights), rel=1e-12
    )
    assert found.gap <= 3e-3 * 60


def test_nothing_to_learn_is_zero() -> None:
    found = offline_optimum(sp.csr_matrix((0, 3)), np.zeros(0))
    assert found.converged
    assert not found.weights.any()
    assert found.gap == 0.0
    flat = offline_optimum(sp.csr_matrix(np.ones((4, 3))), np.zeros(4), loss="squared", alpha=1.0)
    assert flat.converged
    assert not flat.weights.any()


# ----------------------------------------------------------------------------------------------------------------------
# Newton steps on rows at hand: second derivatives, the same minima as by passes alone, and what is degenerate.


@pytest.mark.parametrize("loss", problems.SMOOTH)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_a_curvature_is_the_slopes_own_slope(loss: str, y: float) -> None:
    own: Any = LOSSES[loss]
    for z in (-30.0, -2.3, -0.4, 0.0, 0.7, 3.1, 30.0):
        change = (own.slope(z + 1e-5, y) - own.slope(z - 1e-5, y)) / 2e-5
        assert own.curvature(z, y) == pytest.approx(change, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("z", [-1.0, 0.6, 0.9, 1.2])
def test_the_rounded_hinges_curvature_is_its_slopes_own_slope(z: float) -> None:
    change = (smoothed_hinge_slope(z + 1e-6, 1.0, 0.5) - smoothed_hinge_slope(z - 1e-6, 1.0, 0.5)) / 2e-6
    assert smoothed_hinge_curvature(z, 1.0, 0.5) == pytest.approx(change, abs=1e-8)


@pytest.mark.parametrize(
    ("loss", "penalty", "rho", "box"),
    [
        (loss, *penalty, (None, 0.15)[(k + number) % 2])
        for k, loss in enumerate([*problems.SMOOTH, "hinge"])
        for number, penalty in enumerate(problems.PENALTIES)
    ],
)
def test_both_methods_find_the_same_minimum(loss: str, penalty: str, rho: float, box: float | None) -> None:
    X, y = problems.problem(loss, 50, 12, 4)
    numbers = loss == "squared"
    words = problem_of(loss, 20.0 if numbers else 1.5, penalty, rho, box)
    tol = 5e-3 if loss == "hinge" else 1e-9
    rows = LocalPasses.of(X, y if numbers else (y > 0).astype(np.float64))
    solvers = Newton(rows, words, tol=tol), QuasiNewton(rows, words, tol=tol)
    for solver in solvers:
        while solver.active:
            solver.step()
    (newton,), (passes,) = (solver.columns for solver in solvers)
    assert newton.converged
    assert passes.converged
    assert newton.at_zero == passes.at_zero
    assert max(newton.dual, passes.dual) <= min(newton.objective, passes.objective) + 1e-12 * newton.at_zero
    assert newton.passes <= passes.passes + 3


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_separable_rows_and_hardly_a_penalty(loss: str) -> None:
    X, y = problems.problem(loss, 30, 90, 2)
    found = offline_optimum(X, y, loss=loss, alpha=1e-7, tol=1e-6)
    assert found.converged
    assert np.isfinite(found.weights).all()
    assert (np.sign(X @ found.weights) == y).all()


def test_columns_that_are_empty_and_columns_that_are_alike() -> None:
    X, y = problems.problem("logistic", 100, 15, 6)
    alone = offline_optimum(X, y, alpha=1.0, tol=1e-10)
    thrice = sp.hstack([X, X, sp.csr_matrix((100, 2)), X]).tocsr()
    found = offline_optimum(thrice, y, alpha=1.0, tol=1e-10)
    assert found.converged
    assert not found.weights[30:32].any()
    assert found.objective == pytest.approx(alone.objective, rel=1e-9)


def test_no_penalty_needs_a_box() -> None:
    X, y = problems.problem("logistic", 40, 60, 3)
    found = offline_optimum(X, y, alpha=0.0, box=0.3, tol=1e-8)
    assert found.converged
    assert (np.abs(found.weights) <= 0.3).all()
    assert (np.abs(found.weights) == 0.3).any()


@pytest.mark.parametrize("scale", [1.0, 300.0, 0.5])
def test_rows_of_a_span_by_columns_are_those_of_its_passes(scale: float) -> None:
    X, y = problems.problem("logistic", 70, 12, 8)
    labels, span = (y > 0).astype(np.float64), Span(seed=3, range_rows=1, stop=50)
    words = problem_of("logistic", 0.5)
    rows = span.rows(70, 0, 50)
    part = minimise(local_passes_over(X * scale, labels, span), words, tol=1e-9)
    whole = minimise(LocalPasses.of((X * scale)[rows], labels[rows]), words, tol=1e-9)
    assert part.converged.all()
    np.testing.assert_array_equal(part.weights, whole.weights)


# ----------------------------------------------------------------------------------------------------------------------
# The optimum with sample weights and an intercept, by its certificate.


def data() -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(90, 8)) * (rng.random((90, 8)) < 0.6)
    return sp.csr_matrix(X), (X[:, 0] > -0.4).astype(int), rng.choice([0.0, 0.5, 1.0, 3.0], 90)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge", "squared"])
def test_no_other_point_is_lower(loss: str) -> None:
    """The dual is a bound: of points around the optimum, intercepts included, none has a lower objective."""
    X, y, weights = data()
    y = y * 2.0 - 1.0
    arguments = {"loss": loss, "alpha": 0.8, "sample_weight": weights, "fit_intercept": True}
    found = offline_optimum(X, y, tol=1e-4 if loss == "hinge" else 1e-9, **arguments)

    def objective(w: np.ndarray, b: float) -> float:
        return float(weights @ VALUES[loss](X @ w + b, y) + 0.8 * np.abs(w).sum())

    assert found.objective == pytest.approx(objective(found.weights, found.intercept), rel=1e-9)
    assert found.converged
    rng = np.random.default_rng(0)
    for size in np.repeat([1.0, 0.1, 0.01, 1e-3], 20):
        w, b = found.weights + size * rng.normal(size=8), found.intercept + size * rng.normal()
        assert objective(w, b) >= found.dual


def test_one_class_has_a_large_intercept_and_what_has_no_meaning_is_refused() -> None:
    X, _, _ = data()
    found = offline_optimum(X, np.ones(90), fit_intercept=True)
    assert found.converged
    assert found.objective < 1e-9
    assert found.intercept > 20
    with raises_code("invalid-sample-weights", "row 0"):
        offline_optimum(X, np.ones(90), sample_weight=-np.ones(90))
    with raises_code("invalid-option", "penalty", "elastic_net"):
        offline_optimum(X, np.ones(90), penalty="box")


# ----------------------------------------------------------------------------------------------------------------------
# Fits of both epoch methods, in any company and towards the optimum.


RATIOS = {"l1": 1.0, "elastic_net": 0.5, "l2": 0.0}
LAST = {"predict_gradient": "last", "rounds": 200}


SAMPLED = {"estimate": "sampled"}


@pytest.mark.parametrize(
    ("name", "penalty", "way", "gap", "extended"),
    [
        *(("cao-rcd", penalty, {"batch": b}, 1e-2, False) for penalty, b in (("l1", 1), ("l1", 3), ("l2", 1))),
        ("cao-rcd", "elastic_net", {"batch": 3}, 1e-2, False),
        ("cao-rcd", "l1", {}, 1e-2, True),
        ("caos-erm", "l1", SAMPLED, 0.12, False),
        ("caos-erm", "l1", SAMPLED | {"batch": 5}, 0.2, False),
        ("caos-erm", "l1", {}, 1e-3, False),
        ("caos-erm", "l1", {"predict_gradient": "last"}, 1e-3, False),
        ("caos-erm", "l1", {"placement": "dealt", "parts": 4}, 1e-2, False),
        ("caos-erm", "l1", {"rounds": 300}, 5e-3, True),
        *(("optimistic-averaging", penalty, {}, 1.5e-2, False) for penalty in RATIOS),
        ("optimistic-averaging", "l1", {}, 5e-2, True),
    ],
)
def test_the_objective_falls_to_the_optimum(
    name: str, penalty: str, way: dict[str, Any], gap: float, extended: bool
) -> None:
    """`extended`: with an intercept, and except for cao-rcd weights of rows."""
    if name == "cao-rcd":
        (X, labels), alpha, R, epochs = problems.random_problem(200, 40), 8.0, 2.0, 30
        y, way = (labels > 0).astype(np.int64), {"rounds": 2000} | way
    else:
        (X, y), alpha, R, epochs = (
            problems.sorted_problem(*(100, 12) if extended else (400, 25)),
            3.0,
            1.5 + extended,
            25,
        )
    chosen = [0.0, 1.0, 2.0] if extended and name != "cao-rcd" else [1.0]
    weights, rho = np.random.default_rng(5).choice(chosen, len(y)), RATIOS[penalty]
    own: dict[str, Any] = {"penalty": penalty, "sample_weight": weights, "fit_intercept": extended}
    seed = 0 if extended or name == "cao-rcd" else 2
    fit = fit_epochs(X, y, algorithm=name, grid={"alpha": alpha, "R": R, **way}, epochs=epochs, seed=seed, **own)
    best = offline_optimum(X, y, alpha=alpha, tol=1e-9, **own)
    falling = name == "cao-rcd" and not extended
    assert abs(best.intercept) < R
    assert not falling or np.abs(best.weights).max() < R
    above = fit.objective[:, 0] / best.objective - 1
    w, z = fit.weights[:, 0], X @ fit.weights[:, 0] + fit.intercepts[0, 0]
    losses = weights @ np.logaddexp(0, -(2 * y - 1) * z)
    expected = losses + alpha * (rho * np.abs(w).sum() + (1 - rho) * (w @ w) / 2)
    np.testing.assert_allclose(fit.objective[-1, 0], expected, rtol=1e-12)
    assert above.min() > -1e-9
    assert above[-5:].mean() < gap
    # It falls as 1/√t: 30 epochs are 5.5 times as good as one.
    assert not falling or above[-1] < above[0] / 5
    assert weights.sum() * np.log(2) / best.objective - 1 > 5 * gap


def bits_of(*arrays: np.ndarray) -> bytes:
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize(
    ("name", "shared"),
    [
        *(("caos-erm", way | {"parts": 3}) for way in problems.WAYS),
        *(("cao-rcd", way) for way in ({"rounds": 200}, LAST)),
        ("optimistic-averaging", {}),
    ],
    ids=str,
)
def test_columns_share_draws_and_nothing_else(name: str, shared: dict[str, Any], loss: str) -> None:
    """Classes, α, R and batches side by side, in any company, diverging or not: the bits of each alone."""
    X, y = problems.random_problem(120, 30)
    radii = (0.1, 0.7) if name == "cao-rcd" else (0.1, 1e9)
    batches: list[dict[str, Any]] = [{"batch": 1}, {"batch": 3}] if shared else [{}]
    grid = [{"alpha": a, "R": R, **batch, **shared} for a in (0.0, 2.0) for R in radii for batch in batches]
    own: dict[str, Any] = {"algorithm": name, "loss": loss, "epochs": 2, "seed": 4}
    together = fit_epochs(X, y, grid=grid, n_classes=3, **own)
    assert [{name: entry[name] for name in batches[0]} for entry in together.configurations] == batches * 4
    assert (together.diverged > 0).any() == (name == "caos-erm")
    for i, entry in enumerate(grid):
        alone = fit_epochs(X, y, grid=[entry], n_classes=3, **own)
        weights, objectives = together.weights[:, 3 * i : 3 * i + 3], together.objective[:, i]
        assert bits_of(alone.weights, alone.objective, alone.diverged) == bits_of(
            weights, objectives, together.diverged[i]
        )
    one = fit_epochs(X, (y == 2).astype(int), grid=[grid[0]], **own)
    assert bits_of(one.weights[:, 0]) == bits_of(together.weights[:, 2])


@pytest.mark.parametrize("name", ["caos-erm", "optimistic-averaging", "cao-rcd"])
def test_nothing_to_draw_leaves_nothing(name: str) -> None:
    fit = fit_epochs(sp.csr_matrix((4, 3)), [0, 1, 1, 0], algorithm=name, epochs=2)
    assert not fit.weights.any()
    np.testing.assert_allclose(fit.objective[:, 0], 4 * np.log(2))
    # An example without features is there but never drawn: its loss alone is added.
    X, y = problems.random_problem(40, 12)
    padded = sp.vstack([X, sp.csr_matrix((5, 12))], format="csr")
    data = ((X, y > 0), (padded, np.append(y, [0] * 5) > 0))
    grid: list[dict[str, Any]] = [{} if name == "optimistic-averaging" else {"rounds": 40}]
    plain, more = (fit_epochs(*own, algorithm=name, grid=grid) for own in data)
    # A pass over more rows has other leaves, whose sums are rounded in another way.
    np.testing.assert_allclose(more.weights, plain.weights, rtol=1e-9 if name == "optimistic-averaging" else 0)
    np.testing.assert_allclose(more.objective - plain.objective, 5 * np.log(2), rtol=1e-10)


def test_no_rows() -> None:
    assert fit_epochs(sp.csr_matrix((0, 3)), [], grid=[{"batch": 4}]).objective.tolist() == [[0.0]] * 5


REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("invalid-parameter", "placement='parallel'", {"grid": [{"placement": "parallel"}]}),
    ("unsupported-combination", "estimate='sampled'", {"grid": [{"predict_gradient": "previous"}]}),
    *(
        ("unsupported-combination", name, {"algorithm": name, "loss": "softmax"})
        for name in ("caos-erm", "optimistic-averaging", "cao-rcd")
    ),
    ("unsupported-combination", "optimistic", {"algorithm": "optimistic-averaging", "penalty": "group"}),
    ("unsupported-combination", "penalty='box'", {"penalty": "box"}),
    ("unsupported-combination", "cao-rcd", {"algorithm": "cao-rcd", "penalty": "group"}),
    ("unknown-parameter", "'lam'", {"grid": {"lam": [1.0]}}),
    ("invalid-parameter", "rounds=0", {"grid": {"rounds": [0]}}),
    ("invalid-parameter", "rounds='all'", {"algorithm": "cao-rcd", "grid": {"rounds": "all"}}),
    ("unsupported-algorithm", "fobos", {"algorithm": "fobos"}),
    ("invalid-option", "epochs=0", {"epochs": 0}),
    ("invalid-option", "seed=-1", {"seed": -1}),
    ("unsupported-combination", "'hinge'", {"loss": "hinge", "n_classes": None}),
    ("invalid-sample-weights", "row 0", {"sample_weight": -np.ones(20)}),
]


@pytest.mark.parametrize(("code", "value", "arguments"), REFUSED, ids=str)
def test_what_has_no_meaning_is_refused(code: str, value: str, arguments: dict[str, Any]) -> None:
    X, y = problems.random_problem(20, 5)
    with raises_code(code, value):
        fit_epochs(X, y, **{"n_classes": 3} | arguments)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("rounds", ["pass", 5000])
def test_the_memory_estimate_is_that_of_the_arrays(rounds: Any, penalty: str) -> None:
    n_rows, n_features = 60, 40
    X = sp.random(n_rows, n_features, 0.2, "csr", random_state=3)
    configurations = [problems.parameters(rounds=rounds, predict_gradient="last")] * 2
    method = problems.coordinates(X, np.arange(n_rows) % 2, *configurations, penalty=penalty)
    held = (*method._work, method.weights())
    estimate = bytes_needed(n_rows, n_features, 2, rounds, penalty)
    assert 0.9 * estimate <= sum(array.nbytes for array in held) <= estimate


# ----------------------------------------------------------------------------------------------------------------------
# The offline optimum agrees with scikit-learn's solvers, to 1e-6 of the objective. Compiled: they take many passes.


def text(loss: str) -> tuple[Any, np.ndarray]:
    """Counts whose features are as unevenly frequent as words."""
    random = np.random.default_rng(0)
    rows, features = 400, 500
    chance = np.minimum(0.6, 3.0 / np.arange(1, features + 1))
    X = sp.csr_matrix(np.where(random.random((rows, features)) < chance, random.geometric(0.6, (rows, features)), 0))
    truth = random.normal(size=features) * (random.random(features) < 0.1)
    return X, np.where(X @ truth + random.normal(size=rows) > 0, 1.0, -1.0)


def logistic(alpha: float, rho: float, solver: str, **settings: Any) -> Any:
    return LogisticRegression(C=1 / alpha, l1_ratio=rho, solver=solver, fit_intercept=False, random_state=0, **settings)


def squared(alpha: float, rho: float) -> Any:
    """Theirs is of the mean of 300 rows, but for Ridge, whose penalty has no half."""
    exact: dict[str, Any] = {"fit_intercept": False, "tol": 1e-12}
    mean = exact | {"alpha": alpha / 300, "max_iter": 100_000}
    return Ridge(alpha, **exact) if rho == 0 else Lasso(**mean) if rho == 1 else ElasticNet(l1_ratio=rho, **mean)


def svc(alpha: float, loss: str, **settings: Any) -> Any:
    return LinearSVC(loss=loss, C=1 / alpha, fit_intercept=False, tol=1e-8, **settings)


MIXED = (("l1", 1.0), ("elastic_net", 0.3), ("l2", 0.0))
LIBLINEAR: dict[str, Any] = {"solver": "liblinear", "tol": 1e-10, "max_iter": 5000}
PEERS = [
    *(("logistic", "l1", 1.0, alpha, text, logistic(alpha, 1.0, **LIBLINEAR)) for alpha in (0.1, 10.0)),
    ("logistic", "l2", 0.0, 1.0, text, logistic(1.0, 0.0, "lbfgs", tol=1e-8, max_iter=5000)),
    *(
        ("logistic", penalty, rho, 2.0, (200, 40, 0), logistic(2.0, rho, "saga", tol=1e-9, max_iter=50_000))
        for penalty, rho in MIXED
    ),
    *(("squared", penalty, rho, 5.0, (300, 60, 2), squared(5.0, rho)) for penalty, rho in MIXED),
    ("squared_hinge", "l1", 1.0, 1.0, text, svc(1.0, "squared_hinge", penalty="l1", dual=False, max_iter=20_000)),
    ("hinge", "l2", 0.0, 1.0, (80, 12, 7), svc(1.0, "hinge", max_iter=1_000_000)),
]


@pytest.mark.parametrize(("loss", "penalty", "rho", "alpha", "data", "peer"), PEERS, ids=lambda value: str(value)[:12])
def test_the_optimum_is_that_of_scikit_learn(
    loss: str, penalty: str, rho: float, alpha: float, data: Any, peer: Any
) -> None:
    X, y = data(loss) if callable(data) else problems.problem(loss, *data)
    ratio, tol = {"l1_ratio": rho} if penalty == "elastic_net" else {}, 2e-3 if loss == "hinge" else 1e-8
    found = offline_optimum(X, y, loss=loss, alpha=alpha, penalty=penalty, tol=tol, **ratio)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # words for a penalty that differ between versions; and few iterations
        theirs = peer.fit(X.astype(np.float64), y).coef_
    ours, least = (problems.objective(loss, X, y, alpha, rho, w) for w in (found.weights, theirs.ravel()))
    assert found.objective == pytest.approx(ours, rel=1e-12)
    assert found.gap == pytest.approx(found.objective - found.dual, abs=1e-12)
    assert found.dual <= least
    assert ours <= least * (1 + 1e-9) + found.gap
    assert found.gap <= tol * problems.objective(loss, X, y, alpha, rho, np.zeros(X.shape[1]))
    assert abs(ours - least) <= (1e-6 * least if loss != "hinge" else found.gap)


def test_classes_are_one_against_the_rest() -> None:
    """Each class and α has the bits that it has alone, with weights of rows and an intercept."""
    X, _ = problems.problem("logistic", 200, 30, 1)
    rng = np.random.default_rng(1)
    labels, weights = rng.integers(0, 3, 200), rng.choice([0.0, 0.5, 2.0], 200)
    own: dict[str, Any] = {"sample_weight": weights, "fit_intercept": True}
    found = offline_optimum(X, labels, alpha=[0.5, 4.0], n_classes=3, **own)
    assert found.weights.shape == (2, 30, 3)
    for a, alpha in enumerate((0.5, 4.0)):
        alone = [offline_optimum(X, (labels == k).astype(float), alpha=alpha, **own) for k in range(3)]
        np.testing.assert_array_equal(found.weights[a], np.stack([one.weights for one in alone], axis=1))
        assert found.intercept[a].tolist() == [one.intercept for one in alone]
        assert found.objective[a] == pytest.approx(sum(one.objective for one in alone), rel=1e-14)


def test_light_penalties_take_few_passes() -> None:
    X, y = problems.problem("logistic", 60, 300, 1)
    for alpha in (1e-1, 1e-3):
        found = offline_optimum(X, y, alpha=alpha, tol=1e-6)
        assert found.converged
        assert found.passes <= 40
