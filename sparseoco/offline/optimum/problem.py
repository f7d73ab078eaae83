"""The objective: a loss, values of alpha, a penalty α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2) within |x_i| ≤ R, classes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.kernels.quadratic import PENALTY_CHANGE, PENALTY_CONJUGATE, PENALTY_VALUE
from sparseoco.learners.losses import find_loss
from sparseoco.offline.partial_sums import Floats

PENALTIES = ("l1", "l2", "elastic_net")


class Regulariser(NamedTuple):
    """h(x) = l1·‖x‖₁ + ½·l2·‖x‖² if all |x_i| ≤ box, else ∞."""

    l1: float
    l2: float
    box: float

    def value(self, x: Floats) -> float:
        """h(x) for x within the box."""
        return float(PENALTY_VALUE(x, self.l1, self.l2))

    def change(self, x: Floats, w: Floats) -> float:
        """h(x) − h(w), computed without cancellation."""
        return float(PENALTY_CHANGE(x, w, self.l1, self.l2))

    def conjugate(self, g: Floats, scale: float) -> float:
        """h*(−scale·g) = max_x ⟨−scale·g, x⟩ − h(x), which is finite if `bounded` or scale·|g_i| ≤ l1."""
        return float(PENALTY_CONJUGATE(g, scale, self.l1, self.l2, self.box))

    @property
    def bounded(self) -> bool:
        """Whether h* is finite everywhere."""
        return self.l2 > 0.0 or bool(np.isfinite(self.box))


class Problem(NamedTuple):
    """Σ_j f_j(x) + α(ρ‖x‖₁ + (1 − ρ)‖x‖²/2), within |x_i| ≤ box, for every α and class; ρ = 1 for l1, 0 for l2."""

    loss: str
    alphas: tuple[float, ...]
    rho: float
    box: float
    positive: tuple[int, ...]
    """The class with y = +1 of each column of one α; −1 for regression."""

    @classmethod
    def of(
        cls,
        loss: str,
        alphas: Sequence[float],
        penalty: str,
        l1_ratio: float,
        box: float | None,
        n_classes: int | None,
    ) -> "Problem":
        """A checked problem; `n_classes` is None for regression. Raises `InputError` for invalid arguments."""
        found = find_loss(loss)
        if found.conjugate is None:
            other = f"one-vs-rest takes loss={found.joint!r}" if found.joint else "numbers take loss='squared'"
            raise InputError(
                f"loss={loss!r} has no offline optimum here; {other}.",
                code="unsupported-combination",
            )
        if found.regression != (n_classes is None):
            wanted = "numbers for labels" if found.regression else "classes for labels"
            raise InputError(f"loss={loss!r} needs {wanted}.", code="invalid-labels")
        if penalty not in PENALTIES:
            raise InputError(
                f"penalty={penalty!r} has no offline optimum here; choose one of {', '.join(PENALTIES)}, and `box` "
                "for bounds.",
                code="unsupported-combination",
            )
        if penalty == "elastic_net" and not _number(l1_ratio, 0.0, 1.0):
            raise InputError(f"l1_ratio={l1_ratio!r} must be a number from 0 to 1.", code="invalid-option")
        if box is not None and not (_number(box, 0.0, math.inf) and box > 0.0):
            raise InputError(f"box={box!r} must be a number above 0.", code="invalid-option")
        if not alphas:
            raise InputError("There is no value of alpha to find the optimum for.", code="invalid-option")
        for alpha in alphas:
            if not (_number(alpha, 0.0, math.inf) and (alpha > 0.0 or box is not None)):
                raise InputError(
                    f"alpha={alpha!r} must be a number above 0 (or 0 within a box).", code="invalid-option"
                )
        if n_classes is not None and (isinstance(n_classes, bool) or n_classes != int(n_classes) or n_classes < 2):
            raise InputError(f"n_classes={n_classes!r} must be a whole number of at least 2.", code="invalid-option")
        positive = (-1,) if n_classes is None else (1,) if n_classes == 2 else tuple(range(n_classes))
        rho = {"l1": 1.0, "l2": 0.0, "elastic_net": float(l1_ratio)}[penalty]
        limit = math.inf if box is None else float(box)
        return cls(found.name, tuple(float(alpha) for alpha in alphas), rho, limit, positive)

    @property
    def columns(self) -> list[tuple[int, Regulariser]]:
        """(positive class, penalty) of every column: the classes of the first α, then of the next."""
        return [
            (positive, Regulariser(alpha * self.rho, alpha * (1.0 - self.rho), self.box))
            for alpha in self.alphas
            for positive in self.positive
        ]


def _number(value: Any, low: float, high: float) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(value) and low <= value <= high
    except TypeError:
        return False
