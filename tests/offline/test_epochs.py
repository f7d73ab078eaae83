"""Epoch methods against the papers' dense recursions: cao-rcd with every weight moved in every round, and caos-erm."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sparseoco.kernels.coordinate import TERMS, fill_basis
from sparseoco.kernels.epoch import draw
from sparseoco.learners.cao_rcd import fill_series
from sparseoco.learners.caos_erm import KEPT
from sparseoco.learners.numerics import cube_roots
from sparseoco.offline.epochs import Blocks, EpochProblem, Rounds, fit_epochs, play_rounds, row_sizes
from sparseoco.offline.passes import LocalPasses, SpanRows
from tests.learners.cases import Stream, streams
from tests.offline import oracles, problems
from tests.oracles.losses import SLOPES, VALUES, labels_of, rows_of

pytestmark = pytest.mark.formulas

Configuration = dict[str, Any]
LOSSES = ("logistic", "hinge", "squared_hinge", "squared")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
@settings(max_examples=12, deadline=None)
@given(
    problem=problems.problems(),
    configuration=problems.CONFIGURATIONS,
    seed=st.integers(0, 2**53 - 1),
    intercept=st.booleans(),
    ratio=st.sampled_from([1.0, 1.0, 0.0, 0.02, 0.5, 0.98]),
)
def test_lazy_equals_dense(
    loss: str,
    weighted: bool,
    problem: problems.Examples,
    configuration: Configuration,
    seed: int,
    intercept: bool,
    ratio: float,
) -> None:
    """l1 (ρ = 1), l2 (ρ = 0) and the elastic net, whose penalty the intercept does not have."""
    A, y = problem
    penalty, own_ratio = {1.0: ("l1", {}), 0.0: ("l2", {})}.get(ratio, ("elastic_net", {"l1_ratio": ratio}))
    A = rows_of(A, intercept=intercept)
    alpha = np.full(A.shape[1], configuration["alpha"])
    alpha[A.shape[1] - intercept :] = 0.0
    weights = np.random.default_rng(seed).choice([0.0, 0.371, 1.0, 2.93] if weighted else [1.0], len(y))
    assume(A[weights > 0].any())
    signs = labels_of(2 * y - 1, weights)
    shared = {"loss": loss, "penalty": penalty, "seed": seed, "intercept": intercept}
    method = problems.coordinates(A, y, configuration | own_ratio, weights=weights if weighted else None, **shared)
    own = configuration | {"alpha": alpha, "l1_ratio": ratio}
    expected = oracles.stable_weights(A, signs, SLOPES[loss], loss=loss, seed=seed, epochs=3, **own)
    assume(expected is not None)
    for x in expected or []:
        method.play()
        np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)
        np.testing.assert_allclose(method.margins()[:, 0], A @ x, rtol=0, atol=1e-9)
        losses = (weights * VALUES[loss](A @ x, 2 * y - 1)).sum()
        np.testing.assert_allclose(method.losses(), [losses], rtol=1e-9, atol=1e-9)  # a square of margins next to 0


# In round 3 the weights of features 2 and 6 are ±R(1 − 3α/|Z|) with |Z| = 9 and 3, so that the margin 3x_2 + x_6 of row
# 11 is exactly 1; in floating point it is 1 − 2⁻⁵².
ROWS_WITH_A_TIE = """00110330 00100120 10200330 00200233 30300201 00300220 20000200 00100220 10100130 00000300 10300200
00300310 00200021 00200220"""
TIE = (
    np.array([[float(count) for count in row] for row in ROWS_WITH_A_TIE.split()]),
    np.array([float(label) for label in "00100011101110"]),
)


# The gradient of feature 3 is 1.4 + 0.7 − 1.4 − 0.7 in its first draw, which is 0 but for rounding.
ROWS_WITH_A_SUM_OF_0 = [
    [1.4, -1.4, 0.0, 0.0, 0.7],
    [0.0, -0.7, 0.0, 1.4, 0.0],
    [0.0, 0.0, -1.4, 0.0, 0.0],
    [0.0, -1.4, 0.0, 0.0, 0.0],
    [-0.7, 1.4, 0.0, 0.7, 0.7],
    [0.0, 0.0, 0.0, 1.4, 0.0],
    [-0.7, 0.0, 0.0, -0.7, 2.1],
]


PLAIN = {"partition": "consecutive", "predict_gradient": "none"}


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@settings(max_examples=40, deadline=None)
@example(
    problem=(np.array(ROWS_WITH_A_SUM_OF_0), np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0])),
    configuration=PLAIN | {"alpha": 0.0, "rounds": 8, "batch": 1, "sample": "lipschitz", "scale": "max_abs"},
    R=0.1,
    seed=250502515651,
)
@example(
    problem=TIE,
    configuration=PLAIN | {"alpha": 1.37e-3, "rounds": 3, "batch": 3, "sample": "uniform", "scale": "none"},
    R=0.5,
    seed=255,
)
@given(
    problem=problems.problems(("counts",)),
    configuration=problems.CONFIGURATIONS,
    R=st.sampled_from([0.25, 0.5, 1.0]),
    seed=st.integers(0, 2**53 - 1),
)
def test_margins_at_the_kink_have_the_subgradient_of_the_dense_recursion(
    loss: str, problem: problems.Examples, configuration: Configuration, R: float, seed: int
) -> None:
    A, y = problem
    assume(A.any())
    configuration = configuration | {"R": R}
    expected = oracles.stable_weights(A, 2 * y - 1, SLOPES[loss], loss=loss, seed=seed, epochs=3, **configuration)
    assume(expected is not None)
    method = problems.coordinates(A, y, configuration, loss=loss, seed=seed)
    for x in expected or []:
        method.play()
        np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)


@pytest.mark.parametrize("predict_gradient", ["none", "last"])
def test_a_gradient_that_is_0_but_for_rounding_moves_nothing(predict_gradient: str) -> None:
    """0.1 + 0.2 − 0.3 is 2⁻⁵⁴ in floating point. The intercept, and 0.1 + 0.2 − 0.2, are not 0."""
    A = np.array([[0.1, 0.1], [0.2, 0.2], [-0.3, -0.2]])
    own = problems.parameters(R=0.5, alpha=0.0, rounds=30, predict_gradient=predict_gradient)
    method = problems.coordinates(A[:, :1], np.zeros(3), own)
    method.play()
    np.testing.assert_array_equal(method.weights(), [[0.0]])
    np.testing.assert_array_equal(method.state, np.zeros_like(method.state))
    method = problems.coordinates(A[:, 1:], np.zeros(3), own)
    method.play()
    assert method.weights()[0, 0] < 0


def test_a_penalty_that_equals_the_gradients_has_weight_0() -> None:
    """Half its bound predicts the gradient of feature 0 exactly, so that nothing is square: from round 2 on its weight
    is −R, and from round 4 on, where |Z| = 4 = 4α, it is 0."""
    A, y = np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 1.0]]), np.zeros(3)
    own = problems.parameters(R=0.75, alpha=1.0, rounds=12, predict_gradient="half", sample="uniform")
    played: list[np.ndarray] = []
    (x,) = oracles.cao_rcd(A, 2 * y - 1, SLOPES["hinge"], loss="hinge", seed=255, epochs=1, played=played, **own)
    np.testing.assert_array_equal([x[0] for x in played[:4]], [0.0, -0.75, -0.75, 0.0])
    method = problems.coordinates(A, y, own, loss="hinge", seed=255)
    method.play()
    np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    sign=st.sampled_from([-1.0, 1.0]),
    start=st.floats(0.0, 1.0),
    Delta=st.sampled_from([0.0, 1e-6, 0.3, 7.0, 1e3]),
    origin=st.integers(1, 10**6),
    R=st.sampled_from([0.0371, 1.03]),
    alpha=st.sampled_from([1e-6, 0.119, 11.3]),
    ratio=st.sampled_from([0.0, 0.5, 0.99]),
)
def test_the_series_of_a_free_segment_is_its_hyperbola(
    sign: float, start: float, Delta: float, origin: int, R: float, alpha: float, ratio: float
) -> None:
    """From |x| = start·R in round `origin` on, in all rounds up to twice that."""
    l1, ridge = alpha * ratio, alpha * (1.0 - ratio)
    Z = sign * (origin * l1 + start * (Delta + origin * ridge * R))
    series, basis = np.empty(TERMS), np.empty(TERMS)
    fill_series(Z, Delta, float(origin), R, l1, ridge, series)
    for k in {0, 1, origin // 3, origin // 2, origin}:
        fill_basis(k, float(origin), basis)
        t = origin + k
        x = -sign * R * (abs(Z) - t * l1) / (Delta + t * ridge * R)
        np.testing.assert_allclose(basis @ series, x, rtol=0, atol=1e-13 * max(R, np.abs(series).max()))


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@settings(max_examples=6, deadline=None)
@given(problem=problems.problems(), configuration=problems.CONFIGURATIONS)
def test_margins_stay_those_of_the_weights_within_an_epoch(
    penalty: str, problem: problems.Examples, configuration: Configuration
) -> None:
    """What a round sees is made of what the rounds before left: one long epoch is many short ones but for the draws."""
    A, y = problem
    assume(A.any())
    configuration |= {"alpha": 0.119, "rounds": 250}
    method = problems.coordinates(A, y, configuration, penalty=penalty, seed=1)
    ratio = float(penalty == "l1")
    (x,) = oracles.cao_rcd(
        A, 2 * y - 1, SLOPES["logistic"], loss="logistic", seed=1, epochs=1, l1_ratio=ratio, **configuration
    )
    method.play()
    np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)


def test_regression_takes_the_label() -> None:
    rng = np.random.default_rng(3)
    A, y = rng.normal(size=(20, 5)), rng.normal(size=20)
    own = problems.parameters(R=0.7, alpha=0.3, rounds=40, batch=2, predict_gradient="last")
    method = problems.coordinates(A, y, own, loss="squared", positive=(-1,), seed=4)
    for x in oracles.cao_rcd(A, y, SLOPES["squared"], loss="squared", seed=4, epochs=3, **own):
        method.play()
        np.testing.assert_allclose(method.weights()[:, 0], x, rtol=0, atol=1e-9)


@given(st.floats(0.0, 1e300))
def test_cube_roots(x: float) -> None:
    np.testing.assert_allclose(cube_roots(x), np.cbrt(x), rtol=1e-15)


# ----------------------------------------------------------------------------------------------------------------------
# What cao-rcd draws, with which chances, and the ranges and gradient bounds that they follow from.


@settings(max_examples=50, deadline=None)
@given(
    problem=problems.problems(),
    x=st.integers(0, 2**32 - 1),
    R=st.floats(0.01, 10.0),
    scale=st.sampled_from(["none", "max_abs"]),
)
def test_gradients_in_the_box_are_within_their_bounds(problem: problems.Examples, x: int, R: float, scale: str) -> None:
    A, y = problem
    signs = 2 * y - 1
    ranges = oracles.ranges_of(A, signs, R, scale)
    corner = ranges * np.random.default_rng(x).choice([-1.0, 1.0], A.shape[1])
    for loss in ("logistic", "hinge", "squared_hinge", "squared"):
        own = problems.parameters(R=R, alpha=0.0, rounds=1, scale=scale)
        method = problems.coordinates(A, y, own, loss=loss)
        L = method.draws.sampling.L
        gradient = A.T @ SLOPES[loss](A @ corner, signs)
        assert (np.abs(gradient) <= L * (1 + 1e-12)).all()
        np.testing.assert_allclose(L, oracles.bounds_of(A, signs, loss, ranges), rtol=1e-12)
        np.testing.assert_allclose(method.ranges[:, 0], ranges, rtol=1e-12)


def test_equal_bounds_make_equal_chances() -> None:
    """Where S_Π L_Π is the same for all blocks, drawing by it is drawing uniformly."""
    A = np.kron(np.eye(4), np.ones((3, 2)))  # every feature in three rows
    y = np.tile([0.0, 1.0], 6)
    own = {"batch": 2, "rounds": 30, "R": 0.3, "alpha": 0.1}
    fits = [
        fit_epochs(sp.csr_matrix(A), y, algorithm="cao-rcd", grid=own | {"sample": sample})
        for sample in ("uniform", "lipschitz")
    ]
    np.testing.assert_array_equal(fits[0].weights, fits[1].weights)
    assert np.abs(fits[0].weights).max() > 0.1


def test_chances_are_those_of_corollary_5() -> None:
    X, y = problems.random_problem(50, 30)
    A = X.toarray().astype(float)
    for batch, scale in ((1, "none"), (4, "none"), (1, "max_abs"), (4, "max_abs")):
        own = problems.parameters(R=0.3, alpha=0.0, rounds=1, batch=batch, scale=scale)
        R = oracles.ranges_of(A, y, 0.3, scale)
        for partition, order in (("consecutive", np.arange(30)), ("random", oracles.permutation_of(30, 0))):
            own |= {"partition": partition}
            sampling = problems.coordinates(X, y == 1, own, loss="hinge").draws.sampling
            _, p = oracles.chances_of(oracles.bounds_of(A, y, "hinge", R), R, batch, "lipschitz", order)
            np.testing.assert_allclose(sampling.chances, p, rtol=1e-12)
            np.testing.assert_array_equal(sampling.order, order)


@given(st.integers(1, 300), st.integers(0, 2**53 - 1))
def test_a_random_partition_has_every_feature_once(n: int, seed: int) -> None:
    order = oracles.permutation_of(n, seed)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert n < 30 or (order != oracles.permutation_of(n, seed + 1)).any()


def test_features_in_no_example_are_never_drawn() -> None:
    X, y = problems.random_problem(40, 10)
    X = sp.csr_matrix(X.toarray() * (np.arange(10) % 2))
    for sample in ("uniform", "lipschitz"):
        own = problems.parameters(R=0.3, alpha=0.0, rounds=500, predict_gradient="half", sample=sample)
        method = problems.coordinates(X, y, own, loss="hinge")
        method.play()
        assert (method.weights()[::2] == 0).all()
        assert (method.weights()[1::2] != 0).any()


def test_a_pass_is_worth_of_rounds() -> None:
    """By default an epoch is expected to read as many nonzeros as there are."""
    X, y = problems.random_problem(200, 50)
    nonzeros = np.diff(X.tocsc().indptr)
    for sample, batch, partition in (
        ("uniform", 1, "consecutive"),
        ("lipschitz", 1, "consecutive"),
        ("lipschitz", 7, "consecutive"),
        ("lipschitz", 7, "random"),
    ):
        own = problems.parameters(R=0.5, alpha=0.3, batch=batch, partition=partition, sample=sample)
        method = problems.coordinates(X, y, own, loss="hinge", seed=2)
        sampling = method.draws.sampling
        each = (sampling.chances * np.add.reduceat(nonzeros[sampling.order], np.arange(0, 50, batch))).sum()
        assert abs(method.draws.rounds * each - X.nnz) <= each
    assert fit_epochs(X, y > 0, algorithm="cao-rcd").weights.any()


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("predict_gradient", ["none", "half", "last"])
@settings(max_examples=10, deadline=None)
@given(problem=problems.problems(), seed=st.integers(0, 2**32 - 1), batch=st.sampled_from([1, 3]))
def test_units_of_features_do_not_matter_with_max_abs(
    loss: str, predict_gradient: str, problem: problems.Examples, seed: int, batch: int
) -> None:
    """Features multiplied by powers of two have the same margins, and weights divided by these powers, bit for bit."""
    A, y = problem
    powers = 2.0 ** np.random.default_rng(seed).integers(-8, 9, A.shape[1])
    own = {"batch": batch, "predict_gradient": predict_gradient, "sample": "uniform" if batch > 1 else "lipschitz"}
    configuration = problems.parameters(alpha=0.0, R=0.31, rounds=40, scale="max_abs", **own)
    plain, scaled = (problems.coordinates(matrix, y, configuration, loss=loss, seed=seed) for matrix in (A, A * powers))
    for _ in range(2):
        for method in (plain, scaled):
            method.play()
        np.testing.assert_array_equal(plain.weights()[:, 0], scaled.weights()[:, 0] * powers)
        np.testing.assert_array_equal(plain.margins(), scaled.margins())


def test_a_box_is_l1_with_alpha_0() -> None:
    X, y = problems.random_problem(40, 12)
    grid = {"R": [0.1, 0.7], "rounds": 60, "predict_gradient": "last", "scale": ["none", "max_abs"]}
    shared = {"algorithm": "cao-rcd", "epochs": 3, "n_classes": 3, "fit_intercept": True}
    box = fit_epochs(X, y, penalty="box", grid=grid, **shared)
    l1 = fit_epochs(X, y, penalty="l1", grid={**grid, "alpha": 0.0}, **shared)
    assert all("alpha" not in configuration for configuration in box.configurations)
    np.testing.assert_array_equal(box.weights, l1.weights)
    np.testing.assert_array_equal(box.intercepts, l1.intercepts)
    np.testing.assert_array_equal(box.objective, l1.objective)
    assert box.weights.any()


# ----------------------------------------------------------------------------------------------------------------------
# caos-erm against the paper's dense pseudo-code, and the same bits however the work is cut.


TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
OWN_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "R": st.floats(0.0371, 5.93),
    "alpha": st.sampled_from([0.0, 0.0517, 0.319, 1.13, 11.3]),
}
SHARED: dict[str, st.SearchStrategy[Any]] = {
    "rounds": st.sampled_from(["pass", 1, 7, 23]),
    "batch": st.integers(1, 5),
    "parts": st.integers(1, 5),
    "partition": st.sampled_from(["consecutive", "random"]),
    "sample": st.sampled_from(["lipschitz", "uniform", "adaptive"]),
}


@pytest.mark.parametrize("way", problems.WAYS, ids=lambda way: "-".join(way.values()))
@settings(max_examples=12, deadline=None)
@given(
    data=st.data(),
    loss=st.sampled_from(["logistic", "hinge", "squared_hinge"]),
    stream=streams() | streams(weighted=True),
    seed=st.integers(0, 2**63 - 1),
)
def test_caos_erm_equals_dense(way: dict[str, str], data: st.DataObject, loss: str, stream: Stream, seed: int) -> None:
    shared = {name: data.draw(values) for name, values in SHARED.items()} | way
    penalty, ratio = data.draw(st.sampled_from([("l1", None), ("l2", None), ("elastic_net", 0.37)]))
    own = {} if ratio is None else {"l1_ratio": ratio}
    grid = [
        {name: data.draw(values) for name, values in OWN_VALUES.items()} | shared | own
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    epochs = stream.epochs
    extended = stream.weights is not None  # weights and an intercept: one kernel more to compile
    weights = stream.weights[: len(stream.y)] if extended else None
    arguments = {"grid": grid, "epochs": epochs, "seed": seed, "sample_weight": weights, "fit_intercept": extended}
    fit = fit_epochs(sp.csr_matrix(stream.X), stream.y, loss=loss, penalty=penalty, **arguments)
    signs = labels_of(2.0 * stream.y - 1, weights if extended else np.ones(len(stream.y)))
    full = rows_of(stream.X, intercept=extended)
    for i, entry in enumerate(grid):
        alpha = np.full(full.shape[1], entry["alpha"])
        alpha[stream.X.shape[1] :] = 0.0
        own, inside = entry | {"alpha": alpha}, [1.0]
        uneven = 2.0**-50 * np.random.default_rng(0).standard_normal((4, *full.shape))
        expected, *shaken = (
            oracles.caos_erm(X, signs, SLOPES[loss], epochs=epochs, seed=seed, penalty=penalty, inside=inside, **own)[
                -1
            ]
            for X in (full, full * (1.0 + 2.0**-50), *full * (1.0 + uneven))
        )
        # Where slopes are those of the pass but for rounding, Δ is rounding, and so is the weight R·Z/Δ; where
        # gradients cancel, so is the sign of Z.
        assume(min(inside) > 1e-9)
        assume(all(np.allclose(weights, expected, **TOLERANCE) for weights in shaken))
        found = np.append(fit.weights[:, i], fit.intercepts[i]) if extended else fit.weights[:, i]
        np.testing.assert_allclose(found, expected, **TOLERANCE)


@pytest.mark.parametrize("sample", ["lipschitz", "uniform"])
@pytest.mark.parametrize("batch", [1, 3])
def test_previous_is_the_algorithm_as_printed(batch: int, sample: str) -> None:
    X, y = problems.sorted_problem(rows=60, features=12)
    shared = {"R": 0.4, "alpha": 2.0, "batch": batch, "sample": sample}
    fit = fit_epochs(X, y, grid=[shared | problems.PREVIOUS], epochs=3, seed=9)
    played, *_ = oracles.algorithm_4(X.toarray(), 2.0 * y - 1, SLOPES["logistic"], k=3, seed=9, **shared)
    np.testing.assert_allclose(fit.weights[:, 0], played[-1], **TOLERANCE)
    after_one = fit_epochs(X, y, grid=[shared | problems.PREVIOUS], epochs=1, seed=9)
    np.testing.assert_allclose(after_one.weights[:, 0], played[(len(played) - 1) // 3], **TOLERANCE)
    other = fit_epochs(X, y, grid=[shared], epochs=3, seed=9)
    assert np.abs(other.weights[:, 0] - played[-1]).max() > 1e-3


def test_regression() -> None:
    X, _ = problems.sorted_problem(classes=3)
    targets = np.random.default_rng(3).normal(0, 2, X.shape[0])
    numbers = fit_epochs(X, targets, loss="squared", grid=[{"alpha": 2.0}], epochs=2, seed=1, n_classes=None)
    expected = oracles.caos_erm(X.toarray(), targets, SLOPES["squared"], R=1.0, alpha=2.0, epochs=2, seed=1)
    np.testing.assert_allclose(numbers.weights[:, 0], expected[-1], **TOLERANCE)


# ----------------------------------------------------------------------------------------------------------------------
# optimistic-averaging against dense pseudo-code, and gradient steps.


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), stream=streams() | streams(weighted=True))
def test_optimistic_averaging_equals_dense(loss: str, data: st.DataObject, stream: Stream) -> None:
    penalty, own = data.draw(
        st.sampled_from([("l1", {}), ("l2", {}), ("elastic_net", {"l1_ratio": 0.37}), ("box", {})])
    )
    names = OWN_VALUES if penalty != "box" else ("R",)
    grid = [{name: data.draw(OWN_VALUES[name]) for name in names} | own for _ in range(data.draw(st.integers(1, 3)))]
    extended, weights = stream.weights is not None, None
    if stream.weights is not None:
        weights = stream.weights[: len(stream.y)]
    epochs, kind = data.draw(st.integers(1, 6)), None if loss == "squared" else 2
    shared: dict[str, Any] = {"algorithm": "optimistic-averaging", "loss": loss, "penalty": penalty, "epochs": epochs}
    y = 2.0 * stream.y - 1
    labels, own_rows = y if kind is None else stream.y, sp.csr_matrix(stream.X)
    fit = fit_epochs(
        own_rows, labels, grid=grid, n_classes=kind, sample_weight=weights, fit_intercept=extended, **shared
    )
    signs = labels_of(y, np.ones(len(y)) if weights is None else weights)
    full = rows_of(stream.X, intercept=extended)
    uneven = 2.0**-50 * np.random.default_rng(0).standard_normal((3, *full.shape))
    for i, entry in enumerate(grid):
        alpha = np.full(full.shape[1], entry.get("alpha", 0.0))
        alpha[stream.X.shape[1] :] = 0.0
        form = {"l1_ratio": entry.get("l1_ratio", 0.0), "penalty": "l1" if penalty == "box" else penalty}
        expected, *shaken = (
            oracles.optimistic_averaging(A, signs, SLOPES[loss], R=entry["R"], alpha=alpha, T=epochs + 1, **form).means[
                -1
            ]
            for A in (full, *full * (1.0 + uneven))
        )
        assume(all(np.allclose(weights, expected, **TOLERANCE) for weights in shaken))  # not at a kink
        found = np.append(fit.weights[:, i], fit.intercepts[i]) if extended else fit.weights[:, i]
        np.testing.assert_allclose(found, expected, **TOLERANCE)


def test_means_are_accelerated() -> None:
    """Four times the passes leave less than a sixteenth of the gap, as 1/T² has it, and a fiftieth of what gradient
    steps leave that know ‖A‖ = 1, which fall as 1/T."""
    n, rng = 40, np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    A, truth, T = (Q / np.arange(1.0, n + 1)) @ Q.T, rng.uniform(-1, 1, n), np.array([80, 320])
    own: dict[str, Any] = {"loss": "squared", "penalty": "box", "n_classes": None, "epochs": T[1]}
    fit = fit_epochs(sp.csr_matrix(A), A @ truth, algorithm="optimistic-averaging", grid={"R": 1.0}, **own)
    means, x, plain = fit.objective[T - 1, 0], np.zeros(n), []
    for _ in range(T[1]):
        x = x - A.T @ (A @ (x - truth))
        plain.append(np.sum((A @ (x - truth)) ** 2) / 2)
    assert means[1] < means[0] / 16
    assert plain[T[1] - 1] > plain[T[0] - 1] / 4
    assert means[1] < plain[T[1] - 1] / 50


@pytest.mark.parametrize("way", [{"estimate": "sampled"}, problems.PREVIOUS, {"predict_gradient": "last"}], ids=str)
@settings(max_examples=4, deadline=None)
@given(cuts=st.lists(st.integers(1, 299), max_size=6), batch=st.integers(1, 3))
def test_any_cut_of_the_rounds(way: dict[str, Any], cuts: list[int], batch: int) -> None:
    X, y = problems.sorted_problem()
    grid = [{"alpha": 1.0, "R": 0.4, "batch": batch, **way}]
    configured = EpochProblem.of("caos-erm", "hinge", "l1", grid, 2, X.shape[1])
    passes = LocalPasses.of(X, y.astype(np.float64))
    blocks = Blocks.of(row_sizes(SpanRows(passes.source), 0, X.shape[0]), configured.configurations[0], seed=3)
    start = np.random.default_rng(1).normal(0, 0.1, (X.shape[1], 1))
    totals = passes.totals(start, configured.pass_request)
    slopes = passes.slopes(totals)
    (share,) = blocks.shares(configured.configurations[0])
    share = share._replace(rounds=300)
    gradient = None if "estimate" in way else totals.gradient
    whole = configured.sampled()
    rounds = Rounds(passes.source, np.arange(X.shape[0]), slopes.__getitem__, gradient, blocks, 3, 2)
    assert play_rounds(whole, rounds, share).rounds == 300

    pieces = configured.sampled()
    pieces.start_run(gradient)
    table = slopes.copy() if pieces.refreshes else slopes
    for first, stop in itertools.pairwise(sorted({0, 300, *cuts})):
        places = draw(np.cumsum(blocks.weights), 3, 2, 0, first, stop - first)
        positions, edges = blocks.positions(places)
        importance = share.scale / blocks.weights[places]
        anchor = (table, positions) if pieces.refreshes else (slopes[positions], None)
        pieces.play(passes.source.gather(positions), edges, anchor[0], importance, anchor[1])
    pieces.flush()
    assert pieces.rounds == whole.rounds
    assert pieces.state.tobytes() == whole.state.tobytes()
    assert pieces.weights().tobytes() == whole.weights().tobytes()


def test_draws_follow_the_sums_and_never_what_weighs_nothing() -> None:
    weights = np.array([0.0, 3.0, 0.0, 0.0, 1.0, 4.0, 0.0, 0.0])
    cumulative = np.cumsum(weights)
    drawn = draw(cumulative, 7, 3, 2, 0, 10_000)
    shares = [oracles.uniform(7, 3, 2, t) for t in range(200)]
    assert drawn[:200].tolist() == np.searchsorted(cumulative / 8, shares, side="right").tolist()
    counts = np.bincount(drawn, minlength=8)
    assert (counts[weights == 0] == 0).all()
    expected = 10_000 * weights / 8
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected)).all()  # five standard deviations, of fixed numbers
    assert not np.array_equal(drawn, draw(cumulative, 7, 4, 2, 0, 10_000))
    assert not np.array_equal(drawn, draw(cumulative, 7, 3, 1, 0, 10_000))
    assert np.array_equal(drawn[100:], draw(cumulative, 7, 3, 2, 100, 9_900))


@pytest.mark.parametrize("sample", ["lipschitz", "uniform", "adaptive"])
@pytest.mark.parametrize("placement", ["serial", "dealt"])
def test_estimates_are_unbiased(placement: str, sample: str) -> None:
    """Over all that a round can draw, in parts too, the mean of ĝ is the gradient of the whole."""
    X, y = problems.sorted_problem(rows=50)
    passes = LocalPasses.of(X, y.astype(np.float64))
    own = {"batch": 4, "partition": "consecutive", "sample": sample}
    blocks = Blocks.of(row_sizes(SpanRows(passes.source), 0, 50), own, seed=0)
    x = np.random.default_rng(1).normal(0, 0.1, (X.shape[1], 1))
    totals = passes.totals(x, EpochProblem.of("caos-erm", "logistic", "l1", None, 2, X.shape[1]).pass_request)
    gradients = X.multiply(passes.slopes(totals)).tocsr()
    shares = blocks.shares({"placement": placement, "parts": 5, "rounds": "pass"})
    assert len(shares) == (1 if placement == "serial" else 5)
    mean = np.zeros(X.shape[1])
    exclusive_lock = []
    for share in shares:
        own = np.arange(share.first, share.stop, share.step)
        exclusive_lock += own.tolist()
        weights = blocks.weights_of(own, passes.slopes(totals).__getitem__)
        chances, fixed = weights / weights.sum(), blocks.weights[own] / blocks.weights[own].sum()
        scale = share.scale if sample != "adaptive" else share.parts * weights.sum()
        assert (chances >= (KEPT if sample == "adaptive" else 1.0) * fixed * (1 - 1e-12)).all()
        assert (sample == "adaptive") == (np.abs(chances - fixed).max() > 1e-3)
        for b, chance, weight in zip(own, chances, weights, strict=True):
            g_hat = scale / weight * np.asarray(gradients[4 * b : 4 * b + 4].sum(axis=0)).ravel()
            mean += chance * g_hat / len(shares)
    assert sorted(exclusive_lock) == list(range(13))
    np.testing.assert_allclose(mean, totals.gradient[:, 0], rtol=1e-10)
