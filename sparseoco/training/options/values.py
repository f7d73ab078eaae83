"""Values of a parameter in a search: a list, a range to draw from, or factors of λ_max."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from sparseoco.core.errors import InputError
from sparseoco.core.option_models import OptionModel
from sparseoco.core.suggestions import did_you_mean
from sparseoco.learners import find_algorithm
from sparseoco.training.options.configuration import PARTS

if TYPE_CHECKING:
    from sparseoco.learners.contract import Algorithm

MAX_CONFIGURATIONS = 100_000
MAX_PARTS = 10_000
SCALED = ("lam", "alpha")
"""Parameters that weight the penalty: per row, and for the sum over all rows."""
SPARSE = ("l1", "elastic_net", "group")
"""Penalties for which all weights are 0 from some weight of the penalty on."""


class Range(OptionModel):
    """Values to draw at random: `{ low = 1e-7, high = 1e-3 }`, log-uniform unless `scale = "linear"`."""

    low: float = Field(description="Smallest value.", examples=[1e-7])
    high: float = Field(description="Largest value.", examples=[1e-3])
    scale: Literal["log", "linear"] = Field("log", description="Draw uniformly in the logarithm, or in the value.")

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError("low and high must be finite, low ≤ high")
        if self.scale == "log" and self.low <= 0:
            raise ValueError('a logarithmic range must start above 0 (or set scale = "linear")')
        return self

    def at(self, fraction: float) -> float:
        """The value at this fraction of the range, 0 ≤ fraction ≤ 1."""
        if self.scale == "linear":
            return self.low + fraction * (self.high - self.low)
        return math.exp(math.log(self.low) + fraction * (math.log(self.high) - math.log(self.low)))


class Relative(OptionModel):
    """`{ relative = [0.1] }`: values of lam or alpha times λ_max, the least penalty at which all weights are 0."""

    relative: tuple[float, ...] = Field(min_length=1, description="Factors of λ_max.", examples=[[0.01, 0.1]])

    @field_validator("relative")
    @classmethod
    def _finite(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(math.isfinite(factor) and factor >= 0 for factor in value):
            raise ValueError("values relative to λ_max are finite and not negative")
        return value


Values = list[float | str] | Range | Relative
NumericGrid = dict[str, list[float | str] | Range]


def listed(values: Any) -> Any:
    """A list of values; a single value is a list of one."""
    values = [values] if isinstance(values, (int, float, str)) else values
    if isinstance(values, list) and any(isinstance(value, bool) for value in values):
        raise ValueError("true and false are not values of a parameter")
    return values


def numeric_grid(name: str, grid: Mapping[str, Values], penalty: str, scale: float) -> NumericGrid:
    """The grid of an algorithm with `scale` times its relative values. Raises `InputError` where they mean nothing."""
    found: NumericGrid = {}
    for key, values in grid.items():
        if isinstance(values, Relative):
            if key not in SCALED or penalty not in SPARSE:
                raise InputError(
                    f"{name}.{key} with penalty {penalty}: values relative to λ_max are those of "
                    f"{' or '.join(SCALED)} with penalty {', '.join(SPARSE)}.",
                    code="unsupported-combination",
                )
            found[key] = [factor * scale for factor in values.relative]
        else:
            found[key] = values
    return found


def part_counts(algorithm: "Algorithm", grid: Mapping[str, Values]) -> list[int]:
    """The values of `PARTS` in a grid of a learner of a stream, [1] by default.

    Raises `InputError` for values that are not positive integers, and for a learner whose weights cannot be averaged.
    """
    values = grid.get(PARTS, [1])
    counts = [int(value) for value in values if value in range(1, MAX_PARTS + 1)] if isinstance(values, list) else []
    if not isinstance(values, list) or len(counts) < len(values) or not counts:
        raise InputError(
            f"{algorithm.name}.{PARTS} must be integers from 1 to {MAX_PARTS:,}.", code="invalid-parameter"
        )
    if counts != [1] and algorithm.touches_all_features:
        raise InputError(
            f"{algorithm.name} updates every weight in every round: it does not take {PARTS}, which averages weights "
            "by the rows that have a feature.",
            code="unsupported-combination",
        )
    return counts


def check_parameter_names(name: str, grid: Mapping[str, Values], penalty: str) -> None:
    """Raises `InputError` for a name that no parameter of a learner has, if it is like that of one."""
    from sparseoco.learners.penalties import find_penalty  # loads numba

    known = [*(parameter.name for parameter in find_algorithm(name).under(find_penalty(penalty)).parameters), PARTS]
    for key in grid.keys() - set(known):
        if question := did_you_mean(key, known):
            message = f"{name} has no parameter {key!r}; {question} It has {', '.join(known)}."
            raise InputError(message, code="unknown-parameter")


def check_grid(name: str, grid: NumericGrid) -> None:
    """Raises `InputError` for a range, and for a grid that is too large."""
    for key, values in grid.items():
        if isinstance(values, Range):
            raise InputError(
                f"{name}.{key} is a range: set `samples` to draw from it, or list the values.",
                code="range-without-samples",
            )
    size = math.prod(len(values) for values in grid.values() if isinstance(values, list))
    if size > MAX_CONFIGURATIONS:
        raise InputError(
            f"The grid of {name} has {size:,} configurations, more than {MAX_CONFIGURATIONS:,}: draw some of them "
            "with `samples`.",
            code="grid-too-large",
        )


def draw(grid: NumericGrid, samples: int, seed: int) -> list[dict[str, Any]]:
    """So many configurations, a function of the seed."""
    import numpy as np

    random = np.random.Generator(np.random.Philox(key=seed))
    return [
        {
            key: values.at(random.random()) if isinstance(values, Range) else values[int(random.random() * len(values))]
            for key, values in grid.items()
        }
        for _ in range(samples)
    ]
