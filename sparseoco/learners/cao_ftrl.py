"""CAO-FTRL: composite, adaptive and optimistic follow-the-regularized-leader in the box |x_i| ≤ R_i.

    x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ_{s≤t} σ_s(x − x_s)²/2 + (t+1)ψ(x),
    σ_s = (Δ_s − Δ_{s−1})/R,    Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²),    R = R_i,    for every coordinate

Source: Mohri and Yang (2015), Algorithm 2 and Theorem 3 with the regularizer of Corollary 2; Algorithm 1 is ψ = 0.

The parameter `regularizer` chooses r_{0:t}:

- proximal, as above: Theorems 1, 3 and 5;
- centred: Δ_t x²/(2R), the same stiffness around 0 instead of the iterates: Theorems 2, 4 and 6 (dual averaging);
- none: r ≡ 0, where ψ itself is strongly convex (l2 and the elastic net with λ > 0): h_{0:t} is (t+1)λ(1 − ρ)-strongly
  convex, and regret grows as log t. Where it is not (an intercept, λ = 0) the objective would be linear, and the
  regularizer stays the proximal one; with l1, none is refused. The same iterates are those of the losses f_t + ψ,
  strongly convex, with the quadratic λ(1 − ρ)(x − x_t)²/2 that convexity leaves of them: g_t·x + ψ'(x_t)·x +
  λ(1 − ρ)(x − x_t)²/2 = g_t·x + λ(1 − ρ)x²/2 + a constant for l2. r ≡ 0 with the linear g_t·x alone, as §2.1 has it, is
  follow-the-leader in the box, whose regret is linear.

The parameter `schedule` chooses a sequence ψ_t = α_tψ: (t+1)ψ above is ψ_{1:t+1} for α_t = 1.

The parameter `scale` chooses the ranges R_i, which the paper leaves open:

- none: R_i = R;
- first: R_i = R/|x_{t,i}|, t the first row with the feature and a weight > 0, drawn or not (`caos_ftrl`). Then,
  without a penalty, the margins do not depend on the units of a feature. Until round t coordinate i has no gradient and
  no prediction and is 0 for any R_i, so that the iterates, and the theorems, are those of a vector fixed before round
  1. A feature that starts with a given weight ≠ 0 keeps R, as does the intercept, whose value is 1.

The terms collect into a parabola, whose minimum over an interval is its free minimum, clipped. With
Z_t = g_{1:t} − Σ_{s≤t} σ_s x_s, Σ σ_s = Δ_t/R and ψ = λ(ρ|x| + (1 − ρ)x²/2), ρ = 1 for l1,

    x_{t+1} = clip(−c·soft(Z_t + g̃_{t+1}, (t+1)λρ), ±R),    c = R/(Δ_t + (t+1)λ(1 − ρ)R)

(centred: Z_t = g_{1:t}; none: without Δ_t as well), and while that denominator is 0 the objective is linear and its
minimum is 0 or an end of the interval: c is then so large that clipping finds it. (Before the first gradient
Z + g̃ = 0, so x = 0 here, but not in `caos_erm`.)

The prediction g̃_{t+1} is 0, the last gradient, or the mean of the feature's gradients: `predictions`.

Symbols: `Z`, `Delta` = Δ; `t`, the next round; `l1` = λρ; `ridge` = λ(1 − ρ)R; `pull` = 1/R, or 0 for a regularizer
around 0; `adaptive` = 1, or 0 for none; `scale` = R_i/R, or 0 before the feature's first row; `elapsed`, rounds since
the feature's last round (1 if that was the previous one).

Why lazy is exact: if g = g̃ = 0, neither Z nor Δ changes, and the weight is a function of them and t. The pending round
of the prediction last is applied with its own t, which follows from `elapsed`.

Two numbers per coordinate; with last three, and one time stamp per feature; with mean four; with scale one more.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.core.errors import unsupported
from sparseoco.learners.contract import PREDICT_GRADIENT, Algorithm, Rule, derived, extended, nonzero, with_predictions
from sparseoco.learners.losses import Loss
from sparseoco.learners.numerics import mix
from sparseoco.learners.parameters import LARGER_LAM, Parameter, categorical, choice, positive, whole_number
from sparseoco.learners.penalties import ONE, SCHEDULE, Penalty, clip

ZERO: Any = np.float32(0)  # float32, so that arithmetic with float32 columns stays float32
LARGE = np.float32(2.0**64)


class Params(NamedTuple):
    R: float
    lam: float
    l1_ratio: float
    regularizer: float


class Scalars(NamedTuple):
    R: float
    pull: float
    l1: float
    ridge: float
    t: float
    adaptive: float


class State(NamedTuple):
    Z: float
    Delta: float


@register_jitable
def scalars_of_round(R, l1, ridge, t):
    """The scalars of round t for λρ = l1 and λ(1 − ρ) = ridge, with the proximal regularizer."""
    return Scalars(R, 1.0 / R, l1, ridge * R, t, 1.0)


@register_jitable
def round_scalars(clock, params, maps):
    """With the regularizer that `params` choose, an index in `REGULARIZERS`."""
    l1, ridge = maps.split(params.lam, params)
    plain = params.regularizer == 2.0 and ridge > 0.0
    pull = 0.0 if plain or params.regularizer == 1.0 else 1.0 / params.R
    return Scalars(params.R, pull, l1, ridge * params.R, clock.rounds + 1.0, 0.0 if plain else 1.0)


@register_jitable
def free_step(Delta, t, scalars):
    """c, the step of the unconstrained minimum; very large while the objective is linear."""
    stiffness = scalars.adaptive * Delta + scalars.ridge * t
    return scalars.R / stiffness if stiffness > 0 else LARGE


@register_jitable
def minimizer(v, Delta, t, scalars, prox):
    """argmin_{|x| ≤ R} v·x + Δ/(2R)·x² + tψ(x) (r ≡ 0: without Δ); NaN propagates."""
    step = free_step(Delta, t, scalars)
    return clip(prox(-v * step, t * scalars.l1 * step), scalars.R)


@register_jitable
def weight(state, elapsed, scalars, maps):
    return minimizer(state.Z, state.Delta, maps.total(scalars.t), scalars, maps.prox)


@register_jitable
def played(state, x, gradient, missed, scalars):
    """The state after a round at x with prediction error `missed` = g − g̃."""
    grown = math.sqrt(state.Delta * state.Delta + missed * missed)
    return State(state.Z + gradient - (grown - state.Delta) * scalars.pull * x, grown)


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    return played(state, weight(state, elapsed, scalars, maps), gradient, gradient, scalars)


@register_jitable
def unseen(state, g_tilde, elapsed, scalars, maps):
    total = maps.total(scalars.t + ONE - elapsed)
    x = minimizer(state.Z + g_tilde, state.Delta, total, scalars, maps.prox)
    return played(state, x, ZERO, g_tilde, scalars)


@register_jitable
def state_from_weight(w, scalars, maps):
    """After one gradient of size 1: Δ = 1."""
    Delta, total = nonzero(w), maps.total(scalars.t)
    step = free_step(Delta, total, scalars)
    return State(-maps.preimage(clip(w, scalars.R), total * scalars.l1 * step) / step, Delta)


RULES = with_predictions(
    Rule(Params, Scalars, State, round_scalars, update, weight=weight, state_from_weight=state_from_weight),
    played,
    unseen,
)


@register_jitable
def in_range(scalars, scale):
    """The scalars of a coordinate with the range scale·R."""
    R, pull, ridge = scalars.R * scale, scalars.pull / scale, scalars.ridge * scale
    return Scalars(R, pull, scalars.l1, ridge, scalars.t, scalars.adaptive)


def scaled(own: Rule) -> Rule:
    """The rule for scale = first: the same functions with the scalars of the coordinate's own range.

    The range is stored in the update of the feature's first row, and is at most 2⁶⁴·R, so that float32 holds it.
    """
    State, Scaled = own.state, extended(own.state, "scale")
    own_weight, own_update, own_state_from_weight = own.weight, own.update, own.state_from_weight

    def weight(state, elapsed, scalars, maps):
        scale = state.scale if state.scale > ZERO else ONE  # any: the weight is 0
        return own_weight(State(*state[:-1]), elapsed, in_range(scalars, scale), maps)

    def update(state, elapsed, scalars, gradient, row, maps):
        scale = state.scale if state.scale > ZERO else min(ONE / abs(row.x), LARGE)
        new = own_update(State(*state[:-1]), elapsed, in_range(scalars, scale), gradient, row, maps)
        return Scaled(*new[:], scale)

    def state_from_weight(w, scalars, maps):
        return (*own_state_from_weight(w, scalars, maps)[:], nonzero(w))

    return replace(
        own,
        state=Scaled,
        weight=derived(weight, own_weight, "scaled"),
        update=derived(update, own_update, "scaled"),
        state_from_weight=derived(state_from_weight, own_state_from_weight, "scaled"),
    )


SCALED_RULES = {name: scaled(rule) for name, rule in RULES.items() if name != "given"}


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    """Without a prediction unless a parameter chooses one."""
    prediction = parameters.get("predict_gradient", "none")
    if parameters.get("regularizer") == "none" and not penalty.decaying:
        raise unsupported(
            f"regularizer='none' needs a strongly convex penalty, l2 or elastic_net; penalty={penalty.name!r} is not."
        )
    if parameters.get("scale", "none") == "none":
        return RULES[prediction]
    if prediction not in SCALED_RULES:
        raise unsupported(
            "predict_gradient='given' has no scale='first': gradients are predicted before ranges are known."
        )
    return SCALED_RULES[prediction]


def rule_last(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    """Predicts the last gradient unless a parameter chooses otherwise."""
    return rule(loss, penalty, {"predict_gradient": "last"} | dict(parameters))


R = Parameter("R", 0.1, "bound of every |weight|, and the scale of the steps R/Δ", positive, grid=(0.03, 0.1, 0.3))
SCALE = categorical(
    "scale",
    ("none", "first"),
    "range R_i of a weight: R for all features, or R divided by the feature's absolute value in the first row with it",
)
REGULARIZERS = ("proximal", "centred", "none")
REGULARIZER = categorical(
    "regularizer",
    REGULARIZERS,
    "r_{0:t}: around the iterates, around 0, or none where the penalty is strongly convex",
    static=False,
)
SEPARABLE = ("l1", "l2", "elastic_net")
WHY = "it minimises over its own box, |x_i| ≤ R, coordinate by coordinate"
WHY_PLAIN = "it has no penalty, only its own box |x_i| ≤ R; penalty='l1' means no penalty; cao-ftrl takes one"

FTRL_PROXIMAL = Algorithm(
    name="ftrl-proximal",
    formula="x_{t+1} = argmin_{|x| ≤ R} g_{1:t}·x + Σ σ_s(x − x_s)²/2 + (t+1)ψ(x), σ_s = (Δ_s − Δ_{s−1})/R, "
    "Δ_s = √(Σ_{a≤s} g_a²)",
    source="McMahan 2014; Mohri and Yang 2015, Corollary 1.1",
    parameters=(R, LARGER_LAM, SCALE),
    penalties=SEPARABLE,
    rules=rule,
    why=WHY,
)
AO_FTRL = Algorithm(
    name="ao-ftrl",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2, Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²)",
    source="Mohri and Yang 2015, Algorithm 1 with the regularizer of Corollary 2, Theorems 1 and 2",
    parameters=(
        R,
        PREDICT_GRADIENT,
        REGULARIZER._replace(check=choice(*REGULARIZERS[:2]), choices=REGULARIZERS[:2]),
        SCALE,
    ),
    rules=rule_last,
    why=WHY_PLAIN,
)
AO_GD = Algorithm(
    name="ao-gd",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g_t)·x + Σ σ_s(x − x_s)²/2, Δ_s = √(Σ_{a≤s} (g_a − g_{a−1})²)",
    source="Mohri and Yang 2015, Corollary 2",
    parameters=(R, SCALE),
    rules=rule_last,
    why=WHY_PLAIN,
)
CAO_FTRL = Algorithm(
    name="cao-ftrl",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2 + (t+1)ψ(x), "
    "σ_s = (Δ_s − Δ_{s−1})/R, Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²)",
    source="Mohri and Yang 2015, Algorithm 2, Theorems 3 and 4",
    parameters=(R, LARGER_LAM, PREDICT_GRADIENT, REGULARIZER, SCHEDULE, SCALE),
    penalties=SEPARABLE,
    rules=rule,
    why=WHY,
)


# ----------------------------------------------------------------------------------------------------------------------
# CAOS-FTRL: CAO-FTRL on a random sample of the rows, weighted by the inverse of their probabilities.
#
#     x_{t+1} as `cao_ftrl`, with ĝ_t = (b_t/q_t)·g_t in place of g_t,    b_t = 1 with probability q_t, else 0
#
# Source: Mohri and Yang (2015), Algorithm 3, Theorems 5 and 6; sampling as §3.2.2 and Corollary 6, p_j ∝ L_j.
#
# The paper draws examples from a fixed set; a stream brings each row once. So the row of round t is drawn or not, and
# E[ĝ_t | rows, draws so far] = g_t, which is all that Algorithm 3 requires. The probability is
#
# - uniform: q_t = keep;
# - lipschitz: q_t = min(1, keep·L_t/L̄_t), L_t = max_i |x_{t,i}| and L̄_t its mean over rows 1 … t: proportional to
#   a bound on ‖∇f_t‖_∞ (the loss's constant cancels); about keep·t of t rows are drawn.
#
# b_t is a hash of (seed, t): any worker reproduces it, columns with the same seed share their draws, and epochs draw
# independently. A row that is not drawn is a round with ĝ_t = 0; it is still predicted, so progressive sums include all
# rows.
#
# Symbols, laziness and state: as `cao_ftrl`; `importance` = b_t/q_t, a factor of the gradient.


DRAWS = np.uint64(3)  # distinct from the hash streams of row order and folds


SampledParams = extended(Params, "keep", "sample", "seed")


SampledScalars = extended(Scalars, "importance")


@register_jitable
def drawn(seed, t):
    """A uniform number in [0, 1), a function of seed and round."""
    bits = mix(mix(mix(np.uint64(seed)) ^ DRAWS) ^ np.uint64(t))
    return float(bits >> np.uint64(11)) * 2.0**-53


@register_jitable
def importance(clock, params):
    """b_t/q_t of the current row."""
    q = params.keep
    if params.sample and clock.max_abs_sum > 0.0:
        q = min(1.0, params.keep * clock.max_abs * clock.rows_seen / clock.max_abs_sum)
    return 1.0 / q if drawn(params.seed, clock.rounds + 1.0) < q else 0.0


@register_jitable
def sampled_scalars(clock, params, maps):
    return SampledScalars(*round_scalars(clock, params, maps)[:], importance(clock, params))


def chance(value: Any) -> float:
    """A number in (0, 1]."""
    result = positive(value)
    if result > 1.0:
        raise ValueError("must be at most 1")
    return result


@cache
def sampled(own: Rule) -> Rule:
    """The rule with ĝ in place of g."""
    own_update = own.update

    def update(state, elapsed, scalars, gradient, row, maps):
        return own_update(state, elapsed, scalars, scalars.importance * gradient, row, maps)

    return replace(
        own,
        params=SampledParams,
        scalars=SampledScalars,
        round_scalars=sampled_scalars,
        update=derived(update, own_update, "sampled"),
        needs_row_norm=True,
    )


CAOS_FTRL = Algorithm(
    name="caos-ftrl",
    formula="cao-ftrl on ĝ_t = (b_t/q_t)·g_t, P(b_t = 1) = q_t = keep or keep·L_t/L̄_t, L_t = max_i |x_{t,i}|",
    source="Mohri and Yang 2015, Algorithm 3, Theorems 5 and 6; sampling as Corollary 6",
    parameters=(
        R,
        LARGER_LAM,
        PREDICT_GRADIENT._replace(grid=()),
        REGULARIZER,
        SCHEDULE,
        SCALE,
        Parameter("keep", 0.5, "expected fraction of the rows to learn from", chance),
        categorical(
            "sample",
            ("uniform", "lipschitz"),
            "probability of drawing a row: the same for all, or proportional to its largest |x|",
            default="lipschitz",
            static=False,
        ),
        Parameter("seed", 0, "seed of the draws, which depend on it and the round only", whole_number),
    ),
    penalties=SEPARABLE,
    rules=lambda loss, penalty, parameters: sampled(rule(loss, penalty, parameters)),
    why=WHY,
)
