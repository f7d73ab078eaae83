"""Compiled kernels: a learner, a penalty, a loss and a type of column bound into the loops, and kept on disk.

numba's cache does not see an edit of a function in another file, and two processes that compile different closures of
one function at once can mix up their files. So every kernel has a name of its own with the digest of all that goes
into it, the package's sources included: one file a kernel, written whole and renamed, equal whoever writes it.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numba
from numba.core.compiler import Compiler
from numba.core.errors import NumbaError

from sparseoco.drivers import outputs as responses
from sparseoco.drivers import stream
from sparseoco.drivers.tally import tally
from sparseoco.drivers.tuples import LOAD, STORE
from sparseoco.learners.definition import Rule
from sparseoco.losses import Loss
from sparseoco.penalties import Penalty

_OPTIONS = {"nogil": True, "error_model": "numpy"}


class _Restrict(Compiler):  # type: ignore[misc]
    """The arrays of a kernel never overlap (C's `restrict`): loops over columns vectorise without run-time checks."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


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
    files = [package / name for name in ("functions.py", "losses.py", "penalties.py")]
    files += sorted((package / "learners").glob("*.py")) + sorted((package / "drivers").glob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


@lru_cache(maxsize=256)
def kernels_for(rule: Rule, penalty: Penalty, loss: Loss, response: str, dtype: str, alone: bool) -> Kernels:
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
    respond = getattr(responses, response)
    functions = (rule.tick, rule.time, rule.weight)
    reading = [_name(f) for f in (*functions, penalty.prox, *rule.parts)]
    reading += [dtype, str((len(rule.slots), rule.stamped, alone))]
    learning = [*reading, _name(rule.observe), response, loss.name]
    return Kernels(
        compiled(
            stream.build_learn(
                *functions,
                rule.observe,
                penalty.prox,
                rule.parts,
                rule.stamped,
                alone,
                respond,
                loss.value,
                loss.slope,
                loss.bound,
                tuples,
            ),
            learning,
        ),
        compiled(stream.build_margins(*functions, penalty.prox, rule.parts, rule.stamped, alone, tuples), reading),
        compiled(stream.build_evaluate(respond, loss.value, loss.slope), [response, loss.name, dtype]),
        compiled(stream.build_sweep(*functions, penalty.prox, rule.parts, rule.stamped, alone, tuples), reading),
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


TALLY = compiled(tally, ["tally"])


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _compile(function: Callable[..., Any], key: list[str], types: tuple[Any, ...]) -> Callable[..., Any]:
    """The machine code for those types: loaded, or made and kept; without a cache where none can be written or read."""
    content = json.dumps([sources_digest(), key, sorted(_OPTIONS.items())])
    name = f"{function.__name__.split('_')[0]}_{hashlib.sha256(content.encode()).hexdigest()[:24]}"
    function.__name__ = function.__qualname__ = name
    if numba.config.DISABLE_JIT:
        return function
    for cached in (True, True, False):  # files of the cache that were cut short are emptied and made again
        try:
            kernel = numba.njit(cache=cached, pipeline_class=_Restrict, **_OPTIONS)(function)
            kernel.compile(types)
            break
        except NumbaError:
            raise
        except Exception:  # what a broken file, a full disk or a folder that cannot be written raises is not documented
            if not cached:
                raise
            with suppress(Exception):
                kernel._cache.flush()
    kernel.disable_compile()
    return kernel
