"""Compiled kernels: a learner, a penalty, a loss and a type of column bound into the loops, and kept on disk.

numba's cache does not see an edit of a function in another file, and two processes that compile different closures of
one function at once can mix up their files. So every kernel has a name of its own with the digest of all that goes
into it, the package's sources included: one file a kernel, written whole and renamed, equal whoever writes it.
"""

import hashlib
import json
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core.errors import NumbaError

from sparseoco.drivers import outputs as responses
from sparseoco.drivers import stream
from sparseoco.drivers.tuples import LOAD, STORE
from sparseoco.learners.definition import Rule
from sparseoco.losses import Loss
from sparseoco.penalties import Penalty

_OPTIONS = {"nogil": True, "error_model": "numpy"}


class Kernels(NamedTuple):
    """The four loops of a block of columns."""

    learn: Callable[..., None]
    margins: Callable[..., None]
    evaluate: Callable[..., None]
    sweep: Callable[..., None]


@cache
def sources_digest() -> str:
    """SHA-256 of every source that machine code is made from."""
    package = Path(__file__).parent.parent
    files = [package / "losses.py", package / "penalties.py"]
    files += sorted((package / "learners").glob("*.py")) + sorted((package / "drivers").glob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


@lru_cache(maxsize=256)
def kernels_for(rule: Rule, penalty: Penalty, loss: Loss, response: str, dtype: str) -> Kernels:
    """The kernels of these functions for columns of `dtype`; equal arguments share them.

    `response` is a function of `outputs`: binary, one_vs_rest or regression.
    """
    tuples = (
        LOAD[len(rule.slots)],
        STORE[len(rule.slots)],
        LOAD[len(rule.hyper)],
        LOAD[rule.ticks],
        STORE[rule.ticks],
    )
    scalar = np.dtype(dtype).type
    static = tuple(scalar(value) for value in rule.static)
    respond = getattr(responses, response)
    functions = (rule.tick, rule.time, rule.weight)
    key = [f"{f.__module__}.{f.__qualname__}" for f in (*functions, rule.observe, penalty.prox)]
    key += [repr(rule[4:]), response, loss.name, dtype]
    return Kernels(
        compiled(
            stream.build_learn(
                *functions,
                rule.observe,
                penalty.prox,
                static,
                rule.stamped,
                respond,
                loss.value,
                loss.slope,
                loss.bound,
                tuples,
            ),
            key,
        ),
        compiled(stream.build_margins(*functions, penalty.prox, static, rule.stamped, tuples), key),
        compiled(stream.build_evaluate(respond, loss.value, loss.slope), [response, loss.name, dtype]),
        compiled(stream.build_sweep(*functions, penalty.prox, static, rule.stamped, tuples), key),
    )


def compiled(function: Callable[..., Any], key: list[str]) -> Callable[..., Any]:
    """`function` compiled on its first call for those types, from the cache on disk where it can be."""
    ready: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def call(*arguments: Any) -> Any:
        types = tuple(numba.typeof(argument) for argument in arguments)
        if types not in ready:
            ready[types] = _compile(function, [*key, *map(str, types)], types)
        return ready[types](*arguments)

    return call


def _compile(function: Callable[..., Any], key: list[str], types: tuple[Any, ...]) -> Callable[..., Any]:
    """The machine code for those types: loaded, or made and kept; without a cache where none can be written or read."""
    content = json.dumps([sources_digest(), key, sorted(_OPTIONS.items())])
    name = f"{function.__name__}_{hashlib.sha256(content.encode()).hexdigest()[:24]}"
    function.__name__ = function.__qualname__ = name
    if numba.config.DISABLE_JIT:
        return function
    try:
        kernel = numba.njit(cache=True, **_OPTIONS)(function)
        kernel.compile(types)
    except NumbaError:
        raise
    except Exception:  # no folder for the cache, or files in it that were cut short: numba says either in many ways
        kernel = numba.njit(**_OPTIONS)(function)
        kernel.compile(types)
    kernel.disable_compile()
    return kernel
