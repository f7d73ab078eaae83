"""The same bits however the stream is cut, whichever columns are trained together, wherever it is saved or read."""

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.learners import ALGORITHMS, algorithm_names
from sparseoco.training.learner import Learner
from tests.learners import cases
from tests.oracles.losses import incurred
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas


def some_cases() -> Iterator[cases.Case]:
    """Two classes and other labels of every learner and penalty, and every kind of labels of every learner.

    Losses are in turn: bits depend on them by the slopes of rows alone.
    """
    seen = set[tuple[Any, ...]]()
    for case in itertools.chain(*(cases.CASES[first::5] for first in range(5))):
        own = {(case.name, case.penalty, case.plain), (case.name, case.kind)}
        if not own <= seen:
            seen |= own
            yield case


SOME = list(some_cases())
every_case = pytest.mark.parametrize("case", SOME, ids=str)


@cache
def whole(case: cases.Case) -> Learner:
    return case.learned()


def check_same(a: Learner, b: Learner, folder: Path) -> None:
    """The same file, which has all of the state, and the same weights."""
    a.save(folder / "a")
    b.save(folder / "b")
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()
    assert a.weights().tobytes() == b.weights().tobytes()
    assert a.intercepts().tobytes() == b.intercepts().tobytes()


@pytest.mark.fault(48)
@every_case
def test_any_cut_of_the_stream(case: cases.Case, tmp_path: Path) -> None:
    """Row by row, read before and after, saved and loaded now and then; margins are those that predict the row."""
    learner, X, y = case.new(), cases.rows(), cases.labels(case.kind)
    played = np.empty((1, len(case.grid), learner.n_outputs), learner.dtype)
    # Bandits play elsewhere, some learners see the row first, and what learns a mean of iterates plays those.
    elsewhere = case.name in (*cases.BANDITS, *cases.SEE_ROWS)
    plays = [i for i, entry in enumerate(case.grid) if not elsewhere and entry.get("average") != "iterates"]
    for t in range(cases.ROWS):
        margins = learner.decision_function(X[t]) if t % 10 < 3 else None
        case.learn(learner, t, t + 1, margins_out=played)
        if margins is not None and (case.plain or case.name != "subgradient"):  # test_compiled has its float32
            assert margins[:, plays].tobytes() == played[:, plays].tobytes()
        if t + 1 in (cases.HALF, cases.ROWS):
            learner.measure()
        if t in (0, 13):
            learner.weights()
            learner.nonzeros()
            learner.evaluate(X.indptr, X.indices, X.data, y)
            learner.save(tmp_path / "state")
            learner = Learner.load(tmp_path / "state")
    check_same(learner, whole(case), tmp_path)


@every_case
def test_columns_alone_or_with_others(case: cases.Case, tmp_path: Path) -> None:
    """Nothing is left of the others: the file is that of a learner that never had them."""
    for i, configuration in enumerate(case.grid):
        check_same(case.learned([configuration]), whole(case).select([i]), tmp_path)


@every_case
def test_selected_configurations_and_more_features_continue(case: cases.Case, tmp_path: Path) -> None:
    """As if the others had never been there, and the features from the first row on."""
    chosen = [3, 0, 2]
    small = case.learn(case.new(n_features=cases.FEATURES if case.dense else cases.BEFORE), 0, cases.HALF)
    small.measure()
    small.select(chosen).save(tmp_path / "small")
    if case.dense:
        with raises_code("more-features", case.name):
            Learner.load(tmp_path / "small", n_features=cases.FEATURES + 1)
    continued = case.learn(Learner.load(tmp_path / "small", n_features=cases.FEATURES), cases.HALF, cases.ROWS)
    continued.measure()
    check_same(continued, whole(case).select(chosen), tmp_path)
    check_same(continued.select([1, 2]), whole(case).select([0, 2]), tmp_path)


