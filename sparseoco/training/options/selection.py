"""Which configurations of a search are dropped early, and which one is chosen."""

from typing import Literal

from pydantic import Field, field_validator

from sparseoco.core.option_models import OptionModel


class Halving(OptionModel):
    """`halving = { factor = 3 }` or `halving = 3`: drop the worst within the first pass, at rungs."""

    factor: float = Field(
        2.0, gt=1, le=1e6, description="One configuration in this many survives a rung.", examples=[3]
    )
    rungs: tuple[float, ...] | None = Field(
        None,
        min_length=1,
        description="Fractions of the first pass; by default as many as reduce the search to one configuration.",
        examples=[[0.25, 0.5]],
    )
    min_rows: int = Field(1000, ge=1, description="No rung before this many rows of the stream.", examples=[5000])

    @field_validator("rungs")
    @classmethod
    def _inside(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and not all(0 < fraction < 1 for fraction in value):
            raise ValueError("rungs are fractions of the first pass, between 0 and 1")
        return value


class AtMost(OptionModel):
    """`select = { at_most = 10_000 }`: the best model with at most so many features that have a nonzero weight."""

    at_most: int = Field(ge=1, description="Features with a nonzero weight for any class.", examples=[10000])


Select = Literal["best", "one-standard-error"] | AtMost
