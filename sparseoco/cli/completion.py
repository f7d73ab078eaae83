"""Values that the shell completes. Nothing here loads a numerical library: completion must be quick."""

from collections.abc import Callable, Iterable

from sparseoco.datasets.cards import card_files
from sparseoco.learners import algorithm_names
from sparseoco.papers import PAPERS
from sparseoco.storage.metric_names import METRICS
from sparseoco.training.options.names import LOSS_NAMES, PENALTY_NAMES

Completer = Callable[[str], list[str]]
"""Called with the beginning of a value; gives the values that begin with it."""


def one_of(names: Callable[[], Iterable[str]]) -> Completer:
    """A completer of these names, which are computed when they are needed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


ALGORITHM = one_of(algorithm_names)
CORPUS = one_of(lambda: (path.stem for path in card_files()))
PAPER = one_of(lambda: PAPERS)
BY_FIELD: dict[str, Completer] = {
    "loss": one_of(lambda: ("auto", *LOSS_NAMES)),
    "metric": one_of(lambda: METRICS),
    "penalty": one_of(lambda: PENALTY_NAMES),
    "select": one_of(lambda: ("best", "one-standard-error", "at_most=")),
    "class_weight": one_of(lambda: ("balanced",)),
    "stop_words": one_of(lambda: ("english",)),
    "norm": one_of(lambda: ("none", "l2")),
    "tf": one_of(lambda: ("count", "binary", "log")),
}
"""Completers of options that are generated from fields, by the name of the field."""
