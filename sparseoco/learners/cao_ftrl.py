"""CAO-FTRL: composite, adaptive and optimistic follow-the-regularized-leader in the box |x_i| ≤ R_i.

    x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ_{s≤t} σ_s(x − x_s)²/2 + (t+1)ψ(x),
    σ_s = (Δ_s − Δ_{s−1})/R,    Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²),    R = R_i,    for every coordinate

Source: Mohri and Yang (2015), Algorithm 2 and Theorem 3 with the regularizer of Corollary 2; Algorithm 1 is ψ = 0.

The parameter `regularizer` chooses r_{0:t}:

- proximal, as above: Theorems 1, 3 and 5;
- centred: Δ_t x²/(2R), the same stiffness around 0 instead of the iterates: Theorems 2, 4 and 6 (dual averaging);
- none: r ≡ 0, where ψ itself is strongly convex (l2 and the elastic net with λ > 0): h_{0:t} is (t+1)λ(1 − ρ)-strongly
  convex, and regret grows as log t. Elsewhere (an intercept, l1, λ = 0) the objective would be linear, and the
  regularizer stays the proximal one. The same iterates are those of the losses f_t + ψ, strongly convex, with the
  quadratic λ(1 − ρ)(x − x_t)²/2 that convexity leaves of them: g_t·x + ψ'(x_t)·x + λ(1 − ρ)(x − x_t)²/2 = g_t·x +
  λ(1 − ρ)x²/2 + a constant for l2. r ≡ 0 with the linear g_t·x alone, as §2.1 has it, is follow-the-leader in the
  box, whose regret is linear.

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

The prediction g̃_{t+1} is 0 or, coordinate by coordinate,

- last: g_t, which is 0 for a feature that is not in row t;
- mean: the mean gradient over the rows with the feature if the next row has it, else 0. The row is known before it is
  predicted, and a feature not in it has gradient 0; the theorems hold for any prediction made before x_{t+1} is played.
  (Predicting the mean in the rounds between would cost a Σ 1/√(Δ² + k·g̃²) without a closed form, for gradients known
  to be 0.) Weights that are read are those for a row that has the feature.

Symbols: `Z`, `Delta` = Δ; `g_last`, the gradient in the feature's last round; `g_mean`, over `seen` rounds; `t`, the
next round; `l1` = λρ; `ridge` = λ(1 − ρ)R; `importance` = 1 (see `caos_ftrl`); `pull` = 1/R, or 0 for a regularizer
around 0; `adaptive` = 1, or 0 for none; `scale` = R_i/R, or 0 before the feature's first row; `elapsed`, rounds since
the feature's last round (1 if that was the previous one).

Why lazy is exact: if g = g̃ = 0, neither Z nor Δ changes, and the weight is a function of them and t. With last, one
pending round must be applied if the feature is not in the next row: there g = 0 and g̃ = g_last. It is applied on
reading and at the feature's next update, with its own t, which follows from `elapsed`.

Two numbers per coordinate; with last three, and one time stamp per feature; with mean four; with scale one more.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule, derived, extended, nonzero, round_clock
from sparseoco.learners.losses import Loss
from sparseoco.learners.parameters import LARGER_LAM, Parameter, categorical, choice, positive
from sparseoco.learners.penalties import SCHEDULE, Penalty, clip

ZERO: Any = np.float32(0)  # float32, so that arithmetic with float32 columns stays float32
ONE: Any = np.float32(1)
LARGE = np.float32(2.0**64)

Form = tuple[Any, Callable[..., Any], Callable[..., Any]]
Fields = dict[str, Any]


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
    importance: float
    adaptive: float


class State(NamedTuple):
    Z: float
    Delta: float


class LastState(NamedTuple):
    Z: float
    Delta: float
    g_last: float


class MeanState(NamedTuple):
    Z: float
    Delta: float
    g_mean: float
    seen: float


@register_jitable
def scalars_of_round(R, l1, ridge, t, importance):
    """The scalars of round t for λρ = l1 and λ(1 − ρ) = ridge, with the proximal regularizer."""
    return Scalars(R, 1.0 / R, l1, ridge * R, t, importance, 1.0)


@register_jitable
def chosen_scalars(clock, params, importance, maps):
    """The scalars of the round with the regularizer that `params` choose, an index in `REGULARIZERS`."""
    l1, ridge = maps.split(params.lam, params)
    plain = params.regularizer == 2.0 and ridge > 0.0
    pull = 0.0 if plain or params.regularizer == 1.0 else 1.0 / params.R
    return Scalars(params.R, pull, l1, ridge * params.R, clock.rounds + 1.0, importance, 0.0 if plain else 1.0)


@register_jitable
def round_scalars(clock, params, maps):
    return chosen_scalars(clock, params, 1.0, maps)


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
def played(Z, Delta, x, g, missed, scalars):
    """Z and Δ after a round at x with gradient g and prediction error `missed` = g − g̃."""
    grown = math.sqrt(Delta * Delta + missed * missed)
    return Z + g - (grown - Delta) * scalars.pull * x, grown


@register_jitable
def weight(state, elapsed, scalars, maps):
    return minimizer(state.Z, state.Delta, maps.total(scalars.t), scalars, maps.prox)


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    g_hat = scalars.importance * gradient
    x = weight(state, elapsed, scalars, maps)
    Z, Delta = played(state.Z, state.Delta, x, g_hat, g_hat, scalars)
    return State(Z, Delta)


@register_jitable
def settled(state, elapsed, scalars, maps):
    """Z, Δ and g̃ of the next round, with the pending round applied if it is over."""
    Z, Delta, g_last = state.Z, state.Delta, state.g_last
    if elapsed > 1:
        x = minimizer(Z + g_last, Delta, maps.total(scalars.t + ONE - elapsed), scalars, maps.prox)
        Z, Delta = played(Z, Delta, x, ZERO, g_last, scalars)
        g_last = g_last - g_last
    return Z, Delta, g_last


@register_jitable
def weight_last(state, elapsed, scalars, maps):
    Z, Delta, g_tilde = settled(state, elapsed, scalars, maps)
    return minimizer(Z + g_tilde, Delta, maps.total(scalars.t), scalars, maps.prox)


@register_jitable
def update_last(state, elapsed, scalars, gradient, row, maps):
    g_hat = scalars.importance * gradient
    Z, Delta, g_tilde = settled(state, elapsed, scalars, maps)
    x = minimizer(Z + g_tilde, Delta, maps.total(scalars.t), scalars, maps.prox)
    Z, Delta = played(Z, Delta, x, g_hat, g_hat - g_tilde, scalars)
    return LastState(Z, Delta, g_hat)


@register_jitable
def weight_mean(state, elapsed, scalars, maps):
    return minimizer(state.Z + state.g_mean, state.Delta, maps.total(scalars.t), scalars, maps.prox)


@register_jitable
def update_mean(state, elapsed, scalars, gradient, row, maps):
    g_hat = scalars.importance * gradient
    missed = g_hat - state.g_mean
    x = weight_mean(state, elapsed, scalars, maps)
    Z, Delta = played(state.Z, state.Delta, x, g_hat, missed, scalars)
    seen = state.seen + ONE
    return MeanState(Z, Delta, state.g_mean + missed / seen, seen)


@register_jitable
def state_from_weight(w, scalars, maps):
    """After one gradient of size 1: Δ = 1."""
    Delta, total = nonzero(w), maps.total(scalars.t)
    step = free_step(Delta, total, scalars)
    return State(-maps.preimage(clip(w, scalars.R), total * scalars.l1 * step) / step, Delta)


def prediction_forms(state_from_weight: Callable[..., Any], none: Form, last: Form, mean: Form) -> dict[str, Fields]:
    """The fields of `Rule` for each value of `predict_gradient`, from (state, weight, update) of each.

    `state_from_weight` is that of none; the others append the prediction 0, and no rounds in the mean.
    """
    forms = {
        name: {
            "state": state,
            "weight": weight,
            "update": update,
            "state_from_weight": with_zeros(state_from_weight, len(state._fields) - len(none[0]._fields)),
        }
        for name, (state, weight, update) in {"none": none, "last": last, "mean": mean}.items()
    }
    forms["last"]["clock_time"] = round_clock
    return forms


def with_zeros(state_from_weight: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The function with `count` zeros after its numbers, which become those of the rule's own state in the kernel."""
    zeros = (ZERO,) * count

    def padded(w, scalars, maps):
        return (*state_from_weight(w, scalars, maps)[:], *zeros)

    return derived(padded, state_from_weight, f"with_{count}_zeros")


