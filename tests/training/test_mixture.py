"""Mixtures: the papers' recursion, their bounds, the same bits however they are made, and columns that run away."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from sparseoco import Learner, Mixture
from sparseoco.core.errors import DamagedError
from sparseoco.kernels.columns import RowLoss, by_row
from sparseoco.kernels.responses import MIX, SUMS, response_of
from sparseoco.learners.losses import LOSSES
from sparseoco.storage.checkpoints import write_checkpoint
from sparseoco.training.mixture import FORMAT
from tests.oracles.losses import incurred
from tests.support.errors import raises_code

ROWS, FEATURES = 120, 15
GRIDS = {"adagrad": {"eta": [0.05, 0.5, 2.0]}, "fobos": {"eta0": [0.1, 1.0], "lam": [0.0, 1e-3]}}
WILD = {"adagrad": {"eta": [0.05, 0.5]}, "fobos": {"eta0": [1e9, 0.1]}}


def data(classes: int | None = 2, rows: int = ROWS) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.integers(1, 4, (rows, FEATURES)) * (rng.random((rows, FEATURES)) < 0.3)
    truth = rng.normal(0, 1, (FEATURES, max(classes or 1, 2)))
    noisy = X @ truth + rng.normal(0, 1, (rows, truth.shape[1]))
    return sp.csr_matrix(X), noisy[:, 0] if classes is None else noisy[:, :classes].argmax(axis=1)


def new(classes: int | None = 2, grids=GRIDS, loss: str = "logistic", **options) -> Mixture:
    return Mixture(grids, n_features=FEATURES, n_classes=classes, loss=loss, **options)


def bits(mixture: Mixture) -> list[bytes]:
    snapshot = mixture.snapshot()
    return [np.asarray(value).tobytes() for value in (*snapshot, mixture.weights(), mixture.intercepts())]


def least(values: np.ndarray, s: float) -> float:
    return values.min() if s == 0 else -s * logsumexp(-values / s)


def oracle(X, y, classes, loss, by, predict, weights_of_rows=None) -> tuple[np.ndarray, float, float, int]:
    """Weights of the coming round, Σ x·g, and the mixture's own loss and errors, round by round from the papers; with
    weights of rows, columns also have an intercept."""
    intercept = weights_of_rows is not None
    row_weights = weights_of_rows if intercept else np.ones(X.shape[0])
    arguments = {"loss": loss, "n_features": FEATURES, "n_classes": classes, "intercept": intercept}
    learners = [Learner(name, grid=grid, **arguments) for name, grid in GRIDS.items()]
    n = sum(len(learner.configurations) for learner in learners)
    kind = {None: "numbers", 2: "two classes"}.get(classes, "classes")
    g_sum, guess, deviation, gaps = np.zeros(n), np.zeros(n), 0.0, 0.0
    drawn, own_loss, own_errors = 0.0, 0.0, 0

    def weights() -> tuple[np.ndarray, float]:
        s = np.sqrt(2 * (1 + deviation) / np.log(n)) if by == "error" else gaps / np.log(n)
        above = g_sum + guess - (g_sum + guess).min()
        x = np.exp(-above / s) if s > 0 else (above == 0).astype(float)
        return x / x.sum(), s

    for i in range(X.shape[0]):
        z = np.concatenate([learner.decision_function(X[i])[0] for learner in learners])  # (n, outputs)
        x, s = weights()
        loss_now, error_now = incurred(loss, kind, x @ z, y[i])
        own_loss, own_errors = own_loss + loss_now, own_errors + error_now
        g = row_weights[i] * np.array([incurred(loss, kind, z[c], y[i])[by == "error"] for c in range(n)], float)
        d = g - guess
        deviation += ((d.max() - d.min()) / 2) ** 2
        gaps += max(x @ d - (least(g_sum + g, s) - least(g_sum + guess, s)), 0.0)  # below 0 by rounding
        drawn += x @ g
        g_sum += g
        guess = g if predict == "last" else np.zeros(n)
        for learner in learners:
            learner.partial_fit(X[i], y[i : i + 1], weights_of_rows[i : i + 1] if intercept else None)
    return weights()[0], drawn, own_loss, own_errors


@pytest.mark.formulas
@pytest.mark.parametrize(
    ("classes", "loss", "by", "predict"),
    [
        (2, "logistic", "error", "last"),
        (2, "logistic", "loss", "none"),
        (3, "logistic", "error", "none"),
        (3, "softmax", "loss", "last"),
        (None, "squared", "loss", "last"),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_recursion_of_the_paper(classes, loss, by, predict, weighted) -> None:
    """With weights of rows, columns also have an intercept."""
    X, y = data(classes)
    weights = np.random.default_rng(5).choice([0.0, 0.4, 1.0, 3.0], ROWS) if weighted else None
    mixture = new(classes, loss=loss, by=by, predict_gradient=predict, intercept=weighted).partial_fit(X, y, weights)
    x, drawn, own_loss, own_errors = oracle(X, y, classes, loss, by, predict, weights)
    snapshot = mixture.snapshot()
    np.testing.assert_allclose(snapshot.weights, x, rtol=1e-9, atol=1e-12)
    assert snapshot.weights.sum() == pytest.approx(1)
    assert (snapshot.drawn, snapshot.loss_sum) == pytest.approx((drawn, own_loss), rel=1e-9)
    assert snapshot.error_count == own_errors
    assert (snapshot.rows, mixture.progress.rows) == (ROWS, ROWS)
    progress = [learner.progress for learner in mixture.learners]
    np.testing.assert_array_equal(snapshot.losses, np.concatenate([of.loss_sum for of in progress]))
    np.testing.assert_array_equal(snapshot.errors, np.concatenate([of.error_count for of in progress]))
    assert snapshot.regret <= snapshot.bound
    np.testing.assert_allclose(mixture.decision_function(X), X @ mixture.weights() + mixture.intercepts(), atol=1e-9)
    assert mixture.intercepts().all() == weighted
    if weighted:
        assert np.isnan(snapshot.printed_bound)
    else:
        sums = snapshot.errors if by == "error" else snapshot.losses
        assert snapshot.regret == pytest.approx(snapshot.drawn - sums.min())
        assert snapshot.bound <= snapshot.printed_bound if by == "error" else np.isnan(snapshot.printed_bound)
        assert by == "error" or snapshot.loss_sum <= snapshot.drawn + 1e-9  # a convex loss
    if classes is not None and not weighted:
        assert (mixture.predict(X) != y).mean() < 0.3


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5, 17]), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_regret_is_under_its_bounds_whatever_comes(seed, n, by_error, last, spiteful) -> None:
    rng = np.random.default_rng(seed)
    T = int(rng.integers(1, 80))
    margins = rng.normal(0, rng.choice([0.1, 1, 30]), (T, n)) + rng.normal(0, 1, n)
    margins[rng.random((T, n)) < 0.003] = np.nan  # columns that diverge
    labels = rng.integers(0, 2, T).astype(float)
    total, guess, sums, out = np.zeros(n), np.zeros(n), np.zeros(len(SUMS)), np.zeros(n, np.int64)
    played = (total, guess, sums, out, np.zeros(n), np.zeros(n, np.int64), np.zeros(1), np.zeros(1, np.int64))
    logistic = LOSSES["logistic"]
    loss, weights = RowLoss(response_of(logistic, "binary", "float64"), logistic.bound, 1), np.ones(T)
    for t in range(T):
        if spiteful and np.isfinite(guess).all():  # the label that what did well last time gets wrong
            labels[t] = float(margins[t, guess.argmin()] <= 0)
        now = slice(t, t + 1)
        MIX(margins[now], by_row(labels[now]), weights[now], loss, t, 1, by_error, last, *played)
        deviation, gaps, drawn, deviation_before, gaps_before, _ = sums
        least = total.min()
        if not np.isfinite(least):
            continue
        scaled = np.sqrt(2 * np.log(n) * (1 + deviation_before)) if by_error else gaps_before
        bound = scaled + gaps
        assert drawn - least <= bound + 1e-9 * (1 + abs(drawn))
        if by_error and n > 1:
            assert deviation - deviation_before <= 1  # C
            assert bound <= 2 * np.sqrt(2 * np.log(n) * (1 + deviation_before)) + 1e-9


@pytest.mark.formulas
@pytest.mark.parametrize(
    ("classes", "by", "dtype", "weighted"),
    [
        (2, "error", "float32", False),
        (3, "loss", "float64", False),
        (2, "error", "float64", True),
        (3, "loss", "float64", True),
    ],
)
def test_the_same_bits_however_it_is_cut_saved_and_loaded(
    classes, by, dtype, weighted, tmp_path: Path, monkeypatch
) -> None:
    X, y = data(classes)
    weights = np.random.default_rng(5).choice([0.0, 0.4, 1.0, 3.0], ROWS) if weighted else np.ones(ROWS)
    options = {"by": by, "dtype": dtype, "intercept": weighted}
    whole, pieces = new(classes, **options).partial_fit(X, y, weights), new(classes, **options)
    for a, b in itertools.pairwise([0, 1, 2, 50, ROWS]):
        pieces.partial_fit(X[a:b], y[a:b], weights[a:b])
        pieces.save(tmp_path)
        pieces = Mixture.load(tmp_path)
    assert bits(pieces) == bits(whole)
    monkeypatch.setattr("sparseoco.training.mixture.CHUNK_ROWS", 7)
    assert bits(new(classes, **options).partial_fit(X, y, weights)) == bits(whole)


@pytest.mark.formulas
def test_a_saved_mixture_is_whole_or_refused(tmp_path: Path) -> None:
    X, y = data()
    new().partial_fit(X, y).save(tmp_path)
    Learner("fobos", n_features=FEATURES).save(tmp_path / "learner-1.npz")
    with raises_code("corrupt-file", "learner-1.npz", kind=DamagedError):
        Mixture.load(tmp_path)
    write_checkpoint(tmp_path / "mixture.npz", {"format": FORMAT, "learners": []}, [])
    with raises_code("corrupt-file", "mixture.npz", kind=DamagedError):
        Mixture.load(tmp_path)


@pytest.mark.formulas
@pytest.mark.parametrize("by", ["error", "loss"])
def test_a_column_that_diverges_does_no_harm(by) -> None:
    X, y = data()
    wild = new(grids=WILD, by=by).partial_fit(X, y)
    snapshot = wild.snapshot()
    assert (wild.diverged > 0).tolist() == [False, False, True, False]
    assert snapshot.weights[2] == 0
    assert snapshot.weights.sum() == pytest.approx(1)
    assert (snapshot.losses[2], snapshot.errors[2]) == (np.inf, np.inf)
    assert np.isfinite(wild.weights()).all()
    assert np.isfinite(wild.decision_function(X)).all()
    assert snapshot.regret <= snapshot.bound
    tame = new(grids=WILD | {"fobos": {"eta0": [0.1]}}, by=by).partial_fit(X, y).snapshot()
    assert abs(snapshot.error_count - tame.error_count) <= 5


@pytest.mark.formulas
def test_all_columns_diverge() -> None:
    X, y = data()
    mixture = new(grids={"fobos": {"eta0": [1e9, 1e10]}}).partial_fit(X, y)
    assert (mixture.diverged > 0).all()
    assert not mixture.weights().any()
    assert np.isfinite(mixture.progress.loss_sum).all()


@pytest.mark.formulas
def test_dense_learners_can_be_mixed_with_sparse_ones() -> None:
    X, y = data()
    mixture = new(grids={"adagrad": {}, "ogd": {"D": [1.0, 4.0]}, "ons": {}}).partial_fit(X, y)
    np.testing.assert_allclose(X @ mixture.weights(), mixture.decision_function(X), rtol=1e-9, atol=1e-12)
    snapshot = mixture.snapshot()
    assert snapshot.error_count <= 1.1 * snapshot.errors.min() + 10


@pytest.mark.formulas
def test_portfolios_can_be_mixed(tmp_path: Path) -> None:
    X, _ = data()
    grids = {"ogd": {"domain": "simplex", "G": [1.0, 3.0]}, "ao-eg": {"domain": "simplex"}}
    mixture = new(None, grids, "return").partial_fit(X, np.zeros(X.shape[0]))
    assert mixture.weights().sum() == pytest.approx(1.0)
    mixture.save(tmp_path / "m")
    assert bits(Mixture.load(tmp_path / "m")) == bits(mixture)


@pytest.mark.formulas
def test_the_heaviest_column_comes_out_as_a_learner() -> None:
    X, y = data()
    mixture = new().partial_fit(X, y)
    algorithm, parameters = mixture.columns[mixture.heaviest]
    alone = Learner(algorithm, grid=[parameters], n_features=FEATURES).partial_fit(X, y)
    best = mixture.best().partial_fit(X, y)
    assert best.weights().tobytes() == alone.partial_fit(X, y).weights().tobytes()


@pytest.mark.formulas
def test_one_column_alone() -> None:
    X, y = data()
    mixture = new(grids={"fobos": [{}]}).partial_fit(X, y)
    snapshot = mixture.snapshot()
    assert snapshot.weights.tolist() == [1.0]
    assert (snapshot.regret, snapshot.bound) == (0, 0)
    assert snapshot.error_count == Learner("fobos", n_features=FEATURES).partial_fit(X, y).progress.error_count[0]


def test_the_default_grid_is_for_every_penalty() -> None:
    for penalty in ("l1", "l2", "elastic_net", "box"):
        assert len(Mixture(penalty=penalty, n_features=3).columns) > 1


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        ({"by": "luck"}, "invalid-option", "by='luck'"),
        ({"predict_gradient": "mean"}, "invalid-option", "predict_gradient='mean'"),
        ({"classes": None, "loss": "squared", "by": "error"}, "unsupported-combination", "by='loss'"),
        ({"grids": {}}, "invalid-grid", "penalty='l1'"),
        ({"grids": None, "penalty": "group"}, "invalid-grid", "penalty='group'"),
        ({"grids": None, "penalty": "elastic"}, "unknown-penalty", "penalty='elastic'"),
        ({"grids": {"caos-erm": {}}}, "not-online", "caos-erm"),
    ],
)
def test_what_has_no_meaning_is_refused(options, code, named) -> None:
    with raises_code(code, named):
        new(**options)


@pytest.mark.parametrize(("loss", "by"), [("logistic", "error"), ("hinge", "error"), ("squared_hinge", "loss")])
def test_columns_that_may_diverge_are_compared_by_their_losses(loss: str, by: str) -> None:
    assert new(loss=loss).by == by
