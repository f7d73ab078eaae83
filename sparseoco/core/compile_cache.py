"""Machine code made once and kept on disk, safe from edits, races and damage.

numba's own cache does not see an edit of a function in another file, and two processes that compile different
signatures or closures of one function at once can mix up their files. So every kernel, for every signature, has a name
of its own with the digest of all that goes into it, sources included: one file a kernel, written whole and renamed,
equal whoever writes it. Where no folder can be written, kernels are compiled in each process.
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
    """`function` compiled on its first call for those types, from the cache on disk where it can be.

    `key` says what is bound into a closure; `sources` are the files and folders of the package whose functions it
    calls; `restrict` promises that no two of its arrays overlap.
    """
    ready: dict[tuple[Any, ...], Callable[..., Any]] = {}  # by the types of numba
    found: dict[tuple[Any, ...], Callable[..., Any]] = {}  # by what is quicker told
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
    """What decides an argument's type, and perhaps more: numba takes ten times as long to say the type of an array."""
    if type(argument) is np.ndarray:
        return argument.dtype, argument.ndim, argument.flags.num
    if isinstance(argument, tuple):
        return type(argument), *map(_kind, argument)
    return numba.typeof(argument)


def _compile(
    function: Callable[..., Any], key: list[str], types: tuple[Any, ...], restrict: bool
) -> Callable[..., Any]:
    """The machine code for those types: loaded, or made and kept; without a cache where none can be written or read."""
    if numba.config.DISABLE_JIT:
        return function
    content = json.dumps([*key, sorted(OPTIONS.items())])
    name = f"{function.__name__.split('_')[0]}_{hashlib.sha256(content.encode()).hexdigest()[:24]}"
    options = OPTIONS | ({"pipeline_class": _Restrict} if restrict else {})
    own = _renamed(function, name)
    for cached in (True, True, False):  # files of the cache that were cut short are emptied and made again
        try:
            kernel = numba.njit(cache=cached, **options)(own)
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
    return kernel  # type: ignore[no-any-return]


def _renamed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A copy with a name of its own: a function may be compiled for several types."""
    code = function.__code__
    copy = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    copy.__qualname__, copy.__module__ = name, function.__module__
    return copy
