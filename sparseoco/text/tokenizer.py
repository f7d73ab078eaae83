"""How a text becomes terms: options with the names and the meaning of scikit-learn's CountVectorizer."""

from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from sparseoco.core.errors import SparseocoError
from sparseoco.core.option_models import OptionModel
from sparseoco.storage.commit import read_bytes
from sparseoco.storage.locations import Location, location, resolve_against

HASH_SEED = 0  # of hashed features

Analyzer = Literal["word", "char", "char_wb"]
Joiners = Literal["none", "apostrophes", "hyphens", "decimal_points"]
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
        Whether tokens that match `NUMBERS` as a whole become `NUMBER`.
    """

    regex: str
    shortest: int = 2
    joiners: Joiners = "none"
    folds_numbers: bool = False


JOINERS = {"apostrophes": "'’", "hyphens": "-‐‑", "decimal_points": ".,"}
"""The characters that join; decimal points join digits, the others any two characters of a token."""
TOKEN_PATTERNS = {
    "words": TokenPattern(r"(?u)\b\w\w+\b"),
    "short_words": TokenPattern(r"(?u)\b\w+\b", shortest=1),
    "apostrophes": TokenPattern(rf"(?u)\b\w(?:\w|[{JOINERS['apostrophes']}](?=\w))+", joiners="apostrophes"),
    "hyphens": TokenPattern(rf"(?u)\b\w(?:\w|[{JOINERS['hyphens']}](?=\w))+", joiners="hyphens"),
    "numbers": TokenPattern(r"(?u)\b\w(?:\w|(?<=\d)[.,](?=\d))+|\b\d", joiners="decimal_points", folds_numbers=True),
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
