"""Passes under which a weighted l1 is a plain one: Σ_i h_i|w_i| = ‖v‖₁ for v = h∘w, and ⟨w, x⟩ = ⟨v, x/h⟩."""

import numpy as np

from sparseoco.offline.coordinates import ColumnMajor
from sparseoco.offline.passes import Floats, Passes, PassRequest, PassResult


class WeightedPasses:
    """Passes of one column at v for the examples x_j/h_j; h (features,).

    A coordinate of h = 0 is left out: no gradient of the learner has touched it. Where slopes are never 0 no example of
    the span has it; elsewhere the minimum is over the coordinates the learner has learned of.
    """

    def __init__(self, passes: Passes, h: Floats) -> None:
        self.passes, self.shape, self.span = passes, passes.shape, passes.span
        self.inverse = np.divide(1.0, h, out=np.zeros_like(h), where=h > 0)

    def totals(self, weights: Floats, question: PassRequest) -> PassResult:
        """See `Passes.totals`."""
        found = self.passes.totals(weights * self.inverse[:, None], question)
        return found._replace(gradient=found.gradient * self.inverse[:, None])

    def slopes(self, totals: PassResult) -> Floats:
        """See `Passes.slopes`."""
        return self.passes.slopes(totals)

    def conjugates(self, totals: PassResult, question: PassRequest, scale: Floats) -> Floats:
        """See `Passes.conjugates`."""
        return self.passes.conjugates(totals, question, scale)

    def squares(self) -> Floats:
        """See `Passes.squares`."""
        return np.asarray(self.passes.squares() * self.inverse**2)

    def drop(self, totals: PassResult) -> None:
        """See `Passes.drop`."""
        self.passes.drop(totals)

    def columns(self) -> ColumnMajor | None:
        """See `Passes.columns`; a copy."""
        found = self.passes.columns()
        return (
            None
            if found is None
            else found._replace(counts=found.counts * np.repeat(self.inverse, np.diff(found.indptr)))
        )
