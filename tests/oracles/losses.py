"""Losses of the oracles: of one margin, or element by element of many, or of the margins of all classes.

Labels may have a sample weight: any oracle learns the weighted loss of them.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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


# Losses of a margin z, labels ±1 or numbers, or of arrays of both; slopes dℓ/dz are times the weight of the row.
_SLOPES: dict[str, Callable[[Any, Any], Any]] = {
    "logistic": lambda z, y: -y * np.maximum(np.exp(-np.logaddexp(0.0, y * z)), 1e-306),  # never 0
    "hinge": lambda z, y: 0.0 - y * (y * z < 1),
    "squared_hinge": lambda z, y: -2 * y * np.fmax(0.0, 1 - y * z),
    "squared": lambda z, y: z - y,
    "huber": lambda z, y: np.clip(z - y, -1.0, 1.0),
    "return": lambda z, y: -1.0,
    "log_return": lambda z, y: -1.0 / z,
    "given": lambda z, slope: slope,  # the label is the slope
}
SLOPES = {name: weighted(slope) for name, slope in _SLOPES.items()}
VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "logistic": lambda z, y: np.logaddexp(0.0, -y * z),
    "hinge": lambda z, y: np.fmax(0.0, 1 - y * z),
    "squared_hinge": lambda z, y: np.fmax(0.0, 1 - y * z) ** 2,
    "squared": lambda z, y: (z - y) ** 2 / 2,
    "huber": lambda z, y: np.minimum(abs(z - y), 1.0) * (abs(z - y) - np.minimum(abs(z - y), 1.0) / 2),
    "return": lambda z, y: -z,
    "log_return": lambda z, y: -np.log(z),
}


def softmax_slopes(z: np.ndarray, truth: int) -> np.ndarray:
    p = np.exp(z - z.max())
    return p / p.sum() - np.eye(len(z))[int(truth)]


def multiclass_hinge_slopes(z: np.ndarray, truth: int) -> np.ndarray:
    """Oiwa et al. 2011, (15)."""
    wrong = [k for k in range(len(z)) if k != truth]
    rival = max(wrong, key=lambda k: z[k])  # the first of equals
    one = np.eye(len(z))
    true = int(truth)
    return one[rival] - one[true] if 1 - z[true] + z[rival] > 0 else np.zeros(len(z))


JOINT_SLOPES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "softmax": weighted(softmax_slopes),
    "multiclass_hinge": weighted(multiclass_hinge_slopes),
}
JOINT_VALUES: dict[str, Callable[[np.ndarray, int], float]] = {
    "softmax": lambda z, truth: np.logaddexp.reduce(z) - z[int(truth)],
    "multiclass_hinge": lambda z, truth: max(0.0, 1 - z[int(truth)] + np.delete(z, int(truth)).max()),
}


class Loss(NamedTuple):
    """A loss of the margins z (outputs,) of a row and its label."""

    value: Callable[[np.ndarray, Any], float]
    slopes: Callable[[np.ndarray, Any], np.ndarray]
    """dℓ/dz (outputs,), times the weight of the label."""


class Rounds(NamedTuple):
    """What a method learns: rows X (T, n), labels y (T,) `Label`s or `Labels` if they have weights, their loss."""

    X: np.ndarray
    y: np.ndarray
    loss: Loss
    outputs: int = 1

    @property
    def start(self) -> np.ndarray:
        """Weights of 0 (n, outputs)."""
        return np.zeros((self.X.shape[1], self.outputs))

    def rows(self) -> Iterator[tuple[int, np.ndarray, Any]]:
        """t from 1, the row as a column (n, 1) and its label."""
        for t, (x, b) in enumerate(zip(self.X, self.y, strict=True), start=1):
            yield t, x[:, None], b

    def value(self, W: np.ndarray, x: np.ndarray, b: Any) -> float:
        """Times the weight of the label."""
        return weight_of(b) * self.loss.value((x * W).sum(axis=0), b)

    def slopes(self, W: np.ndarray, x: np.ndarray, b: Any) -> np.ndarray:
        return self.loss.slopes((x * W).sum(axis=0), b)

    def gradient(self, W: np.ndarray, x: np.ndarray, b: Any) -> np.ndarray:
        return x * self.slopes(W, x, b)


def each_margin(name: str) -> Loss:
    """Of every output alone, with a label of its own or one for all."""
    value, slope = VALUES.get(name), _SLOPES[name]
    return Loss(lambda z, y: value(z, y).sum(), lambda z, y: weight_of(y) * slope(z, np.asarray(y)))


def joint(name: str) -> Loss:
    """Of all classes; of one margin, one against the rest."""
    if name in JOINT_SLOPES:
        return Loss(JOINT_VALUES[name], JOINT_SLOPES[name])

    def signs(z: np.ndarray, truth: int) -> np.ndarray:
        return np.where(np.arange(len(z)) == truth, 1.0, -1.0)

    slopes = weighted(lambda z, truth: _SLOPES[name](z, signs(z, truth)))
    return Loss(lambda z, truth: VALUES[name](z, signs(z, truth)).sum(), slopes)


KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "numbers": (1, {"n_classes": None}),
    "two classes": (1, {}),
    "classes": (3, {"n_classes": 3}),
    "label sets": (3, {"n_classes": 3, "multilabel": True}),
}
"""Outputs and arguments of a learner, by the kind of its labels."""


def targets(kind: str, label: Any, outputs: int) -> np.ndarray:
    """What each output learns of a label: ±1, or a number."""
    if kind == "numbers":
        return np.array([label])
    positive = np.arange(outputs) == label if kind == "classes" else np.reshape(label, -1) == 1
    return np.where(positive, 1.0, -1.0)


def incurred(loss: str, kind: str, z: np.ndarray, label: Any) -> tuple[float, bool]:
    """The loss of the margins z (outputs,) of a row, and whether it is predicted wrongly."""
    own = targets(kind, label, len(z))
    value = JOINT_VALUES[loss](z, label) if loss in JOINT_VALUES else VALUES[loss](z, own).sum()
    wrong = {"numbers": False, "classes": z.argmax() != label}.get(kind, ((z > 0) != (own > 0)).any())
    return float(value), bool(wrong)
