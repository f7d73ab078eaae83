"""From documents to tokens: lower case, accents, word characters and white space as in scikit-learn."""

import re
import unicodedata
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.text.array_files import string_buffers
from sparseoco.text.documents import Texts
from sparseoco.text.hashing import hash_strings
from sparseoco.text.kernels import preprocess as kernels
from sparseoco.text.kernels.tokenize import N_CODE_POINTS
from sparseoco.text.kernels.tokens import APOSTROPHES, DECIMAL_POINTS, HYPHENS, keep_joiners, select_tokens
from sparseoco.text.tokenizer import NUMBER, TokenizerOptions

_JOINERS = {"apostrophes": APOSTROPHES, "hyphens": HYPHENS, "decimal_points": DECIMAL_POINTS}
_WHITE_SPACE = re.compile(r"\s\s+")
_NO_LIMIT = np.iinfo(np.int64).max
Tokens = tuple[NDArray[np.uint8], NDArray[np.int64]]


def preprocess(texts: Texts, options: TokenizerOptions) -> Tokens:
    """The tokens of all documents, words separated by zeros, and the bounds of documents (see `tokenize_words`)."""
    return _characters(texts, options) if options.counts_characters else _words(texts, options)


def _characters(texts: Texts, options: TokenizerOptions) -> Tokens:
    """The documents with the white space of scikit-learn's analyzers, each followed by a zero."""
    normalized = []
    for d in range(texts.starts.size):
        text = _normalize(texts, d, options)
        if options.analyzer == "char":
            text = _WHITE_SPACE.sub(" ", text)
        else:
            words = text.split()
            text = f" {' '.join(words)} " if words else ""
        normalized.append(text.encode() + b"\0")
    bounds = np.cumsum([0, *map(len, normalized)], dtype=np.int64)
    return np.frombuffer(b"".join([*normalized, bytes(kernels.SLACK)]), np.uint8), bounds


def _words(texts: Texts, options: TokenizerOptions) -> Tokens:
    """The words. The kernel lower-cases ASCII and Latin letters.

    Documents with other letters go through `str.lower`, whose result can depend on neighbouring letters (final sigma)
    and be longer than its source (İ).
    """
    lowercase, pattern = options.lowercase, options.pattern
    latin = _latin_table(lowercase)
    kinds = kernels.classify(texts.data, texts.starts, texts.stops, latin)
    if options.strip_accents is not None:
        kinds[kinds == kernels.LATIN] = kernels.OTHER
    others = [_normalize(texts, d, options).encode() for d in np.flatnonzero(kinds == kernels.OTHER).tolist()]
    offsets = np.cumsum([0] + [len(text) for text in others], dtype=np.int64)
    other = np.frombuffer(b"".join(others), np.uint8)
    # Building the table takes a tenth of a second: only for text in other scripts.
    word_points: Any = _word_table() if others else np.zeros(1, np.bool_)
    source = texts.data, texts.starts, texts.stops, kinds
    clean, bounds = kernels.preprocess(*source, latin, other, offsets, lowercase, word_points)
    digits = _digit_table() if pattern.folds_numbers else np.zeros(1, np.bool_)
    if pattern.joiners != "none":
        keep_joiners(*source, other, offsets, _JOINERS[pattern.joiners], digits, clean, bounds)
    if options.stop_words or options.max_token_length is not None or pattern.folds_numbers:
        select_tokens(
            clean, pattern.shortest, options.max_token_length or _NO_LIMIT, ord(NUMBER) if pattern.folds_numbers else 0,
            digits, *_stop_word_table(options.stop_list),
        )  # fmt: skip
    return clean, bounds


def _normalize(texts: Texts, d: int, options: TokenizerOptions) -> str:
    """A document in lower case and without accents, as the options say."""
    text = texts.data[texts.starts[d] : texts.stops[d]].tobytes().decode()
    text = text.lower() if options.lowercase else text
    if options.strip_accents is None or text.isascii():
        return text
    text = unicodedata.normalize("NFKD", text)
    if options.strip_accents == "ascii":
        return text.encode("ascii", "ignore").decode()
    return "".join(character for character in text if not unicodedata.combining(character))


@cache
def _latin_table(lowercase: bool) -> NDArray[np.uint16]:
    """(0x250,) uint16: replacements of letters, 0 for other characters, IRREGULAR if `str.lower` changes the length."""
    table = np.zeros(kernels.LATIN_END, np.uint16)
    for point in range(0x80, kernels.LATIN_END):
        lowered = chr(point).lower() if lowercase else chr(point)
        if len(lowered) > 1 or len(lowered.encode()) != 2:
            table[point] = kernels.IRREGULAR
        elif chr(point).isalnum():
            table[point] = ord(lowered)
    return table


@cache
def _word_table() -> NDArray[np.bool_]:
    """(0x110000,) bool: whether `\\w` matches the code point, which is isalnum() or the underscore in Python."""
    table = np.fromiter((chr(point).isalnum() for point in range(N_CODE_POINTS)), np.bool_, N_CODE_POINTS)
    table[ord("_")] = True
    return table


@cache
def _digit_table() -> NDArray[np.bool_]:
    """(0x110000,) bool: whether `\\d` matches the code point."""
    return np.fromiter((chr(point).isdecimal() for point in range(N_CODE_POINTS)), np.bool_, N_CODE_POINTS)


@lru_cache(maxsize=8)
def _stop_word_table(words: tuple[str, ...]) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.int64]]:
    """A hash table of stop words for `select_tokens`, with their bytes and offsets."""
    strings = pa.array(words, pa.string())
    table = np.full(1 << (2 * len(words)).bit_length() if words else 1, -1, np.int32)
    for word, hashed in enumerate(hash_strings(strings, 0, 63).tolist()):
        slot = hashed % table.size
        while table[slot] >= 0:
            slot = (slot + 1) % table.size
        table[slot] = word
    return table, *string_buffers(strings)
