"""How the values that learners see are made of counts: tf, idf and the norm of a row. Loads no numerical library.

A store has counts. They are weighted while rows are read (`store.terms`), so that many weightings share a store.
"""

from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sparseoco.core.errors import unsupported
from sparseoco.core.option_models import OptionModel

Tf = Literal["count", "binary", "log"]
Norm = Literal["none", "l2"]


class Weighting(OptionModel):
    """How counts become values: tf(count)·idf, then the norm of the row, as scikit-learn's `TfidfTransformer`.

    >>> Weighting(tf="log", idf=True, norm="l2").label
    'log tf, idf, l2'
    """

    tf: Tf = "count"
    idf: bool = False
    norm: Norm = "none"

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Weighting":
        """The weighting in the columns tf, idf and norm of a row of a table."""
        return cls(**{name: row[name] for name in cls.model_fields})

    @property
    def is_identity(self) -> bool:
        """Whether values are the counts."""
        return self == COUNTS

    @property
    def label(self) -> str:
        """A short name for tables."""
        parts = ["counts" if self.tf == "count" else f"{self.tf} tf"]
        return ", ".join(parts + ["idf"] * self.idf + ["l2"] * (self.norm == "l2"))


COUNTS = Weighting()
"""The counts as they are."""

TFIDF = Weighting(tf="log", idf=True, norm="l2")
"""The default for counts: sublinear tf-idf in rows of unit length."""


def _listed(value: Any) -> Any:
    """A list of values; a single value is a list of one."""
    return value if value is None or isinstance(value, list | tuple) else [value]


class FeatureOptions(OptionModel):
    """`[features]`: how counts are weighted; a list of values is a dimension of the search.

    By default counts are weighted by `TFIDF`, and real values are taken as they are (`for_values`).
    """

    tf: Annotated[tuple[Tf, ...] | None, BeforeValidator(_listed, json_schema_input_type=Tf | tuple[Tf, ...])] = Field(
        None,
        min_length=1,
        description="Term frequency: the count, binary (1 for a term that occurs), or log (1 + ln count); by default "
        "log, or count for real values.",
        examples=[["log", "binary"]],
    )
    idf: Annotated[
        tuple[bool, ...] | None, BeforeValidator(_listed, json_schema_input_type=bool | tuple[bool, ...])
    ] = Field(
        None,
        min_length=1,
        description="Multiply by the inverse document frequency, ln((1 + n)/(1 + df)) + 1 over all documents of the "
        "store (labels are not used); for terms that a later ingest added, over the documents of that ingest. By "
        "default true, or false for real values.",
        examples=[[True, False]],
    )
    norm: Annotated[
        tuple[Norm, ...] | None, BeforeValidator(_listed, json_schema_input_type=Norm | tuple[Norm, ...])
    ] = Field(
        None,
        min_length=1,
        description="Divide each row by its norm: none or l2; by default l2, or none for real values.",
        examples=[["l2", "none"]],
    )

    def for_values(self, *, real: bool) -> "FeatureOptions":
        """The options with the defaults for counts or for real values in place of those that are not set."""
        default = COUNTS if real else TFIDF
        return FeatureOptions(
            tf=self.tf or (default.tf,), idf=self.idf or (default.idf,), norm=self.norm or (default.norm,)
        )

    @property
    def weightings(self) -> list[Weighting]:
        """Every combination, each once; those that are not set are as for counts."""
        chosen = self.for_values(real=False)
        axes = product(chosen.tf or (), chosen.idf or (), chosen.norm or ())
        return list(dict.fromkeys(Weighting(tf=tf, idf=idf, norm=norm) for tf, idf, norm in axes))

    @property
    def weighting(self) -> Weighting:
        """The only combination. Raises `InputError` if there are several."""
        first, *others = self.weightings
        if others:
            raise unsupported("Only a search compares several weightings: give one value of tf, idf and norm.")
        return first
