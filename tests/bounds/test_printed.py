"""Where a theorem is not as printed: a sequence over the paper's bound, and under the one that its proof gives."""

from collections.abc import Iterator

import numpy as np
import pytest

from sparseoco.offline.bounds import Bound
from tests.bounds.play import Play, fixed_labels


def test_stda_and_features_that_occur_twice() -> None:
    """Oiwa et al. 2012, Theorem 1, p = 1: slopes −1, then +1, each pair of rows a feature of its own.

    The first row leaves w = (1 − λ)/√t, whose cost in the second is (1 + 2λ)w: Σ (1 − λ)(1 + 2λ)/√t over odd t, which
    is 9/8·√T less a constant for λ = 1/4, against x = 0 and a bound of √T for G = γ = 1 and D as small as you like.
    """
    pairs = 150
    X = np.repeat(np.eye(pairs), 2, axis=0)
    play = Play("stda", X, fixed_labels(np.tile([1.0, -1.0], pairs)), [{"gamma": 1.0, "lam": 0.25, "p": 1}] * 2)
    assert np.linalg.norm(play.g[:, :, 0], axis=1) == pytest.approx(np.ones(2 * pairs))
    x, T = np.zeros(pairs), np.arange(1, 2 * pairs + 1)
    regret = play.regret(0, x)
    odd = np.arange(1, 2 * pairs, 2)
    assert regret[-1] == pytest.approx(9 / 8 * (1 / np.sqrt(odd)).sum())
    assert regret[-1] > np.sqrt(T[-1]) * 1.05
    assert (regret <= play.limit(0, x)).all()
    bound = play.bounds[0]
    assert isinstance(bound, Bound)
    assert "Lemma 3" in bound.note


def rounds_of_caos_erm(b: np.ndarray, R: float, T: int, seed: int, whole: bool) -> Iterator[tuple[float, float, float]]:
    """Mohri and Yang 2015, Algorithm 4, one epoch from x̄ = 0 on f_j(x) = ½(x − b_j)²: x_t, Δ_t and Σ_{s≤t} of
    Σ_j (g_s^j − ḡ^j)²/p_j, p_j = 1/m.

    The prediction is that of the example drawn for the coming round, as Corollary 6 has it; or, `whole`, the gradient
    of all at x̄, with ĝ_t = g̃_t + (g_t^j − ḡ^j)/p_j. Both miss by the same.
    """
    m, Z, Delta, terms = len(b), 0.0, 0.0, 0.0
    for j in np.random.default_rng(seed).integers(m, size=T):
        g_tilde = -b.sum() if whole else -b[j] * m
        v = -(Z + g_tilde)
        x = float(np.clip(R * v / Delta, -R, R)) if Delta > 0 else R * float(np.sign(v))
        terms += m * m * x * x
        missed = x * m
        grown = float(np.hypot(Delta, missed))
        Z += g_tilde + missed - (grown - Delta) / R * x
        Delta = grown
        yield x, Delta, terms


def test_caos_erm_and_predictions_that_know_the_draw() -> None:
    """Corollary 6: x_t depends on the example that ĝ_t is of, so ĝ_t is not unbiased: regret passes the bound.

    Every ½(x − b_j)² is predicted but for x_t − x̄, so Δ knows nothing of the noise |b_j| ≫ R, which drives x_t from
    wall to wall. Predicted by the whole gradient ĝ_t is unbiased, the proof holds, and so does the bound.
    """
    b, R, T = np.array([20.0, -20.0, 20.5, -19.5]), 1.0, 400
    optimum = float(np.clip(b.mean(), -R, R))

    def regret_and_bound(seed: int, whole: bool) -> tuple[float, float]:
        x, Delta, terms = np.array(list(rounds_of_caos_erm(b, R, T, seed, whole))).T
        assert Delta[-1] == pytest.approx(np.sqrt(terms[-1]))
        regret = ((x[:, None] - b) ** 2 - (optimum - b) ** 2).sum() / 2
        return float(regret), float(4 * R * np.sqrt(terms[-1]))

    as_printed, mended = (np.array([regret_and_bound(seed, whole) for seed in range(16)]) for whole in (False, True))
    assert (as_printed[:, 0] > 1.5 * as_printed[:, 1]).all()
    assert (mended[:, 0] < mended[:, 1]).all()
