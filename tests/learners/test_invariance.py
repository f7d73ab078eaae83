"""What makes no difference: special cases that coincide, and cuts of the stream, company, files and readings."""

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, algorithm_names
from sparseoco.training.learner import Learner
from tests.learners import cases
from tests.oracles.ftrl import importances
from tests.oracles.losses import SLOPES, VALUES, Rounds, each_margin, incurred
from tests.oracles.stream import METHODS
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas
ROWS, FEATURES = 400, 25
LAMS = (0.0, 1e-4, 1e-2)
PREDICTIONS = ("none", "last", "mean")
FTRL: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("ftrl-proximal", {"lam": LAMS}, "cao-ftrl", {"lam": LAMS, "predict_gradient": "none"}),
    ("ao-gd", {"R": 0.3}, "ao-ftrl", {"R": 0.3, "predict_gradient": "last"}),
]
for predict in PREDICTIONS:
    own = {"predict_gradient": predict}
    FTRL.append(("ao-ftrl", own, "cao-ftrl", own | {"lam": 0.0}))
    FTRL.append(("caos-ftrl", own | {"lam": LAMS, "keep": 1.0, "sample": "uniform"}, "cao-ftrl", own | {"lam": LAMS}))


def data() -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(ROWS, FEATURES)) * (rng.random((ROWS, FEATURES)) < 1.0 / np.arange(1, FEATURES + 1))
    return sp.csr_matrix(X), (X @ rng.normal(size=FEATURES) + 0.3 * rng.normal(size=ROWS) > 0).astype(int)


def weights(name: str, **grid: Any) -> np.ndarray:
    return Learner(name, loss="hinge", grid=grid, n_features=FEATURES).partial_fit(*data()).weights()


@pytest.mark.parametrize(
    ("name", "special", "other", "general"),
    [
        ("l-fobos", {"K": 1, "lam": 0.01}, "fobos", {"lam": 0.01}),
        ("sg-l1", {"lam": 0.01}, "fobos", {"lam": 0.01}),
        *FTRL,
    ],
)
def test_special_cases_have_the_same_bits(
    name: str, special: dict[str, Any], other: str, general: dict[str, Any]
) -> None:
    assert weights(name, **special).tobytes() == weights(other, **general).tobytes()


@pytest.mark.parametrize("name", ["adagrad", "cao-ftrl"])
def test_schedules_agree_without_a_penalty(name: str) -> None:
    same, others = (
        {weights(name, lam=lam, schedule=schedule).tobytes() for schedule in ("constant", "sqrt", "first")}
        for lam in (0.0, 0.01)
    )
    assert (len(same), len(others)) == (1, 3)


@pytest.mark.parametrize(("aware", "plain"), [("sgft", "sg-l1"), ("sgft-cumulative", "cumulative-l1")])
@pytest.mark.parametrize("second", ["same", "next"])
def test_a_history_that_is_the_same_for_all_is_no_history(aware: str, plain: str, second: str) -> None:
    """h = V for all coordinates from their first update on is h = 1 with λV for λ (sgft §3)."""
    V = 1e-6
    expected = weights(plain, lam=0.02, second=second)
    assert (expected == 0).any()
    np.testing.assert_allclose(weights(aware, lam=0.02 / V, V=V, p=1, second=second), expected, rtol=1e-10, atol=1e-12)


def test_frequency_aware_truncation_is_blind_to_units() -> None:
    """A feature whose values are 1000 times larger is truncated as much as the other (sgft §3): x → cx.

    Gradients are c times as large, the margins of so short a step hardly change, and so w → cw.
    """
    X, y = data()
    for name in ("sgft", "sgft-cumulative"):
        both = []
        for scale in (1.0, 1000.0):
            learner = Learner(name, loss="squared", grid={"lam": [0.01], "eta0": [1e-12]}, n_features=FEATURES)
            scaled = X @ sp.diags_array(np.where(np.arange(FEATURES) == 3, scale, 1.0))
            both.append(learner.partial_fit(sp.csr_matrix(scaled), y).weights()[3, 0])
        assert both[0] != 0
        assert both[1] / 1000 == pytest.approx(both[0], rel=1e-3)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, "inf"])
@pytest.mark.parametrize("name", ["sgft", "sgft-cumulative", "stda"])
def test_thresholds_are_norms_of_the_gradients_so_far(name: str, p: int | str) -> None:
    """sgft (5), (9): ‖(η_1 g_1, …, η_t g_t)‖_p below V; stda (14), (21): the same without steps."""
    X, y = data()
    V = 2.0
    learner = Learner(
        name, loss="hinge", grid=[{"lam": 0.0, "p": p}, {"lam": 0.01, "p": p, "V": V}], n_features=FEATURES
    )
    order, bounded = np.inf if p == "inf" else float(p), name == "stda" or p in (1, 2)
    steps = []
    for t in range(40):
        x = X[t].toarray()[0]
        eta = 1.0 if name == "stda" else 0.5 / np.sqrt(t + 1)
        steps.append(eta * SLOPES["hinge"](x @ learner.weights()[:, 1], 2 * y[t] - 1) * x)
        learner.partial_fit(X[t], y[t : t + 1])
        expected = np.linalg.norm(np.array(steps), ord=order, axis=0)
        values: Any = learner.thresholds_of(1)
        np.testing.assert_allclose(values[:, 0], np.minimum(expected, V) if bounded else expected, rtol=1e-10)
    assert Learner("fobos", n_features=FEATURES).thresholds_of(0) is None


