"""Suggestions for names that are not known."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

LONGEST: Final = 100  # characters that are compared


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """A question that names the known name closest to this one; empty if none is close.

    >>> did_you_mean("fold", ["folds", "epochs"]), did_you_mean("gamma", ["folds", "epochs"])
    ('did you mean folds?', '')
    """
    close = get_close_matches(str(name)[:LONGEST], known, n=1)
    return f"did you mean {close[0]}?" if close else ""


def not_one_of(name: Any, known: Iterable[str]) -> str:
    """What to choose instead of an unknown name, to end a sentence.

    >>> not_one_of("fold", ["folds", "epochs"]), not_one_of("gamma", ["folds", "epochs"])
    ('did you mean folds? Choose one of folds, epochs', 'choose one of folds, epochs')
    """
    names = list(known)
    question = did_you_mean(name, names)
    return f"{question} Choose one of {', '.join(names)}" if question else f"choose one of {', '.join(names)}"
