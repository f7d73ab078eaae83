"""Callbacks by which steps report their progress."""

from collections.abc import Callable

ProgressCallback = Callable[[str, int, int], None]
"""Called with the step's name, the units done and their total."""

RowsCallback = Callable[[int], None]
"""Called with the rows of the stream processed so far, over all epochs."""


def no_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""
