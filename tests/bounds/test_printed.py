"""Where a theorem is not as printed: a sequence over the paper's bound, and under the one that its proof gives."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.bounds.play import Play, fixed_labels
from tests.offline.oracles import algorithm_4

pytestmark = pytest.mark.formulas


def test_stda_and_features_that_occur_twice() -> None:
    """Oiwa et al. 2012, Theorem 1, p = 1: slopes −1, then +1, each pair of rows a feature of its own.

    The first row leaves w = (1 − λ)/√t, whose cost in the second is (1 + 2λ)w: Σ (1 − λ)(1 + 2λ)/√t over odd t, which
    is 9/8·√T less a constant for λ = 1/4, against x = 0 and a bound of √T for G = γ = 1 and D as small as you like.
    """
    pairs = 60
    X = np.repeat(np.eye(pairs), 2, axis=0)
    play = Play("stda", X, fixed_labels(np.tile([1.0, -1.0], pairs)), [{"gamma": 1.0, "lam": 0.25, "p": 1}])
    assert np.linalg.norm(play.g[:, :, 0], axis=1) == pytest.approx(np.ones(2 * pairs))
    x, T = np.zeros(pairs), np.arange(1, 2 * pairs + 1)
    regret = play.regret(0, x)
    odd = np.arange(1, 2 * pairs, 2)
    assert regret[-1] == pytest.approx(9 / 8 * (1 / np.sqrt(odd)).sum())
    assert regret[-1] > np.sqrt(T[-1]) * 1.05
    assert (regret <= play.limit(0, x)).all()
    assert "Lemma 3" in play.bound().note


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


def test_corollary_6_and_linear_losses() -> None:
    """The data-dependent bound of Corollary 6 has g_t^j − ḡ_s^j of one example, which is 0 for f_j(x) = b_j·x.

    Algorithm 4 as printed predicts by the example drawn before, and its regret is not 0: not in the first round, where
    g̃_1 = 0, and not later.
    """
    b, R, epochs = np.array([[1.0], [2.0], [-1.0], [0.5]]), 1.0, 5
    total = b.sum()
    for seed in range(4):
        x, *_ = algorithm_4(b, np.ones(len(b)), lambda z, y: 1.0, R=R, alpha=0.0, k=epochs, seed=seed)
        regret = np.cumsum(total * x[:-1, 0]) + np.arange(1, len(x)) * abs(total) * R
        assert (regret >= abs(total) * R).all()
        assert regret[-1] < 8 * R * np.sqrt(len(regret)) * np.abs(b).sum()


def test_composite_regret_without_the_last_penalty() -> None:
    """Mohri and Yang 2015, Theorems 3 to 6, first half: ψ_{1:T−1}(x) must be ψ_{1:T}(x).

    The proof applies Theorem 2 with r_t + ψ_t, but the update has ψ_{1:t+1}. In one round with r ≡ 0, ψ = λx²/2 and a
    linear loss, regret against x = −cg is cg² and ‖g‖² in the norm of h_0 is g²/λ, which is less if c > 1/λ; the
    logistic loss is near enough to a linear one.
    """
    lam = 2.0
    entry = {"R": 2.0, "lam": lam, "predict_gradient": "none", "regularizer": "none"}
    play = Play("cao-ftrl", np.array([[2.0]]), fixed_labels([1.0]), [entry], "logistic", "l2")
    g, x = play.g[0, :, 0], np.array([2.0])
    assert g == pytest.approx([-1.0])
    regret = (play.losses(play.W[:, :, 0]) - play.losses(x))[0]
    as_printed = g[0] ** 2 / lam
    assert regret > 1.3 * as_printed
    assert regret <= play.psi(x, 0)[0] + as_printed


def test_composite_regret_in_a_norm_of_the_next_round() -> None:
    """Mohri and Yang 2015: the second halves of Theorem 3, in the norm of h_{0:t}, and of Theorem 4, as printed.

    Theorem 3 needs the norm of h_{0:t−1} + r_t, without ψ_{t+1}; Theorem 4 that of h_{0:t−1}, as its proof and Theorem
    6 have it, without r_t as well. One round with r_0 = 0 and ψ_1 = λ_1x²/2: regret is g²/(2λ_1) against x = −g/λ_1,
    and g²/(λ_1 + more) is less if ψ_2, or the r_1 of Theorem 4, brings more than λ_1. For ψ_t that do not grow
    α_{1:t+1} is at most 2α_{1:t}.
    """
    g, first, more = 1.0, 0.5, 2.0
    x = np.linspace(-4.0, 4.0, 801)
    regret = -(g * x + first * x**2 / 2).min()  # x_1 = 0 is the minimum of ψ_1
    assert regret > 2 * g**2 / (first + more)
    assert regret <= g**2 / first


def test_strongly_convex_losses_without_a_regularizer() -> None:
    """Mohri and Yang 2015, §2.1: r ≡ 0 for strongly convex f_t is no FTRL with g_t·x alone.

    h is linear and x_{t+1} an end of the box: on f_t(x) = (x − 0.3)²/2 regret grows as T, Σ g_t²/t as log T. With the
    strongly convex part of f_t kept in h, regret is within it.
    """
    b, R, T = 0.3, 1.0, 2000

    def play(convexity: float) -> tuple[float, float]:
        gradients, centres, regret, bound = 0.0, 0.0, 0.0, 0.0
        for t in range(1, T + 1):
            v = gradients - convexity * centres
            x = float(np.clip(-v / (convexity * (t - 1)), -R, R)) if convexity and t > 1 else -R * float(np.sign(v))
            g = x - b
            regret += g * g / 2
            bound += g * g / t
            gradients, centres = gradients + g, centres + x
        return regret, bound

    regret, bound = play(convexity=0.0)
    assert regret > 0.2 * T
    assert regret > 20 * bound
    regret, bound = play(convexity=1.0)
    assert regret <= bound
