"""Machine code compiled once and cached on disk, safe from edits, races and corruption.

numba's own cache misses edits of functions in other files, and two processes that compile different signatures or
closures of one function concurrently can mix up its files. Here every signature of every kernel gets a unique name with
a digest of everything it depends on, sources included. Each has one file, written atomically and identical in every
process. If no folder is writable, each process compiles its kernels.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba.core.compiler import Compiler
from numba.core.errors import NumbaError

OPTIONS = {"nogil": True, "error_model": "numpy"}
PACKAGE = Path(__file__).parent.parent


class _Restrict(Compiler):  # type: ignore[misc]
    """The arrays of a kernel never overlap (C's `restrict`): loops over columns vectorise without run-time checks."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


@cache
def sources_digest(sources: tuple[str, ...]) -> str:
    """SHA-256 of files, and of every file of folders, of this package."""
    digest = hashlib.sha256()
    for name in sources:
        path = PACKAGE / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def compiled(
    function: Callable[..., Any], key: list[str], sources: tuple[str, ...], *, restrict: bool = False
) -> Callable[..., Any]:
    """`function`, compiled on its first call for each set of argument types, or loaded from the cache.

    Parameters
    ----------
    key : list of str
        Identifies what is bound into a closure.
    sources : tuple of str
        Files and folders of the package whose functions it calls.
    restrict : bool
        No two of its array arguments overlap.
    """
    ready: dict[tuple[Any, ...], Callable[..., Any]] = {}  # by numba types
    found: dict[tuple[Any, ...], Callable[..., Any]] = {}  # by a key that is quicker to compute
    key = [f"{function.__module__}.{function.__qualname__}", *key, str(restrict)]

    def call(*arguments: Any) -> Any:
        kinds = tuple(map(_kind, arguments))
        kernel = found.get(kinds)
        if kernel is None:
            types = tuple(map(numba.typeof, arguments))
            if types not in ready:
                ready[types] = _compile(function, [sources_digest(sources), *key, *map(str, types)], types, restrict)
            kernel = found[kinds] = ready[types]
        return kernel(*arguments)

    call.__doc__ = function.__doc__
    return call


def _kind(argument: Any) -> Any:
    """A key that determines the type of an argument; `numba.typeof` of an array takes ten times as long."""
    if type(argument) is np.ndarray:
        return argument.dtype, argument.ndim, argument.flags.num
    if isinstance(argument, tuple):
        return type(argument), *map(_kind, argument)
    return numba.typeof(argument)


def _compile(
    function: Callable[..., Any], key: list[str], types: tuple[Any, ...], restrict: bool
) -> Callable[..., Any]:
    """The machine code for these types: loaded, or compiled and cached; not cached if that fails."""
    if numba.config.DISABLE_JIT:
        return function
    content = json.dumps([*key, sorted(OPTIONS.items())])
    name = f"{function.__name__.split('_')[0]}_{hashlib.sha256(content.encode()).hexdigest()[:24]}"
    options = OPTIONS | ({"pipeline_class": _Restrict} if restrict else {})
    own = _renamed(function, name)
    for cached in (True, True, False):  # truncated files are removed and compiled again
        try:
            kernel = numba.njit(cache=cached, **options)(own)
            kernel.compile(types)
            break
        except NumbaError:
            raise
        except Exception:  # what numba raises for corrupt files, full disks and read-only folders is not documented
            if not cached:
                raise
            with suppress(Exception):
                kernel._cache.flush()
    kernel.disable_compile()
    return kernel  # type: ignore[no-any-return]


def _renamed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A copy with its own name: a function may be compiled for several types."""
    code = function.__code__
    copy = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    copy.__qualname__, copy.__module__ = name, function.__module__
    return copy
