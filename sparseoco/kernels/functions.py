"""A learner's functions as one named tuple inside compiled code: numba compiles `f.weight(…)` as a call of the function."""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

from numba.extending import register_jitable

from sparseoco.kernels.tuples import LOAD, STORE
from sparseoco.learners.contract import Rule
from sparseoco.learners.penalties import Maps


class Functions(NamedTuple):
    """What a kernel calls: of `Rule`, and for each of its tuples a function that loads and one that stores it."""

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


@register_jitable
def no_time(clock):
    """For rules without time stamps."""
    return 0.0


@register_jitable
def no_term(state, x):
    """For rules that want no sum over the row."""
    return 0.0


def rule_key(rule: Rule) -> list[str]:
    """Everything of a rule that machine code depends on."""
    compiled = (*(getattr(rule, name) for name in Functions._fields if hasattr(rule, name)), *rule.maps)
    names = [f"{f.__module__}.{f.__qualname__}" if callable(f) else "" for f in compiled]
    flags = (rule.params, rule.scalars, rule.state, rule.running, rule.needs_row_norm, rule.needs_loss)
    return [*names, str(flags)]


def bind(rule: Rule) -> Callable[[], Any]:
    """A function without arguments that gives compiled code the `Functions` of a rule.

    It becomes a member of this module: numba's cache on disk identifies what a kernel is closed over by its pickle,
    and that of a function that cannot be imported is not the same in every process.
    """
    name = f"functions_{hashlib.sha256(repr(rule_key(rule)).encode()).hexdigest()[:24]}"
    if name not in globals():
        globals()[name] = register_jitable(_closure(rule, name))
    return globals()[name]  # type: ignore[no-any-return]


def _closure(rule, name):  # type: ignore[no-untyped-def]
    Params, Scalars, State = rule.params, rule.scalars, rule.state
    (load_params, store_params), (load_scalars, store_scalars), (load_state, store_state) = (
        (LOAD[len(kind._fields)], STORE[len(kind._fields)]) for kind in (Params, Scalars, State)
    )
    round_scalars, weight, update, state_from_weight = (
        rule.round_scalars,
        rule.weight,
        rule.update,
        rule.state_from_weight,
    )
    clock_time = rule.clock_time or no_time
    settled_time = rule.settled_time or clock_time
    advance, row_term = rule.advance, rule.row_term or no_term
    prox, preimage, split, scaled, repeated, grow = rule.maps

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
            Maps(prox, preimage, split, scaled, repeated, grow),
        )

    functions.__name__ = functions.__qualname__ = name
    return functions
