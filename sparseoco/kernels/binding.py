"""Compiled kernels: a learner, a penalty, a loss and a type of column bound into the loops."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from sparseoco.core.compile_cache import compiled
from sparseoco.kernels import initialize as settling
from sparseoco.kernels import responses, stream
from sparseoco.kernels.count_nonzeros import measure, measure_absolute, tally
from sparseoco.kernels.tuples import LOAD, STORE
from sparseoco.learners.contract import Rule
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import Penalty

SOURCES = ("learners/numerics.py", "learners/losses.py", "learners/penalties.py", "learners", "kernels")
"""Everything that machine code is made from."""


class Kernels(NamedTuple):
    """The loops of a block of columns."""

    learn: Callable[..., None]
    learn_telling: Callable[..., None]
    margins: Callable[..., None]
    evaluate: Callable[..., None]
    sweep: Callable[..., None]
    rest: Callable[..., None]
    settle: Callable[..., None]


@lru_cache(maxsize=256)
def kernels_for(
    rule: Rule, penalty: Penalty, loss: Loss, response: str, dtype: str, alone: bool, tracked: bool
) -> Kernels:
    """The kernels of these functions for columns of `dtype`; equal arguments share them.

    `response` is a function of `outputs`: binary, one_vs_rest or regression.
    """
    tuples = (
        LOAD[len(rule.slots)],
        STORE[len(rule.slots)],
        LOAD[len(rule.hyper) + len(rule.running)],
        STORE[len(rule.hyper) + len(rule.running)],
        LOAD[rule.ticks],
        STORE[rule.ticks],
    )
    respond = getattr(responses, response)
    grouped = penalty.kind == "grouped"
    settled = grouped and rule.slots[0] == "w"
    functions = (rule.tick, rule.time, rule.weight)
    reading = [_name(f) for f in (*functions, penalty.prox, *rule.parts)]
    reading += [dtype, str((len(rule.slots), len(rule.hyper) + len(rule.running), rule.stamped, alone))]
    learning = [
        *reading,
        _name(rule.run),
        _name(rule.observe),
        str((rule.sized, tracked, settled)),
        response,
        loss.name,
    ]

    def learn(telling: bool) -> Callable[..., None]:
        return _bound(
            stream.build_learn(
                *functions,
                rule.observe,
                rule.run,
                bool(rule.running),
                penalty.prox,
                rule.parts,
                rule.stamped,
                rule.sized,
                tracked,
                grouped,
                settled,
                telling,
                alone,
                respond,
                loss.value,
                loss.slope,
                loss.bound,
                tuples,
            ),
            [*learning, str(telling)],
        )

    return Kernels(
        learn(telling=False),
        learn(telling=True),
        _bound(
            stream.build_margins(*functions, penalty.prox, rule.parts, rule.stamped, alone, grouped, tuples), reading
        ),
        _bound(stream.build_evaluate(respond, loss.value, loss.slope), [response, loss.name, dtype]),
        _bound(stream.build_sweep(*functions, penalty.prox, rule.parts, rule.stamped, alone, grouped, tuples), reading),
        _bound(settling.build_rest(rule.run, bool(rule.running), tuples), [_name(rule.run), *reading]),
        _bound(
            settling.build_settle(
                rule.tick,
                rule.paid_at or rule.time,
                rule.weight,
                rule.from_weight,
                penalty.preimage,
                rule.parts,
                rule.stamped,
                grouped,
                tuples,
            ),
            [_name(rule.paid_at or rule.time), _name(rule.from_weight), _name(penalty.preimage), *reading],
        ),
    )


def _bound(function: Callable[..., Any], key: list[str]) -> Callable[..., Any]:
    return compiled(function, key, SOURCES, restrict=True)


TALLY = _bound(tally, [])
MEASURE = _bound(measure, [])
MEASURE_ABSOLUTE = _bound(measure_absolute, [])


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
