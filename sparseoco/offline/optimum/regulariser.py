"""The penalty of the objective: α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2), within |x_i| ≤ R."""

from typing import NamedTuple

import numpy as np

from sparseoco.kernels.quadratic import PENALTY_CHANGE, PENALTY_CONJUGATE, PENALTY_VALUE
from sparseoco.offline.passes import Floats


class Regulariser(NamedTuple):
    """h(x) = l1·‖x‖₁ + ½·l2·‖x‖² where all |x_i| ≤ box, else ∞."""

    l1: float
    l2: float
    box: float

    def value(self, x: Floats) -> float:
        """h(x) of an x within the box."""
        return float(PENALTY_VALUE(x, self.l1, self.l2))

    def change(self, x: Floats, w: Floats) -> float:
        """h(x) − h(w), exact to the last digits of the difference."""
        return float(PENALTY_CHANGE(x, w, self.l1, self.l2))

    def conjugate(self, g: Floats, scale: float) -> float:
        """h*(−scale·g) = max_x ⟨−scale·g, x⟩ − h(x), which is finite where `bounded` or scale·|g_i| ≤ l1."""
        return float(PENALTY_CONJUGATE(g, scale, self.l1, self.l2, self.box))

    @property
    def bounded(self) -> bool:
        """Whether h* is finite everywhere."""
        return self.l2 > 0.0 or bool(np.isfinite(self.box))
