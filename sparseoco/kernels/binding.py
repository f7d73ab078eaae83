"""Compiled kernels: the loops for a learner and a dtype."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from sparseoco.core.compile_cache import compiled
from sparseoco.kernels import stream
from sparseoco.kernels.count_nonzeros import count_nonzeros, measure, measure_absolute
from sparseoco.kernels.functions import rule_key
from sparseoco.learners.contract import Rule


class Kernels(NamedTuple):
    """The kernels of a block of columns."""

    learn: Callable[..., Any]
    margins: Callable[..., None]
    materialize: Callable[..., None]
    pass_rounds: Callable[..., Any]
    init_state: Callable[..., None]


@lru_cache(maxsize=256)
def kernels_for(rule: Rule, dtype: str, *, grouped: bool, fixed: int, tracked: bool) -> Kernels:
    """The kernels of a rule for columns of `dtype`; equal arguments share them."""
    # A key has only what its kernel is built of: equal code is compiled once.
    ruled = [*rule_key(rule), dtype]
    shaped = [*ruled, str(grouped)]
    sized = [*shaped, str(fixed)]
    return Kernels(
        _bound(stream.build_learn(rule, tracked=tracked, grouped=grouped, fixed=fixed), [*sized, str(tracked)]),
        _bound(stream.build_margins(rule, grouped=grouped, fixed=fixed), sized),
        _bound(stream.build_materialize(rule, grouped=grouped), shaped),
        _bound(stream.build_pass_rounds(rule), ruled),
        _bound(stream.build_init_state(rule, grouped=grouped), shaped),
    )


def _bound(function: Callable[..., Any], key: list[str]) -> Callable[..., Any]:
    return compiled(function, key, restrict=True)


EVALUATE = _bound(stream.evaluate, [])
COUNT_NONZEROS = _bound(count_nonzeros, [])
MEASURE = _bound(measure, [])
MEASURE_ABSOLUTE = _bound(measure_absolute, [])
