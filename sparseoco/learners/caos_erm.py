"""CAOS-ERM: composite and adaptive; epochs of a full pass and of sampled examples whose gradients the pass predicts.

    H(x) = Σ_j f_j(x) + αψ(x),    x_t = argmin_{|x| ≤ R} (ĝ_{1:t−1} + g̃_t)·x + Σ_{s<t} σ_s(x − x_s)²/2 + tαψ(x),
    g̃_t = Σ_{j∈Π_t} ∇f_j(x̄)/p_t,    ĝ_t = Σ_{j∈Π_t} ∇f_j(x_t)/p_t,
    σ_s = (Δ_s − Δ_{s−1})/R,    Δ_s = √(Σ_{a≤s} (ĝ_a − g̃_a)²),    for every coordinate

Source: Mohri and Yang (2015), Algorithm 4 (a mini-batch Π is one example, `batch` = 1) and Algorithm 5, Corollaries 6
and 7; ψ and both formulas are those of `cao_ftrl`, with another ĝ and g̃.

Details that the paper leaves open. x̄, the point of an epoch's pass, is the argmin without a prediction (g̃ = 0); it is
also the model that is evaluated and stored. Mini-batches are `batch` examples each, consecutive ones in document order
or in that of a random permutation; each round draws one independently with probability p ∝ Σ_{j∈Π} L_j,
L_j = max_i |a_{j,i}|, which bounds ‖∇f_j‖_∞ up to the loss's constant, which cancels; or, with sample = uniform, with
equal probabilities, to test what the paper's gain. An example without features is never drawn. A sample weight ω_j
multiplies f_j, and hence L_j: an example of weight 0 is never drawn alone. An intercept is the weight of one more
feature, 1 in every example, which ψ leaves out: the paper's box and closed forms are of each coordinate alone, so this
one has α = 0, the same R, and 1 is one of the |a_{j,i}|.

The paper lets p_t change in every round. With sample = adaptive it changes in every epoch,

    p_Π = ½·L_Π/Σ L_Π' + ½·G_Π/Σ G_Π',    G_Π = Σ_{j∈Π} |s̄_j|·max_i |a_{j,i}|,

L_Π = Σ_{j∈Π} L_j, s̄_j the slopes of the epoch's pass, and |·| their 2-norm over outputs. Theorem 5 takes any p_t that
is known before the draw of round t: estimates stay unbiased, and 1/p_t is at most twice that of lipschitz. Changed in
every round, the sums that draws search would be a tree (Fenwick), O(log n) a round. But a round learns the slopes of
its own mini-batch only, one in n, so that p would hardly differ within an epoch. Draws are those of one configuration,
which is played alone.

predict_gradient is what predicts a round of sampled estimates. Line 9 of Algorithm 4 (lines 9 and 10 of Algorithm 5)
samples j_{t+1} and then prints

    g̃_{t+1} = ḡ_s^{j_t}/p_{t,j_t},    ḡ_s^j the gradients of epoch s's pass.

- next reads j_{t+1} instead, as the terms g_t^j − ḡ_s^j of Corollary 6 have it. Then g̃ is near ĝ, and Δ grows with
  their difference only. But x_{t+1} depends on j_{t+1}: E[ĝ_{t+1} | x_{t+1}] is not the gradient, so Corollary 6 fails
  (`offline.bounds`).
- previous is the algorithm as printed. j_{t+1} is independent of x_{t+1}, so ĝ_{t+1} is unbiased and the worst case of
  Corollary 6 is proved. But g̃ predicts another example's gradient: ĝ − g̃ does not vanish as x̄ converges, and
  Corollary 6's terms are not what Δ sums. The prediction of the epoch's last round is part of the state: x̄ is then x_t
  itself, the first iterate that the epoch plays, as in line 7. Before the first round nothing is drawn: g̃_1 = 0.
- last is what the text of §3.2.2 says, "the last gradient of the current function being sampled": that of j_{t+1} in
  its last round of this epoch, or else in the pass. As with next, x_{t+1} depends on j_{t+1}.

estimate = corrected, the default, uses the estimate of SVRG (Johnson and Zhang 2013) instead of the paper's,

    g̃_t = ∇F(x̄),    ĝ_t = ∇F(x̄) + Σ_{j∈Π_t} (∇f_j(x_t) − ∇f_j(x̄))/p_t,

also unbiased and as far from its prediction as the paper's: Δ and the bound of Corollary 6 have the same form, and the
noise of ĝ_{1:t} vanishes as x̄ converges. With last, ∇f_j(x̄) is the last gradient of j, and ∇F(x̄) the sum of those, the
estimate of SAGA (Defazio, Bach and Lacoste-Julien 2014). It is the default because it comes nearest to the optimum; in
the first epochs, at a large R, the paper's own is nearer (`offline.cluster.epochs`).

While Δ = 0 the objective is linear, and x is 0 or ±R. This is so at the start: until the first round that moves, the
gradients equal their predictions.

Symbols: `Z` = ĝ_{1:t−1} − Σ σ_s x_s, `Delta` = Δ; `rounds` = t, over all epochs; `importance` = 1/p_t; two slots per
coordinate, and g̃_{t+1} with previous. A linear model's gradients are ∇f_j = s_j·a_j, so a pass stores only one slope
s_j per example, and with last a round overwrites those of its mini-batch.

Why lazy is exact: a coordinate in no example of Π_t has ĝ_t = g̃_t = 0, so Z and Δ do not change, and the weight is a
function of them and t; with previous, a coordinate in no example of Π_{t−1} or Π_t. With corrected estimates
ĝ_t = g̃_t = ∇_iF(x̄) there, which is added to Z in every round; with last it is the sum of the last gradients, whose
coordinate i changes in rounds with i only.
"""

