"""Labels with a sample weight: any oracle learns the weighted loss of them."""

from collections.abc import Callable
from typing import Any

import numpy as np


class Label(float):
    """A label, and the weight of its row."""

    weight: float

    def __new__(cls, value: float, weight: float) -> "Label":
        label = super().__new__(cls, value)
        label.weight = weight
        return label


class Labels(np.ndarray):
    """The labels of a row, one of each output, and the weight of the row."""

    weight = 1.0


def weight_of(label: Any) -> float:
    return getattr(label, "weight", 1.0)


def weighted(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A slope (z, y), or slopes, times the weight of the label."""
    return lambda z, y: weight_of(y) * function(z, y)


def labels_of(values: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """(rows,) `Label`s, or `Labels` of (rows, outputs) values; the values where no row has a weight."""
    if weights is None:
        return values
    labels = np.empty(len(values), object)
    for i, weight in enumerate(weights):
        if values.ndim == 1:
            labels[i] = Label(values[i], weight)
        else:
            labels[i] = values[i].view(Labels)
            labels[i].weight = weight
    return labels


def rows_of(X: np.ndarray, weights: np.ndarray | None = None, *, intercept: bool = False) -> np.ndarray:
    """Dense rows as an oracle takes them: with a column of ones for the intercept; 0 where they weigh nothing."""
    X = np.column_stack([X, np.ones(len(X))]) if intercept else X
    return X if weights is None else X * (weights > 0)[:, None]


def unpenalised(parameters: dict[str, Any], features: int) -> dict[str, Any]:
    """Parameters of an oracle whose last of `features` is the intercept: λ is 0 there."""
    lam = parameters.get("lam")
    return parameters if lam is None else parameters | {"lam": np.append(np.full(features - 1, lam), 0.0)}
