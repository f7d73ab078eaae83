"""Compiled loops over bytes, keys and counts. All release the GIL and are cached on disk."""

from collections.abc import Callable
from typing import Any

from sparseoco.core.compile_cache import compiled


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function, with the functions it calls, on its first call."""
    return compiled(function, [])
