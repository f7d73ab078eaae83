"""Every learner of the registry against its paper's dense pseudo-code, with every penalty, loss and kind of labels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, algorithm_names
from sparseoco.learners.penalties import PENALTIES
from sparseoco.training.learner import Learner
from tests.learners.cases import PENALISED, SEE_ROWS, kinds
from tests.learners.streams import TOLERANCE, Stream, at_a_jump, grids, streams
from tests.oracles.losses import JOINT_SLOPES, KINDS, Rounds, each_margin, incurred, joint, targets
from tests.oracles.stream import METHODS, ORACLES
from tests.oracles.weights import labels_of, rows_of, unpenalised

pytestmark = pytest.mark.formulas
OF_ONE_MARGIN = ("passive-aggressive", "arow")
"""Oracles of one problem; others are of any number of columns."""
CASES = [(name, penalty, loss) for name, penalty in PENALISED for loss in ALGORITHMS[name].loss_names]


def test_every_learner_has_an_oracle() -> None:
    assert set(ORACLES) == set(algorithm_names("stream"))


def oracle(name: str, loss: str, kind: str, X: np.ndarray, stream: Stream, parameters: dict[str, Any]) -> np.ndarray:
    """(2, rows, features, outputs) of one configuration: the weights after every row, and those that predict it."""
    outputs = KINDS[kind][0]
    if np.ndim(parameters.get("lam")):
        parameters = parameters | {"lam": parameters["lam"][:, None]}
    if loss in JOINT_SLOPES or parameters.get("penalty") == "group":
        problems = [Rounds(X, labels_of(stream.labels, stream.weights), joint(loss), outputs)]
    else:
        each = np.array([targets(kind, label, outputs) for label in stream.labels])
        parts = range(outputs) if name in OF_ONE_MARGIN else [slice(None)]
        width = 1 if name in OF_ONE_MARGIN else outputs
        problems = [Rounds(X, labels_of(each[:, k], stream.weights), each_margin(loss), width) for k in parts]
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
        return bool((np.abs(1 - targets(kind, label, len(z)) * z) < 1e-9).any())
    second, first = np.sort(np.delete(z, label))[-2:]
    return bool((first - second < 1e-9 and first != 0) or abs(1 - z[label] + first) < 1e-9)


@pytest.mark.parametrize(("name", "penalty", "loss"), CASES)
@settings(max_examples=6, deadline=None)
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
        streams(KINDS[kind][0] if kind != "two classes" else 2, weighted=data.draw(st.booleans()), kind=kind)
    )
    grid = data.draw(grids(ALGORITHMS[name].under(PENALTIES[penalty])))
    averaged = name == "cl-fobos" and penalty != "group" and data.draw(st.booleans())
    (rows, features), outputs = stream.dense.shape, KINDS[kind][0]
    own = [unpenalised(entry, features + 1) if intercept else entry for entry in grid]
    own = own if penalty == "l1" else [entry | {"penalty": penalty} for entry in own]
    full, X = (rows_of(stream.dense, weights, intercept=intercept) for weights in (None, stream.weights))

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
        **KINDS[kind][1],
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
    losses, wrong = np.array(
        [[incurred(loss, kind, z, label) for z in each] for each, label in zip(played, stream.labels, strict=True)]
    ).transpose(2, 1, 0)
    weights = np.ones(rows) if stream.weights is None else stream.weights
    assert learner.progress.rows == rows
    assert not learner.diverged.any()
    np.testing.assert_allclose(learner.progress.loss_sum, losses.sum(axis=1), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(learner.weighted_loss_sum, losses @ weights, rtol=1e-8, atol=1e-8)
    assert learner.progress.error_count.tolist() == wrong.sum(axis=1).tolist()
    last = wanted[-1, :features].reshape(features, len(grid), outputs)
    np.testing.assert_allclose(
        learner.measure().penalty, [own_penalty(penalty, entry, last[:, c]) for c, entry in enumerate(grid)], atol=1e-9
    )


def own_penalty(penalty: str, entry: dict[str, Any], W: np.ndarray) -> float:
    """ψ(W), λ included; 0 in a box."""
    if penalty == "group":
        return float(entry["lam"] * np.linalg.norm(W, axis=1).sum())
    ratio = {"l1": 1.0, "l2": 0.0}.get(penalty, entry.get("l1_ratio", 0.0))
    return float(entry.get("lam", 0.0) * (ratio * np.abs(W).sum() + (1 - ratio) * (W**2).sum() / 2))
