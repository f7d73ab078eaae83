"""What a check comes to: a sentence, and whether something is wrong."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from sparseoco.core.errors import SparseocoError

State = Literal["wrong", "doubtful", "fine"]


class Finding(NamedTuple):
    """Of a subject: wrong (a run will fail of it), doubtful (it may), or fine; and why, in a sentence."""

    state: State
    subject: str
    sentence: str


def fine(subject: str, sentence: str) -> Finding:
    """All is well with it."""
    return Finding("fine", subject, sentence)


def doubtful(subject: str, sentence: str) -> Finding:
    """Something may come of it."""
    return Finding("doubtful", subject, sentence)


def wrong(subject: str, sentence: str) -> Finding:
    """A run fails of it."""
    return Finding("wrong", subject, sentence)


def checked(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What a check finds; an error that is a sentence is wrong, and one that nobody foresaw is named."""
    try:
        yield from check()
    except SparseocoError as error:
        yield wrong(subject, str(error))
    except Exception as error:  # a check that fails must not hide what the others find
        yield wrong(subject, f"The check itself failed: {type(error).__name__}.")
