"""The optimistic family: its members' identities, its box, its regret, its draws."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from sparseoco.core.errors import InputError
from sparseoco.training.learner import Learner
from tests.learners.streams import Stream, streams
from tests.oracles.ftrl import importances
from tests.oracles.stream import ORACLES, SLOPES, VALUES

pytestmark = pytest.mark.formulas
PREDICTIONS = ("none", "last", "mean")
LAMS = [0.0, 1e-4, 1e-2]


@pytest.fixture(scope="module")
def data() -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(17)
    frequent = rng.random((200, 30)) < 1.0 / np.arange(1, 31)
    return sp.csr_matrix(rng.integers(1, 5, (200, 30)) * frequent), rng.integers(0, 2, 200)


def bits(name: str, data: tuple, **grid: object) -> bytes:
    X, y = data
    return Learner(name, loss="hinge", grid=grid, n_features=30).partial_fit(X, y).weights().tobytes()


def test_members_are_each_other(data: tuple) -> None:
    assert bits("ftrl-proximal", data, lam=LAMS) == bits("cao-ftrl", data, lam=LAMS, predict_gradient="none")
    assert bits("ao-gd", data, R=0.3) == bits("ao-ftrl", data, R=0.3, predict_gradient="last")
    for predict in PREDICTIONS:
        assert bits("ao-ftrl", data, predict_gradient=predict) == bits(
            "cao-ftrl", data, predict_gradient=predict, lam=0.0
        )
        sampled = bits("caos-ftrl", data, lam=LAMS, predict_gradient=predict, keep=1.0, sample="uniform")
        assert sampled == bits("cao-ftrl", data, lam=LAMS, predict_gradient=predict)


def test_without_a_strongly_convex_penalty_the_regularizer_stays(data: tuple) -> None:
    """l1 and λ = 0 of none: the proximal one."""
    assert bits("cao-ftrl", data, lam=LAMS, regularizer="none") == bits("cao-ftrl", data, lam=LAMS)
    assert bits("cao-ftrl", data, lam=LAMS, regularizer="centred") != bits("cao-ftrl", data, lam=LAMS)


def test_schedules_agree_without_a_penalty(data: tuple) -> None:
    for name in ("adagrad", "cao-ftrl"):
        same = {bits(name, data, lam=0.0, schedule=schedule) for schedule in ("constant", "sqrt", "first")}
        others = {bits(name, data, lam=0.01, schedule=schedule) for schedule in ("constant", "sqrt", "first")}
        assert (len(same), len(others)) == (1, 3)


@pytest.mark.parametrize(
    ("name", "fixed"),
    [("cao-ftrl", {}), ("cao-ftrl", {"regularizer": "centred", "schedule": "sqrt"}), ("adagrad", {"schedule": "sqrt"})],
)
@pytest.mark.parametrize("predict", PREDICTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_bits_for_every_prediction(
    name: str, fixed: dict, predict: str, dtype: str, data: tuple, tmp_path: Path
) -> None:
    X, y = data

    def new(lams: list[float]) -> Learner:
        grid = {"lam": lams, "predict_gradient": predict, **fixed}
        return Learner(name, grid=grid, n_features=30, dtype=dtype)

    whole = new(LAMS * 3).partial_fit(X, y)
    moved = new(LAMS * 3)
    for a in range(0, 200, 31):
        moved.save(tmp_path / "state")
        moved = Learner.load(tmp_path / "state").partial_fit(X[a : a + 31], y[a : a + 31])
        moved.weights()
    alone = new(LAMS[2:]).partial_fit(X, y)
    assert moved.weights().tobytes() == whole.weights().tobytes()
    assert alone.weights().tobytes() == whole.weights_of(2).tobytes() == whole.weights_of(8).tobytes()


@pytest.mark.parametrize("predict", PREDICTIONS)
@settings(max_examples=15)
@given(data=st.data())
def test_weights_stay_in_the_box_and_unseen_features_at_zero(predict: str, data: st.DataObject) -> None:
    stream = data.draw(streams())
    R = data.draw(st.floats(0.0371, 5.93))
    never = sp.hstack([stream.csr, sp.csr_matrix((stream.csr.shape[0], 1))], format="csr")
    learner = Learner(
        "cao-ftrl",
        loss="squared",
        grid={"R": R, "lam": [0.0, 0.1], "predict_gradient": predict},
        n_features=never.shape[1],
    )
    for t in range(never.shape[0]):
        weights = learner.partial_fit(never[t], stream.labels[t : t + 1]).weights()
        assert np.abs(weights).max() <= R
        assert not weights[-1].any()


@pytest.mark.parametrize("predict", PREDICTIONS)
def test_five_thousand_rounds_without_the_feature(predict: str) -> None:
    X = np.zeros((5_000, 3))
    X[[0, 1, 4_990], 0] = 1.7, -2.3, 0.9  # asleep almost always
    X[[5, 2_000, 2_001, 4_998, 4_999], 1] = 3.1
    X[::3, 2] = 0.37
    y = (np.arange(5_000) * 7 // 5) % 2
    learner = Learner("cao-ftrl", grid={"R": 0.7, "lam": [0.0, 1e-5, 3e-3], "predict_gradient": predict}, n_features=3)
    learner.partial_fit(sp.csr_matrix(X), y)
    for i, lam in enumerate([0.0, 1e-5, 3e-3]):
        *_, last = ORACLES["cao-ftrl"](X, 2.0 * y - 1, "logistic", R=0.7, lam=lam, predict_gradient=predict)
        np.testing.assert_allclose(learner.weights_of(i)[:, 0], last, rtol=1e-10, atol=1e-12)


def played(stream: Stream, name: str, loss: str, R: float, lam: float, predict: str) -> tuple[float, float]:
    """Regret of ``Σ ℓ_t + λ‖x_t‖₁`` against the best point of the box, and 4 Σ_i R·Δ_{T,i}."""
    X, signs = stream.dense, 2.0 * stream.labels - 1
    grid = {"R": R} if name == "ao-gd" else {"R": R, "lam": lam, "predict_gradient": predict}
    learner = Learner(name, loss=loss, grid=grid, n_features=X.shape[1])
    T, n = X.shape
    total, squares = 0.0, np.zeros(n)
    g_last, g_sum, seen = np.zeros(n), np.zeros(n), np.zeros(n)
    for t in range(T):
        x_t = learner.weights()[:, 0]
        z = X[t] @ x_t
        total += VALUES[loss](z, signs[t]) + lam * np.abs(x_t).sum()
        g = SLOPES[loss](z, signs[t]) * X[t]
        predicted = {"none": 0.0, "last": g_last, "mean": np.where(X[t] != 0, g_sum / np.maximum(seen, 1), 0.0)}
        squares += (g - predicted[predict]) ** 2
        g_last, g_sum, seen = g, g_sum + g, seen + (X[t] != 0)
        learner.partial_fit(stream.csr[t], stream.labels[t : t + 1])

    def objective(halves: np.ndarray) -> tuple[float, np.ndarray]:
        z = X @ (halves[:n] - halves[n:])
        slopes = X.T @ np.array([SLOPES[loss](*pair) for pair in zip(z, signs, strict=True)])
        value = sum(VALUES[loss](*pair) for pair in zip(z, signs, strict=True)) + T * lam * halves.sum()
        return value, np.concatenate([slopes, -slopes]) + T * lam

    best = minimize(objective, np.zeros(2 * n), jac=True, bounds=[(0.0, R)] * (2 * n)).fun
    return total - best, 4 * R * np.sqrt(squares).sum()


@pytest.mark.parametrize(
    ("name", "predict", "lam"),
    [("ao-gd", "last", 0.0), ("cao-ftrl", "none", 0.02), ("cao-ftrl", "last", 0.02), ("cao-ftrl", "mean", 0.0)],
)
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@settings(max_examples=8)
@given(stream=streams(), R=st.floats(0.1, 2.0))
def test_regret_is_bounded(name: str, loss: str, predict: str, lam: float, stream: Stream, R: float) -> None:
    """Corollary 2 for ao-gd; Theorem 3 with the same regularizer, whose r_{0:T} and norms come to 2RΔ_T each."""
    regret, bound = played(stream, name, loss, R, lam, predict)
    assert regret <= bound + 1e-9


@pytest.mark.parametrize("sample", ["uniform", "lipschitz"])
def test_regret_of_samples_is_bounded_in_expectation(sample: str) -> None:
    """Theorem 5 with the regularizer of Corollary 2, both sides averaged over 64 seeds."""
    rng = np.random.default_rng(8)
    X = sp.csr_matrix(rng.lognormal(-1, 1, (250, 4)) * (rng.random((250, 4)) < 0.6))
    y, R, keep = (rng.random(250) < 0.8).astype(int), 0.5, 0.3
    rows, signs, seeds = X.toarray(), 2.0 * y - 1, range(64)
    grid = {"R": R, "lam": 0.0, "keep": keep, "sample": sample, "predict_gradient": "last", "seed": seeds}
    learner = Learner("caos-ftrl", grid=grid, n_features=4)
    drawn = np.array([importances(rows, np.ones(len(rows)), keep, sample, seed) for seed in seeds])
    g_last, squares = np.zeros((4, 64)), np.zeros((4, 64))
    for t, x in enumerate(rows):
        slopes = [SLOPES["logistic"](z, signs[t]) for z in x @ learner.weights()]
        g_hat = x[:, None] * slopes * drawn[:, t]
        squares += (g_hat - g_last) ** 2
        g_last = g_hat
        learner.partial_fit(X[t], y[t : t + 1])

    def loss(w: np.ndarray) -> float:
        return float(sum(VALUES["logistic"](*pair) for pair in zip(rows @ w, signs, strict=True)))

    best = minimize(loss, np.zeros(4), bounds=[(-R, R)] * 4).fun
    assert (learner.progress.loss_sum - best).mean() <= 4 * R * np.sqrt(squares).sum(axis=0).mean()


def test_correct_predictions_lower_the_regret() -> None:
    """Slopes that hardly change: the bound of ao-gd, and what it pays, stay small while FTRL-proximal's grow."""
    X, y = np.full((400, 2), 0.05), np.ones(400, int)
    stream = Stream(X, y, 1)
    regret, bound = played(stream, "ao-gd", "logistic", 1.0, 0.0, "last")
    other, others_bound = played(stream, "cao-ftrl", "logistic", 1.0, 0.0, "none")
    assert bound < others_bound / 5
    assert regret <= other


