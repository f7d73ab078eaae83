"""Optimism with averaging: a full gradient a round, at the mean of the iterates, predicted by the one before.

    H(x) = F(x) + αψ(x),    F = Σ_j f_j,    x̄_t = Σ_{s≤t} s·x_s/A_t,    A_t = t(t + 1)/2,    g_t = ∇F(x̄_t),
    x_t = argmin_{|x| ≤ R} (Σ_{s<t} s·g_s + t·g_{t−1})·x + Δ_{t−1}x²/(2R) + A_t·αψ(x),
    Δ_t = κ√(Σ_{s≤t} s²(g_s − g_{s−1})²),    g_0 = 0,    κ = 8,    for every coordinate

Source: Joulani, Raj, György and Szepesvári (2020), A simpler approach to accelerated optimization: gradients at the
online mean, with weights α_t = t (the α of this package is the penalty's), of an optimistic learner that predicts the
last one; and Cutkosky (2019), Anytime online-to-batch, optimism and acceleration. The paper leaves the optimistic
learner open. This one is CAO-FTRL of Mohri and Yang (2015), Algorithm 2, on the losses t·g_t·x and the penalties tαψ:
`cao_ftrl` with the regularizer centred has the closed form, a clipped soft threshold, and no step size but R/Δ.

Two choices of ours make the early rounds of text overshoot less, where the features of a document move together. The
regularizer is centred: around the iterates, with a bound of the same form, the first ones, which are at ±R in most
features, hold the later ones back. And κ = 1, with which the bound would be 3.8 instead of 6.2 times R Σ_i S_i, makes
steps too long in a box that has room for the largest weight. On IMDB (unigrams, counts, logistic, l1 with α = 10, R
1.2 times the largest weight) the objective exceeds its optimum after 40 passes by 20 % with κ = 1, 2.9 % with 8 and
4.3 % with 16; on sublinear tf-idf with α = 1 by 11, 1.6 and 2.2 %.

The weights that are read are x̄_{T+1} after T passes. They are a mean of sparse iterates, and not as sparse: a weight is
0 only if it was 0 in every round.

Why it is accelerated, with B(y, x) = F(y) − F(x) − ∇F(x)·(y − x) ≥ 0. Since t(x̄_t − x_t) = A_{t−1}(x̄_{t−1} − x̄_t),
convexity of F at x̄_t and ψ(x̄_T) ≤ Σ tψ(x_t)/A_T give

    A_T(H(x̄_T) − H(x)) ≤ Σ_t t·(g_t·(x_t − x) + αψ(x_t) − αψ(x)) − Σ_t A_{t−1}·B(x̄_{t−1}, x̄_t)
                       ≤ C·R Σ_i S_{T,i} − Σ_t A_{t−1}·B(x̄_{t−1}, x̄_t),    S = Δ/κ,    C = 6.2,

the last by Theorem 4 of Mohri and Yang: per coordinate, Δ_T x²/(2R) ≤ κRS_T/2, and as no step is longer than 2R, round
t costs at most R·min(u²/(κS_{t−1}), 2u) ≤ R(1 + √(1 + 4κ²))/κ·(S_t − S_{t−1}), u = t|g_t − g_{t−1}|. If F'' ≤ diag(M),
B(x̄_{t−1}, x̄_t) ≥ Σ_i (g_{t,i} − g_{t−1,i})²/(2M_i), and t² ≤ 4A_{t−1} for t ≥ 2: what the changes of the gradient add
to S, they take away by B. The rest is bounded in T,

    H(x̄_T) − H* ≤ Σ_i (2CR|g_{1,i}| + 4C²R²M_i)/(T(T + 1)),

while for any F with |g_{t,i}| ≤ G_i, H(x̄_T) − H* ≤ 4CR Σ_i G_i/√(3T). M, G and T are in no step.

Symbols: `Z` = Σ_{s≤t} s·g_s, `Delta` = Δ, `g_tilde` = (t + 1)·g_t. Four numbers per coordinate, with x̄.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparseoco.core.errors import unsupported
from sparseoco.learners.cao_ftrl import SEPARABLE, WHY
from sparseoco.learners.caos_erm import ALPHA
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import Parameter, positive
from sparseoco.learners.penalties import Penalty

STIFFNESS = 8.0
"""κ."""
BOUND = 6.2
"""C: at least κ/2 + (1 + √(1 + 4κ²))/κ."""


def weight_sum(t: int) -> int:
    """A_t, the sum of the weights of the first t rounds."""
    return t * (t + 1) // 2


def played(Z: Any, Delta: Any, gradient: Any, g_tilde: Any) -> tuple[Any, Any]:
    """Z and Δ, arrays, after a round with this weighted gradient and its prediction."""
    return Z + gradient, np.sqrt(Delta * Delta + (STIFFNESS * (gradient - g_tilde)) ** 2)


def averaged(mean: Any, x: Any, t: int) -> Any:
    """x̄_t from x̄_{t−1} and x_t."""
    return mean + (x - mean) * (2.0 / (t + 1))


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> None:
    """No functions to choose. Raises `InputError` for losses of several margins."""
    if loss.slope is None:
        raise unsupported(
            f"optimistic-averaging needs a loss of one margin; loss={loss.name!r} is joint over the classes."
        )


OPTIMISTIC_AVERAGING = Algorithm(
    name="optimistic-averaging",
    formula="x_t = argmin_{|x| ≤ R} (Σ_{s<t} s·g_s + t·g_{t−1})·x + Δ_{t−1}x²/(2R) + A_t·αψ(x), g_t = ∇F(x̄_t), "
    "x̄_t = Σ_{s≤t} s·x_s/A_t, A_t = t(t + 1)/2, Δ_t = 8√(Σ_{s≤t} s²(g_s − g_{s−1})²)",
    source="Joulani, Raj, György and Szepesvári 2020; Mohri and Yang 2015, Algorithm 2",
    parameters=(
        Parameter("R", 3.0, "bound of every |weight|, and the scale of the steps R/Δ", positive, grid=(3.0, 30.0)),
        ALPHA,
    ),
    penalties=(*SEPARABLE, "box"),
    rules=rule,
    why=WHY,
    driver="pass",
)
