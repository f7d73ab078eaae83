"""What a rule derived from another consists of: states with a number more, and functions around the other's."""

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from sparseoco.core.compile_cache import register_jitable


def extended(kind: Any, field: str) -> Any:
    """A named tuple with one more field."""
    return namedtuple(f"{kind.__name__}With{field.title()}", (*kind._fields, field))


def derived(function: Callable[..., Any], base: Callable[..., Any], suffix: str) -> Callable[..., Any]:
    """A closure over `base` for compiled code, with a name of its own: kernels are cached by the names of functions.

    In it ``[:]`` makes of a named tuple one without names, which compiled code can extend.
    """
    function.__module__ = base.__module__
    function.__name__ = function.__qualname__ = f"{base.__qualname__}_{suffix}"
    return register_jitable(function)