# ----------------------------------------------------------------------------------------------------------------------
# Features that sleep long.


@pytest.mark.parametrize("predict", PREDICTIONS)
def test_two_thousand_rounds_without_the_feature(predict: str) -> None:
    X = np.zeros((2_000, 3))
    X[[0, 1, 1_990], 0] = 1.7, -2.3, 0.9  # asleep almost always
    X[[5, 800, 801, 1_998, 1_999], 1] = 3.1
    X[::3, 2] = 0.37
    y = (np.arange(2_000) * 7 // 5) % 2
    learner = Learner("cao-ftrl", grid={"R": 0.7, "lam": [0.0, 1e-5, 3e-3], "predict_gradient": predict}, n_features=3)
    learner.partial_fit(sp.csr_matrix(X), y)
    rounds, lam = Rounds(X, 2.0 * y - 1, each_margin("logistic"), 3), np.array([[0.0, 1e-5, 3e-3]])
    *_, last = METHODS["cao-ftrl"](rounds, R=0.7, lam=lam, predict_gradient=predict)
    np.testing.assert_allclose(learner.weights(), last, rtol=1e-10, atol=1e-12)


def test_l2_over_many_lazy_rounds_neither_underflows_nor_drifts() -> None:
    """A weight that many rounds have shrunk is the product of its factors; one shrunk away entirely is 0."""
    rounds, lams = 20_000, [1e-6, 1e-4, 1e-2, 20.0]
    learner = Learner("fobos", loss="squared", penalty="l2", grid={"eta0": 1.0, "lam": lams}, n_features=1)
    learner.partial_fit(sp.csr_matrix([[1.0]]), [1])
    learner.partial_fit(sp.csr_matrix((rounds - 1, 1)), np.zeros(rounds - 1, int))
    eta = 1 / np.sqrt(np.arange(1, rounds + 1))
    expected = [np.exp(-np.log1p(eta * lam).sum()) for lam in lams]
    np.testing.assert_allclose(learner.weights()[0], expected, rtol=1e-10, atol=1e-300)


# ----------------------------------------------------------------------------------------------------------------------
# Ranges of single coordinates, R_i of Mohri and Yang (2015), Corollary 2: `scale` of the FTRL learners of streams.
#
# test_battery has them against the oracles, which know R_i from round 1 on.


FIRST = {"scale": "first"}
SIZES = [-3.7, 0.9, 1.0, 2.1]
predictions = pytest.mark.parametrize(("predict", "dtype"), [*itertools.product(PREDICTIONS, ("float32", "float64"))])


def scaled(grid: Any, dtype: str = "float64") -> Learner:
    return Learner("cao-ftrl", loss="hinge", grid=grid, n_features=7, dtype=dtype, intercept=True)


def bits(learner: Learner, factors: np.ndarray | float = 1.0) -> tuple[bytes, ...]:
    """Weights, times the factors of the features, intercepts and sums of losses."""
    own = (learner.weights() * np.reshape(factors, (-1, 1))).astype(learner.dtype)
    return own.tobytes(), learner.intercepts().tobytes(), learner.progress.loss_sum.tobytes()


def rows(seed: int, values: list[float]) -> tuple[sp.csr_matrix, np.ndarray]:
    """Of rare and frequent features with these values, and labels."""
    rng = np.random.default_rng(seed)
    rates = rng.choice([0.02, 0.1, 0.5, 1.0], 7)
    return sp.csr_matrix(rng.choice(values, (60, 7)) * (rng.random((60, 7)) < rates)), rng.integers(0, 2, 60)


@predictions
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), R=st.floats(0.01, 10.0), lam=st.sampled_from([0.0, 0.013]))
def test_features_of_size_one_have_the_bits_of_one_range(
    predict: str, dtype: str, seed: int, R: float, lam: float
) -> None:
    X, y = rows(seed, [-1.0, 1.0])
    grid = {"R": R, "lam": lam, "predict_gradient": predict, "regularizer": ["proximal", "centred"]}
    own, plain = (scaled(grid | {"scale": scale}, dtype).partial_fit(X, y) for scale in ("first", "none"))
    assert bits(own) == bits(plain)


@predictions
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), R=st.floats(0.01, 10.0), data=st.data())
def test_without_a_penalty_units_of_features_do_not_matter(
    predict: str, dtype: str, seed: int, R: float, data: st.DataObject
) -> None:
    """A feature times 2^k has its weight times 2^−k, bit by bit."""
    X, y = rows(seed, SIZES)
    factors = 2.0 ** np.array(data.draw(st.lists(st.integers(-12, 12), min_size=7, max_size=7)))
    grid = {"R": [R, 1.0], "lam": 0.0, "predict_gradient": predict, **FIRST}
    learners = [lambda: scaled(grid, dtype)]
    if predict == "none":  # scinol predicts nothing
        learners.append(lambda: Learner("scinol", n_features=7, dtype=dtype))
    for new in learners:
        own, other = (new().partial_fit(rows, y) for rows in (X, sp.csr_matrix(X.multiply(factors))))
        assert bits(other, factors) == bits(own)


