"""What a user may say about raw text: where the fields are, what a token is, which terms stay."""

import json
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sparseoco.core.errors import InputError
from sparseoco.core.option_models import describe_problem
from sparseoco.storage.commit import digest_value

Format = Literal["auto", "jsonl", "csv", "tsv", "lines", "folder", "svmlight", "processed"]
Policy = Literal["frozen", "extend"]
SHARD_BYTES = 8 << 20  # of text a shard: its tables then fit a processor's caches
# Options that choose among counted terms: they do not change what a split of the text counts to.
SELECTING = frozenset({"min_df", "max_df", "max_features", "max_bad_rows", "duplicates", "hash_bits", "hash_seed"})
# Options that say what an ingest does with rows it cannot take: the next one into the store may have others.
OF_EACH_INGEST = frozenset({"max_bad_rows", "duplicates"})


class TextOptions(BaseModel):
    """Options of ingest, named after scikit-learn's CountVectorizer where it has them. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Format = "auto"
    text_field: str = "text"
    label_field: str = "label"
    id_field: str = "id"
    where: dict[str, str] = {}
    header: bool = True
    labels: Literal["classes", "numbers"] = "classes"
    classes: tuple[str, ...] | None = None
    label_list: Literal["error", "first", "skip", "join"] = "error"
    index_base: Literal["auto", 0, 1] = "auto"

    ngram_range: tuple[int, int] = (1, 1)
    lowercase: bool = True
    binary: bool = False
    min_df: int | float = Field(default=1, union_mode="smart")
    max_df: int | float = Field(default=1.0, union_mode="smart")
    max_features: int | None = Field(default=None, gt=0)
    hash_bits: int | None = Field(default=None, ge=1, le=48)
    hash_seed: int = Field(default=0, ge=0, lt=2**64)

    duplicates: Literal["error", "first", "all"] = "error"
    encoding_errors: Literal["error", "replace", "skip"] = "error"
    max_bad_rows: int = Field(default=0, ge=0)
    max_line_bytes: int = Field(default=64 << 20, gt=0)
    max_inflation: int = Field(default=1000, gt=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        low, high = self.ngram_range
        if not 1 <= low <= high <= 100:
            raise ValueError("ngram_range must be two numbers, 1 ≤ first ≤ second ≤ 100")
        for key in ("min_df", "max_df"):
            value = getattr(self, key)
            if isinstance(value, float) and not 0.0 <= value <= 1.0:
                raise ValueError(
                    f"{key} as a fraction must lie between 0.0 and 1.0; as a number of documents write it whole"
                )
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{key} as a number of documents must not be below 1")
        if self.hash_bits is not None and (self.min_df not in (1, 0.0) or self.max_df != 1.0 or self.max_features):
            raise ValueError("hash_bits keeps every term: min_df, max_df and max_features do not go with it")
        if self.classes is not None and self.labels != "classes":
            raise ValueError('classes are named where labels = "classes"')
        return self

    @field_validator("classes")
    @classmethod
    def _in_order(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Named in any order, they are the same classes."""
        if value is None:
            return None
        if len(set(value)) < max(2, len(value)) or "" in value:
            raise ValueError("classes are two or more names, each of them once")
        return tuple(sorted(value))

    @classmethod
    def of(cls, values: dict[str, Any]) -> "TextOptions":
        """Options from plain values; an error is an `InputError` that names the key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            message = describe_problem(first)
            raise InputError(f"Option {key}: {message}." if key else f"Option {message}.") from error

    def has_class(self, name: str) -> bool:
        """Whether a label is one of the classes there may be: any, where none are named."""
        if self.classes is None:
            return True
        place = bisect_left(self.classes, name)
        return place < len(self.classes) and self.classes[place] == name

    def over(self, classes: Iterable[str]) -> "TextOptions":
        """These options where there may be no other classes."""
        return self.model_copy(update={"classes": tuple(sorted(classes))})

    @property
    def digest(self) -> str:
        """A name for all options: a store is made with one set."""
        return digest_value(self.plain())

    @property
    def counting_digest(self) -> str:
        """A name for the options that change what a split counts to."""
        return digest_value({key: value for key, value in self.plain().items() if key not in SELECTING})

    def plain(self) -> dict[str, Any]:
        """The options as JSON values."""
        values: dict[str, Any] = json.loads(self.model_dump_json())
        return values


class IngestOptions(TextOptions):
    """`[ingest]`: the raw files and how they are read."""

    inputs: tuple[str, ...] = Field(min_length=1, description="Files, folders or fsspec addresses.")
    store: str | None = Field(None, description="Where the shards go; by default `shards` in the run's folder.")
    shard_bytes: int = Field(SHARD_BYTES, ge=1 << 16, description="Bytes of raw text a shard.")
    vocabulary: Policy = Field("frozen", description="Whether files added later add terms, after the last one's id.")

    @property
    def text(self) -> TextOptions:
        """The options that decide the content of shards."""
        return TextOptions(**{name: getattr(self, name) for name in TextOptions.model_fields})