@every_case
def test_evaluation_is_of_the_margins_and_adds_up_row_by_row(case: cases.Case) -> None:
    learner, X, y = whole(case), cases.rows(), cases.labels(case.kind)
    z = learner.decision_function(X)
    expected = np.array(
        [
            [incurred(case.loss, case.kind, z[i, c].astype(float), y[i]) for i in range(cases.ROWS)]
            for c in range(z.shape[1])
        ]
    )
    losses, errors = learner.evaluate(X.indptr, X.indices, X.data, y)
    np.testing.assert_allclose(losses, expected[:, :, 0].sum(axis=1), rtol=1e-5)
    assert errors.tolist() == expected[:, :, 1].sum(axis=1).tolist()
    parts = np.zeros(len(losses)), np.zeros(len(losses), np.int64)
    for a in range(0, cases.ROWS, 7):
        part = X[a : a + 7]
        learner.evaluate(part.indptr, part.indices, part.data, y[a : a + 7], *parts)
    assert parts[0].tobytes() == losses.tobytes()
    assert parts[1].tolist() == errors.tolist()


@pytest.mark.parametrize(
    ("name", "step"),
    [
        (name, p.name)
        for name in algorithm_names("stream")
        for p in ALGORITHMS[name].parameters
        if p.name in cases.WILD
        and (name, p.name) != ("optimistic-ftrl", "eta")  # a large weight of its barrier: small steps
    ],
)
def test_a_diverging_neighbour_changes_no_bit(name: str, step: str, tmp_path: Path) -> None:
    """It stays diverged when it is selected."""
    grid = cases.configurations(name)[:3]
    wild = grid[0] | {step: cases.WILD[step]} | ({"lam": 0.0} if "lam" in grid[0] else {})
    case = cases.Case(name, "l1", "hinge", "two classes")
    together = case.learned([*grid, wild])
    fell = together.diverged[-1]
    assert together.diverged.tolist() == [0, 0, 0, fell]
    assert 2 <= fell <= 10
    check_same(together.select(range(3)), case.learned(grid), tmp_path)
    assert np.isfinite(together.progress.loss_sum).all()
    begun = case.learn(case.new([*grid, wild]), 0, cases.HALF).select([3, 1])
    assert case.learn(begun, cases.HALF, cases.ROWS).diverged.tolist() == [fell, 0]


@pytest.mark.parametrize("name", ["adagrad", "cl-fobos", "arow", "passive-aggressive"])
@pytest.mark.parametrize("kind", ["two classes", "classes"])
def test_ones_weigh_nothing_and_zeros_are_rows_without_features(name: str, kind: str) -> None:
    case, X, y = cases.Case(name, "l1", "hinge", kind), cases.rows(), cases.labels(kind)
    plain, weighed = case.new().partial_fit(X, y), case.new().partial_fit(X, y, np.ones(cases.ROWS))
    assert weighed.weights().tobytes() == plain.weights().tobytes()
    assert weighed.weighted_loss_sum.tobytes() == plain.progress.loss_sum.tobytes()
    zero = np.arange(cases.ROWS) % 3 == 0
    empty = sp.csr_matrix(sp.diags_array((~zero).astype(float)) @ X)
    empty.eliminate_zeros()
    case = case._replace(kind="two classes")
    left_out, emptied = case.new().partial_fit(X, y > 0, ~zero), case.new().partial_fit(empty, y > 0)
    assert left_out.weights().tobytes() == emptied.weights().tobytes()
    assert left_out.rounds == cases.ROWS


@pytest.mark.parametrize("name", algorithm_names("stream"))
def test_label_sets_are_learned_as_by_a_learner_per_class(name: str) -> None:
    """With intercepts and sample weights; a row is wrong if one of its classes is."""
    case, X, y = cases.Case(name, "l1", "hinge", "label sets"), cases.rows(), cases.labels("label sets")
    together = case.new().partial_fit(X, sp.csr_matrix(y), case.weights)
    wrong, losses = np.zeros((cases.ROWS, len(case.grid)), bool), np.zeros(len(case.grid))
    for k in range(3):
        alone = Learner(name, loss="hinge", grid=case.grid, n_features=cases.FEATURES, dtype="float32", intercept=True)
        margins = np.empty((cases.ROWS, len(case.grid), 1), np.float32)
        alone.learn_rows(X.indptr, X.indices, X.data, y[:, k], case.weights, margins_out=margins)
        np.testing.assert_array_equal(together.weights()[:, k::3], alone.weights())
        np.testing.assert_array_equal(together.intercepts()[:, k], alone.intercepts()[:, 0])
        wrong |= (margins[:, :, 0] > 0) != y[:, [k]]
        losses += alone.progress.loss_sum
    np.testing.assert_array_equal(together.progress.error_count, wrong.sum(axis=0))
    np.testing.assert_allclose(together.progress.loss_sum, losses)
