"""Weights of classes, as factors of the sample weights of their rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.kernels.structs import RowBatch
from sparseoco.training.stream import DerivedRows, RowSource


def balanced_weights(class_rows: Sequence[int]) -> tuple[float, ...]:
    """n/(K·n_k) for each class, of the n rows of the K classes that have any; 1 for others."""
    total, present = sum(class_rows), sum(rows > 0 for rows in class_rows)
    return tuple(total / (present * rows) if rows else 1.0 for rows in class_rows)


def named_class_weights(weights: Mapping[Any, float], classes: Sequence[Any]) -> tuple[float, ...]:
    """The weight of each class by its name, 1 where none is given. Raises `InputError` for an unknown class."""
    for name in weights:
        if name not in classes:
            raise InputError(
                f"class_weight names a class {name!r} that does not exist: there are {', '.join(map(str, classes))}.",
                code="unknown-class",
            )
    return tuple(float(weights.get(name, 1.0)) for name in classes)


class ClassWeighted(DerivedRows):
    """The rows of a source with their weights times those of their classes."""

    def __init__(self, source: RowSource, class_weights: Sequence[float]) -> None:
        super().__init__(source)
        self._weights = np.array(class_weights, np.float64)

    def gather(self, rows: NDArray[np.int64]) -> RowBatch:
        """The rows with these numbers, in this order."""
        batch = self._source.gather(rows)
        weights = self._weights[batch.labels.astype(np.int64)]
        return batch._replace(weights=weights if batch.weights is None else weights * batch.weights)

    def rows(self, start: int, stop: int) -> RowBatch:
        """Rows start..stop."""
        return self.gather(np.arange(start, stop))


def class_weighted(source: RowSource, class_weights: Sequence[float] | None) -> RowSource:
    """`ClassWeighted`, or the source itself without class weights."""
    return source if class_weights is None else ClassWeighted(source, class_weights)