import math
from collections.abc import Mapping
from typing import Any

from sparseoco.core.compile_cache import register_jitable
from sparseoco.core.errors import unsupported
from sparseoco.learners.cao_ftrl import SEPARABLE, State, minimizer, played
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import Parameter, categorical, nonnegative, positive, positive_int
from sparseoco.learners.penalties import Penalty, soft


@register_jitable
def weight(Z, Delta, g_tilde, scalars):
    """x_t; with next, x̄ if g̃ = 0."""
    return minimizer(Z + g_tilde, Delta, scalars.t, scalars, soft)


@register_jitable
def update(Z, Delta, x, g_tilde, deviation, scalars):
    """Z and Δ after a round at x, with deviation = ĝ − g̃."""
    return played(State(Z, Delta), x, g_tilde + deviation, deviation, scalars)


@register_jitable
def after_control_variate(Z, rounds, gradient):
    """Z after rounds in which ĝ = g̃ = gradient; Δ does not change."""
    return Z + rounds * gradient


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> None:
    """No functions to choose. Raises `InputError` for unsupported combinations."""
    if parameters["predict_gradient"] == "previous" and parameters["estimate"] == "corrected":
        raise unsupported(
            "caos-erm: predict_gradient='previous' needs estimate='sampled', because corrected estimates are predicted "
            "by the gradient of all examples."
        )
    if loss.slope is None:
        raise unsupported(f"caos-erm needs a loss of one margin; loss={loss.name!r} is joint over the classes.")


KEPT = 0.5
"""Share of the probabilities by gradient bounds in adaptive ones."""


def adaptive_chances(fixed: Any, seen: Any) -> Any:
    """p of mini-batches or blocks, from what bounds their gradients and what was seen of them, each up to a factor."""
    chances, total = fixed / fixed.sum(), seen.sum()
    return KEPT * chances + (1.0 - KEPT) * (seen / total) if 0.0 < total < math.inf else chances


def rounds(value: Any) -> int | str:
    """A check: a number of rounds, or the word pass."""
    return "pass" if value == "pass" else positive_int(value)


ALPHA = Parameter("alpha", 1.0, "weight α of the penalty against the sum of the losses", nonnegative, grid=(1.0, 10.0))
CAOS_ERM = Algorithm(
    name="caos-erm",
    formula="x_t = argmin_{|x| ≤ R} (ĝ_{1:t−1} + g̃_t)·x + Σ σ_s(x − x_s)²/2 + tαψ(x), ĝ_t = ∇f_j(x_t)/p_j, "
    "g̃_t = ∇f_j(x̄)/p_j, j = j_t (or, as printed, g̃_t of j_{t−1}), p_j ∝ max_i |a_{j,i}| (or equal), x̄ the epoch's "
    "first iterate; corrected, both plus ∇F(x̄) − ∇f_j(x̄)/p_j",
    source="Mohri and Yang 2015, Algorithms 4 and 5, Corollaries 6 and 7",
    parameters=(
        Parameter("R", 1.0, "bound of every |weight|, and the scale of the steps R/Δ", positive, grid=(0.3, 1.0)),
        ALPHA,
        Parameter("rounds", "pass", "rounds per epoch; by default the number of mini-batches", rounds, static=True),
        categorical(
            "estimate",
            ("corrected", "sampled"),
            "gradient estimate: the pass's gradient corrected by the drawn examples, or from these alone (as in the "
            "paper)",
        ),
        categorical(
            "predict_gradient",
            ("next", "previous", "last"),
            "prediction of a round: the gradient in the pass of the mini-batch drawn for it, or of that of the round "
            "before (as printed in the paper); or the drawn one's last gradient, in a round or in the pass",
        )._replace(grid=()),
        categorical(
            "sample",
            ("lipschitz", "uniform", "adaptive"),
            "probability of drawing a mini-batch: by its gradient bound, the same for all, or half by the bound and "
            "half by its gradients in the epoch's pass",
        )._replace(grid=()),
        Parameter("batch", 1, "examples per mini-batch", positive_int, static=True),
        categorical(
            "partition",
            ("consecutive", "random"),
            "mini-batches of consecutive documents, or of a random permutation that the seed determines",
        )._replace(grid=()),
        categorical(
            "placement",
            ("serial", "dealt"),
            "who plays the rounds: one worker, or parts that own every parts-th mini-batch",
        ),
        Parameter("parts", 8, "number of parts, unless placement is serial", positive_int, static=True),
    ),
    penalties=SEPARABLE,
    rules=rule,
    why="it minimises over its own box, |x_i| ≤ R, coordinate by coordinate",
    driver="epoch",
)
