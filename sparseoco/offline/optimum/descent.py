"""The step of the proximal Newton method: the minimum of the quadratic model with the penalty.

Coordinate descent over a working set finds which coordinates are zero or at the box, and conjugate gradients find the
others' values, where descent alone would creep: words come together, and so the model is far from diagonal (Friedman,
Hastie & Tibshirani 2010, Regularization paths for generalized linear models via coordinate descent; Dembo, Eisenstat &
Steihaug 1982, Inexact Newton methods; Byrd, Chin, Nocedal & Oztoprak 2016, A family of second-order methods for convex
l1-regularized optimization).
"""

import numpy as np

from sparseoco.kernels.newton import (
    COLUMN_CURVATURES,
    COLUMN_SLOPES,
    CONJUGATE_GRADIENTS,
    LEAST_SUBGRADIENTS,
    PRODUCT,
    SWEEP_COLUMNS,
)
from sparseoco.kernels.quadratic import INNER
from sparseoco.offline.coordinates import ColumnMajor
from sparseoco.offline.optimum.regulariser import Regulariser
from sparseoco.offline.passes import Floats

NEAR = 0.5  # of l1: features whose slope is less are not thought to pass it in one step; if they do, the next step sees
TURNS = 3  # of coordinate descent and conjugate gradients
RESIDUAL, SHARE, ITERATIONS = 0.1, 0.3, 30  # of conjugate gradients: no less than is left, a share of what may be
MOST = 1000  # iterations, with any effort
HALVINGS = 12


class Model:
    """m(x) = ⟨g, x − w⟩ + ½ Σ_i c_i⟨a_i, x − w⟩² + h(x), c (rows,) above 0, and the point x that it is minimised from.

    `weight` (features,) makes subgradients of coordinates comparable.
    """

    def __init__(self, data: ColumnMajor, h: Regulariser, weight: Floats, w: Floats, g: Floats, c: Floats) -> None:
        self.data, self.h, self.weight, self.w, self.g, self.c = data, h, weight, w, g, c
        self.x, self.r = w.copy(), np.zeros_like(c)
        self.members = np.flatnonzero((w != 0.0) | (np.abs(g) > NEAR * h.l1))
        self.curvatures = np.zeros_like(w)
        COLUMN_CURVATURES(self.members, *data[:3], c, self.curvatures)

    def minimise(self, goal: float, effort: int) -> Floats:
        """Where m is least, nearly: until what `subgradients` sums is `goal`, or `effort` (1 or more) is spent."""
        for _ in range(TURNS):
            SWEEP_COLUMNS(self.members, *self.data[:3], self.c, self.g, self.curvatures, *self.h, self.x, self.r)
            slopes, left = self.subgradients()
            if left <= goal:
                break
            self.newton(slopes, max(RESIDUAL, SHARE * goal / left), min(effort * ITERATIONS, MOST))
        return self.x

    def subgradients(self) -> tuple[Floats, float]:
        """The least subgradient of m at x, in the features that have a part, and the sum of what it has, weighed."""
        slopes, out = np.zeros_like(self.w), np.zeros_like(self.w)
        COLUMN_SLOPES(self.members, *self.data[:3], self.g, self.r, slopes)
        LEAST_SUBGRADIENTS(self.members, self.x, slopes, *self.h, out)
        return out, float(INNER(self.weight, np.abs(out)))

    def newton(self, slopes: Floats, residual: float, iterations: int) -> None:
        """A Newton step among coordinates that are neither zero nor at the box, kept on their side of zero."""
        inside = np.abs(self.x) < self.h.box
        free = np.flatnonzero(inside & (self.x != 0.0) if self.h.l1 > 0.0 else inside)
        free = free[self.curvatures[free] + self.h.l2 > 0.0]
        direction, step = np.zeros_like(self.x), 1.0
        matrix = (*self.data[:3], self.c, self.curvatures, self.h.l2)
        CONJUGATE_GRADIENTS(free, *matrix, slopes, residual, iterations, direction)
        now = self.value(self.x, self.r)
        for _ in range(HALVINGS):
            x = np.clip(self.x + step * direction, -self.h.box, self.h.box)
            if self.h.l1 > 0.0:
                x[x * self.x < 0.0] = 0.0
            r = self.c * product(self.data, x - self.w)
            if self.value(x, r) < now:
                self.x, self.r = x, r
                return
            step *= 0.5

    def value(self, x: Floats, r: Floats) -> float:
        """m(x) − h(w)."""
        return float(INNER(self.g, x - self.w) + 0.5 * INNER(r, r / self.c)) + self.h.change(x, self.w)


def product(data: ColumnMajor, v: Floats) -> Floats:
    """A·v (rows,)."""
    out = np.zeros(data.n_rows)
    PRODUCT(np.flatnonzero(v), *data[:3], v, out)
    return out
