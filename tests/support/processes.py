"""Processes that are forks of one that has imported what they need: no second of imports for each."""

import multiprocessing
from multiprocessing.context import ForkServerContext

_IMPORTED: list[str] = []


def forks_with(module: str) -> ForkServerContext:
    """Forks of a process that has imported this module, and those of other callers: there is one such process."""
    context = multiprocessing.get_context("forkserver")
    _IMPORTED.append(module)
    context.set_forkserver_preload(_IMPORTED)
    return context
