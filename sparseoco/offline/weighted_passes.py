"""Passes over rows in this process with sample weights and an intercept, which every pass fits.

The intercept b has no penalty, so that the objective of the weights is min_b Σ_j ω_j·ℓ(⟨a_j, x⟩ + b, y_j) + h(x). A
pass finds b by its stationary condition Σ_j θ_j = 0, θ_j = ω_j·ℓ'(z_j, y_j): exactly the constraint that an unpenalised
coordinate adds to the dual, so that the slopes of a pass, scaled or not, are feasible up to rounding.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from sparseoco.core.errors import InputError
from sparseoco.kernels.full_pass import ACCUMULATE, MARGINS, row_kernels
from sparseoco.learners.losses import find_loss
from sparseoco.offline.column_major import ColumnMajor, column_major
from sparseoco.offline.partial_sums import Floats
from sparseoco.offline.passes import PassRequest, PassResult, Shape, Span

FARTHEST = 1e9


class WeightedRowPasses:
    """The interface of `passes.Passes` over a checked CSR matrix; `weights` (rows,) are all 1 if None.

    If all labels are of one class, some losses are least at an infinite intercept: an `InputError`, or, with
    `one_class`, an intercept at which they are 0.
    """

    def __init__(
        self, X: Any, y: NDArray[Any], weights: Floats | None, *, intercept: bool, one_class: bool = False
    ) -> None:
        self._X, self._y, self._given = X, np.asarray(y, np.float64), weights
        self.weights = np.ones(len(self._y)) if weights is None else weights
        self._intercept, self._one_class = intercept, one_class
        self.shape = Shape(int(X.shape[0]), int(X.shape[1]), int(X.nnz))
        self.span = Span().within(self.shape.n_rows)

    def totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """See `Passes.totals`; the losses and slopes are at the best intercepts."""
        z = np.empty((self.shape.n_rows, weights.shape[1]))
        MARGINS(self._X.indptr, self._X.indices, self._X.data, np.ascontiguousarray(weights, np.float64), z)
        intercepts = np.zeros(z.shape[1])
        slopes, loss_sum, exact_sum = np.empty_like(z), np.zeros(z.shape[1]), np.zeros(z.shape[1])
        respond = row_kernels(find_loss(request.loss)).respond
        values, exact, slope = np.empty((3, self.shape.n_rows))
        for c, positive in enumerate(request.positive):
            y = self._y if positive < 0 else np.where(self._y == positive, 1.0, -1.0)
            width = request.width[c] if request.width else 0.0
            own = np.ascontiguousarray(z[:, c])
            if self._intercept:
                intercepts[c] = self._best_intercept(respond, own, y, width)
            respond(own, intercepts[c], y, width, values, exact, slope)
            loss_sum[c], exact_sum[c] = self.weights @ values, self.weights @ exact
            slopes[:, c] = self.weights * slope
        gradient = np.zeros((self.shape.n_features, z.shape[1]))
        ACCUMULATE(self._X.indptr, self._X.indices, self._X.data, slopes, gradient)
        return PassResult(loss_sum, exact_sum, gradient, (slopes,), intercepts)

    def _best_intercept(self, respond: Any, z: Floats, y: Floats, width: float) -> float:
        """The root of Σ_j ω_j·ℓ'(z_j + b, y_j), which increases with b."""
        scratch, slope = np.empty_like(z), np.empty_like(z)

        def total(b: float) -> float:
            respond(z, b, y, width, scratch, scratch, slope)
            return float(self.weights @ slope)

        low, high = -1.0, 1.0
        while total(low) > 0.0 and low > -FARTHEST:
            low *= 2.0
        while total(high) < 0.0 and high < FARTHEST:
            high *= 2.0
        if self._one_class and total(high) <= 0.0:
            return high
        if self._one_class and total(low) >= 0.0:
            return low
        if total(low) > 0.0 or total(high) < 0.0:
            raise InputError("All labels are of one class: no intercept minimises the loss.", code="one-class")
        return float(brentq(total, low, high, xtol=1e-15, rtol=1e-15))

    def slopes(self, result: PassResult) -> Floats:
        """See `Passes.slopes`."""
        return np.asarray(result.slopes[0])

    def conjugates(self, result: PassResult, request: PassRequest, scale: Floats) -> Floats:
        """See `Passes.conjugates`: Σ_j ω_j·ℓ*(scale·θ_j/ω_j)."""
        out = np.zeros(scale.size)
        row_kernels(find_loss(request.loss)).conjugate_sums(result.slopes[0], self.weights, scale, out)
        return out

    def squares(self) -> Floats:
        """See `Passes.squares`; weighted."""
        each = np.repeat(self.weights, np.diff(self._X.indptr))
        squares = each * self._X.data.astype(np.float64) ** 2
        return np.bincount(self._X.indices, squares, self.shape.n_features).astype(np.float64)

    def drop(self, result: PassResult) -> None:
        """See `Passes.drop`; there are no files."""

    def sample_weights(self) -> Floats | None:
        """See `Passes.sample_weights`."""
        return self._given

    def columns(self) -> ColumnMajor:
        """See `Passes.columns`; a copy."""
        return column_major(self._X, self._y)
