"""Sample weights multiply the rows' losses; the intercept is a feature of every row that no penalty sees."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, dense_learners, streaming
from sparseoco.learners.penalties import PENALTIES
from sparseoco.training.learner import Learner
from tests.learners.checks import TOLERANCE, all_weights, at_a_jump, check_every_row
from tests.learners.grids import FEATURES, ROWS
from tests.learners.grids import configurations as four_configurations
from tests.learners.streams import configurations, gated, grids, streams
from tests.oracles.group import GROUP_ORACLES
from tests.oracles.stream import JOINT_ORACLES, JOINT_SLOPES, ORACLES, VALUES
from tests.oracles.weights import labels_of, rows_of, unpenalised
from tests.support.errors import raises_code

LOSSES = ("logistic", "hinge", "squared_hinge", "squared")


def loss_of(name: str) -> str:
    """A loss that the learner's other tests compile."""
    return next(loss for loss in LOSSES if loss in ALGORITHMS[name].loss_names and gated(ALGORITHMS[name], loss))


# In the default run; the kernels of the others, with an intercept, take two minutes to compile.
GATED = frozenset({"adagrad", "cl-fobos", "passive-aggressive", "rda"})
LEARNERS = [pytest.param(name, marks=() if name in GATED else pytest.mark.slow) for name in streaming()]
CASES = [
    pytest.param(name, loss, marks=() if name in GATED and loss == loss_of(name) else pytest.mark.slow)
    for name in streaming()
    for loss in LOSSES
    if loss in ALGORITHMS[name].loss_names
]
PENALISED = [
    pytest.param(name, penalty, marks=() if name == "fobos" else pytest.mark.slow)
    for name in streaming()
    for penalty in ("l2", "elastic_net")
    if penalty in ALGORITHMS[name].penalties
]


