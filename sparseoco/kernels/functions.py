"""A learner's functions as one named tuple: in compiled code `f.weight(…)` becomes a call of the function itself."""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

from sparseoco.core.compile_cache import register_jitable
from sparseoco.kernels.tuples import LOAD, STORE
from sparseoco.learners.contract import Rule
from sparseoco.learners.penalties import Maps


class Functions(NamedTuple):
    """The functions of a `Rule`, and functions that load and store its tuples."""

    Params: Any
    Scalars: Any
    State: Any
    load_params: Any
    store_params: Any
    load_scalars: Any
    store_scalars: Any
    load_state: Any
    store_state: Any
    round_scalars: Any
    weight: Any
    update: Any
    state_from_weight: Any
    clock_time: Any
    settled_time: Any
    advance: Any
    row_term: Any
    maps: Any


SCALAR_FUNCTIONS = Functions._fields[9:17]


@register_jitable
def unused(*arguments):
    """Placeholder for a function that a rule does not define."""
    return 0.0


def rule_key(rule: Rule) -> list[str]:
    """Everything in a rule that machine code depends on."""
    functions = (*(getattr(rule, name, None) for name in SCALAR_FUNCTIONS), *rule.maps)
    names = [f"{f.__module__}.{f.__qualname__}" if f else "" for f in functions]
    flags = [getattr(rule, name, None) for name in ("running", "needs_row_norm", "needs_loss", "weighs_rows")]
    return [*names, str((rule.params, rule.scalars, rule.state, *flags))]


def bind(rule: Rule) -> Callable[[], Any]:
    """A function without arguments that returns the `Functions` of a rule in compiled code.

    It becomes a member of this module: numba's disk cache identifies a kernel's closure variables by their pickle,
    which differs between processes for functions that cannot be imported.
    """
    name = f"functions_{hashlib.sha256(repr(rule_key(rule)).encode()).hexdigest()[:24]}"
    if name not in globals():
        globals()[name] = register_jitable(_closure(rule, name))
    return globals()[name]


def _closure(rule, name):
    Params, Scalars, State = rule.params, rule.scalars, rule.state
    (load_params, store_params), (load_scalars, store_scalars), (load_state, store_state) = (
        (LOAD[len(kind._fields)], STORE[len(kind._fields)]) for kind in (Params, Scalars, State)
    )
    round_scalars, weight, update, state_from_weight, clock_time, settled_time, advance, row_term = (
        getattr(rule, name, None) or unused for name in SCALAR_FUNCTIONS
    )
    settled_time = clock_time if settled_time is unused else settled_time
    prox, preimage, split, scaled, repeated, grow, total = rule.maps

    def functions():
        return Functions(
            Params,
            Scalars,
            State,
            load_params,
            store_params,
            load_scalars,
            store_scalars,
            load_state,
            store_state,
            round_scalars,
            weight,
            update,
            state_from_weight,
            clock_time,
            settled_time,
            advance,
            row_term,
            Maps(prox, preimage, split, scaled, repeated, grow, total),
        )

    functions.__name__ = functions.__qualname__ = name
    return functions
