"""Losses of the oracles: of one margin, or of the margins of all classes."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tests.oracles.weights import weighted

# Losses of one margin z, labels ±1 or numbers; slopes dℓ/dz are times the weight of the row. Most take arrays as well.
_SLOPES: dict[str, Callable[[float, float], float]] = {
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
VALUES: dict[str, Callable[[float, float], float]] = {
    "logistic": lambda z, y: np.logaddexp(0.0, -y * z),
    "hinge": lambda z, y: np.fmax(0.0, 1 - y * z),
    "squared_hinge": lambda z, y: np.fmax(0.0, 1 - y * z) ** 2,
    "squared": lambda z, y: (z - y) ** 2 / 2,
    "huber": lambda z, y: min((z - y) ** 2 / 2, abs(z - y) - 0.5) if abs(z - y) > 1 else (z - y) ** 2 / 2,
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
    """What a method learns: rows X (T, n), labels y (T,) with weights as in `tests.oracles.weights`, their loss."""

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

    def slopes(self, W: np.ndarray, x: np.ndarray, b: Any) -> np.ndarray:
        return self.loss.slopes((x * W).sum(axis=0), b)

    def gradient(self, W: np.ndarray, x: np.ndarray, b: Any) -> np.ndarray:
        return x * self.slopes(W, x, b)


def one_margin(name: str) -> Loss:
    value, slope = VALUES.get(name), SLOPES[name]
    return Loss(lambda z, y: value(z[0], y), lambda z, y: np.array([slope(z[0], y)]))


def joint(name: str) -> Loss:
    """Of all classes; of one margin, one against the rest."""
    if name in JOINT_SLOPES:
        return Loss(JOINT_VALUES[name], JOINT_SLOPES[name])

    def each(of: Callable[[float, float], float], z: np.ndarray, truth: int) -> list[float]:
        return [of(margin, 1.0 if k == truth else -1.0) for k, margin in enumerate(z)]

    value, slope = VALUES[name], weighted(lambda z, truth: np.array(each(_SLOPES[name], z, truth)))
    return Loss(lambda z, truth: sum(each(value, z, truth)), slope)


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
    value = JOINT_VALUES[loss](z, label) if loss in JOINT_VALUES else sum(map(VALUES[loss], z, own))
    wrong = {"numbers": False, "classes": z.argmax() != label}.get(kind, ((z > 0) != (own > 0)).any())
    return float(value), bool(wrong)