def test_given_weights_keep_the_range_of_all() -> None:
    """Features that start with a weight learn as with one range; those that start with 0 as if they were new."""
    X, y = rows(5, SIZES)
    given = np.array([0.05, -0.07, 0.1, 0.02, 0.3, -0.5, 0.01])[:, None]
    grid = {"R": [0.1, 0.2], "lam": 0.001, "predict_gradient": "last"}
    own, plain = (scaled(grid | {"scale": scale}).start_from(given, 40) for scale in ("first", "none"))
    assert bits(own.partial_fit(X, y)) == bits(plain.partial_fit(X, y))
    zero, idle = scaled(grid | FIRST).start_from(0 * given, 40), scaled(grid | FIRST)
    idle.partial_fit(sp.csr_matrix((40, 7)), np.zeros(40, int), np.zeros(40)).partial_fit(X, y)
    assert bits(zero.partial_fit(X, y))[:2] == bits(idle)[:2]


@pytest.mark.filterwarnings("ignore:overflow")
def test_ranges_of_tiny_values_are_finite() -> None:
    """R_i is at most 2⁶⁴·R, so that a value without a reciprocal in float32 does no harm."""
    X = sp.csr_matrix([[1e-42, 1.0], [1e-42, 2.0], [0.0, -1.0]])
    learner = Learner("ao-gd", loss="hinge", grid=FIRST, n_features=2, dtype="float32").partial_fit(X, [0, 1, 0])
    assert np.isfinite(learner.weights()).all()
    assert learner.slots_of(0)["scale"].ravel().tolist() == [2.0**64, 1.0]


@pytest.mark.parametrize("sample", ["uniform", "lipschitz"])
def test_draws_are_fair_and_their_share_is_kept(sample: str) -> None:
    """The oracle's draws, which the battery holds caos-ftrl to."""
    X = np.random.default_rng(2).lognormal(0, 1, (4_000, 1))
    seeds = (0, 1, 2**53 - 1)
    draws = [importances(X, np.ones(len(X)), 0.3, sample, seed) for seed in seeds]
    for drawn in draws:
        assert (drawn > 0).mean() == pytest.approx(0.3, abs=0.05 if sample == "uniform" else 0.08)
        total = (drawn * X[:, 0]).sum() / X.sum()  # Σ (b/q)·L estimates Σ L
        assert total == pytest.approx(1.0, abs=0.15 if sample == "uniform" else 0.05)
    assert (draws[0] != draws[1]).mean() > (0.3 if sample == "uniform" else 0.25)


# ----------------------------------------------------------------------------------------------------------------------
# ScInOL₂: its wealth is its bound.


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@settings(max_examples=40, deadline=None)
@given(stream=cases.streams(), size=st.sampled_from([0.1, 1.0, 10.0]), seed=st.integers(0, 1000))
def test_regret_of_scinol_is_within_the_bound_and_nobody_loses_everything(
    loss: str, stream: cases.Stream, size: float, seed: int
) -> None:
    """Reg_T(u) ≤ Σ_i (1 − η_{T,i} + u_i·G_{T,i}), also against labels that are wrong whenever they can be."""
    n = stream.X.shape[1]
    learner, incurred, rows = Learner("scinol", loss=loss, n_features=n), 0.0, []
    for row in stream.dense:
        before = learner.progress.loss_sum[0]
        label = int(learner.decision_function(sp.csr_matrix(row[None])).ravel()[0] <= 0)
        learner.partial_fit(sp.csr_matrix(row[None]), [label])
        incurred += learner.progress.loss_sum[0] - before
        rows.append((row, 2.0 * label - 1))
    (_, block), *_ = learner._blocks
    G, _, _, wealth = np.moveaxis(block.state[:n], 1, 0)[:, :, 0]
    assert (wealth > 0).all()
    for u in (np.zeros(n), size * np.random.default_rng(seed).normal(size=n)):
        regret = incurred - sum(VALUES[loss](row @ u, label) for row, label in rows)
        assert regret <= (1 - wealth + u * G).sum() + 1e-9 * (1 + abs(incurred))


# ----------------------------------------------------------------------------------------------------------------------
# The same bits however the stream is cut, whichever columns are trained together, wherever it is saved or read.


def parts(case: cases.Case) -> set[Any]:
    """Every penalty of every learner and every kind of labels of every penalty; and of every learner two classes, other
    labels, and a start from weights. Bits depend on losses by the slopes of rows alone."""
    with_penalty = {(case.name, case.penalty), (case.penalty, case.kind)}
    return with_penalty | {(case.name, case.plain), (case.name, "started", case.kind == "classes")}


SOME = cases.covering(cases.CASES, parts)
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
