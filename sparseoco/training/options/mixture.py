"""Options of a mixture."""

from typing import Literal

from pydantic import Field, model_validator

from sparseoco.core.option_models import OptionModel


class MixtureOptions(OptionModel):
    """Options of the online mixture, see `sparseoco.Mixture`, and what is saved of it."""

    by: Literal["error", "loss"] | None = Field(
        None, description="Weight columns by their errors or their losses; by default errors where they are defined."
    )
    predict_gradient: Literal["last", "none"] = Field("last", description="Prediction of the next loss vector.")
    keep: Literal["sparse", "mixture", "best"] = Field(
        "sparse",
        description="Save a sparse model: the sparsest column that is nearly the best, trained on the mixture's "
        "strongest features only; the whole mixture as one linear model; or its heaviest column only.",
    )
    at_most: int | None = Field(
        None,
        ge=1,
        description='Features of a model with keep="sparse"; by default as many as make up 95 % of its margins\' '
        "variance.",
    )

    @model_validator(mode="after")
    def _meaningful(self) -> "MixtureOptions":
        if self.at_most is not None and self.keep != "sparse":
            raise ValueError("at_most prunes a sparse model: do not set keep")
        return self
