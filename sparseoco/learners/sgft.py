"""SGFT: the subgradient method with frequency-aware truncation; a coordinate's own history sets its threshold.

    w_{t+1} = soft(w_t − η_t g_t, η_{t+1/2}·λ·h_t),    h_t = min(V, ‖(u_1, …, u_t)‖_p),    u_t = −η_t g_t

Source: Oiwa, Matsushima and Nakagawa (2011), (5), (6), lazy (11), (12); V bounds h only if p ≤ 2, (9).

Symbols: `w` is the weight after the last gradient step, before that round's truncation; `r` = ‖(u_1, …, u_t)‖_p,
including that round's u; `eta` = η_t; `rate` = eta0·λ; `elapsed` = Σ s_τ over the rounds whose truncation is pending,
η_{τ+1/2} = eta0·s_τ.

Why lazy is exact: a coordinate not in the row has u = 0, so h does not change, and soft-thresholds with one h add
up. h = 1 is SG-L1 (`fobos`).

Two numbers per coordinate, one time stamp per feature.
"""

from typing import NamedTuple

from sparseoco.core.compile_cache import register_jitable
from sparseoco.learners.contract import Algorithm, Rule
from sparseoco.learners.domains import order
from sparseoco.learners.fobos import truncation_clock
from sparseoco.learners.parameters import ETA0, LARGER_LAM, SECOND, STEP, Parameter, positive

NO_BOUND = 3e38  # the largest round number of float32


class Params(NamedTuple):
    eta0: float
    lam: float
    V: float
    p: float


class Scalars(NamedTuple):
    eta: float
    rate: float
    V: float
    p: float
    inverse_p: float


class State(NamedTuple):
    w: float
    r: float


@register_jitable
def round_scalars(clock, params, maps):
    V = params.V if params.p <= 2.0 else NO_BOUND
    return Scalars(params.eta0 * clock.step, params.eta0 * params.lam, V, params.p, 1.0 / params.p)


@register_jitable
def bounded_norm(r, V):
    """h = min(V, ‖·‖_p)."""
    return r if r < V else V


@register_jitable
def threshold(state, elapsed, scalars, maps):
    """The current h of a coordinate."""
    return bounded_norm(state.r, scalars.V)


@register_jitable
def weight(state, elapsed, scalars, maps):
    return maps.prox(state.w, scalars.rate * elapsed * threshold(state, elapsed, scalars, maps))


@register_jitable
def update(state, elapsed, scalars, gradient, row, maps):
    u = scalars.eta * gradient
    r = maps.grow(state.r, u, scalars.p, scalars.inverse_p)
    return State(weight(state, elapsed, scalars, maps) - u, r)


@register_jitable
def state_from_weight(w, scalars, maps):
    """A history of one step of size |w|."""
    return State(w, abs(w))


P = Parameter("p", 2, "order of the norm of a coordinate's history, ≥ 1 or inf", order, static=True)
V = Parameter("V", 500.0, "bound of h, for p ≤ 2", positive)
WHY_L1_ONLY = "it is defined by per-coordinate thresholds, and only l1 has thresholds"

RULE = Rule(
    Params,
    Scalars,
    State,
    round_scalars,
    update,
    weight=weight,
    state_from_weight=state_from_weight,
    clock_time=truncation_clock,
    threshold=threshold,
)
SGFT = Algorithm(
    name="sgft",
    formula="w_{t+1} = soft(w_t − η_t g_t, η_{t+1/2} λ h_t), h_t = min(V, ‖(u_1 … u_t)‖_p), u = −η g",
    source="Oiwa, Matsushima and Nakagawa 2011, (5), (6), (9), (12)",
    parameters=(ETA0, LARGER_LAM, P, V, STEP, SECOND),
    penalties=("l1",),
    rules=RULE,
    why=WHY_L1_ONLY,
)
