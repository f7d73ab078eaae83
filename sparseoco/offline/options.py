"""Options of the offline optimum. Importing this loads no numerical library."""

import math
from typing import Literal

from pydantic import Field, model_validator

from sparseoco.core.option_models import OptionModel
from sparseoco.store.weighting import COUNTS, Weighting

TOLERANCE, MAX_PASSES = 1e-6, 2000


class OptimumOptions(OptionModel):
    """The problems to minimise and the stopping criteria; see `sparseoco.offline_optimum`."""

    alphas: tuple[float, ...] = Field(
        (1.0,), min_length=1, description="Weights of the penalty, relative to the sum of losses over all documents."
    )
    weighting: Weighting = Field(COUNTS, description="How counts are weighted.")
    loss: str = Field("logistic", description="Loss: logistic, squared_hinge or hinge; squared for numbers.")
    penalty: Literal["l1", "l2", "elastic_net"] = Field("l1", description="Penalty.")
    l1_ratio: float = Field(0.5, ge=0.0, le=1.0, description="Fraction of l1 in the elastic net.")
    box: float | None = Field(
        None, gt=0.0, allow_inf_nan=False, description="Bound on the absolute value of every weight; by default none."
    )
    intercept: bool = Field(False, description="Minimise over an intercept too, which no penalty shrinks.")
    tol: float = Field(TOLERANCE, gt=0.0, lt=1.0, description="Duality gap to reach, relative to the objective at 0.")
    max_passes: int = Field(MAX_PASSES, ge=1, description="Passes over the data after which to stop.")

    @model_validator(mode="after")
    def _used(self) -> "OptimumOptions":
        if self.penalty != "elastic_net" and self.l1_ratio != type(self).model_fields["l1_ratio"].default:
            raise ValueError(f"l1_ratio is of the elastic net, and the penalty is {self.penalty}")
        if not all(0.0 < alpha < math.inf or alpha == 0.0 < (self.box or 0.0) for alpha in self.alphas):
            raise ValueError("every alpha must be a number above 0, or 0 within a box")
        return self