def check(name: str, loss: str, penalty: str, data: st.DataObject) -> None:
    stream = data.draw(streams(weighted=True))
    grid = data.draw(grids(ALGORITHMS[name].under(PENALTIES[penalty])))
    features = stream.X.shape[1]
    learner = Learner(name, loss=loss, penalty=penalty, grid=grid, n_features=features, intercept=True)
    X, y = rows_of(stream.dense, stream.weights, intercept=True), labels_of(2.0 * stream.labels - 1, stream.weights)
    more = {} if penalty == "l1" else {"penalty": penalty}
    with np.errstate(over="ignore", invalid="ignore"):
        oracles = [list(ORACLES[name](X, y, loss, **unpenalised(entry, features + 1), **more)) for entry in grid]
    full = rows_of(stream.dense, intercept=True)
    margins = [np.abs(np.einsum("tj,tj->t", full[1:], np.array(w)[:-1])).max(initial=0.0) for w in oracles]
    assume(max(margins) < 1e5)  # NaN is not
    assume(not any(at_a_jump(name, np.array(w)[:-1], np.array(w)[1:]) for w in oracles))
    check_every_row(learner, stream, oracles)
    assert not learner.diverged.any()
    played = [np.vstack([np.zeros(features + 1), w])[:-1] for w in oracles]
    losses = [[VALUES[loss](x @ w, float(b)) for x, w, b in zip(full, iterates, y, strict=True)] for iterates in played]
    np.testing.assert_allclose(learner.progress.loss_sum, np.sum(losses, axis=1), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(learner.weighted_loss_sum, losses @ stream.weights, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        learner.decision_function(stream.csr)[:, :, 0], full @ all_weights(learner), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(("name", "loss"), CASES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_equal_dense_after_every_row(name: str, loss: str, data: st.DataObject) -> None:
    check(name, loss, "l1", data)


@pytest.mark.parametrize(("name", "penalty"), PENALISED)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_with_other_penalties(name: str, penalty: str, data: st.DataObject) -> None:
    check(name, loss_of(name), penalty, data)


@pytest.mark.parametrize(
    ("name", "loss"),
    [("cl-fobos", "softmax"), ("fobos", "multiclass_hinge"), ("passive-aggressive", "multiclass_hinge")],
)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_losses_that_classes_share(name: str, loss: str, data: st.DataObject) -> None:
    classes, stream = 4, data.draw(streams(4, weighted=True))
    parameters, features = data.draw(configurations(ALGORITHMS[name])), stream.X.shape[1]
    arguments = {"loss": loss, "grid": [parameters], "n_features": features, "n_classes": classes, "intercept": True}
    learner = Learner(name, **arguments)
    X, labels = rows_of(stream.dense, stream.weights, intercept=True), labels_of(stream.labels, stream.weights)
    slopes = np.zeros((classes, len(labels)))
    together, own = JOINT_ORACLES.get(name), unpenalised(parameters, features + 1)
    oracles = [ORACLES[name](X, slopes[k], "given", **own) for k in range(classes)]
    joint = together(X, labels, classes, **own) if together else None
    W = np.zeros((features + 1, classes))
    for t, x in enumerate(X):
        z = x @ W
        rival, truth = np.sort(np.delete(z, stream.labels[t]))[-2:], z[stream.labels[t]]
        assume(np.abs(z).max() <= 1e5)
        assume(rival[1] - rival[0] >= 1e-9 or rival[1] == 0)
        assume(abs(1 - truth + rival[1]) >= 1e-9)
        slopes[:, t] = JOINT_SLOPES[loss](z, labels[t])
        W = next(joint) if joint else np.column_stack([next(oracle) for oracle in oracles])
        learner.partial_fit(stream.csr[t], stream.labels[t : t + 1], stream.weights[t : t + 1])
        np.testing.assert_allclose(all_weights(learner), W, **TOLERANCE)


@pytest.mark.parametrize("name", ["fobos", pytest.param("rda", marks=pytest.mark.slow)])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_groups(name: str, data: st.DataObject) -> None:
    stream = data.draw(streams(3, weighted=True))
    entry, features = data.draw(configurations(ALGORITHMS[name])), stream.X.shape[1]
    arguments = {"loss": "softmax", "penalty": "group", "grid": [entry], "n_features": features, "n_classes": 3}
    learner = Learner(name, **arguments, intercept=True)
    X, labels = rows_of(stream.dense, stream.weights, intercept=True), labels_of(stream.labels, stream.weights)
    iterates = GROUP_ORACLES[name](X, labels, 3, JOINT_SLOPES["softmax"], **unpenalised(entry, features + 1))
    for t, W in enumerate(iterates):
        assume(np.abs(W).max() <= 1e5)
        learner.partial_fit(stream.csr[t], stream.labels[t : t + 1], stream.weights[t : t + 1])
        np.testing.assert_allclose(all_weights(learner), W, **TOLERANCE)


def parts(learner: Learner) -> list[bytes]:
    arrays = (learner.weights(), learner.intercepts(), *learner.progress, learner.weighted_loss_sum)
    return [np.asarray(array).tobytes() for array in arrays]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("adagrad", "cl-fobos") else pytest.mark.slow) for name in streaming()],
)
def test_no_bit_depends_on_cuts_company_saving_or_growth(name: str, data: tuple, tmp_path: Path) -> None:
    X, y = data
    weights = np.random.default_rng(5).choice([0.0, 0.3, 1.0, 4.0], ROWS)
    four = four_configurations(name)

    def new(among: list[dict[str, Any]], features: int = FEATURES) -> Learner:
        return Learner(name, loss=loss_of(name), grid=among, n_features=features, intercept=True)

    whole = new(four).partial_fit(X, y, weights)
    assert whole.intercepts().all()
    cut = new(four)
    for a in range(0, ROWS, 97):
        cut.save(tmp_path / "state")
        rows = slice(a, a + 97)
        cut = Learner.load(tmp_path / "state").partial_fit(X[rows], y[rows], weights[rows])
    assert parts(cut) == parts(whole)
    many = new(four * 4).partial_fit(X, y, weights)
    assert parts(many.select(range(12, 16))) == parts(whole)
    grown = new(four).partial_fit(X[:100], y[:100], weights[:100])
    grown.save(tmp_path / "state")
    grown = Learner.load(tmp_path / "state", n_features=FEATURES + 3)
    wide = sp.csr_matrix((X.data, X.indices, X.indptr), (ROWS, FEATURES + 3))
    grown.partial_fit(wide[100:], y[100:], weights[100:])
    assert grown.intercepts().tobytes() == whole.intercepts().tobytes()
    assert grown.weights()[:FEATURES].tobytes() == whole.weights().tobytes()