FORMS = prediction_forms(
    state_from_weight,
    (State, weight, update),
    (LastState, weight_last, update_last),
    (MeanState, weight_mean, update_mean),
)


@register_jitable
def in_range(scalars, scale):
    """The scalars of a coordinate with the range scale·R."""
    return Scalars(
        scalars.R * scale,
        scalars.pull / scale,
        scalars.l1,
        scalars.ridge * scale,
        scalars.t,
        scalars.importance,
        scalars.adaptive,
    )


def scaled_form(form: Fields) -> Fields:
    """The fields of `Rule` for scale = first: the same functions with the scalars of the coordinate's own range.

    The range is stored in the update of the feature's first row, and is at most 2⁶⁴·R, so that float32 holds it.
    """
    Own, own_weight, own_update = form["state"], form["weight"], form["update"]
    own_state_from_weight = form["state_from_weight"]
    Scaled = extended(Own, "scale")

    def weight(state, elapsed, scalars, maps):
        scale = state.scale if state.scale > ZERO else ONE  # any: the weight is 0
        return own_weight(Own(*state[:-1]), elapsed, in_range(scalars, scale), maps)

    def update(state, elapsed, scalars, gradient, row, maps):
        scale = state.scale if state.scale > ZERO else min(ONE / abs(row.x), LARGE)
        own = own_update(Own(*state[:-1]), elapsed, in_range(scalars, scale), gradient, row, maps)
        return Scaled(*own[:], scale)

    def state_from_weight(w, scalars, maps):
        return (*own_state_from_weight(w, scalars, maps), nonzero(w))

    return form | {
        "state": Scaled,
        "weight": derived(weight, own_weight, "scaled"),
        "update": derived(update, own_update, "scaled"),
        "state_from_weight": derived(state_from_weight, own_state_from_weight, "scaled"),
    }


