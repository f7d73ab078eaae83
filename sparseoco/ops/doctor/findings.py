"""The result of a check: a message, and how serious it is."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from sparseoco.core.errors import SparseocoError

State = Literal["error", "warning", "ok"]


class Finding(NamedTuple):
    """A subject's state (error: a run will fail; warning: it may; or ok), a message, and the code of an error."""

    state: State
    subject: str
    message: str
    code: str = ""


def ok(subject: str, message: str) -> Finding:
    """Nothing is wrong."""
    return Finding("ok", subject, message)


def warning(subject: str, message: str, code: str = "") -> Finding:
    """A run may fail."""
    return Finding("warning", subject, message, code)


def error(subject: str, message: str, code: str = "") -> Finding:
    """A run will fail."""
    return Finding("error", subject, message, code)


def run_check(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a check; an exception becomes an error finding."""
    try:
        yield from check()
    except SparseocoError as raised:
        yield error(subject, str(raised), raised.code)
    except Exception as raised:  # a check that fails must not hide the findings of the others
        yield error(subject, f"The check itself failed: {type(raised).__name__}.")
