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

    format: Format = Field(
        "auto", description="Format of the inputs; auto detects it from the file name and the first line."
    )
    text_field: str = Field("text", description="Field or column of the text.")
    label_field: str = Field("label", description="Field or column of the label.")
    id_field: str = Field(
        "id", description="Field or column of the document id; documents without one are named by file and line."
    )
    where: dict[str, str] = Field({}, description="Read only the documents whose fields have these values.")
    header: bool = Field(
        True, description="The first record of CSV and TSV names the columns; without a header they are 1, 2, …"
    )
    labels: Literal["classes", "numbers"] = Field(
        "classes", description="Labels are class names, or real numbers (regression targets)."
    )
    classes: tuple[str, ...] | None = Field(
        None,
        description="All classes that labels may name, including those of files ingested later; by default the "
        "classes of the first ingest.",
    )
    label_list: Literal["error", "first", "skip", "join"] = Field(
        "error",
        description="What to do with a label that is a list: raise an error, take the first, skip documents with "
        "several labels, or join the labels to one class name.",
    )
    index_base: Literal["auto", 0, 1] = Field(
        "auto", description="First feature index of svmlight files; 1 rejects rows with the index 0."
    )

    ngram_range: tuple[int, int] = Field((1, 1), description="Smallest and largest n of the n-grams, in words.")
    lowercase: bool = Field(True, description="Convert the text to lower case before tokenizing.")
    binary: bool = Field(False, description="Count each term at most once per document.")
    min_df: int | float = Field(
        default=1,
        union_mode="smart",
        description="Ignore terms in fewer documents than this number (2) or fraction (0.01).",
    )
    max_df: int | float = Field(
        default=1.0,
        union_mode="smart",
        description="Ignore terms in more documents than this number (1000) or fraction (0.5).",
    )
    max_features: int | None = Field(
        default=None, gt=0, description="Keep only this many of the most frequent terms; by default all."
    )
    hash_bits: int | None = Field(
        default=None,
        ge=1,
        le=48,
        description="Hash terms to 2^hash_bits features instead of building a vocabulary.",
    )
    hash_seed: int = Field(default=0, ge=0, lt=2**64, description="Seed of the hash function.")

    duplicates: Literal["error", "first", "all"] = Field(
        "error", description="Documents with the same id: raise an error, keep the first, or keep all."
    )
    encoding_errors: Literal["error", "replace", "skip"] = Field(
        "error",
        description="Text that is not valid UTF-8: count the row as bad, replace the invalid bytes by U+FFFD, or skip "
        "the document.",
    )
    max_bad_rows: int = Field(
        default=0, ge=0, description="Quarantine up to this many malformed rows before the ingest fails."
    )
    max_line_bytes: int = Field(default=64 << 20, gt=0, description="Longest accepted line or record, in bytes.")
    max_inflation: int = Field(
        default=1000, gt=1, description="Largest accepted ratio of decompressed to compressed bytes."
    )

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

    inputs: tuple[str, ...] = Field(min_length=1, description="Input files, folders or remote URIs (s3://, gs://, …).")
    store: str | None = Field(None, description="Folder of the shards; by default `shards` in the run folder.")
    shard_bytes: int = Field(SHARD_BYTES, ge=1 << 16, description="Raw text per shard, in bytes.")
    vocabulary: Policy = Field(
        "frozen",
        description="New terms in files ingested later: dropped (frozen), or appended after the last feature id "
        "(extend).",
    )

    @property
    def text(self) -> TextOptions:
        """The options that decide the content of shards."""
        return TextOptions(**{name: getattr(self, name) for name in TextOptions.model_fields})
