"""Probabilities from margins: sigmoids for two classes or several labels, one temperature for many classes.

Both minimise the log loss of margins that the model was not trained on, with Platt's targets: of n rows of a class the
model would be right for n + 1 of n + 2, so that a fit on rows that are all right stays finite.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy  # loads scipy.special when it is used
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from sparseoco.storage.validated import Moderate

Floats = NDArray[np.float64]
Objective = Callable[[Floats], tuple[float, Floats, Floats]]
"""Value, gradient and Hessian at a point."""

RIDGE = 1e-12  # of the trace of a Hessian
TOLERANCE = 1e-10
STEPS = 100


class Calibration(BaseModel):
    """A map from margins to probabilities that keeps their order.

    Parameters
    ----------
    method : "sigmoid" for p_k = 1/(1 + exp(−(slope_k·z_k + offset_k))), "temperature" for p = softmax(slope·z).
    slopes : one per output, ≥ 0; for a temperature T the one number 1/T.
    offsets : one per output; none for a temperature.
    rows : documents it was fitted on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: Literal["sigmoid", "temperature"]
    slopes: tuple[Moderate, ...]
    offsets: tuple[Moderate, ...] = ()
    rows: int = 0

    @model_validator(mode="after")
    def _consistent(self) -> "Calibration":
        expected = len(self.slopes) if self.method == "sigmoid" else 0
        if not self.slopes or len(self.offsets) != expected or min(self.slopes) < 0:
            raise ValueError("slopes and offsets do not belong together")
        if self.method == "temperature" and len(self.slopes) != 1:
            raise ValueError("a temperature has one slope")
        return self

    @property
    def outputs(self) -> int | None:
        """Margins of a row; None for a temperature, which takes any number."""
        return None if self.method == "temperature" else len(self.slopes)

    def probabilities(self, margins: NDArray[Any]) -> Floats:
        """(rows, outputs) probabilities of margins; with one output, of the second class."""
        if self.method == "temperature":
            return np.asarray(scipy.special.softmax(self.slopes[0] * margins, axis=1))
        return np.asarray(scipy.special.expit(np.array(self.slopes) * margins + np.array(self.offsets)))


def fit_calibration(margins: NDArray[Any], labels: NDArray[Any]) -> Calibration | None:
    """The calibration of held-out margins; None without rows.

    Parameters
    ----------
    margins : (rows, outputs).
    labels : (rows,) class indices, or (rows, outputs) booleans for several labels per row.

    Notes
    -----
    Sigmoids are those of Platt (1999) by the Newton method of Lin, Lin and Weng (2007), as scikit-learn's. A slope that
    would be negative is 0: probabilities are the share of the class, and never contradict the order of margins.
    """
    margins = np.asarray(margins, np.float64)
    if not len(margins):
        return None
    if labels.ndim == 1 and margins.shape[1] > 1:
        slope = fit_inverse_temperature(margins, labels)
        return Calibration(method="temperature", slopes=(slope,), rows=len(margins))
    truth = labels[:, None] > 0 if labels.ndim == 1 else labels.astype(bool)
    fits = [fit_sigmoid(z, own) for z, own in zip(margins.T, truth.T, strict=True)]
    slopes, offsets = zip(*fits, strict=True)
    return Calibration(method="sigmoid", slopes=slopes, offsets=offsets, rows=len(margins))


def fit_sigmoid(margins: Floats, positive: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and offset of the sigmoid with the least log loss."""
    n_positive, n_negative = positive.sum(), (~positive).sum()
    targets = np.where(positive, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    scale = _scale(margins)
    z = margins / scale

    def objective(point: Floats) -> tuple[float, Floats, Floats]:
        raw = point[0] * z + point[1]
        p = scipy.special.expit(raw)
        residual, curvature = p - targets, p * (1 - p)
        value = float((np.logaddexp(0, raw) - targets * raw).sum())
        mixed = (curvature * z).sum()
        hessian = np.array([[(curvature * z * z).sum(), mixed], [mixed, curvature.sum()]])
        return value, np.array([(residual * z).sum(), residual.sum()]), hessian

    slope, offset = _minimum(objective, np.array([0.0, np.log((n_positive + 1) / (n_negative + 1))]))
    if slope <= 0:
        share = float(targets.mean())
        return 0.0, float(np.log(share / (1 - share)))
    return float(slope / scale), float(offset)


def fit_inverse_temperature(margins: Floats, labels: NDArray[Any]) -> float:
    """1/T, T the temperature with the least log loss; 0 if no temperature is better than equal probabilities."""
    rows, outputs = margins.shape
    scale = _scale(margins)
    z = (margins - margins.max(axis=1, keepdims=True)) / scale
    missed = 1 / (rows + 2) / (outputs - 1)
    wanted = missed * (z.sum(axis=1) - z[np.arange(rows), labels])
    wanted += (1 - missed * (outputs - 1)) * z[np.arange(rows), labels]

    def objective(point: Floats) -> tuple[float, Floats, Floats]:
        raw = point[0] * z
        p = scipy.special.softmax(raw, axis=1)
        mean = (p * z).sum(axis=1)
        variance = (p * (z - mean[:, None]) ** 2).sum(axis=1)
        value = float((scipy.special.logsumexp(raw, axis=1) - point[0] * wanted).sum())
        return value, np.array([(mean - wanted).sum()]), np.array([[variance.sum()]])

    return max(float(_minimum(objective, np.zeros(1))[0]), 0.0) / scale


def _scale(margins: Floats) -> float:
    """The size of margins: fits do not depend on their unit."""
    return float(np.sqrt(np.mean(margins**2))) or 1.0


def _minimum(objective: Objective, point: Floats) -> Floats:
    """The minimum of a convex function of few variables: Newton's method, each step halved until it improves."""
    for _ in range(STEPS):
        value, gradient, hessian = objective(point)
        step = np.linalg.solve(hessian + RIDGE * (np.trace(hessian) or 1.0) * np.eye(len(point)), gradient)
        decrease, size = float(gradient @ step), 1.0
        if decrease <= TOLERANCE * abs(value):
            return np.asarray(point - step)  # this close, the error is squared by the last step
        while size > TOLERANCE and objective(point - size * step)[0] > value - 1e-4 * size * decrease:
            size /= 2
        point = point - size * step
    return point
