"""Options of the offline optimum."""

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from sparseoco.core.option_models import OptionModel
from sparseoco.store.terms import COUNTS, Weighting

if TYPE_CHECKING:
    from sparseoco.offline.optimum_problem import OptimumProblem

TOLERANCE, MAX_PASSES = 1e-6, 2000


class OptimumOptions(OptionModel):
    """The problems to minimise and the stopping criteria; see `sparseoco.offline_optimum`."""

    alphas: tuple[float, ...] = Field(
        (1.0,), min_length=1, description="Weights of the penalty, relative to the sum of losses over all documents."
    )
    weighting: Weighting = Field(COUNTS, description="How counts are weighted.")
    loss: str = Field("logistic", description="Loss: logistic, squared_hinge or hinge; squared for numbers.")
    penalty: str = Field("l1", description="Penalty: l1, l2 or elastic_net.")
    l1_ratio: float = Field(0.5, description="Fraction of l1 in the elastic net.")
    box: float | None = Field(None, description="Bound on the absolute value of every weight; by default none.")
    intercept: bool = Field(False, description="Minimise over an intercept too, which no penalty shrinks.")
    tol: float = Field(TOLERANCE, description="Duality gap to reach, relative to the objective at 0.")
    max_passes: int = Field(MAX_PASSES, description="Passes over the data after which to stop.")

    @model_validator(mode="after")
    def _used(self) -> "OptimumOptions":
        if self.penalty != "elastic_net" and self.l1_ratio != type(self).model_fields["l1_ratio"].default:
            raise ValueError(f"l1_ratio is of the elastic net, and the penalty is {self.penalty}")
        return self

    def problem(self, classes: list[str]) -> "OptimumProblem":
        """The problem for these classes (none for regression). Raises `InputError` for invalid options."""
        from sparseoco.offline.optimum_problem import OptimumProblem

        return OptimumProblem.of(self.loss, self.alphas, self.penalty, self.l1_ratio, self.box, len(classes) or None)
