"""Learners that play in a convex set: against the papers' pseudo-code, and bit for bit however a stream is cut."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.learners import dense_learners, find_algorithm
from sparseoco.learners.bandit import bandit_terms
from sparseoco.training.learner import Learner, state_arrays
from sparseoco.training.validation import DENSE_BYTES, bytes_per_column, check_size
from tests.oracles.dense import DIRECTION, ORACLES
from tests.oracles.stream import SLOPES, VALUES
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
PORTFOLIO = {
    "return": (lambda z, y: -z, lambda z, y: -1.0),
    "log_return": (lambda z, y: -np.log(z), lambda z, y: -1.0 / z),
}
FUNCTIONS = PORTFOLIO | {name: (VALUES[name], SLOPES[name]) for name in ("squared", "logistic")}
BANDITS = ("ogdeg", "onseg")
CASES = [
    (name, loss, domain)
    for name in ORACLES
    for loss in FUNCTIONS
    for domain in ("l1" if name == "ao-eg" else "ball", "simplex")
    if domain == "simplex" or loss not in PORTFOLIO
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
    rows, n = draw(st.integers(1, 25)), draw(st.integers(2, 4))
    X = rng.normal(0, 1, (rows, n)) * (rng.random((rows, n)) < draw(st.sampled_from([0.4, 1.0])))
    if loss in PORTFOLIO:
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


def learner_of(name: str, loss: str, grid: Any, n: int, **options: Any) -> Learner:
    return Learner(name, loss=loss, grid=grid, n_features=n, n_classes=2 if loss == "logistic" else None, **options)


@pytest.mark.parametrize(("name", "loss", "domain"), CASES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_equals_the_pseudo_code_after_every_row(name: str, loss: str, domain: str, data: st.DataObject) -> None:
    X, y, grid = data.draw(games(name, loss, domain))
    learner = learner_of(name, loss, grid, X.shape[1])
    played = [list(ORACLES[name](X, y, *FUNCTIONS[loss], **entry)) for entry in grid]
    rows = sp.csr_matrix(X)
    incurred = np.zeros(len(grid))
    for t in range(len(X)):
        learner.partial_fit(rows[t], y[t : t + 1])
        incurred += [rounds[t][1] for rounds in played]
        wanted = np.column_stack([rounds[t][0] for rounds in played])
        np.testing.assert_allclose(learner.weights(), wanted, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(learner.progress.loss_sum, incurred, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(learner.decision_function(rows)[:, :, 0], X @ learner.weights(), atol=1e-12)


GRID: dict[str, list[dict[str, Any]]] = {
    "ogd": [{"G": 1.0}, {"G": 7.0}],
    "ons": [{"beta": 0.3}, {"beta": 0.01}],
    "ogdeg": [{"T": 500, "repetition": 0}, {"T": 500, "repetition": 1}],
    "onseg": [{"T": 500, "repetition": 0, "beta": 1e-3}, {"T": 500, "repetition": 1, "beta": 1e-3}],
    "ao-eg": [{"R": 2.0}, {"R": 30.0}],
}


def corpus(rows: int = 60, classes: int = 3) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(3)
    return sp.random_array((rows, 6), density=0.6, rng=rng, format="csr"), rng.integers(0, classes, rows)


def arrays(learner: Learner) -> Iterator[tuple[str, np.ndarray]]:
    return state_arrays([block for _, block in learner._blocks], learner.history)


def same(a: Learner, b: Learner) -> None:
    assert a.weights().tobytes() == b.weights().tobytes()
    for one, other in zip(a.progress, b.progress, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    for (name, one), (_, other) in zip(arrays(a), arrays(b), strict=True):
        assert one.tobytes() == other.tobytes(), name


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", dense_learners())
def test_cuts_saving_and_company_change_no_bit(name: str, dtype: str, tmp_path: Path) -> None:
    X, y = corpus()

    def made(grid: Any = GRID[name]) -> Learner:
        return Learner(name, grid=grid, n_features=6, n_classes=3, dtype=dtype)

    whole = made().partial_fit(X, y)
    cut = made()
    for rows in np.split(np.arange(60), [1, 2, 9, 40]):
        cut.partial_fit(X[rows], y[rows])
        cut.save(tmp_path / "learner")
        cut = Learner.load(tmp_path / "learner")
    same(whole, cut)
    alone = made(GRID[name][1:]).partial_fit(X, y)
    assert alone.weights().tobytes() == whole.weights_of(1).tobytes()
    half = made().partial_fit(X[:30], y[:30]).select([1])
    same(half.partial_fit(X[30:], y[30:]), alone)
    assert whole.weights().dtype == np.dtype(dtype)
    assert len(np.unique(whole.weights()[0])) == 6  # configurations and classes all go their own ways


@pytest.mark.parametrize("name", dense_learners())
def test_properties_of_learners(name: str) -> None:
    X, y = corpus()
    learner = Learner(name, grid=GRID[name], n_features=6, n_classes=3)
    margins = np.empty((60, 2, 3))
    learner.learn_rows(X.indptr, X.indices, X.data, y.astype(float), margins_out=margins)
    signs = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    np.testing.assert_allclose(np.logaddexp(0, -signs[:, None] * margins).sum(axis=(0, 2)), learner.progress.loss_sum)
    np.testing.assert_array_equal((margins.argmax(axis=2) != y[:, None]).sum(axis=0), learner.progress.error_count)
    z = learner.decision_function(X)
    np.testing.assert_allclose(z, np.einsum("ij,jco->ico", X.toarray(), learner.weights().reshape(6, 2, 3)), atol=1e-12)
    losses, errors = learner.evaluate(X.indptr, X.indices, X.data, y)
    np.testing.assert_allclose(losses, np.logaddexp(0, -signs[:, None] * z).sum(axis=(0, 2)))
    assert (errors == (z.argmax(axis=2) != y[:, None]).sum(axis=0)).all()
    learner.mark()
    assert (learner.history.nonzeros == 6).all()
    assert (learner.nonzeros() == 18).all()
    assert not learner.diverged.any()
    assert learner.progress.rows == learner.rounds == 60
    assert learner.thresholds_of(0) is None
    assert learner.slots_of(1)["y"].tobytes() == learner.weights_of(1).tobytes()


@pytest.mark.parametrize("name", dense_learners())
def test_a_joint_loss(name: str) -> None:
    X, y = corpus()
    if name in BANDITS:
        with raises_code("unsupported-combination", "loss='logistic'"):
            Learner(name, loss="softmax", n_features=6, n_classes=3)
        return
    y = X[:, :3].toarray().argmax(axis=1)
    learner = Learner(name, loss="softmax", grid=GRID[name], n_features=6, n_classes=3).partial_fit(X, y)
    assert (learner.progress.loss_sum < 60 * np.log(3)).any()
    Z = learner.decision_function(X)
    losses, _ = learner.evaluate(X.indptr, X.indices, X.data, y)
    truth = np.take_along_axis(Z, y[:, None, None], axis=2)[:, :, 0]
    np.testing.assert_allclose(losses, (np.logaddexp.reduce(Z, axis=2) - truth).sum(axis=0))


@pytest.mark.parametrize("name", dense_learners())
def test_starts_from_weights_in_its_set(name: str) -> None:
    inside = np.array([[0.4, -0.1, 0.2, 0.0, 0.0, 0.1]]).T
    learner = Learner(name, grid=GRID[name], n_features=6).start_from(inside, 100)
    near = 2e-3 if name == "ao-eg" else 1e-15
    np.testing.assert_allclose(learner.weights(), np.repeat(inside, 2, axis=1), atol=near)
    begun = learner.weights()
    learner.partial_fit(sp.csr_matrix((1, 6)), [1])
    if name not in BANDITS:  # a row of nothing moves nothing
        np.testing.assert_allclose(learner.weights(), begun, atol=1e-14)
    assert learner.progress.rows == 1
    assert learner.rounds == 101
    domain = {"domain": "simplex"}
    shares = Learner(name, grid=domain, n_features=6).start_from(inside, 100).weights()[:, 0]
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1.0)
    assert shares.argmax() == 0


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_directions_are_uniform(n: int, flat: bool) -> None:
    """E[v] = 0 and m·E[vvᵀ] is the identity (of the plane): what makes a bandit's gradients right on average."""
    T = 20_000
    V = np.zeros((T, n))
    for t in range(T):
        DIRECTION(5, t, 0, flat, V[t])
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1.0, rtol=1e-14)
    m = n - 1 if flat else n
    identity = np.eye(n) - flat / n
    assert np.abs(V.mean(axis=0)).max() < 5 / np.sqrt(T * m)
    assert np.abs(m * V.T @ V / T - identity).max() < 5 * np.sqrt(2 / T)
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


