"""Compiled kernels: the loops for a learner, a loss and a dtype."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from sparseoco.core.compile_cache import compiled
from sparseoco.kernels import responses, stream
from sparseoco.kernels.count_nonzeros import count_nonzeros, measure, measure_absolute
from sparseoco.kernels.functions import rule_key
from sparseoco.learners.contract import Rule
from sparseoco.learners.losses import Loss

SOURCES = ("learners/numerics.py", "learners/losses.py", "learners/penalties.py", "learners", "kernels")
"""Sources of all code that is compiled into kernels."""


class Kernels(NamedTuple):
    """The kernels of a block of columns."""

    learn: Callable[..., Any]
    margins: Callable[..., None]
    evaluate: Callable[..., None]
    materialize: Callable[..., None]
    pass_rounds: Callable[..., Any]
    init_state: Callable[..., None]


@lru_cache(maxsize=256)
def kernels_for(
    rule: Rule, loss: Loss, response: str, dtype: str, *, grouped: bool, fixed: int, intercept: bool, tracked: bool
) -> Kernels:
    """The kernels of these functions for columns of `dtype`; equal arguments share them.

    `response` names a function of `responses`: binary, one_vs_rest, regression or joint.
    """
    respond = getattr(responses, response)
    # A key has only what its kernel is built of: equal code is compiled once.
    ruled, shape = [*rule_key(rule), dtype], {"grouped": grouped, "intercept": intercept}
    shaped = [*ruled, str((grouped, intercept))]
    sized = [*shaped, str(fixed)]
    return Kernels(
        _bound(
            stream.build_learn(rule, loss, respond, tracked=tracked, fixed=fixed, **shape),
            [*sized, str(tracked), response, loss.name],
        ),
        _bound(stream.build_margins(rule, fixed=fixed, **shape), sized),
        _bound(stream.build_evaluate(respond, loss.value, loss.slope), [response, loss.name, dtype]),
        _bound(stream.build_materialize(rule, **shape), shaped),
        _bound(stream.build_pass_rounds(rule), ruled),
        _bound(stream.build_init_state(rule, **shape), shaped),
    )


def _bound(function: Callable[..., Any], key: list[str]) -> Callable[..., Any]:
    return compiled(function, key, SOURCES, restrict=True)


COUNT_NONZEROS = _bound(count_nonzeros, [])
MEASURE = _bound(measure, [])
MEASURE_ABSOLUTE = _bound(measure_absolute, [])
