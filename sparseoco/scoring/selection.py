"""The documents to keep: those whose score is at or above a border, an exact quantile of all scores.

Scores become integers of the same order. A first pass of tasks counts how often the first 16 bits have each value, a
sketch of the distribution, which shows between which values the border lies. A second pass counts the scores between
them one by one; if they are too many, it is one more digit of 16 bits first. Documents that equal the border are kept.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.core.suggestions import not_one_of
from sparseoco.scoring.manifest import ModelEntry
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.scorers import column_prefix
from sparseoco.training.decisions.predictions import class_columns

DIGIT_BITS = 16
BITS = 64
MAX_VALUES = 1 << 20  # that are counted one by one: of a few megabytes
_SIGN = np.uint64(1 << 63)

Counts = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""Digits that occur, increasing, and how often."""


class Ranking(NamedTuple):
    """The order of documents, from a column of the scores: larger values come first.

    Parameters
    ----------
    column : str
    of : {"value", "negative", "complement"}
        v, −v or 1 − v: margins and probabilities are of the second of two classes.
    name : str
        What the value is, in words.
    """

    column: str
    of: str
    name: str

    def values(self, column: pa.ChunkedArray) -> NDArray[np.float64]:
        """The values of documents, to compare them; −∞ for margins that are not a number, such as ∞ − ∞."""
        values = np.asarray(column.to_numpy(), np.float64)
        if self.of != "value":
            values = -values if self.of == "negative" else 1.0 - values
        return np.where(np.isnan(values), -np.inf, values)


class Border(NamedTuple):
    """Which documents are kept.

    Parameters
    ----------
    value : float
        Of the ranking; documents with larger ones are kept.
    included : bool
        Whether documents with this value are kept.
    rows : int
        Documents that are kept.
    ties : int
        Of these, those with the value of the border.
    """

    value: float
    included: bool
    rows: int
    ties: int

    def keeps(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of the values are kept."""
        return values >= self.value if self.included else values > self.value


def ranking(models: Sequence[ModelEntry], options: ScoreOptions) -> Ranking:
    """The order by which the options keep documents.

    By the margin, or, of one of many classes, by its probability, if the model has them; above a limit, by the
    probability.

    Raises `InputError` for a class or a model that is not there, or missing.
    """
    model = kept_model(models, options)
    by_probability = model.probabilities and (options.keep_above is not None or _is_joint(model))
    kind = "probability" if by_probability else "margin"
    return class_ranking(models, model, kind, kept_class(model, options.keep_class))


def class_ranking(models: Sequence[ModelEntry], model: ModelEntry, kind: str, name: str | None) -> Ranking:
    """The order by the margin or probability of a class, or by the predicted numbers if it is None."""
    prefix = column_prefix(model.name, len(models))
    if name is None:
        return Ranking(f"{prefix}margin", "value", "prediction")
    words = f"{kind} of {name}"
    if model.outputs > 1:
        return Ranking(prefix + class_columns(kind, [name], 2)[0], "value", words)
    if name == model.classes[1]:
        return Ranking(prefix + kind, "value", words)
    return Ranking(prefix + kind, "complement" if kind == "probability" else "negative", words)


def _is_joint(model: ModelEntry) -> bool:
    """Whether the margins of a class are comparable only with those of the other classes of the same document."""
    return model.outputs > 1 and not model.label_sets


def kept_model(models: Sequence[ModelEntry], options: ScoreOptions) -> ModelEntry:
    """The model whose scores decide what is kept. Raises `InputError` if it is not there."""
    name = options.keep_model
    names = [model.name for model in models]
    if name is None:
        return models[0]
    if name not in names:
        raise InputError(f"keep_model: there is no model {name}; {not_one_of(name, names)}.", code="invalid-option")
    return models[names.index(name)]


def kept_class(model: ModelEntry, name: str | None) -> str | None:
    """The class that kept documents should have; None for numbers. Raises `InputError` if it is missing or unknown."""
    if not model.classes:
        if name is not None:
            raise InputError(f"keep_class: {model.folder} predicts numbers.", code="invalid-option")
        return None
    if name is None:
        if model.positive_class is None:
            raise InputError(
                f"Set keep_class (--keep-class) to the class to keep, one of {', '.join(model.classes)}.",
                code="missing-option",
            )
        return model.positive_class
    if name not in model.classes:
        raise InputError(
            f"keep_class: there is no class {name}; {not_one_of(name, model.classes)}.", code="invalid-option"
        )
    return name


def ordered_keys(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """(rows,): integers in the order of the values; −0 is 0."""
    bits = (values + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def key_value(key: int) -> float:
    """The value of a key."""
    bits = key & ~(1 << 63) if key >> 63 else ~key & (1 << 64) - 1
    return float(np.uint64(bits).view(np.float64))


def count_digits(values: NDArray[np.float64], prefix: int, known: int, bits: int) -> Counts:
    """How often the `bits` after the first `known` ones have each value, in keys whose first bits are `prefix`."""
    keys = ordered_keys(values)
    if known:
        keys = keys[keys >> np.uint64(BITS - known) == np.uint64(prefix)]
    digits = keys >> np.uint64(BITS - known - bits) & np.uint64((1 << bits) - 1)
    found, counts = np.unique(digits, return_counts=True)
    return found, counts.astype(np.int64)


def find_border(rows: int, count: Callable[[int, int, int], Iterable[Counts]]) -> Border:
    """The border of the best `rows` documents.

    Parameters
    ----------
    rows : int
        At least 1, and at most all documents.
    count : callable
        The `count_digits` (prefix, known, bits) of all documents, in pieces.
    """
    prefix = known = above = 0
    bits = DIGIT_BITS
    while True:
        digits, counts = _sum(count(prefix, known, bits))
        at_least = above + np.cumsum(counts[::-1])[::-1]
        chosen = int(np.flatnonzero(at_least >= rows)[-1])
        ties = int(counts[chosen])
        above = int(at_least[chosen]) - ties
        prefix, known = prefix << bits | int(digits[chosen]), known + bits
        if known == BITS:
            return Border(key_value(prefix), included=True, rows=above + ties, ties=ties)
        bits = BITS - known if ties <= MAX_VALUES else DIGIT_BITS


def _sum(pieces: Iterable[Counts]) -> Counts:
    """The counts of all pieces."""
    digits, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
    for more, numbers in pieces:
        digits, place = np.unique(np.concatenate([digits, more]), return_inverse=True)
        summed = np.zeros(digits.size, np.int64)
        np.add.at(summed, place, np.concatenate([counts, numbers]))
        counts = summed
    return digits, counts
