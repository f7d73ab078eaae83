"""Every learner of the registry against its paper's dense pseudo-code, with each of its penalties and losses.

Also its losses, proximal maps and functions of numbers alone.
"""

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, algorithm_names, find_algorithm
from sparseoco.learners.contract import truncated_step
from sparseoco.learners.domains import DOMAINS
from sparseoco.learners.losses import LOSSES, PORTFOLIO_LOSSES, find_loss
from sparseoco.learners.numerics import cbrt1p_of_fraction, exp_of_negative, log1p_of_fraction
from sparseoco.learners.ons import bandit_terms
from sparseoco.learners.penalties import PENALTIES, find_penalty
from sparseoco.training.learner import Learner
from tests.learners.cases import BANDITS, COVERED, SEE_ROWS, TOLERANCE, Stream, at_a_jump, grids, kinds, streams
from tests.oracles import dense, losses
from tests.oracles.stream import METHODS, ORACLES
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
OF_ONE_MARGIN = ("passive-aggressive", "arow")
"""Oracles of one problem; others are of any number of columns."""


def test_every_learner_has_an_oracle() -> None:
    assert set(ORACLES) == set(algorithm_names("stream"))


def oracle(name: str, loss: str, kind: str, X: np.ndarray, stream: Stream, parameters: dict[str, Any]) -> np.ndarray:
    """(2, rows, features, outputs) of one configuration: the weights after every row, and those that predict it."""
    outputs = losses.KINDS[kind][0]
    if np.ndim(parameters.get("lam")):
        parameters = parameters | {"lam": parameters["lam"][:, None]}
    if loss in losses.JOINT_SLOPES or parameters.get("penalty") == "group":
        problems = [losses.Rounds(X, losses.labels_of(stream.labels, stream.weights), losses.joint(loss), outputs)]
    else:
        each = np.array([losses.targets(kind, label, outputs) for label in stream.labels])
        alone = name in OF_ONE_MARGIN or parameters.get("model") == "truncated"  # a step depends on one loss
        parts = range(outputs) if alone else [slice(None)]
        width = 1 if alone else outputs
        problems = [
            losses.Rounds(X, losses.labels_of(each[:, k], stream.weights), losses.each_margin(loss), width)
            for k in parts
        ]
    after, before = [], []
    for rounds in problems:
        played: list[np.ndarray] = []
        after.append(list(METHODS[name](rounds, **parameters, **({"played": played} if name in SEE_ROWS else {}))))
        before.append(played or [rounds.start, *after[-1][:-1]])
    return np.stack([np.concatenate(own, axis=2) for own in (after, before)])


def at_a_kink(loss: str, kind: str, z: np.ndarray, label: Any) -> bool:
    """Whether the last bit decides the slope: weights at the bound of a box tie, and so do sums of slopes ±1 of an
    intercept. Zeros are zeros everywhere."""
    if loss == "hinge":
        return bool((np.abs(1 - losses.targets(kind, label, len(z)) * z) < 1e-9).any())
    second, first = np.sort(np.delete(z, label))[-2:]
    return bool((first - second < 1e-9 and first != 0) or abs(1 - z[label] + first) < 1e-9)


@pytest.mark.parametrize(("name", "penalty", "loss"), COVERED)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_lazy_equals_dense_after_every_row(name: str, penalty: str, loss: str, data: st.DataObject) -> None:
    check(name, penalty, loss, data)  # Hypothesis reads the test's source for every case: it is short


