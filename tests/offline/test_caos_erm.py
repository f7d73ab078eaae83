"""caos-erm against the paper's dense pseudo-code; the same bits however the work is cut; towards the optimum."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparseoco.kernels.epoch import draw
from sparseoco.offline.epochs import Blocks, EpochProblem, Rounds, fit_epochs, play_rounds, row_sizes
from sparseoco.offline.passes import LocalPasses, SpanRows
from tests.learners.streams import Stream, streams
from tests.offline.oracles import algorithm_4, caos_erm, uniform
from tests.offline.problems import PREVIOUS, WAYS, sorted_problem
from tests.oracles.stream import SLOPES
from tests.oracles.weights import labels_of, rows_of

pytestmark = pytest.mark.formulas

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "R": st.floats(0.0371, 5.93),
    "alpha": st.sampled_from([0.0, 0.0517, 0.319, 1.13, 11.3]),
}
SHARED: dict[str, st.SearchStrategy[Any]] = {
    "rounds": st.sampled_from(["pass", 1, 7, 23]),
    "batch": st.integers(1, 5),
    "parts": st.integers(1, 5),
    "sample": st.sampled_from(["lipschitz", "uniform"]),
}


def name_of(way: dict[str, str]) -> str:
    return "-".join(way.values())


@pytest.mark.parametrize("way", WAYS, ids=name_of)
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
@settings(max_examples=8, deadline=None)
@given(data=st.data(), stream=streams() | streams(weighted=True), seed=st.integers(0, 2**63 - 1))
def test_lazy_equals_dense(way: dict[str, str], loss: str, data: st.DataObject, stream: Stream, seed: int) -> None:
    shared = {name: data.draw(values) for name, values in SHARED.items()} | way
    penalty, ratio = data.draw(st.sampled_from([("l1", None), ("l2", None), ("elastic_net", 0.37)]))
    own = {} if ratio is None else {"l1_ratio": ratio}
    grid = [
        {name: data.draw(values) for name, values in VALUES.items()} | shared | own
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    epochs = stream.epochs
    extended = stream.weights is not None  # weights and an intercept: one kernel more to compile
    weights = stream.weights[: len(stream.y)] if extended else None
    arguments = {"grid": grid, "epochs": epochs, "seed": seed, "sample_weight": weights, "fit_intercept": extended}
    fit = fit_epochs(sp.csr_matrix(stream.X), stream.y, loss=loss, penalty=penalty, **arguments)
    signs = labels_of(2.0 * stream.y - 1, weights if extended else np.ones(len(stream.y)))
    full = rows_of(stream.X, intercept=extended)
    for i, entry in enumerate(grid):
        alpha = np.full(full.shape[1], entry["alpha"])
        alpha[stream.X.shape[1] :] = 0.0
        own, inside = entry | {"alpha": alpha}, [1.0]
        uneven = 2.0**-50 * np.random.default_rng(0).standard_normal((4, *full.shape))
        expected, *shaken = (
            caos_erm(X, signs, SLOPES[loss], epochs=epochs, seed=seed, penalty=penalty, inside=inside, **own)[-1]
            for X in (full, full * (1.0 + 2.0**-50), *full * (1.0 + uneven))
        )
        # Where slopes are those of the pass but for rounding, Δ is rounding, and so is the weight R·Z/Δ; where
        # gradients cancel, so is the sign of Z.
        assume(min(inside) > 1e-9)
        assume(all(np.allclose(weights, expected, **TOLERANCE) for weights in shaken))
        found = np.append(fit.weights[:, i], fit.intercepts[i]) if extended else fit.weights[:, i]
        np.testing.assert_allclose(found, expected, **TOLERANCE)


@pytest.mark.parametrize("sample", ["lipschitz", "uniform"])
@pytest.mark.parametrize("batch", [1, 3])
def test_previous_is_the_algorithm_as_printed(batch: int, sample: str) -> None:
    X, y = sorted_problem(rows=60, features=12)
    shared = {"R": 0.4, "alpha": 2.0, "batch": batch, "sample": sample}
    fit = fit_epochs(X, y, grid=[shared | PREVIOUS], epochs=3, seed=9)
    played, *_ = algorithm_4(X.toarray(), 2.0 * y - 1, SLOPES["logistic"], k=3, seed=9, **shared)
    np.testing.assert_allclose(fit.weights[:, 0], played[-1], **TOLERANCE)
    after_one = fit_epochs(X, y, grid=[shared | PREVIOUS], epochs=1, seed=9)
    np.testing.assert_allclose(after_one.weights[:, 0], played[(len(played) - 1) // 3], **TOLERANCE)
    other = fit_epochs(X, y, grid=[shared], epochs=3, seed=9)
    assert np.abs(other.weights[:, 0] - played[-1]).max() > 1e-3


def test_regression() -> None:
    X, _ = sorted_problem(classes=3)
    targets = np.random.default_rng(3).normal(0, 2, X.shape[0])
    numbers = fit_epochs(X, targets, loss="squared", grid=[{"alpha": 2.0}], epochs=2, seed=1, n_classes=None)
    expected = caos_erm(X.toarray(), targets, SLOPES["squared"], R=1.0, alpha=2.0, epochs=2, seed=1)
    np.testing.assert_allclose(numbers.weights[:, 0], expected[-1], **TOLERANCE)


@pytest.mark.parametrize("way", [{"estimate": "sampled"}, {"estimate": "corrected"}, PREVIOUS], ids=str)
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(1, 299), max_size=6), batch=st.integers(1, 3))
def test_any_cut_of_the_rounds(way: dict[str, Any], cuts: list[int], batch: int) -> None:
    X, y = sorted_problem()
    grid = [{"alpha": 1.0, "R": 0.4, "batch": batch, **way}]
    configured = EpochProblem.of("caos-erm", "hinge", "l1", grid, 2, X.shape[1])
    passes = LocalPasses.of(X, y.astype(np.float64))
    blocks = Blocks.of(row_sizes(SpanRows(passes.source), 0, X.shape[0]), configured.configurations[0])
    start = np.random.default_rng(1).normal(0, 0.1, (X.shape[1], 1))
    totals = passes.totals(start, configured.pass_request)
    slopes = passes.slopes(totals)
    (share,) = blocks.shares(configured.configurations[0])
    share = share._replace(rounds=300)
    gradient = totals.gradient if way.get("estimate") == "corrected" else None
    whole = configured.sampled()
    rounds = Rounds(passes.source, np.arange(X.shape[0]), slopes.__getitem__, gradient, blocks, 3, 2)
    assert play_rounds(whole, rounds, share).rounds == 300

    pieces = configured.sampled()
    pieces.start_run(gradient)
    for first, stop in itertools.pairwise(sorted({0, 300, *cuts})):
        places = draw(np.cumsum(blocks.weights), 3, 2, 0, first, stop - first)
        positions, edges = blocks.positions(places)
        importance = share.scale / blocks.weights[places]
        pieces.play(passes.source.gather(positions), edges, slopes[positions], importance)
    pieces.flush()
    assert pieces.rounds == whole.rounds
    assert pieces.state.tobytes() == whole.state.tobytes()
    assert pieces.weights().tobytes() == whole.weights().tobytes()


def test_draws_follow_the_sums_and_never_what_weighs_nothing() -> None:
    weights = np.array([0.0, 3.0, 0.0, 0.0, 1.0, 4.0, 0.0, 0.0])
    cumulative = np.cumsum(weights)
    drawn = draw(cumulative, 7, 3, 2, 0, 10_000)
    shares = [uniform(7, 3, 2, t) for t in range(200)]
    assert drawn[:200].tolist() == np.searchsorted(cumulative / 8, shares, side="right").tolist()
    counts = np.bincount(drawn, minlength=8)
    assert (counts[weights == 0] == 0).all()
    expected = 10_000 * weights / 8
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected)).all()  # five standard deviations, of fixed numbers
    assert not np.array_equal(drawn, draw(cumulative, 7, 4, 2, 0, 10_000))
    assert not np.array_equal(drawn, draw(cumulative, 7, 3, 1, 0, 10_000))
    assert np.array_equal(drawn[100:], draw(cumulative, 7, 3, 2, 100, 9_900))


@pytest.mark.parametrize("sample", ["lipschitz", "uniform"])
@pytest.mark.parametrize("placement", ["serial", "dealt"])
def test_estimates_are_unbiased(placement: str, sample: str) -> None:
    """Over all that a round can draw, in parts too, the mean of ĝ is the gradient of the whole."""
    X, y = sorted_problem(rows=50)
    passes = LocalPasses.of(X, y.astype(np.float64))
    blocks = Blocks.of(row_sizes(SpanRows(passes.source), 0, 50), {"batch": 4, "sample": sample})
    x = np.random.default_rng(1).normal(0, 0.1, (X.shape[1], 1))
    totals = passes.totals(x, EpochProblem.of("caos-erm", "logistic", "l1", None, 2, X.shape[1]).pass_request)
    gradients = X.multiply(passes.slopes(totals)).tocsr()
    shares = blocks.shares({"placement": placement, "parts": 5, "rounds": "pass"})
    assert len(shares) == (1 if placement == "serial" else 5)
    mean = np.zeros(X.shape[1])
    exclusive_lock = []
    for share in shares:
        own = range(share.first, share.stop, share.step)
        exclusive_lock += own
        total = sum(blocks.weights[b] for b in own)
        for b in own:
            chance = blocks.weights[b] / total
            g_hat = share.scale / blocks.weights[b] * np.asarray(gradients[4 * b : 4 * b + 4].sum(axis=0)).ravel()
            mean += chance * g_hat / len(shares)
    assert sorted(exclusive_lock) == list(range(13))
    np.testing.assert_allclose(mean, totals.gradient[:, 0], rtol=1e-10)
