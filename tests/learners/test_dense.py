"""Learners that play in a convex set: their pseudo-code, their sets, the directions and constants of bandits."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.learners import algorithm_names, find_algorithm
from sparseoco.learners.losses import PORTFOLIO_LOSSES
from sparseoco.learners.ons import bandit_terms
from sparseoco.training.learner import Learner
from tests.learners.cases import BANDITS
from tests.oracles.dense import DIRECTION, ORACLES

pytestmark = pytest.mark.formulas
CASES = [
    (name, loss, domain)
    for name in ORACLES
    for loss in ("return", "log_return", "squared", "logistic")
    for domain in ("l1" if name == "ao-eg" else "ball", "simplex")
    if domain == "simplex" or loss not in PORTFOLIO_LOSSES
]
PARAMETERS = {
    "D": st.floats(0.31, 7.3),
    "G": st.floats(0.37, 11.3),
    "F": st.floats(0.41, 9.7),
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
            r = entry["D"] / 2 if domain == "ball" else 1 / np.sqrt(n * (n - 1))
            entry["gamma"] = draw(st.sampled_from([0.1, 0.63]))
            entry["delta"] = draw(st.sampled_from([0.23, 1.0])) * entry["gamma"] * r
        grid.append(entry)
    return X, y, grid


@pytest.mark.parametrize(("name", "loss", "domain"), CASES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_equals_the_pseudo_code_after_every_row(name: str, loss: str, domain: str, data: st.DataObject) -> None:
    X, y, grid = data.draw(games(name, loss, domain))
    classes = 2 if loss == "logistic" else None
    learner = Learner(name, loss=loss, grid=grid, n_features=X.shape[1], n_classes=classes)
    played = [list(ORACLES[name](X, y, loss, **entry)) for entry in grid]
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
    T = 4_000
    V = np.zeros((T, n))
    for t in range(T):
        DIRECTION(5, t, 0, flat, V[t])
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1.0, rtol=1e-14)
    m = n - 1 if flat else n
    identity = np.eye(n) - flat / n
    assert np.abs(V.mean(axis=0)).max() < 3.5 / np.sqrt(T * m)
    assert np.abs(m * V.T @ V / T - identity).max() < 3.5 * np.sqrt(2 / T)
    if m == 2:  # the fourth moment too: E[v⁴] = 3/(m(m + 2)) of a coordinate in the plane
        along = V @ (np.array([1.0, -1.0, *np.zeros(n - 2)]) / np.sqrt(2) if flat else np.eye(n)[0])
        assert (along**4).mean() == pytest.approx(3 / 8, abs=0.02)
    again, others = np.zeros(n), np.zeros((3, n))
    DIRECTION(5, 7, 0, flat, again)
    assert (again == V[7]).all()
    for v, key in zip(others, [(6, 7, 0), (5, 8, 0), (5, 7, 1)], strict=True):
        DIRECTION(*key, flat, v)
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
@pytest.mark.parametrize("domain", ["ball", "simplex"])
def test_a_bandit_plays_inside_its_set(name: str, domain: str) -> None:
    """Its margins of rows that are unit vectors are the coordinates of the points it played."""
    T, n = 400, 4
    grid = {"domain": domain, "D": 2.0, "T": T, "F": 1.0} | ({"beta": 0.01} if name == "onseg" else {})
    played = []
    for i in range(n):  # the same directions, and losses of 0 that move nothing
        learner = Learner(name, loss="return", grid=grid, n_features=n, n_classes=None)
        X = sp.csr_matrix(np.eye(n)[np.full(1, i)])
        margins = np.empty((1, 1, 1))
        learner.learn_rows(X.indptr, X.indices, X.data, np.zeros(1), margins_out=margins)
        played.append(margins[0, 0, 0])
    x = np.array(played)
    if domain == "ball":
        assert np.linalg.norm(x) == pytest.approx(learner._blocks[0][1].numbers[0][2])
    else:
        assert x.sum() == pytest.approx(1.0)
        assert x.min() > 0
    rng = np.random.default_rng(0)
    learner = Learner(name, loss="squared", grid=grid, n_features=n, n_classes=None)
    learner.partial_fit(sp.csr_matrix(rng.normal(size=(T, n))), 3 * rng.normal(size=T))
    it = bandit_terms(learner.configurations[0], n)
    w = learner.weights()[:, 0]
    if domain == "ball":
        assert np.linalg.norm(w) <= (1 - it.gamma) * 1.0 * (1 + 1e-12)
    else:
        assert w.min() >= it.gamma / n * (1 - 1e-12)