def test_draws_are_fair_and_their_share_is_kept() -> None:
    """The oracle's draws, which the battery holds the learner to."""
    X = np.random.default_rng(2).lognormal(0, 1, (4_000, 1))
    for sample in ("uniform", "lipschitz"):
        for seed in (0, 1, 2**53 - 1):
            drawn = importances(X, np.ones(len(X)), 0.3, sample, seed)
            assert (drawn > 0).mean() == pytest.approx(0.3, abs=0.05 if sample == "uniform" else 0.08)
            total = (drawn * X[:, 0]).sum() / X.sum()  # Σ (b/q)·L estimates Σ L
            assert total == pytest.approx(1.0, abs=0.15 if sample == "uniform" else 0.05)
    assert (
        importances(X, np.ones(len(X)), 0.3, "uniform", 0) != importances(X, np.ones(len(X)), 0.3, "uniform", 1)
    ).mean() > 0.3


@pytest.mark.parametrize(
    ("algorithm", "values", "message"),
    [
        ("cao-ftrl", {"R": 0.0}, "cao-ftrl: R=0.0 must be greater than 0"),
        ("cao-ftrl", {"predict_gradient": "next"}, "predict_gradient='next' must be none or last or mean"),
        ("ao-gd", {"lam": 0.1}, "ao-gd has no parameter 'lam'; it has R"),
        ("ao-ftrl", {"lam": 0.1}, "ao-ftrl has no parameter 'lam'; it has R, predict_gradient"),
        ("caos-ftrl", {"keep": 0.0}, "keep=0.0 must be greater than 0"),
        ("caos-ftrl", {"keep": 1.5}, "keep=1.5 must be at most 1"),
        ("caos-ftrl", {"sample": "all"}, "sample='all' must be uniform or lipschitz"),
        ("caos-ftrl", {"seed": 0.5}, "seed=0.5 must be a whole number"),
        ("caos-ftrl", {"seed": -1}, "seed=-1 must be at least 0"),
        ("adagrad", {"delta": 0}, "delta=0 must be greater than 0"),
        ("adagrad", {"predict_gradient": "next"}, "predict_gradient='next' must be none or last or mean"),
        ("adagrad", {"schedule": "log"}, "schedule='log' must be constant or sqrt or first"),
        ("ao-ftrl", {"regularizer": "none"}, "regularizer='none' must be proximal or centred"),
        ("cao-ftrl", {"regularizer": 1}, "regularizer=1 must be proximal or centred or none"),
        ("optimistic-ftrl", {"eta": 0.0}, "eta=0.0 must be greater than 0"),
    ],
)
def test_refusals(algorithm: str, values: dict, message: str) -> None:
    with pytest.raises(InputError) as raised:
        Learner(algorithm, grid=[values], n_features=3)
    assert message in str(raised.value)
