"""Options of reading text: how it becomes terms, as in scikit-learn's CountVectorizer, and the fields of documents."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.option_models import OptionModel, validate
from sparseoco.storage.commit import digest_value, read_bytes
from sparseoco.storage.locations import Location, location, resolve_against
from sparseoco.store.manifest import Column, FieldEntry
from sparseoco.text.formats import UTF8, WITH_FIELDS, Format, codec_name

# ----------------------------------------------------------------------------------------------------------------------
# How a text becomes terms: options with the names and the meaning of scikit-learn's CountVectorizer.


HASH_SEED = 0  # of hashed features

Analyzer = Literal["word", "char", "char_wb"]
ENGLISH = "english"
NUMBER = "#"  # the token of every number, with numbers folded
LONGEST_NGRAM = 100  # of an n-gram


class TokenPattern(NamedTuple):
    """What a token is.

    Parameters
    ----------
    regex : str
        Finds the tokens, as the `token_pattern` of CountVectorizer.
    shortest : int
        Characters of the shortest token.
    joiners : str
        Characters that belong to a token between two of its characters.
    folds_numbers : bool
        Whether tokens that match `NUMBERS` as a whole become `NUMBER`, and only digits are joined.
    """

    regex: str
    shortest: int = 2
    joiners: str = ""
    folds_numbers: bool = False


APOSTROPHES, HYPHENS, DECIMAL_POINTS = "'’", "-‐‑", ".,"
TOKEN_PATTERNS = {
    "words": TokenPattern(r"(?u)\b\w\w+\b"),
    "short_words": TokenPattern(r"(?u)\b\w+\b", shortest=1),
    "apostrophes": TokenPattern(rf"(?u)\b\w(?:\w|[{APOSTROPHES}](?=\w))+", joiners=APOSTROPHES),
    "hyphens": TokenPattern(rf"(?u)\b\w(?:\w|[{HYPHENS}](?=\w))+", joiners=HYPHENS),
    "numbers": TokenPattern(r"(?u)\b\w(?:\w|(?<=\d)[.,](?=\d))+|\b\d", joiners=DECIMAL_POINTS, folds_numbers=True),
}
NUMBERS = r"(?u)\d+(?:[.,]\d+)*"
PatternName = Literal["words", "short_words", "apostrophes", "hyphens", "numbers"]
_NAMES = {pattern.regex: name for name, pattern in TOKEN_PATTERNS.items()}


class Naming(NamedTuple):
    """How tokens are joined to the names of terms.

    Parameters
    ----------
    characters : bool
        Whether tokens are characters, which join without spaces.
    namespaces : tuple of (str, bool), or None
        Of text fields: the beginning of their terms, such as ``title:``, which belongs to the first token, and whether
        their tokens are characters. Every other term is one token. None without fields.
    """

    characters: bool = False
    namespaces: tuple[tuple[str, bool], ...] | None = None


WORDS = Naming()


class TokenizerOptions(OptionModel):
    """Options of the tokenizer, named as in scikit-learn's CountVectorizer.

    A list of stop words is kept in full, whether it was given as a list, as a file or by name: what was counted with
    it can be counted again anywhere.
    """

    analyzer: Analyzer = Field(
        "word", description="Count n-grams of words, of characters (char), or of characters within words (char_wb)."
    )
    ngram_range: tuple[int, int] = Field(
        (1, 1), description="Smallest and largest n of the n-grams, in tokens.", examples=[[1, 2]]
    )
    lowercase: bool = Field(True, description="Convert the text to lower case before tokenizing.")
    strip_accents: Literal["ascii", "unicode"] | None = Field(
        None,
        description="Remove accents, after converting to lower case: unicode from any character, ascii all characters "
        "without an ASCII equivalent, too.",
    )
    token_pattern: PatternName = Field(
        "words",
        description="What a token is: words of two characters and more, short_words of one and more, words with inner "
        "apostrophes (don't) or hyphens (well-known), or numbers: words, and each number (3, 1,000.50) as the token #.",
    )
    stop_words: tuple[str, ...] | str | None = Field(
        None,
        description="Tokens to remove before n-grams are made: a list, a file with one on each line, or english for "
        "scikit-learn's list.",
        examples=["english"],
    )
    max_token_length: int | None = Field(
        None,
        ge=1,
        lt=1 << 31,
        description="Remove tokens of more characters than this before n-grams are made; # is no such token.",
        examples=[40],
    )

    @field_validator("token_pattern", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return _NAMES.get(value, value) if isinstance(value, str) else value

    @field_validator("stop_words", mode="after")
    @classmethod
    def _listed(cls, value: tuple[str, ...] | str | None, info: ValidationInfo) -> tuple[str, ...] | None:
        words = _read_stop_words(value, info.context) if isinstance(value, str) else value
        return tuple(sorted(set(words))) if words else None

    @model_validator(mode="after")
    def _tokenizer_consistent(self) -> Self:
        low, high = self.ngram_range
        if not 1 <= low <= high <= LONGEST_NGRAM:
            raise ValueError(f"ngram_range must be two numbers, 1 ≤ first ≤ second ≤ {LONGEST_NGRAM}")
        if self.counts_characters:
            for key in ("token_pattern", "stop_words", "max_token_length"):
                if getattr(self, key) != TokenizerOptions.model_fields[key].default:
                    raise ValueError(f'{key} requires analyzer = "word": n-grams of characters have no words')
        return self

    @property
    def pattern(self) -> TokenPattern:
        """What a token is."""
        return TOKEN_PATTERNS[self.token_pattern]

    @property
    def stop_list(self) -> tuple[str, ...]:
        """The stop words."""
        return self.stop_words if isinstance(self.stop_words, tuple) else ()

    @property
    def counts_characters(self) -> bool:
        """Whether tokens are characters, which join without spaces."""
        return self.analyzer != "word"

    @property
    def counted_from(self) -> int:
        """The least number of tokens of a term. With char_wb a word shorter than the n-grams is counted as a whole."""
        low = self.ngram_range[0]
        return min(low, 3) if self.analyzer == "char_wb" else low


def _read_stop_words(name: str, folder: Location | None) -> list[str]:
    """The words of a named list, or the lines that are not blank of a file, whose path is relative to `folder`.

    Raises `ValueError` for a file that cannot be read.
    """
    if name == ENGLISH:
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return list(ENGLISH_STOP_WORDS)
    try:
        text = read_bytes(location(name) if folder is None else resolve_against(folder, name)).decode("utf-8-sig")
    except (SparseocoError, UnicodeDecodeError):
        raise ValueError(
            f"{name} is neither {ENGLISH} nor a readable file in UTF-8: give one of these, or a list"
        ) from None
    return [word for line in text.splitlines() if (word := line.strip())]


# ----------------------------------------------------------------------------------------------------------------------
# Fields of records: texts, categories and numbers, which become features of one store, each in its own namespace.


class _RecordField(OptionModel):
    field: str | None = Field(
        None,
        min_length=1,
        description="The field or column that is read; by default that of the same name. Several may read one, such as "
        "the words and the characters of a text.",
        examples=["text"],
    )


class TextField(_RecordField, TokenizerOptions):
    """A text: counts of n-grams, named ``title:good movie``; the options are those of `[ingest]` by default."""

    type: Literal["text"] = Field(description="The field is a text.")


class CategoryField(_RecordField):
    """A category: one feature for each value, named ``domain=kitchen``, which counts 1."""

    type: Literal["category"] = Field(description="The field is a category.")


class NumberField(_RecordField):
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


class VectorField(_RecordField):
    """A vector, such as an embedding: one feature for each of its numbers, ``embedding=0``, …, with its value."""

    type: Literal["vector"] = Field(description="The field is a list of numbers.")
    size: int = Field(ge=1, le=1_000_000, description="Numbers of each vector.", examples=[384])

    def feature_names(self, name: str) -> list[str]:
        """The features of the field of this name."""
        return [f"{name}={number}" for number in range(self.size)]


FieldOptions = Annotated[TextField | CategoryField | NumberField | VectorField, Field(discriminator="type")]
Fields = dict[str, FieldOptions]


def namespace(name: str) -> str:
    """The beginning of the terms of a text field."""
    return f"{name}:"


# ----------------------------------------------------------------------------------------------------------------------
# Options of ingest: how raw text is read, tokenized and counted, and which terms become features.


VocabularyPolicy = Literal["frozen", "extend"]
SHARD_BYTES = 8 << 20  # the hash tables of a split of this size fit the processor's caches
# Options that may differ from one ingest into a store to the next.
PER_INGEST = frozenset({"max_bad_rows", "duplicates"})
# Options that do not change the counts of a split.
AFTER_COUNTING = PER_INGEST | {"min_df", "max_df", "max_features", "hash_bits"}

# Options that describe particular files, not others of the same kind, with their defaults.
OF_FILES: dict[str, Any] = {"where": {}, "include": (), "exclude": (), "encoding": UTF8}


class StoreOptions(TokenizerOptions):
    """Options that decide the content of a store, named as in scikit-learn's CountVectorizer where possible.

    Immutable. Unknown keys are an error. Every field has its description in `model_fields`.

    Raises
    ------
    InputError
        From `of`, with the code "invalid-option" and the name of the key.
    """

    format: Format = Field(
        "auto", description="Format of the inputs; auto detects it from the file name and the first line."
    )
    text_field: str = Field("text", description="Field or column of the text.", examples=["body"])
    label_field: str = Field("label", description="Field or column of the label.", examples=["stars"])
    id_field: str = Field(
        "id",
        description="Field or column of the document id; documents without one are named by file and line.",
        examples=["review_id"],
    )
    fields: Fields = Field(
        {},
        description="Fields whose features are counted, by name, in place of text_field: texts, each with its own "
        "tokenizer, categories and numbers.",
        examples=[{"title": {"type": "text"}, "price": {"type": "number"}}],
    )
    weight_field: str | None = Field(
        None,
        description="Field or column of the sample weight of a document, at least 0; by default all are 1.",
        examples=["helpful"],
    )
    group_field: str | None = Field(
        None,
        description="Field or column of the group of a document, such as its author, for folds by group.",
        examples=["author"],
    )
    time_field: str | None = Field(
        None,
        description="Field or column of the time of a document, a number or an ISO 8601 date, for folds by time.",
        examples=["date"],
    )
    encoding: Annotated[str, AfterValidator(codec_name)] = Field(
        UTF8,
        description="Encoding of the files: a codec of Python, such as cp1252 or utf-16; auto detects that of each "
        "file with charset-normalizer.",
        examples=["cp1252"],
    )
    include: tuple[str, ...] = Field(
        (),
        description="Of folders, read only files that match one of these patterns, by path in the folder or by the "
        "name of the file or one of its folders: *.txt, spam, 2024/*.",
        examples=[["*.txt"]],
    )
    exclude: tuple[str, ...] = Field(
        (), description="Of folders, leave out files that match one of these patterns.", examples=[["drafts"]]
    )
    where: dict[str, str] = Field(
        {},
        description="Read only the documents whose fields have these values, compared as text: true is also True, "
        "and 1 also 1.0.",
        examples=[{"split": "train"}],
    )
    holdout: float = Field(
        0.0, ge=0, lt=1, description="Withhold this share of the documents, drawn by a digest of their ids, for a test."
    )
    header: bool = Field(
        True, description="The first record of CSV and TSV names the columns; without a header they are 1, 2, …"
    )
    labels: Literal["classes", "multi", "numbers"] = Field(
        "classes",
        description="A document has one class, any number of classes (a list, or text separated by commas), or a real "
        "number (a regression target).",
    )
    classes: tuple[str, ...] | None = Field(
        None,
        description="All classes that labels may name, including those of files ingested later; by default the "
        "classes of the first ingest.",
        examples=[["ham", "spam"]],
    )

    min_df: int | float = Field(
        default=1,
        union_mode="smart",
        description="Ignore terms in fewer documents than this number (2) or fraction (0.01).",
        examples=[5],
    )
    max_df: int | float = Field(
        default=1.0,
        union_mode="smart",
        description="Ignore terms in more documents than this number (1000) or fraction (0.5).",
        examples=[0.5],
    )
    max_features: int | None = Field(
        default=None,
        gt=0,
        description="Keep only this many of the most frequent terms, of equally frequent ones the shortest, then the "
        "first in alphabetical order; by default all.",
        examples=[100000],
    )
    hash_bits: int | None = Field(
        default=None,
        ge=1,
        le=48,
        description="Hash terms to 2^hash_bits features instead of building a vocabulary.",
        examples=[22],
    )

    duplicates: Literal["error", "first", "all"] = Field(
        "error", description="Documents with the same id: raise an error, keep the first, or keep all."
    )
    encoding_errors: Literal["error", "replace", "skip"] = Field(
        "error",
        description="Text that is not valid in its encoding: count the row as bad, replace the invalid bytes by "
        "U+FFFD, or skip the document.",
    )
    max_bad_rows: int = Field(
        default=0,
        ge=0,
        description="Quarantine up to this many malformed rows before the ingest fails.",
        examples=[100],
    )
    max_line_bytes: int = Field(
        default=64 << 20, gt=0, description="Longest accepted line or record, in bytes.", examples=[1048576]
    )

    @model_validator(mode="before")
    @classmethod
    def _complete_fields(cls, values: Any) -> Any:
        """Text fields have the options of the tokenizer where they set none."""
        if not isinstance(values, dict) or not isinstance(values.get("fields"), dict):
            return values
        tokenizer = {name: values.get(name, cls.model_fields[name].default) for name in TokenizerOptions.model_fields}
        fields = {
            name: {**tokenizer, **field} if isinstance(field, dict) and field.get("type") == "text" else field
            for name, field in values["fields"].items()
        }
        return values | {"fields": fields}

    @model_validator(mode="after")
    def _fields_consistent(self) -> Self:
        if not self.fields:
            return self
        for name, field in self.fields.items():
            if not name or ":" in name or "=" in name:  # features would be ambiguous
                raise ValueError(f"fields: the name {name!r} must have a character, and neither : nor =")
            if (field.field or name) == self.label_field:
                raise ValueError(f"fields: {name!r} is the label, which is no feature")
        if self.text_field != StoreOptions.model_fields["text_field"].default:
            raise ValueError("text_field cannot be set with fields: name the text in fields")
        if self.hash_bits is not None:
            raise ValueError("hash_bits cannot be combined with fields")
        if self.format not in ("auto", *WITH_FIELDS):
            raise ValueError(f"fields: documents of the format {self.format} have no fields")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for key in ("min_df", "max_df"):
            value = getattr(self, key)
            if isinstance(value, float) and not 0.0 <= value <= 1.0:
                raise ValueError(f"{key} must be a fraction from 0.0 to 1.0, or a whole number of documents")
            if isinstance(value, int) and value < 1:
                raise ValueError(f"{key} must be at least 1 document")
        if self.hash_bits is not None and (self.min_df not in (1, 0.0) or self.max_df != 1.0 or self.max_features):
            raise ValueError("hash_bits keeps every term: it cannot be combined with min_df, max_df or max_features")
        if self.classes is not None and self.labels == "numbers":
            raise ValueError('classes requires labels = "classes" or "multi"')
        return self

    @field_validator("classes")
    @classmethod
    def _sorted(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        if len(set(value)) < max(2, len(value)) or "" in value:
            raise ValueError("classes must be two or more distinct names")
        return tuple(sorted(value))

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Options from plain values; an error is an `InputError` that names the key."""
        return validate(cls, values)

    def has_class(self, name: str) -> bool:
        """Whether a label is one of the allowed classes; without `classes` every label is."""
        if self.classes is None:
            return True
        position = bisect_left(self.classes, name)
        return position < len(self.classes) and self.classes[position] == name

    def with_classes(self, classes: Iterable[str]) -> Self:
        """These options with no other classes allowed."""
        return self.model_copy(update={"classes": tuple(sorted(classes))})

    @property
    def columns(self) -> dict[Column, str]:
        """The fields of the optional columns of shards."""
        fields: dict[Column, str | None] = {
            "weight": self.weight_field,
            "group": self.group_field,
            "time": self.time_field,
        }
        return {name: field for name, field in fields.items() if field is not None}

    @property
    def text_fields(self) -> dict[str, TextField]:
        """The fields that are texts."""
        return {name: field for name, field in self.fields.items() if isinstance(field, TextField)}

    @property
    def real_features(self) -> list[str]:
        """The features that have values instead of counts."""
        names = []
        for name, field in self.fields.items():
            if isinstance(field, VectorField):
                names += field.feature_names(name)
            elif isinstance(field, NumberField) and field.is_real:
                names.append(name)
        return names

    @property
    def naming(self) -> Naming:
        """The names of terms."""
        if not self.fields:
            return Naming(self.counts_characters)
        texts = self.text_fields.items()
        return Naming(False, tuple((namespace(name), field.counts_characters) for name, field in texts))

    @property
    def counted_from(self) -> int:
        """The least number of tokens of a term."""
        return 1 if self.fields else super().counted_from

    def with_cuts(self, entries: Iterable[FieldEntry]) -> Self:
        """These options with the bins that a store has chosen."""
        fields = dict(self.fields)
        for entry in entries:
            if entry.name in fields and entry.cuts is not None:
                fields[entry.name] = fields[entry.name].model_copy(update={"cuts": entry.cuts})
        return self.model_copy(update={"fields": fields})

    def without_columns(self) -> Self:
        """These options without weights, groups and times, which predictions do not need."""
        return self.model_copy(update={"weight_field": None, "group_field": None, "time_field": None})

    @property
    def digest(self) -> str:
        """Identifies all options: every ingest into a store has the same."""
        return digest_value(self.plain())

    @property
    def counting_digest(self) -> str:
        """Identifies the options that change the counts of a split."""
        return digest_value({key: value for key, value in self.plain().items() if key not in AFTER_COUNTING})

    def plain(self) -> dict[str, Any]:
        """The options as JSON values."""
        return self.model_dump(mode="json")


