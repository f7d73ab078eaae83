"""Machine code compiled once and cached on disk, safe from edits, races and corruption.

numba's own cache misses edits of functions in other files, and two processes that compile different signatures or
closures of one function concurrently can mix up its files. Here every signature of every kernel gets a unique name with
a digest of everything it depends on, sources included. Each has one file, written atomically and identical in every
process, with a digest that is compared before anything of it is loaded. If no folder is writable, or others may write
to it, each process compiles its kernels.

Kernels copy arrays by loops: numba compiles ``a[:] = b`` with the messages of its shape errors, which takes seconds.
"""

import fcntl
import gc
import hashlib
import json
import os
import pickle
import stat
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core.caching import CompileResultCacheImpl
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.serialize import dumps

NO_C_WRAPPER = {"no_cfunc_wrapper": True}  # numba makes one for each function, for callers in C: a sixth of its time
OPTIONS = {"nogil": True, "error_model": "numpy", **NO_C_WRAPPER}
PACKAGE = Path(__file__).parent.parent
SOURCES = ("learners", "kernels", "text/kernels")
OTHERS_SECONDS = 60.0  # to wait for another process that compiles the same kernel
POLL_SECONDS = 0.02
before_compiling: list[Callable[[], None]] = []
"""Called once, before this process compiles a kernel that is not in the cache."""
_CALLBACKS: list[CFunc] = []
_SCALARS = {kind: str(numba.typeof(kind(0))) for kind in (bool, float, np.bool_, np.int64, np.float32, np.float64)}
"""The types of scalars that depend on their classes only."""


