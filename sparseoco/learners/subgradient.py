"""The online subgradient method: loss and penalty in one step.

    w_{t+1} = w_t − η_t(g_t + λ·sign(w_t)),    sign(0) = 0,    η_t = eta0/√t

Source: Togari and Yamashita (2016), Algorithm 1; SG of Oiwa et al. (2011), (2), with λ = 0.

Symbols: `w` is the weight after the last round its feature was in; `eta` = η_t; `pull` = η_t λ; `rate` = eta0·λ;
`n` = rounds done; `slept` = rounds since the feature's last, that one included.

Why lazy is exact: out of the support of g_t a weight meets λ·sign(w) alone, and many such rounds have a closed form
(`swings`). Weights hardly ever become 0: they swing across it with the size of a step. After thousands of rounds
asleep the sign of such a weight hangs on the last bits of it, in the dense recursion too.

One slot a coordinate, one stamp a feature.
"""

from collections.abc import Mapping
from typing import Any

from numba.extending import register_jitable

from sparseoco.learners.contract import ETA0, LAM, STEP, Algorithm, Rule, begin
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty
from sparseoco.learners.swings import swing, swing_evenly


@register_jitable
def time(clock):
    return clock.n


@register_jitable
def paid_at(clock):
    """As after a round that the feature was in."""
    return clock.n - 1.0


@register_jitable
def tick(clock, hyper):
    eta0, lam = hyper
    return (eta0 * clock.s, eta0 * clock.s * lam, eta0 * lam, clock.n, clock.constant)


@register_jitable
def weight(slots, slept, now, prox, parts):
    w = float(slots[0])
    _, _, rate, n, constant = now
    rounds = int(slept) - 1
    if w == 0.0 or rate == 0 or rounds <= 0 or not abs(w) < 1e300:
        return w
    unit = float(rate)
    if constant > 0:
        b, turns = swing_evenly(abs(w) / unit, rounds)
    else:
        b, turns = swing(abs(w) / unit, float(n) - rounds + 1.0, rounds)
    return unit * b * (turns if w > 0.0 else -turns)


@register_jitable
def observe(slots, slept, now, g, x, prox, parts):
    eta, pull, _, _, _ = now
    w = weight(slots, slept, now, prox, parts)
    sign = (1.0 if w > 0.0 else 0.0) - (1.0 if w < 0.0 else 0.0)
    return (w - eta * g - pull * sign,)


def rule(loss: Loss, penalty: Penalty, parameters: Mapping[str, Any]) -> Rule:
    return Rule(time, tick, weight, observe, ("w",), ("eta0", "lam"), 5, True, start=begin(parameters), paid_at=paid_at)


SUBGRADIENT = Algorithm(
    name="subgradient",
    formula="w_{t+1} = w_t − η_t(g_t + λ·sign(w_t)), η_t = eta0/√t",
    source="Togari and Yamashita 2016, Algorithm 1; Oiwa, Matsushima and Nakagawa 2011, (2)",
    parameters=(ETA0, LAM, STEP),
    penalties=("l1",),
    rule=rule,
    module=__name__,
    why="a box has no subgradient at its walls, and steps against λw grow where η_t λ > 2, which fobos never does",
)