class TextOptions(StoreOptions):
    """Options of reading and counting text: those of a store, and those of reading text for a model.

    Examples
    --------
    >>> TextOptions(ngram_range=(1, 2), min_df=2).lowercase
    True
    """

    carried: tuple[str, ...] = Field((), description="Fields or columns that are copied to `Documents.carried`.")
    unlabelled: bool = Field(False, description="Folders with one document per file have no labels.")

    @field_validator("carried")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("a column is named twice")
        return value

    @property
    def record_fields(self) -> dict[str, str]:
        """The fields of records that are read for each of `fields`."""
        return {name: field.field or name for name, field in self.fields.items()}

    def plain(self) -> dict[str, Any]:
        """The options as JSON values; `carried` and `unlabelled`, which no store has, only if they are set."""
        return self.model_dump(mode="json", exclude={n for n in ("carried", "unlabelled") if not getattr(self, n)})


def shard_size(given: int | None) -> int:
    """Bytes of raw text per shard. Raises `InputError` if they are not between 1 KiB and 1 GiB."""
    if given is not None and not 1 << 10 <= given <= 1 << 30:
        raise InputError("shard_bytes must lie between 1 KiB and 1 GiB.", code="invalid-option")
    return given or SHARD_BYTES


class IngestOptions(StoreOptions):
    """Table `[ingest]` of a run file: the raw files, the store, and how text becomes counts."""

    inputs: tuple[str, ...] = Field(
        min_length=1,
        description="Input files, folders or remote URIs (s3://, gs://, …).",
        examples=[["reviews.jsonl.gz"]],
    )
    store: str | None = Field(
        None, description="Folder of the shards; by default `shards` in the run folder.", examples=["shards"]
    )
    shard_bytes: int | None = Field(
        None,
        ge=1,
        description="Raw text per shard, in bytes; by default 8 MiB, or those of the first ingest.",
        examples=[16777216],
    )
    ngram_range: tuple[int, int] = Field(
        (1, 2), description=StoreOptions.model_fields["ngram_range"].description, examples=[[1, 3]]
    )
    min_df: int | float = Field(
        default=2,
        union_mode="smart",
        description="Ignore terms in fewer documents than this number (2) or fraction (0.01); with hash_bits, none.",
        examples=[5],
    )
    vocabulary: VocabularyPolicy = Field(
        "frozen",
        description="New terms in files ingested later: dropped (frozen), or appended after the last feature id "
        "(extend).",
    )

    @model_validator(mode="before")
    @classmethod
    def _all_hashed_terms(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("hash_bits") is not None:
            return {"min_df": 1} | values
        return values

    @model_validator(mode="after")
    def _used(self) -> Self:
        if self.vocabulary == "extend" and self.hash_bits is not None:
            raise ValueError("vocabulary: hashed features have none, and all terms are counted")
        for name in TokenizerOptions.model_fields if self.fields and not self.text_fields else ():
            if getattr(self, name) != type(self).model_fields[name].get_default():
                raise ValueError(f"{name} is of texts, and none of the fields is one")
        return self

    @property
    def text(self) -> TextOptions:
        """The options of the text alone; those that are set here are set there."""
        values = {name: getattr(self, name) for name in StoreOptions.model_fields}
        defaults = {name: info.get_default() for name, info in type(self).model_fields.items()}
        changed = {name for name in self.model_fields_set & values.keys() if values[name] != defaults[name]}
        return TextOptions.model_construct(_fields_set=changed, **values)
