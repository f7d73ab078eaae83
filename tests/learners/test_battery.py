"""Every learner of the registry against its paper's dense pseudo-code."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, streaming
from sparseoco.training.learner import Learner
from tests.learners.checks import TOLERANCE, at_a_jump, check_every_row
from tests.learners.streams import WITH_LOSSES, Stream, compiled_choices, configurations, grids, streams
from tests.oracles.stream import JOINT_ORACLES, JOINT_SLOPES, JOINT_VALUES, ORACLES, VALUES


def test_every_learner_has_an_oracle() -> None:
    assert set(ORACLES) == set(streaming())


def check_against_the_oracle(name: str, loss: str, data: st.DataObject, *, every: bool = False) -> None:
    stream = data.draw(streams())
    grid = data.draw(grids(ALGORITHMS[name], every=every))
    learner = Learner(name, loss=loss, grid=grid, n_features=stream.X.shape[1])
    signs = 2.0 * stream.labels - 1
    with np.errstate(over="ignore", invalid="ignore"):  # a diverging oracle stops at the learner's bound, below
        oracles = [list(ORACLES[name](stream.dense, signs, loss, **entry)) for entry in grid]
    margins = [np.abs(np.einsum("tj,tj->t", stream.dense[1:], np.array(w)[:-1])).max(initial=0.0) for w in oracles]
    assume(max(margins) < 1e5)  # NaN is not
    assume(not any(at_a_jump(name, np.array(w)[:-1], np.array(w)[1:]) for w in oracles))
    check_every_row(learner, stream, oracles)
    assert not learner.diverged.any()


@pytest.mark.parametrize(("name", "loss"), WITH_LOSSES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_lazy_equals_dense_after_every_row(name: str, loss: str, data: st.DataObject) -> None:
    check_against_the_oracle(name, loss, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in streaming() if len(compiled_choices(ALGORITHMS[name])) > 1])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_lazy_equals_dense_with_any_combination_of_choices(name: str, data: st.DataObject) -> None:
    check_against_the_oracle(name, "hinge", data, every=True)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("fobos", "cl-fobos") else pytest.mark.slow) for name in streaming()],
)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_one_against_the_rest(name: str, data: st.DataObject) -> None:
    stream = data.draw(streams(classes=4))
    grid = data.draw(st.lists(configurations(ALGORITHMS[name]), min_size=1, max_size=2))
    learner = Learner(name, grid=grid, n_features=stream.X.shape[1], n_classes=4)
    oracles = [
        list(ORACLES[name](stream.dense, np.where(stream.labels == k, 1.0, -1.0), learner.loss, **entry))
        for entry in grid
        for k in range(4)
    ]
    check_every_row(learner, stream, oracles)


def at_a_kink(z: np.ndarray, truth: int) -> bool:
    """Whether the last bit decides: weights at the bound of a box tie. Zeros are zeros everywhere."""
    second, first = np.sort(np.delete(z, truth))[-2:]
    return bool((first - second < 1e-9 and first != 0) or abs(1 - z[truth] + first) < 1e-9)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        pytest.param(name, loss, marks=() if name in ("fobos", "cl-fobos") else pytest.mark.slow)
        for name in streaming()
        for loss in JOINT_SLOPES
        if loss in ALGORITHMS[name].loss_names and name not in JOINT_ORACLES
    ],
)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_losses_that_classes_share(name: str, loss: str, data: st.DataObject) -> None:
    """One oracle for each class, given the slopes at the margins of all classes."""
    classes = 4
    stream = data.draw(streams(classes=classes))
    parameters = data.draw(configurations(ALGORITHMS[name]))
    learner = Learner(name, loss=loss, grid=[parameters], n_features=stream.X.shape[1], n_classes=classes)
    X, labels = stream.dense, stream.labels
    slopes = np.zeros((classes, len(labels)))
    oracles = [ORACLES[name](X, slopes[k], "given", **parameters) for k in range(classes)]
    W = np.zeros((X.shape[1], classes))
    losses = 0.0
    for t, x in enumerate(X):
        z = x @ W
        assume(np.abs(z).max() <= 1e5)
        assume(loss != "multiclass_hinge" or not at_a_kink(z, labels[t]))
        slopes[:, t] = JOINT_SLOPES[loss](z, labels[t])
        losses += JOINT_VALUES[loss](z, labels[t])
        before, W = W, np.column_stack([next(oracle) for oracle in oracles])
        assume(not at_a_jump(name, before, W))
        learner.partial_fit(stream.csr[t], labels[t : t + 1])
        np.testing.assert_allclose(learner.weights(), W, **TOLERANCE)
        assert learner.progress.loss_sum[0] == pytest.approx(losses, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("name", JOINT_ORACLES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_steps_that_depend_on_all_classes(name: str, data: st.DataObject) -> None:
    classes = 4
    stream = data.draw(streams(classes=classes))
    parameters = data.draw(configurations(ALGORITHMS[name]))
    features = stream.X.shape[1]
    learner = Learner(name, loss="multiclass_hinge", grid=[parameters], n_features=features, n_classes=classes)
    W = np.zeros((features, classes))
    oracle = JOINT_ORACLES[name](stream.dense, stream.labels, classes, **parameters)
    for t, (x, iterate) in enumerate(zip(stream.dense, oracle, strict=True)):
        assume(not at_a_kink(x @ W, stream.labels[t]))
        learner.partial_fit(stream.csr[t], stream.labels[t : t + 1])
        W = iterate
        np.testing.assert_allclose(learner.weights(), W, **TOLERANCE)


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
