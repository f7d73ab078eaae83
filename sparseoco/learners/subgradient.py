"""The online subgradient method: loss and penalty in one step.

    w_{t+1} = w_t − η_t(g_t + λ·sign(w_t)),    sign(0) = 0,    η_t = eta0/√t

Source: Togari and Yamashita (2016), Algorithm 1; SG of Oiwa et al. (2011), (2), with λ = 0.

Symbols: `w` is the weight after the feature's last round; `eta` = η_t; `pull` = η_t λ; `rate` = eta0·λ;
`elapsed` = rounds since the feature's last round, including it.

Why lazy is exact: outside the support of g_t only λ·sign(w) acts on a weight. Reading it or updating it applies these
rounds one by one: with λ > 0 the time for a weight that is not 0 is proportional to the rounds since its feature's last
row. Weights rarely become exactly 0: they oscillate around it by the size of a step. After thousands of rounds without
an update the sign depends on the last bits.

One number per coordinate, one time stamp per feature.
"""

import math
from typing import NamedTuple

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule, round_clock, step_size
from sparseoco.learners.parameters import ETA0, LAM, STEP


class Params(NamedTuple):
    eta0: float
    lam: float


class Scalars(NamedTuple):
    eta: float
    pull: float
    rate: float
    rounds: float
    shape: float


class State(NamedTuple):
    w: float


@register_jitable
def time_after_update(clock):
    """As after a round with the feature."""
    return clock.rounds - 1.0


@register_jitable
def round_scalars(clock, params, maps):
    eta = params.eta0 * clock.step
    return Scalars(eta, eta * params.lam, params.eta0 * params.lam, clock.rounds, clock.shape)


@register_jitable
def weight(state, elapsed, scalars, maps):
    w, rate, now = float(state.w), float(scalars.rate), float(scalars.rounds)
    t = now - float(elapsed) + 2.0  # the round after the feature's last one
    while rate > 0.0 and t <= now and w != 0.0:
        w -= math.copysign(rate * step_size(scalars.shape, t), w)
        t += 1.0
    return w


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    w = weight(state, elapsed, scalars, maps)
    sign = (1.0 if w > 0.0 else 0.0) - (1.0 if w < 0.0 else 0.0)
    return State(w - scalars.eta * gradient - scalars.pull * sign)


RULE = Rule(
    Params,
    Scalars,
    State,
    round_scalars,
    update,
    weight=weight,
    clock_time=round_clock,
    time_after_update=time_after_update,
    weight_is_float64=True,
)
SUBGRADIENT = Algorithm(
    name="subgradient",
    formula="w_{t+1} = w_t − η_t(g_t + λ·sign(w_t)), η_t = eta0/√t",
    source="Togari and Yamashita 2016, Algorithm 1; Oiwa, Matsushima and Nakagawa 2011, (2)",
    parameters=(ETA0, LAM, STEP),
    rules=RULE,
    why="a box has no subgradient at its boundary, and with ½w² its steps diverge if η_t λ > 2; use fobos",
)
