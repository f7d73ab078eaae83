"""Fields of records: texts, categories and numbers, which become features of one store, each in its own namespace."""

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from sparseoco.core.option_models import OptionModel
from sparseoco.store.manifest import FieldEntry
from sparseoco.text.tokenizer import TokenizerOptions


class TextField(TokenizerOptions):
    """A text: counts of n-grams, named ``title:good movie``; the options are those of `[ingest]` by default."""

    type: Literal["text"] = Field(description="The field is a text.")


class CategoryField(OptionModel):
    """A category: one feature for each value, named ``domain=kitchen``, which counts 1."""

    type: Literal["category"] = Field(description="The field is a category.")


class NumberField(OptionModel):
    """A number: one feature ``price``, or one for each bin, named ``price=[1.5, 3)``, which counts 1."""

    type: Literal["number"] = Field(description="The field is a number.")
    transform: Literal["value", "log", "bins"] = Field(
        "value", description="The value as it is, sign·ln(1 + |value|), or the bin of the value."
    )
    bins: int = Field(10, ge=2, description="Number of bins, by quantiles of the first ingest.", examples=[20])
    cuts: tuple[float, ...] | None = Field(
        None, description="Values that divide the bins, increasing, in place of quantiles.", examples=[[1.5, 3.0]]
    )

    @property
    def is_real(self) -> bool:
        """Whether it is one feature with values, instead of one for each bin."""
        return self.transform != "bins"

    @field_validator("cuts")
    @classmethod
    def _increasing(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        ends = itertools.pairwise((-math.inf, *(value or ()), math.inf))
        if not all(low < high for low, high in ends):
            raise ValueError("must be finite, increasing numbers")
        return value

    @model_validator(mode="after")
    def _cuts_are_used(self) -> Self:
        if self.cuts is not None and self.is_real:
            raise ValueError('cuts requires transform = "bins"')
        return self


FieldOptions = Annotated[TextField | CategoryField | NumberField, Field(discriminator="type")]
Fields = dict[str, FieldOptions]


def namespace(name: str) -> str:
    """The beginning of the terms of a text field."""
    return f"{name}:"


def inherit_options(fields: Any, tokenizer: Mapping[str, Any]) -> Any:
    """The tables of fields, in which text fields have the options of a tokenizer where they set none."""
    if not isinstance(fields, dict):
        return fields
    return {
        name: {**tokenizer, **field} if isinstance(field, dict) and field.get("type") == "text" else field
        for name, field in fields.items()
    }


def check_names(fields: Iterable[str], label_field: str) -> None:
    """Raises `ValueError` for names that would make features ambiguous, and for the label."""
    for name in fields:
        if not name or ":" in name or "=" in name:
            raise ValueError(f"fields: the name {name!r} must have a character, and neither : nor =")
        if name == label_field:
            raise ValueError(f"fields: {name!r} is the label, which is no feature")


def with_cuts(fields: Fields, entries: Iterable[FieldEntry]) -> Fields:
    """Fields with the bins that a store has chosen."""
    cuts = {entry.name: entry.cuts for entry in entries if entry.cuts is not None}
    return {
        name: field.model_copy(update={"cuts": cuts[name]}) if name in cuts else field for name, field in fields.items()
    }