SCALED_FORMS = {name: scaled_form(form) for name, form in FORMS.items()}


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    """Without a prediction unless a parameter chooses one, and with ψ_t = ψ unless one chooses a sequence."""
    forms = FORMS if parameters.get("scale", "none") == "none" else SCALED_FORMS
    form = forms[parameters.get("predict_gradient", "none")]
    maps = penalty.sequence(parameters.get("schedule", "constant"))
    return Rule(params=Params, scalars=Scalars, round_scalars=round_scalars, maps=maps, **form)


def rule_last(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    """Predicts the last gradient unless a parameter chooses otherwise."""
    return rule(loss, penalty, {"predict_gradient": "last"} | dict(parameters))


R = Parameter("R", 0.1, "bound of every |weight|, and the scale of the steps R/Δ", positive, grid=(0.03, 0.1, 0.3))
SCALE = categorical(
    "scale",
    ("none", "first"),
    "range R_i of a weight: R for all features, or R divided by the feature's absolute value in the first row with it",
)
PREDICT_GRADIENT = categorical(
    "predict_gradient",
    tuple(FORMS),
    "prediction of the next gradient: 0, the last one, or the mean over the rows that had the feature",
    default="last",
)._replace(grid=tuple(FORMS))

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
    rule=rule,
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
    penalties=("l1",),
    rule=rule_last,
    why=WHY_PLAIN,
)
AO_GD = Algorithm(
    name="ao-gd",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g_t)·x + Σ σ_s(x − x_s)²/2, Δ_s = √(Σ_{a≤s} (g_a − g_{a−1})²)",
    source="Mohri and Yang 2015, Corollary 2",
    parameters=(R, SCALE),
    penalties=("l1",),
    rule=rule_last,
    why=WHY_PLAIN,
)
CAO_FTRL = Algorithm(
    name="cao-ftrl",
    formula="x_{t+1} = argmin_{|x| ≤ R} (g_{1:t} + g̃_{t+1})·x + Σ σ_s(x − x_s)²/2 + (t+1)ψ(x), "
    "σ_s = (Δ_s − Δ_{s−1})/R, Δ_s = √(Σ_{a≤s} (g_a − g̃_a)²)",
    source="Mohri and Yang 2015, Algorithm 2, Theorems 3 and 4",
    parameters=(R, LARGER_LAM, PREDICT_GRADIENT, REGULARIZER, SCHEDULE, SCALE),
    penalties=SEPARABLE,
    rule=rule,
    why=WHY,
)