def check(name: str, penalty: str, loss: str, data: st.DataObject) -> None:
    """With sample weights and an intercept or without, and for cl-fobos the mean of the iterates or the last."""
    kind = data.draw(st.sampled_from(kinds(name, penalty, loss)))
    # Slopes ±1 of an intercept may add up to 0, or to 1e-17, which would decide a tie of the hinge.
    adds_up = loss == "multiclass_hinge" and name not in ("fobos", "passive-aggressive")
    intercept = penalty != "box" and not adds_up and data.draw(st.booleans())
    stream = data.draw(
        streams(losses.KINDS[kind][0] if kind != "two classes" else 2, weighted=data.draw(st.booleans()), kind=kind)
    )
    grid = data.draw(grids(ALGORITHMS[name], penalty))
    averaged = name == "cl-fobos" and penalty != "group" and data.draw(st.booleans())
    (rows, features), outputs = stream.dense.shape, losses.KINDS[kind][0]
    own = [losses.unpenalised(entry, features + 1) if intercept else entry for entry in grid]
    own = own if penalty == "l1" else [entry | {"penalty": penalty} for entry in own]
    full, X = (losses.rows_of(stream.dense, weights, intercept=intercept) for weights in (None, stream.weights))

    def run(X: np.ndarray, **more: str) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging oracle stops at the learner's bound
            return np.concatenate([oracle(name, loss, kind, X, stream, entry | more) for entry in own], axis=3)

    iterates, before = run(X)
    margins = np.einsum("tj,tjc->tc", full, before).reshape(rows, len(grid), outputs)
    assume(np.abs(margins).max(initial=0.0) < 1e5)  # NaN is not
    assume(not at_a_jump(name, iterates[:-1], iterates[1:]))
    if loss == "multiclass_hinge" or (loss == "hinge" and name != "passive-aggressive"):  # its steps end at the kink
        ties = (at_a_kink(loss, kind, z, y) for each, y in zip(margins, stream.labels, strict=True) for z in each)
        assume(not any(ties))
    mean: dict[str, Any] = {"average": "iterates"} if averaged else {}
    wanted = run(X, **mean)[0] if averaged else iterates

    learner = Learner(
        name,
        loss=loss,
        penalty=penalty,
        grid=[entry | mean for entry in grid],
        n_features=features,
        intercept=intercept,
        **losses.KINDS[kind][1],
    )
    found, csr, played = [], stream.csr, np.empty((rows, len(grid), outputs))
    labels = stream.labels.astype(float)
    for t in range(rows):
        weight = None if stream.weights is None else stream.weights[t : t + 1]
        row = csr.indptr[t : t + 2], csr.indices, csr.data, labels[t : t + 1], weight
        learner.learn_rows(*row, margins_out=played[t : t + 1])
        found.append(np.vstack([learner.weights(), learner.intercepts().reshape(1, -1)[: int(intercept)]]))
    if not np.allclose(found, wanted, **TOLERANCE):  # with long steps errors grow: does rounding decide what is right?
        for noise in np.random.default_rng(0).standard_normal((4, *X.shape)):
            assume(np.allclose(run(X * (1 + 2.0**-50 * noise), **mean)[0], wanted, **TOLERANCE))
    np.testing.assert_allclose(found, wanted, **TOLERANCE)
    never = ~stream.dense.any(axis=0)
    assert not np.array(found)[:, :features][:, never].any()
    R = np.repeat([entry.get("R", np.inf) for entry in grid], outputs)
    assert ((np.abs(found) <= R) | (np.abs(wanted) > R)).all()  # l-fobos leaves a box in between

    np.testing.assert_allclose(played, margins, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        learner.decision_function(csr), (full @ wanted[-1]).reshape(played.shape), rtol=1e-9, atol=1e-9
    )
    values, wrong = np.array(
        [
            [losses.incurred(loss, kind, z, label) for z in each]
            for each, label in zip(played, stream.labels, strict=True)
        ]
    ).transpose(2, 1, 0)
    weights = np.ones(rows) if stream.weights is None else stream.weights
    assert learner.progress.rows == rows
    assert not learner.diverged.any()
    np.testing.assert_allclose(learner.progress.loss_sum, values.sum(axis=1), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(learner.weighted_loss_sum, values @ weights, rtol=1e-8, atol=1e-8)
    assert learner.progress.error_count.tolist() == wrong.sum(axis=1).tolist()
    last = wanted[-1, :features].reshape(features, len(grid), outputs)
    np.testing.assert_allclose(
        learner.measure().penalty, [own_penalty(penalty, entry, last[:, c]) for c, entry in enumerate(grid)], atol=1e-9
    )


@pytest.mark.parametrize("name", ["ao-ftrl", "cao-ftrl", "caos-ftrl", "adagrad", "optimistic-ftrl"])
@settings(max_examples=10, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_predictions_that_are_given(name: str, data: st.DataObject, seed: int) -> None:
    stream = data.draw(streams(3, weighted=True))
    entry, *_ = data.draw(grids(ALGORITHMS[name], "l1"))
    entry |= {key: value for key, value in (("scale", "none"), ("model", "linear")) if key in entry}
    slopes = np.random.default_rng(seed).normal(0, 0.5, (len(stream.labels), 3))
    weights = np.ones(len(slopes)) if stream.weights is None else stream.weights
    X, known = losses.rows_of(stream.dense, weights, intercept=False), {"predict_gradient": slopes * weights[:, None]}
    with np.errstate(over="ignore", invalid="ignore"):
        wanted, _ = oracle(name, "logistic", "classes", X, stream, entry | known)
    assume(np.abs(stream.dense @ wanted).max(initial=0.0) < 1e5)
    own, n_features = entry | {"predict_gradient": "given"}, X.shape[1]
    learner = Learner(name, loss="logistic", grid=own, n_features=n_features, n_classes=3, dtype="float64")
    with raises_code("unsupported-combination", "needs predicted_slopes"):
        learner.partial_fit(stream.csr, stream.labels)
    learner.partial_fit(stream.csr, stream.labels, weights, predicted_slopes=slopes)
    assume(not learner.diverged.any())  # where a wrong prediction moves a weight that nothing holds yet
    np.testing.assert_allclose(learner.weights(), wanted[-1], **TOLERANCE)


def own_penalty(penalty: str, entry: dict[str, Any], W: np.ndarray) -> float:
    """ψ(W), λ included; 0 in a box."""
    if penalty == "group":
        return float(entry["lam"] * np.linalg.norm(W, axis=1).sum())
    ratio = {"l1": 1.0, "l2": 0.0}.get(penalty, entry.get("l1_ratio", 0.0))
    return float(entry.get("lam", 0.0) * (ratio * np.abs(W).sum() + (1 - ratio) * (W**2).sum() / 2))


# ----------------------------------------------------------------------------------------------------------------------
# Losses by finite differences, proximal maps by their optimality condition, functions of numbers by slower ones.


margins = st.floats(-40, 40)
SCALAR = [name for name, loss in LOSSES.items() if not loss.joint]
JOINT = [name for name, loss in LOSSES.items() if loss.joint]


@pytest.mark.parametrize("name", SCALAR)
@settings(max_examples=50)
@given(z=margins, y=st.sampled_from([-1.0, 1.0]))
def test_slope_is_the_derivative_of_the_value(name: str, z: float, y: float) -> None:
    loss, h = LOSSES[name], 1e-5
    assume(abs(y * z - 1) > 2 * h)  # the kink of the hinges
    assume(abs(abs(z - y) - 1) > 2 * h)  # those of the slope of huber
    difference = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    assert loss.slope(z, y) == pytest.approx(difference, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", SCALAR)
@settings(max_examples=50)
@given(far=st.floats(-700, 700), z=margins, other=margins, y=st.sampled_from([-1.0, 1.0]))
def test_losses_equal_the_oracles(name: str, far: float, z: float, other: float, y: float) -> None:
    """And are convex."""
    loss = LOSSES[name]
    assert loss.value(far, y) == pytest.approx(losses.VALUES[name](far, y), rel=1e-13, abs=1e-300)
    assert loss.slope(far, y) == pytest.approx(losses.SLOPES[name](far, y), rel=1e-13, abs=1e-300)
    assert loss.value(other, y) >= loss.value(z, y) + loss.slope(z, y) * (other - z) - 1e-9


def joint_among_others(name: str, z: np.ndarray, truth: int) -> tuple[float, np.ndarray]:
    """(loss, slopes), the margins lying in the middle of others."""
    padded, u = np.pad(z, 2, constant_values=9e9), np.full(len(z) + 4, 7.0)
    value = LOSSES[name].value(padded, u, 2, len(z) + 2, truth + 2)
    assert (u[[0, 1, -2, -1]] == 7).all()
    return value, u[2:-2]


@pytest.mark.parametrize("name", JOINT)
@settings(max_examples=50)
@given(data=st.data(), classes=st.integers(3, 6))
def test_joint_losses(name: str, data: st.DataObject, classes: int) -> None:
    """Values as the oracles have them, slopes by finite differences, convex, and a sum of slopes of 0."""
    z, other = (np.array(data.draw(st.lists(margins, min_size=classes, max_size=classes))) for _ in range(2))
    truth = data.draw(st.integers(0, classes - 1))
    value, slopes = joint_among_others(name, z, truth)
    assert value == pytest.approx(losses.JOINT_VALUES[name](z, truth), rel=1e-13, abs=1e-13)
    assert slopes == pytest.approx(losses.JOINT_SLOPES[name](z, truth), rel=1e-13, abs=1e-15)
    assert slopes.sum() == pytest.approx(0.0, abs=1e-14)
    assert joint_among_others(name, other, truth)[0] >= value + slopes @ (other - z) - 1e-9
    assert joint_among_others(name, z + 3.0, truth)[0] == pytest.approx(value, abs=1e-12)


@given(z=st.floats(allow_nan=False, allow_infinity=False), y=st.sampled_from([-1.0, 1.0]))
def test_the_logistic_slope_is_never_zero(z: float, y: float) -> None:
    assert -y * LOSSES["logistic"].slope(z, y) > 0.0
    assert math.isfinite(LOSSES["logistic"].value(z, y))


@pytest.mark.parametrize("name", ["l1", "l2", "elastic_net"])
@given(v=st.floats(-1e6, 1e6), a=st.floats(0, 1e6))
def test_prox_is_optimal(name: str, v: float, a: float) -> None:
    """0 ∈ w − v + a·∂|w|."""
    w = PENALTIES[name].prox(v, a)
    if w == 0:
        assert abs(v) <= a or v == w
    else:
        assert w - v + a * math.copysign(1.0, w) == pytest.approx(0.0, abs=1e-9 * max(1.0, abs(v), a))


@given(loss=st.floats(0, 1e3), square=st.floats(0, 1e3), eta=st.floats(1e-3, 1e3), other=st.floats(0, 1e3))
def test_a_truncated_step_minimises_its_model(loss: float, square: float, eta: float, other: float) -> None:
    """max(ℓ + ⟨g, w − w_t⟩, 0) + ‖w − w_t‖²_H/(2η) at w = w_t − sH⁻¹g, ‖g‖² = square."""

    def model(s: float) -> float:
        return max(loss - s * square, 0.0) + s * s * square / (2 * eta)

    step = truncated_step(eta, loss, square)
    assert all(model(step) <= model(s) * (1 + 1e-12) + 1e-300 for s in (other, 0.999 * step, 1.001 * step, eta))


def test_a_truncated_model_is_refused_where_it_is_not_offered() -> None:
    own: dict[str, Any] = {"model": "truncated"}
    with raises_code("unsupported-combination", "group"):
        Learner("fobos", penalty="group", grid=own, n_features=2, n_classes=3)
    for penalty, more in (("l2", {}), ("l1", {"predict_gradient": "last"}), ("l1", {"schedule": "sqrt"})):
        with raises_code("unsupported-combination", *more or [penalty]):
            Learner("adagrad", penalty=penalty, grid=own | more, n_features=2)
    for algorithm in map(find_algorithm, ("adagrad", "fobos")):
        with raises_code("unsupported-combination", "'return'", "below 0"):
            algorithm.rule(PORTFOLIO_LOSSES["return"], PENALTIES["l1"], algorithm.configuration(own))


@given(x=st.floats(0, 1), negative=st.floats(-700, 0))
def test_functions_of_numbers(x: float, negative: float) -> None:
    """eˣ, log(1 + x) and ∛(1 + x)."""
    assert exp_of_negative(negative) == pytest.approx(math.exp(negative), rel=4.5e-16)
    assert log1p_of_fraction(x) == pytest.approx(math.log1p(x), rel=4.5e-16, abs=1e-323)
    assert cbrt1p_of_fraction(np.float64(x)) == pytest.approx(math.cbrt(1 + x), rel=4.5e-16)
    assert cbrt1p_of_fraction(0.0) == 1.0


def test_unknown_names() -> None:
    with raises_code("unknown-loss", "'log'", "logistic"):
        find_loss("log")
    with raises_code("unknown-penalty", "'lasso'", "l1"):
        find_penalty("lasso")
    assert np.isnan(LOSSES["squared"].value(np.nan, 1.0))


# ----------------------------------------------------------------------------------------------------------------------
# Learners that play in a convex set: their pseudo-code, their sets, the directions and constants of bandits.


IN_A_SET = [
    (name, loss, domain)
    for name in dense.ORACLES
    for loss in ("return", "log_return", "squared", "logistic")
    for domain in ("l1", "simplex", *(["ball"] if name != "ao-eg" else []))
    if domain == "simplex" or loss not in PORTFOLIO_LOSSES
]
PARAMETERS = {
    "D": st.floats(0.31, 7.3),
    "G": st.floats(0.37, 11.3),
    "F": st.floats(0.41, 9.7),
    "L": st.floats(0.53, 8.9),
    "beta": st.sampled_from([0.00137, 0.031, 0.61]),
    "repetition": st.integers(0, 2**53 - 1),
    "R": st.floats(0.21, 6.1),
    "C": st.sampled_from([0.0137, 1.07, 31.0]),
    "predict_gradient": st.sampled_from(["last", "none"]),
}


@st.composite
def games(draw: st.DrawFn, name: str, loss: str, domain: str) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]:
    """Rows, targets and a grid with nothing left to be computed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, n = draw(st.integers(1, 16)), draw(st.integers(2, 4))
    X = rng.normal(0, 1, (rows, n)) * (rng.random((rows, n)) < draw(st.sampled_from([0.4, 1.0])))
    if loss in PORTFOLIO_LOSSES:
        X = np.exp(0.2 * rng.normal(size=(rows, n)))
    y = rng.choice([-1.0, 1.0], rows) if loss == "logistic" else rng.normal(size=rows)
    known = {p.name for p in find_algorithm(name).parameters}
    grid = []
    for _ in range(draw(st.integers(1, 3))):
        entry = {p: draw(values) for p, values in PARAMETERS.items() if p in known} | {"domain": domain}
        if name in BANDITS:
            r = (
                1 / np.sqrt(n * (n - 1))
                if domain == "simplex"
                else entry["D"] / 2 / np.sqrt(n if domain == "l1" else 1)
            )
            entry["gamma"] = draw(st.sampled_from([0.1, 0.63]))
            entry["delta"] = draw(st.sampled_from([0.23, 1.0])) * entry["gamma"] * r
        grid.append(entry)
    return X, y, grid


@pytest.mark.parametrize(("name", "loss", "domain"), IN_A_SET)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_equals_the_pseudo_code_after_every_row(name: str, loss: str, domain: str, data: st.DataObject) -> None:
    X, y, grid = data.draw(games(name, loss, domain))
    classes = 2 if loss == "logistic" else None
    learner = Learner(name, loss=loss, grid=grid, n_features=X.shape[1], n_classes=classes)
    played = [list(dense.ORACLES[name](X, y, loss, **entry)) for entry in grid]
    rows = sp.csr_matrix(X)
    incurred = np.zeros(len(grid))
    for t in range(len(X)):
        learner.partial_fit(rows[t], y[t : t + 1])
        incurred += [rounds[t][1] for rounds in played]
        wanted = np.column_stack([rounds[t][0] for rounds in played])
        np.testing.assert_allclose(learner.weights(), wanted, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(learner.progress.loss_sum, incurred, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(learner.decision_function(rows)[:, :, 0], X @ learner.weights(), atol=1e-12)


@pytest.mark.parametrize("name", algorithm_names("dense"))
def test_starts_from_weights_in_its_set(name: str) -> None:
    inside = np.array([[0.4, -0.1, 0.2, 0.0, 0.0, 0.1]]).T
    learner = Learner(name, grid=[{}, {}], n_features=6).start_from(inside, 100)
    near = 2e-3 if name == "ao-eg" else 1e-15
    np.testing.assert_allclose(learner.weights(), np.repeat(inside, 2, axis=1), atol=near)
    begun = learner.weights()
    learner.partial_fit(sp.csr_matrix((1, 6)), [1])
    if name not in BANDITS:  # a row of nothing moves nothing
        np.testing.assert_allclose(learner.weights(), begun, atol=1e-14)
    assert learner.progress.rows == 1
    assert learner.rounds == 101
    shares = Learner(name, grid={"domain": "simplex"}, n_features=6).start_from(inside, 100).weights()[:, 0]
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1.0)
    assert shares.argmax() == 0


# ----------------------------------------------------------------------------------------------------------------------
# Bandits: directions, what the theorems compute, and where they play.


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_directions_are_uniform(n: int, flat: bool) -> None:
    """E[v] = 0 and m·E[vvᵀ] is the identity (of the plane): what makes a bandit's gradients right on average."""
    T = 2_000
    V = np.zeros((T, n))
    for t in range(T):
        dense.DIRECTION(5, t, 0, flat, V[t])
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1.0, rtol=1e-14)
    m = n - 1 if flat else n
    identity = np.eye(n) - flat / n
    assert np.abs(V.mean(axis=0)).max() < 3.5 / np.sqrt(T * m)
    assert np.abs(m * V.T @ V / T - identity).max() < 3.5 * np.sqrt(2 / T)
    if m == 2:  # the fourth moment too: E[v⁴] = 3/(m(m + 2)) of a coordinate in the plane
        along = V @ (np.array([1.0, -1.0, *np.zeros(n - 2)]) / np.sqrt(2) if flat else np.eye(n)[0])
        assert (along**4).mean() == pytest.approx(3 / 8, abs=0.02)
    again, others = np.zeros(n), np.zeros((3, n))
    dense.DIRECTION(5, 7, 0, flat, again)
    assert (again == V[7]).all()
    for v, key in zip(others, [(6, 7, 0), (5, 8, 0), (5, 7, 1)], strict=True):
        dense.DIRECTION(*key, flat, v)
    assert n - flat == 1 or len(np.unique(np.vstack([again, others]), axis=0)) == 4


def test_what_is_computed_is_the_theorems() -> None:
    """Liu et al. 2019, Theorems 3.1 and 3.2 and Algorithm 1, line 2, in numbers."""
    d, T, D, F, sigma, r = 7, 626_550, 2.0, 3.0, 0.5, 0.8
    entry = {"T": T, "D": D, "F": F, "sigma": sigma, "r": r}
    it = bandit_terms(find_algorithm("onseg").configuration(entry), d)
    delta = (25 * d**4 * D**2 * np.log(T) ** 2 * r / (3 * T**2)) ** (1 / 3)
    assert it.delta == pytest.approx(delta)
    assert it.gamma == pytest.approx((15 * d**2 * D * np.log(T) / (r * T)) ** (1 / 3))
    assert it.beta == pytest.approx(0.5 * min(delta / (4 * d * F * D), sigma * delta**2 / (d * F) ** 2))
    it = bandit_terms(find_algorithm("onseg").configuration(entry | {"L": 4.0}), d)
    assert it.delta == pytest.approx(np.sqrt(10 * d**2 * F * D * r * np.log(T) / (3 * (4 * r + F) * T)))
    assert it.gamma == pytest.approx(it.delta / r)
    own = bandit_terms(find_algorithm("onseg").configuration(entry | {"delta": 0.1, "gamma": 0.3, "beta": 0.01}), d)
    assert (own.delta, own.gamma, own.beta) == (0.1, 0.3, 0.01)
    small = bandit_terms(find_algorithm("onseg").configuration({"T": 680, "domain": "simplex"}), 94)
    assert small.gamma == 0.5  # the theorem's would be 15 here
    assert small.r == pytest.approx(1 / np.sqrt(94 * 93))
    assert small.delta <= small.gamma * small.r


@pytest.mark.parametrize("name", BANDITS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_bandit_plays_inside_its_set(name: str, domain: str) -> None:
    """Its margins of rows that are unit vectors are the coordinates of the points it played."""
    T, n = 400, 4
    grid = {"domain": domain, "D": 2.0, "T": T} | ({"L": 1.0} if name == "two-point" else {"F": 1.0})
    grid |= {"beta": 0.01} if name == "onseg" else {}
    played = []
    for i in range(n):  # the same directions, and losses of 0 that move nothing
        learner = Learner(name, loss="return", grid=grid, n_features=n, n_classes=None)
        X = sp.csr_matrix(np.eye(n)[np.full(1, i)])
        margins = np.empty((1, 1, 1))
        learner.learn_rows(X.indptr, X.indices, X.data, np.zeros(1), margins_out=margins)
        played.append(margins[0, 0, 0])
    x = np.array(played)
    if domain == "simplex":
        assert x.sum() == pytest.approx(1.0)
        assert x.min() > 0
    else:
        assert np.linalg.norm(x) == pytest.approx(learner._blocks[0][1].numbers[0][2])
    rng = np.random.default_rng(0)
    learner = Learner(name, loss="squared", grid=grid, n_features=n, n_classes=None)
    learner.partial_fit(sp.csr_matrix(rng.normal(size=(T, n))), 3 * rng.normal(size=T))
    it = bandit_terms(learner.configurations[0], n)
    w = learner.weights()[:, 0]
    if domain == "simplex":
        assert w.min() >= it.gamma / n * (1 - 1e-12)
    else:
        assert np.linalg.norm(w, 1 if domain == "l1" else 2) <= (1 - it.gamma) * 1.0 * (1 + 1e-12)