@pytest.mark.parametrize(
    "name",
    ["adagrad", "cl-fobos", *(pytest.param(name, marks=pytest.mark.slow) for name in ("arow", "passive-aggressive"))],
)
@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_ones_weigh_nothing_and_zeros_are_rows_without_features(name: str, dtype: str, data: tuple) -> None:
    X, y = data

    def new() -> Learner:
        return Learner(name, loss=loss_of(name), grid=four_configurations(name), n_features=FEATURES, dtype=dtype)

    assert parts(new().partial_fit(X, y)) == parts(new().partial_fit(X, y, np.ones(ROWS)))
    zero = np.arange(ROWS) % 3 == 0
    empty = sp.diags_array((~zero).astype(float)) @ X
    empty = sp.csr_matrix(empty)
    empty.eliminate_zeros()
    weighed, emptied = new().partial_fit(X, y, ~zero), new().partial_fit(empty, y)
    assert weighed.weights().tobytes() == emptied.weights().tobytes()
    assert weighed.rounds == ROWS


@pytest.mark.parametrize("name", LEARNERS)
def test_starting_from_weights_and_intercepts(name: str) -> None:
    grid = four_configurations(name)
    rng = np.random.default_rng(3)
    weights, intercepts = rng.uniform(-0.009, 0.009, (FEATURES, 4)), rng.uniform(-0.009, 0.009, (4, 1))
    learner = Learner(name, loss=loss_of(name), grid=grid, n_features=FEATURES, intercept=True)
    learner.start_from(weights, 7, intercepts)
    np.testing.assert_allclose(learner.weights(), weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(learner.intercepts(), intercepts, rtol=1e-9, atol=1e-12)
    with raises_code("invalid-weights"):
        Learner(name, loss=loss_of(name), n_features=3).start_from(np.ones((3, 1)), 1, [0.1])


def test_marks_leave_the_intercept_out_and_weigh_losses(data: tuple) -> None:
    X, y = data
    weights = np.linspace(0, 2, ROWS)
    for name in ("cl-fobos", "l-fobos"):
        learner = Learner(name, grid={"lam": 1e-2}, n_features=FEATURES, intercept=True, objective=True)
        penalty = 0.0
        for t in range(ROWS):
            penalty += 1e-2 * np.abs(learner.weights()).sum()
            learner.partial_fit(X[t], y[t : t + 1], weights[t : t + 1])
        learner.mark()
        history = learner.history
        assert history.exact.all()
        assert history.progressive_loss[0, 0] == pytest.approx(learner.weighted_loss_sum[0] / ROWS)
        assert history.objective[0, 0] - history.progressive_loss[0, 0] == pytest.approx(penalty / ROWS)
        assert history.penalty[0, 0] == pytest.approx(1e-2 * np.abs(learner.weights()).sum())
        assert history.nonzeros[0, 0] == np.count_nonzero(learner.weights()) == learner.nonzeros()[0]


@pytest.mark.parametrize(("name", "penalty"), [*((name, "l1") for name in dense_learners()), ("fobos", "box")])
def test_convex_sets_leave_no_room_for_an_intercept(name: str, penalty: str) -> None:
    with raises_code("unsupported-combination"):
        Learner(name, penalty=penalty, n_features=3, intercept=True)


@pytest.mark.parametrize("bad", [[1.0], [1.0, -0.5], [1.0, np.nan], [1.0, np.inf], ["a", "b"]])
def test_weights_are_checked(bad: list[Any]) -> None:
    learner = Learner("fobos", n_features=2)
    with raises_code("invalid-sample-weights"):
        learner.partial_fit(sp.csr_matrix(np.eye(2)), [0, 1], bad)
    assert learner.rounds == 0