@pytest.mark.parametrize("name", ["ogdeg", "onseg"])
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


def test_too_many_features_are_refused_with_the_figure() -> None:
    with raises_code("too-many-features", "onseg", "d²", "44,798", "16.1 GB"):
        Learner("onseg", n_features=44_798)
    check_size("ons", 11_584)
    assert bytes_per_column("ons", 11_584, "float32") <= DENSE_BYTES
    for name in ("ogd", "ogdeg", "ao-eg"):
        check_size(name, 10**8)
        assert bytes_per_column(name, 10, "float64") == 8 * 10 * (4 if name == "ao-eg" else 1)


@pytest.mark.parametrize(
    ("name", "grid", "n", "word"),
    [
        ("onseg", {"delta": 3.0, "gamma": 0.1}, 3, "delta=3"),
        ("ogdeg", {"gamma": 1.0}, 3, "gamma"),
        ("ogdeg", {"domain": "simplex"}, 1, "simplex"),
        ("ogdeg", {"D": 2.0, "r": 1.1}, 3, "r=1.1"),
        ("onseg", {"domain": "simplex", "r": 0.5}, 3, "0.408"),
        ("onseg", {"gamma": 0.0}, 3, "gamma=0"),
        ("ogdeg", {"gamma": 0.0}, 3, "gamma=0"),
        ("onseg", {"F": 1e200}, 3, "F=1e+200"),
        ("onseg", {"sigma": 1e-320}, 3, "sigma="),
        ("ons", {"beta": 1e300}, 3, "beta=1e+300"),
        ("onseg", {"repetition": -1}, 3, "repetition=-1"),
        ("ons", {"beta": "small"}, 3, "beta='small'"),
        ("ogd", {"domain": "cube"}, 3, "domain='cube'"),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, grid: dict[str, Any], n: int, word: str) -> None:
    with raises_code("invalid-parameter", word):
        Learner(name, grid=grid, n_features=n)


def test_losses_of_portfolios_are_for_dense_learners() -> None:
    with raises_code("unknown-loss", "'return'", "logistic"):
        Learner("fobos", loss="return", n_features=3, n_classes=None)
    with raises_code("unknown-loss", "'nothing'", "log_return"):
        Learner("ons", loss="nothing", n_features=3)
    with raises_code("unsupported-combination", "ons", "l1"):
        Learner("ons", penalty="l2", n_features=3)
