"""Compiled loops over bytes, identifiers and counts. All release the GIL and are kept on disk."""

from collections.abc import Callable
from typing import Any

from sparseoco.core.compile_cache import compiled


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """An entry point: compiled on its first call, apart from the functions it calls."""
    return compiled(function, [], ("text/kernels",))
