"""The duality gap: how far above the optimum a point can be at most.

The dual of min_x Σ_j f_j(x) + h(x), f_j(x) = ℓ(⟨a_j, x⟩, y_j), is max_θ −Σ_j ℓ*(θ_j) − h*(−Aᵀθ) (Fenchel). Its
feasible points are made from the slopes s_j of a pass, θ = κ·s: κ = 1 where h* is finite everywhere, and
the largest κ ≤ 1 with κ‖Aᵀs‖_∞ ≤ l1. Σ_j ℓ*(κs_j) needs the slopes alone, h* the gradient Aᵀs alone.
"""

from typing import NamedTuple

import numpy as np

from sparseoco.learners.losses import find_loss
from sparseoco.offline.optimum.regulariser import Regulariser
from sparseoco.offline.passes import Floats, Passes, PassRequest, PassResult

SHORT = 1.0 - 2.0**-50  # so that rounding does not make a point infeasible


class Certificate(NamedTuple):
    """Of each column: `dual`, a lower bound of the optimum, and `slack`, what rounding the hinge adds to the gap."""

    dual: Floats
    slack: Floats


def certify(
    passes: Passes, totals: PassResult, question: PassRequest, inner: Floats, penalties: list[Regulariser]
) -> Certificate:
    """The best of the dual points that a pass gives; `inner` (columns,) is ⟨gradient, weights⟩."""
    columns = range(len(penalties))
    loss = find_loss(question.loss)
    scales = np.ones((2, len(penalties)))
    for c in columns:
        steepest = np.abs(totals.gradient[:, c]).max(initial=0.0)
        feasible = min(1.0, SHORT * penalties[c].l1 / steepest) if steepest > 0.0 else 1.0
        scales[0, c] = feasible
        scales[1, c] = 1.0 if penalties[c].bounded else feasible
    # y_j·s_j, summed, of regression: s = z − y, so Σ y·s = ⟨g, w⟩ − Σ s² and Σ s² is twice the loss.
    linear = inner - 2.0 * totals.loss_sum if loss.regression else np.zeros(len(penalties))
    duals = np.full_like(scales, -np.inf)
    for k, scale in enumerate(scales):
        if k and (scale == scales[0]).all():
            break
        conjugates = passes.conjugates(totals, question, scale) + scale * linear
        for c in columns:
            duals[k, c] = -conjugates[c] - penalties[c].conjugate(np.ascontiguousarray(totals.gradient[:, c]), scale[c])
    slack = np.zeros(len(penalties))
    if question.width:
        # Of the rounded hinge: Σ(½μa² − a) = ⟨g, w⟩ − Σ f_μ, with a = |s|.
        total = -passes.conjugates(totals, question, np.ones(len(penalties)))
        slack = totals.exact_sum - totals.loss_sum - (inner - totals.loss_sum + total)
    return Certificate(duals.max(axis=0), slack)
