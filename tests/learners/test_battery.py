"""Every learner of the registry against its paper's dense pseudo-code, with every loss and penalty."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, streaming
from sparseoco.learners.penalties import PENALTIES
from sparseoco.training.learner import Learner
from tests.learners.checks import at_a_jump, check_every_row
from tests.learners.streams import PENALISED, WITH_LOSSES, Stream, compiled_choices, configurations, grids, streams
from tests.oracles.group import GROUP_ORACLES
from tests.oracles.stream import JOINT_ORACLES, JOINT_SLOPES, JOINT_VALUES, ORACLES, SLOPES, VALUES
from tests.oracles.weights import labels_of, rows_of, unpenalised, weighted

pytestmark = pytest.mark.formulas
CASES = [
    (name, penalty, loss)
    for name, penalty in PENALISED
    if penalty != "group"
    for loss in VALUES
    if loss in ALGORITHMS[name].loss_names
]


def test_every_learner_has_an_oracle() -> None:
    assert set(ORACLES) == set(streaming())


def check_against_the_oracle(name: str, penalty: str, loss: str, data: st.DataObject, *, every: bool = False) -> None:
    """With sample weights and an intercept or without, and for cl-fobos the mean of the iterates or the last."""
    intercept = penalty != "box" and data.draw(st.booleans())
    stream = data.draw(streams(weighted=data.draw(st.booleans())))
    grid = data.draw(grids(ALGORITHMS[name].under(PENALTIES[penalty]), every=every))
    mean = {"average": "iterates"} if name == "cl-fobos" and data.draw(st.booleans()) else {}
    features = stream.X.shape[1]
    arguments = {"loss": loss, "penalty": penalty, "n_features": features, "intercept": intercept}
    learner = Learner(name, grid=[entry | mean for entry in grid], **arguments)
    X = rows_of(stream.dense, stream.weights, intercept=intercept)
    y = labels_of(2.0 * stream.labels - 1, stream.weights)
    own = [unpenalised(entry, features + 1) if intercept else entry for entry in grid]
    own = own if penalty == "l1" else [entry | {"penalty": penalty} for entry in own]
    full = rows_of(stream.dense, intercept=intercept)

    def run(X: np.ndarray, **more: str) -> np.ndarray:
        return np.stack([list(ORACLES[name](X, y, loss, **(entry | more))) for entry in own], axis=2)

    def iterates(X: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging oracle stops at the learner's bound
            found = run(X)
            margins = np.einsum("tj,tjc->tc", full[1:], found[:-1])
        assume(np.abs(margins).max(initial=0.0) < 1e5)  # NaN is not
        assume(not at_a_jump(name, found[:-1], found[1:]))
        return run(X, **mean) if mean else found

    wanted = check_every_row(learner, stream, X, iterates)
    assert not learner.diverged.any()
    margins = learner.decision_function(stream.csr)[:, :, 0]
    np.testing.assert_allclose(margins, full @ wanted[-1], rtol=1e-9, atol=1e-9)
    played = np.concatenate([np.zeros_like(wanted[:1]), (run(X) if mean else wanted)[:-1]])
    losses = np.vectorize(VALUES[loss], [float])(np.einsum("tj,tjc->ct", full, played), y.astype(float))
    np.testing.assert_allclose(learner.progress.loss_sum, losses.sum(axis=1), rtol=1e-8, atol=1e-8)
    weights = np.ones(len(y)) if stream.weights is None else stream.weights
    np.testing.assert_allclose(learner.weighted_loss_sum, losses @ weights, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("name", "penalty", "loss"), CASES)
@settings(max_examples=18, deadline=None)
@given(data=st.data())
def test_lazy_equals_dense_after_every_row(name: str, penalty: str, loss: str, data: st.DataObject) -> None:
    check_against_the_oracle(name, penalty, loss, data)


@pytest.mark.parametrize("name", [name for name in streaming() if len(compiled_choices(ALGORITHMS[name])) > 1])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lazy_equals_dense_with_any_combination_of_choices(name: str, data: st.DataObject) -> None:
    check_against_the_oracle(name, "l1", "hinge", data, every=True)


@pytest.mark.parametrize("name", streaming())
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_one_against_the_rest(name: str, data: st.DataObject) -> None:
    stream = data.draw(streams(classes=4))
    grid = data.draw(st.lists(configurations(ALGORITHMS[name]), min_size=1, max_size=2))
    learner = Learner(name, grid=grid, n_features=stream.X.shape[1], n_classes=4)
    signs = [np.where(stream.labels == k, 1.0, -1.0) for k in range(4)]

    def iterates(X: np.ndarray) -> np.ndarray:
        return np.stack([list(ORACLES[name](X, y, learner.loss, **entry)) for entry in grid for y in signs], axis=2)

    check_every_row(learner, stream, stream.dense, iterates)


def at_a_kink(z: np.ndarray, truth: int) -> bool:
    """Whether the last bit decides: weights at the bound of a box tie. Zeros are zeros everywhere."""
    second, first = np.sort(np.delete(z, truth))[-2:]
    return bool((first - second < 1e-9 and first != 0) or abs(1 - z[truth] + first) < 1e-9)


@pytest.mark.parametrize(
    ("name", "loss"),
    [(name, loss) for name in streaming() for loss in JOINT_SLOPES if loss in ALGORITHMS[name].loss_names],
)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_losses_that_classes_share(name: str, loss: str, data: st.DataObject) -> None:
    """One oracle for each class, given the slopes at the margins of all classes; or one for all."""
    # Slopes ±1 of an intercept may add up to 0, or to 1e-17, which would decide a tie of the hinge.
    adds_up = loss == "multiclass_hinge" and name not in ("fobos", "passive-aggressive")
    classes, intercept = 4, not adds_up and data.draw(st.booleans())
    stream = data.draw(streams(classes, weighted=data.draw(st.booleans())))
    parameters, features = data.draw(configurations(ALGORITHMS[name])), stream.X.shape[1]
    arguments = {"loss": loss, "grid": [parameters], "n_features": features, "n_classes": classes}
    learner = Learner(name, **arguments, intercept=intercept)
    full, X = rows_of(stream.dense, intercept=intercept), rows_of(stream.dense, stream.weights, intercept=intercept)
    labels = labels_of(stream.labels, stream.weights)
    own = unpenalised(parameters, features + 1) if intercept else parameters

    def iterates(X: np.ndarray) -> np.ndarray:
        slopes = np.array([labels_of(np.zeros(len(labels)), stream.weights) for _ in range(classes)])
        each = [ORACLES[name](X, slopes[k], "given", **own) for k in range(classes)]
        joint = JOINT_ORACLES[name](X, labels, classes, **own) if name in JOINT_ORACLES else None
        found = [np.zeros((full.shape[1], classes))]
        for t, x in enumerate(full):
            z = x @ found[-1]
            assume(np.abs(z).max() <= 1e5)
            assume(loss != "multiclass_hinge" or not at_a_kink(z, stream.labels[t]))
            weights = None if stream.weights is None else np.full(classes, stream.weights[t])
            slopes[:, t] = labels_of(JOINT_SLOPES[loss](z, stream.labels[t]), weights)
            found.append(next(joint) if joint else np.column_stack([next(oracle) for oracle in each]))
            assume(not at_a_jump(name, found[-2], found[-1]))
        return np.array(found[1:])

    wanted = check_every_row(learner, stream, X, iterates)
    played = [np.zeros_like(wanted[0]), *wanted[:-1]]
    losses = [JOINT_VALUES[loss](x @ W, truth) for x, W, truth in zip(full, played, stream.labels, strict=True)]
    assert learner.progress.loss_sum[0] == pytest.approx(sum(losses), rel=1e-10, abs=1e-10)


def one_vs_rest_slopes(z: np.ndarray, truth: int) -> np.ndarray:
    return np.array([SLOPES["hinge"](margin, 1.0 if k == truth else -1.0) for k, margin in enumerate(z)])


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
@pytest.mark.parametrize("name", GROUP_ORACLES)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), classes=st.integers(3, 4))
def test_groups(name: str, loss: str, data: st.DataObject, classes: int) -> None:
    intercept = data.draw(st.booleans())
    stream = data.draw(streams(classes, weighted=data.draw(st.booleans())))
    grid, features = data.draw(grids(ALGORITHMS[name])), stream.X.shape[1]
    arguments = {"loss": loss, "penalty": "group", "grid": grid, "n_features": features, "n_classes": classes}
    learner = Learner(name, **arguments, intercept=intercept)
    X = rows_of(stream.dense, stream.weights, intercept=intercept)
    labels = labels_of(stream.labels, stream.weights)
    slopes = JOINT_SLOPES.get(loss, weighted(one_vs_rest_slopes))
    own = [unpenalised(entry, features + 1) if intercept else entry for entry in grid]

    def iterates(X: np.ndarray) -> np.ndarray:
        found = np.concatenate([list(GROUP_ORACLES[name](X, labels, classes, slopes, **entry)) for entry in own], 2)
        assume(np.abs(found).max() <= 1e5)
        return found

    last = check_every_row(learner, stream, X, iterates)[-1, :features].reshape(features, len(grid), classes)
    learner.mark()
    sizes = [entry["lam"] for entry in grid] * np.linalg.norm(last, axis=2).sum(axis=0)
    np.testing.assert_allclose(learner.history.penalty[-1], sizes, atol=1e-9)


@pytest.mark.parametrize(("name", "loss"), WITH_LOSSES)
def test_progress_counts_what_was_predicted_before_it_was_learned(name: str, loss: str) -> None:
    rng = np.random.default_rng(3)
    stream = Stream(rng.normal(0, 0.3, (60, 5)) * (rng.random((60, 5)) < 0.5), rng.integers(0, 2, 60), 2)
    learner = Learner(name, loss=loss, grid=[{}, {}], n_features=5)
    learner.partial_fit(stream.csr, stream.labels)
    signs = 2.0 * stream.labels - 1
    parameters = learner.configurations[0]
    iterates = [np.zeros(5), *ORACLES[name](stream.dense, signs, loss, **parameters)]
    margins = [float(x @ w) for x, w in zip(stream.dense, iterates, strict=False)]
    losses = [VALUES[loss](z, y) for z, y in zip(margins, signs, strict=True)]
    rows, loss_sum, error_count = learner.progress
    assert rows == 120
    assert loss_sum[0] == pytest.approx(sum(losses), rel=1e-10)
    assert error_count[0] == sum((z > 0) != (y > 0) for z, y in zip(margins, signs, strict=True))