class _Restrict(Compiler):  # type: ignore[misc]
    """The arrays of a kernel never overlap (C's `restrict`): loops over columns vectorise without run-time checks."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


class _Linkable(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function that only kernels call: machine code is made of theirs, of which it is a part.

    By default numba makes some of each function that a kernel calls as well. It is optimised here all the same: linked
    as it is, loops over one column are a fifth slower.
    """

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _Callee(Compiler):  # type: ignore[misc]
    """Compiles a function that only kernels call into `_Linkable` code."""

    def define_pipelines(self) -> Any:
        self.state.flags.no_compile = True
        self.state.library = _Linkable(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        self.state.library.enable_object_caching()
        return super().define_pipelines()

    def compile_extra(self, func: Any) -> Any:
        """The function without an entry point: numba needs one to identify it, so it gets one that is never called."""
        result = super().compile_extra(func)._replace(entry_point=[].append)
        self.state.targetctx.insert_user_function(result.entry_point, result.fndesc, [result.library])
        return result


class _Cache:
    """The machine code of one kernel on disk, as numba's dispatchers take a cache: one file per processor model.

    A file starts with the SHA-256 of its name and content. What is truncated, damaged or of another kernel is missing:
    it is compiled again and replaced. Of processes that miss the same kernel one compiles it, and the others wait.
    """

    _byte: int | None = None  # of the lock file, locked

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises `RuntimeError` if there is no folder for it, or others may write to it."""
        self._implementation = CompileResultCacheImpl(function)
        self._name = function.__name__
        self._folder = Path(self._implementation.locator.get_cache_path())
        if not _is_safe(self._folder):
            raise RuntimeError(f"others may write to {self._folder}")

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The kernel, or None: then this process compiles it, and has locked it."""
        context.refresh()
        kernel = self._read(context)
        if kernel is not None:
            return kernel
        while before_compiling:
            before_compiling.pop()()
        self._wait_for_others()
        return self._read(context)

    def save_overload(self, signature: Any, kernel: Any) -> None:
        """Write the kernel to its file, atomically, if that can be written."""
        path, content = self._path(kernel.target_context), dumps(self._implementation.reduce(kernel))
        temporary = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
        with suppress(OSError):
            try:
                temporary.write_bytes(_digest(path, content) + content)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def unlock(self) -> None:
        """Let others read what this process compiled, or compile it."""
        if self._byte is not None:
            with suppress(OSError):
                fcntl.lockf(_lock_file(self._folder), fcntl.LOCK_UN, 1, self._byte)
            self._byte = None

    def _wait_for_others(self) -> None:
        """Wait while another process compiles the kernel, and lock it."""
        byte = int.from_bytes(hashlib.sha256(self._name.encode()).digest()[:7])
        end = time.monotonic() + OTHERS_SECONDS
        with suppress(OSError):  # a file system without locks, or that cannot be written
            while time.monotonic() < end:
                try:
                    fcntl.lockf(_lock_file(self._folder), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                except BlockingIOError:
                    time.sleep(POLL_SECONDS)
                else:
                    self._byte = byte
                    return

    def _read(self, context: Any) -> Any:
        path = self._path(context)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if data[:32] != _digest(path, data[32:]):
            return None
        # numba restores machine code from a pickle only; this one is in a folder of this user, and as it was written.
        return self._implementation.rebuild(context, pickle.loads(data[32:]))

    def _path(self, context: Any) -> Path:
        processor = hashlib.sha256(repr(context.codegen().magic_tuple()).encode()).hexdigest()[:12]
        return self._folder / f"{self._name}.{processor}.nbc"


def _digest(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + content).digest()


@cache
def _lock_file(folder: Path) -> int:
    """An open file in a folder of machine code, whose bytes stand for kernels. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / "compiling.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_safe(folder: Path) -> bool:
    """Whether only those may write to a folder of machine code who may change this package, this user, or root."""
    if folder.is_relative_to(PACKAGE):
        return True
    try:
        status = folder.stat()
    except FileNotFoundError:  # it is made by this user
        return True
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def register_jitable(function: Any = None, **options: Any) -> Any:
    """numba's decorator of the same name, for functions that kernels call, without the wrappers for callers in C."""
    decorate = numba.extending.register_jitable(**NO_C_WRAPPER, pipeline_class=_Callee, **options)
    return decorate if function is None else decorate(function)


@cache
def _sources_digest(module: str) -> str:
    """SHA-256 of a module and of the folders of functions that kernels call."""
    digest = hashlib.sha256()
    files = [file for folder in SOURCES for file in sorted((PACKAGE / folder).glob("*.py"))]
    for file in (Path(__file__), Path(sys.modules[module].__file__ or ""), *files):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def outside_digests(modules: set[str]) -> list[str]:
    """The digests of the sources of those of these modules that are outside this package, in order.

    Those of a file that the user named have no file: its digest is their name.
    """
    outside = [module for module in sorted(modules) if not module.startswith(f"{PACKAGE.name}.")]
    files = [getattr(sys.modules[module], "__file__", None) for module in outside]
    return [_file_digest(file) for file in files if file is not None]


@cache
def _file_digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def compiled(function: Callable[..., Any], *key: str, restrict: bool = False) -> Callable[..., Any]:
    """`function`, compiled on its first call for each set of argument types, or loaded from the cache.

    Parameters
    ----------
    *key : str
        Identifies what is bound into a closure.
    restrict : bool
        No two of its array arguments overlap.
    """
    if numba.config.DISABLE_JIT:
        return function
    kernels: dict[tuple[Any, ...], Callable[..., Any]] = {}
    ready: dict[tuple[Any, ...], tuple[Callable[..., Any], bool]] = {}  # by what is quicker to find than types
    names = [*key, str(restrict)]

    def call(*arguments: Any) -> Any:
        kinds = tuple(map(_kind, arguments))
        found = ready.get(kinds)
        if found is None:
            types = tuple(map(numba.typeof, map(_writable, arguments)))
            if types not in kernels:
                kernels[types] = _compile(function, names, types, restrict)
            ready[kinds] = found = kernels[types], any(map(_is_read_only, arguments))
        kernel, read_only = found
        return kernel(*map(_writable, arguments)) if read_only else kernel(*arguments)

    call.__doc__ = function.__doc__
    return call


def compiled_restrict(function: Callable[..., Any], *key: str) -> Callable[..., Any]:
    """`compiled`, of a function whose array arguments never overlap."""
    return compiled(function, *key, restrict=True)


class _Memory:
    """The memory of an array, as one that is writable."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, interface = array, array.__array_interface__
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}


def _writable(argument: Any) -> Any:
    """The same arrays, none of them read-only: a kernel is compiled for one type. It writes to no other's memory."""
    if isinstance(argument, tuple):
        values = map(_writable, argument)
        return type(argument)(*values) if hasattr(argument, "_fields") else tuple(values)
    return np.asarray(_Memory(argument)) if _is_read_only(argument) else argument


def _is_read_only(argument: Any) -> bool:
    """Whether an argument is a read-only array, or has one."""
    if isinstance(argument, tuple):
        return any(map(_is_read_only, argument))
    return type(argument) is np.ndarray and not argument.flags.writeable


def _kind(argument: Any) -> Any:
    """What determines the type of an argument, and whether it is read-only; `numba.typeof` takes ten times as long."""
    kind = type(argument)
    if kind is np.ndarray:
        flags = argument.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return argument.dtype, argument.ndim, layout, flags.aligned, flags.writeable
    if isinstance(argument, tuple):
        return kind, *map(_kind, argument)
    if kind is int and argument.bit_length() < 64:
        return _SCALARS[np.int64]
    return _SCALARS[kind] if kind in _SCALARS else numba.typeof(argument)


def compiled_address(function: Callable[..., Any], key: list[str], types: tuple[Any, ...]) -> Any:
    """The address of `function`, compiled for these numba types; it returns nothing and is called by `address_call`.

    Its pointers never overlap. The address is valid as long as the process runs. Without compilation it is the function
    itself.
    """
    if numba.config.DISABLE_JIT:
        return function
    signature = types, numba.void
    callback = _cached(
        function, key, types, lambda own: CFunc(own, signature, {}, dict(OPTIONS), _Restrict), CFunc.compile
    )
    _CALLBACKS.append(callback)
    return int(callback.address)


def address_call(signature_of: Callable[..., Any]) -> Callable[..., Any]:
    """A function for kernels that calls an address of `compiled_address`, its first argument, with the others.

    ``signature_of(typing_context, *types)`` gives its numba signature, or None for arguments that do not fit. Without
    compilation the first argument is the function itself.
    """
    if numba.config.DISABLE_JIT:
        return lambda function, *arguments: function(*arguments)

    @wraps(signature_of)
    def typed(context: Any, *kinds: Any) -> Any:
        signature = signature_of(context, *kinds)
        return signature and (signature, _call_address)

    return numba.extending.intrinsic(typed)  # type: ignore[no-any-return]


def _call_address(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    address, *arguments = values
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)
    return context.get_dummy_value()


def _compile(
    function: Callable[..., Any], key: list[str], types: tuple[Any, ...], restrict: bool
) -> Callable[..., Any]:
    """The machine code for these types: loaded, or compiled and cached."""
    options = OPTIONS | ({"pipeline_class": _Restrict} if restrict else {})
    kernel = _cached(function, key, types, numba.njit(**options), lambda kernel: kernel.compile(types))
    kernel.disable_compile()
    return kernel  # type: ignore[no-any-return]


def _cached(
    function: Callable[..., Any],
    key: list[str],
    types: tuple[Any, ...],
    wrap: Callable[[Callable[..., Any]], Any],
    finish: Callable[[Any], Any],
) -> Any:
    """The dispatcher or callback of numba that `wrap` makes of the function, compiled by `finish` with the cache."""
    identity = [
        _sources_digest(function.__module__),
        f"{function.__module__}.{function.__qualname__}",
        *key,
        *map(str, types),
        *map(str, (sys.version_info[:2], numba.__version__, sorted(OPTIONS.items()))),
    ]
    name = f"{function.__name__.split('_')[0]}_{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]}"
    renamed = _renamed(function, name)
    made = wrap(renamed)
    cache: _Cache | None = None
    with suppress(RuntimeError):
        made._cache = cache = _Cache(renamed)
    # The garbage collector would visit numba's many live objects again and again, a sixth of the time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        finish(made)
    finally:
        if enabled:
            gc.enable()
        if cache is not None:
            cache.unlock()
    return made


def _renamed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A copy with its own name: a function may be compiled for several types."""
    code = function.__code__
    copy = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    copy.__qualname__, copy.__module__ = name, function.__module__
    return copy
