"""Options of scoring: what is written of each document, and which documents are kept."""

import re
from fractions import Fraction
from typing import Literal

from pydantic import Field, field_validator, model_validator

from sparseoco.core.option_models import OptionModel

_SHARE = re.compile(r"\s*(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%|([0-9]{1,18}))\s*")


class ScoreOptions(OptionModel):
    """What `sparseoco score` writes."""

    columns: tuple[str, ...] = Field(
        (),
        description="Input fields or columns that are copied to the scores: of Parquet and Arrow in their own type, of "
        "CSV and JSON lines as strings, in which numbers, lists and objects are JSON.",
        examples=[["url"]],
    )
    labelled: bool = Field(False, description="Read the labels too: the page shows how many kept documents are right.")
    also: tuple[str, ...] = Field(
        (),
        description="Further models, or NAME=MODEL, that score the same text and read the same fields; the model "
        "itself decides which documents are kept.",
        examples=[["topic=runs/topics"]],
    )
    keep_top: str | None = Field(
        None,
        description="Keep the best share of the documents, such as 10%, or that number of them; ties stay.",
        examples=["10%"],
    )
    keep_above: float | None = Field(
        None,
        allow_inf_nan=False,
        description="Keep documents whose probability is above this; the margin of a model without probabilities.",
        examples=[0.7],
    )
    keep_class: str | None = Field(
        None,
        description="The class that kept documents should have; by default the positive one of two.",
        examples=["positive"],
    )
    keep_as: Literal["documents", "ids"] = Field(
        "documents", description="Write kept documents in their input format, or only their rows of the scores."
    )
    new_model: Literal["refuse", "replace"] = Field(
        "refuse",
        description="If the folder has the scores of another model or of other options: raise an error, or replace "
        "them.",
    )
    shard_bytes: int | None = Field(
        None, ge=1, description="Raw text per part, in bytes; by default 8 MiB.", examples=[16777216]
    )

    @field_validator("keep_top")
    @classmethod
    def _is_share_or_number(cls, value: str | None) -> str | None:
        if value is not None:
            kept_rows(value, 100)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "ScoreOptions":
        if self.keep_top is not None and self.keep_above is not None:
            raise ValueError("keep_above: cannot be combined with keep_top")
        for name in ("keep_class", "keep_as"):
            if not self.keeps and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} says which documents are kept, or how: set keep_top or keep_above too")
        return self

    @property
    def keeps(self) -> bool:
        """Whether documents are selected."""
        return self.keep_top is not None or self.keep_above is not None


def kept_rows(keep_top: str, rows: int) -> int:
    """The number of documents that `keep_top` asks for: a share is rounded up. Raises `ValueError`."""
    found = _SHARE.fullmatch(keep_top)
    if found is None:
        raise ValueError("must be a share such as 10%, or a number of documents")
    if found[2]:
        number = int(found[2])
    else:
        share = Fraction(found[1]) / 100
        number = -int(-share * rows // 1) if 0 < share <= 1 else 0
    if number < 1:
        raise ValueError("must be at least one document, or above 0% and at most 100%")
    return min(number, rows)
