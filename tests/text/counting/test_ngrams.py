"""Tokens and n-grams by words of 64 bits equal those of Python, whatever the bytes, and however few bits there are."""

import itertools
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.text import counting as ngrams
from sparseoco.text.counting import alphabetical_order, count_text
from sparseoco.text.documents import Texts
from sparseoco.text.encoding import encode_rows
from sparseoco.text.kernels.preprocess import sort_rows
from sparseoco.text.options import TextOptions

# Lengths around 8, 16 and 64 bytes, equal beginnings, single characters of one to four bytes, and separators.
PIECES = ["a", "b", "é", "が", "𠀀", "_", " ", "  ", ".", "\x00", "\n", "abcdefg", "abcdefgh", "abcdefghi", "x" * 15]
PIECES += ["x" * 16, "x" * 17, "x" * 16 + "y", "é" * 32, "z" * 63, "z" * 64, "z" * 65, " " * 63, "-" * 130]
TEXTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), max_size=6)


def _expected(texts: list[str], low: int, high: int, pattern: str) -> list[Counter[str]]:
    """The n-grams of each text as in CountVectorizer."""
    tokens = [re.findall(pattern, text.lower()) for text in texts]
    return [
        Counter(" ".join(words[i : i + n]) for n in range(low, high + 1) for i in range(len(words) - n + 1))
        for words in tokens
    ]


def _names(arrays: dict[str, np.ndarray], levels: int) -> list[str]:
    """The name of each n-gram, by its number."""
    data, offsets = arrays["token_bytes"].tobytes(), arrays["token_offsets"].tolist()
    tokens = [data[a:b].decode() for a, b in itertools.pairwise(offsets)]
    names = [tokens]
    for n in range(2, levels + 1):
        names.append([f"{names[-1][key >> 32]} {tokens[key & 0xFFFFFFFF]}" for key in arrays[f"keys_{n}"].tolist()])
    for n, level in enumerate(names, 1):
        assert level == sorted(level)
        assert arrays[f"nodes_{n}"].size == len(level)
    return [name for level in names for name in level]


@pytest.mark.parametrize("bits", [64, 0])  # 0: many ranges of prefixes
@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, low=st.integers(1, 3), extra=st.integers(0, 2), short=st.booleans())
def test_count_text(bits: int, texts: list[str], low: int, extra: int, short: bool) -> None:
    options = TextOptions(ngram_range=(low, low + extra), token_pattern="short_words" if short else "words")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "_WORD_BITS", max(bits, _least_bits(texts, options)))
        arrays = count_text(Texts.of(pa.array(texts, pa.string())), options)
    expected = _expected(texts, low, low + extra, r"(?u)\b\w+\b" if short else r"(?u)\b\w\w+\b")
    names = _names(arrays, low + extra)
    indptr, entries, counts = arrays["indptr"].tolist(), arrays["ngrams"].tolist(), arrays["counts"].tolist()
    rows = [
        {names[g]: c for g, c in zip(entries[a:b], counts[a:b], strict=True)} for a, b in itertools.pairwise(indptr)
    ]
    assert rows == expected
    totals = Counter(name for row in expected for name in row.elements())
    documents = Counter(name for row in expected for name in row)
    for n in range(low, low + extra + 1):
        level = [names[g] for g in arrays[f"nodes_{n}"].tolist()]
        assert arrays[f"totals_{n}"].tolist() == [totals[name] for name in level]
        assert arrays[f"documents_{n}"].tolist() == [documents[name] for name in level]


def _least_bits(texts: list[str], options: TextOptions) -> int:
    """The bits of a token and a position, which leave none for prefixes: each is a range."""
    unigrams = count_text(Texts.of(pa.array(texts, pa.string())), options.model_copy(update={"ngram_range": (1, 1)}))
    totals = unigrams["totals_1"]
    return max(1, totals.size.bit_length()) + int(totals.sum()).bit_length()


@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb"])
@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, low=st.integers(1, 4), extra=st.integers(0, 4), spare=st.integers(0, 12))
def test_counts_do_not_depend_on_the_tokens_that_are_sorted_at_once(
    analyzer: str, texts: list[str], low: int, extra: int, spare: int
) -> None:
    options = TextOptions(analyzer=analyzer, ngram_range=(low, low + extra))
    given = Texts.of(pa.array(texts, pa.string()))
    whole = count_text(given, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "_WORD_BITS", _least_bits(texts, options) + spare)
        parts = count_text(given, options)
    assert whole.keys() == parts.keys()
    for name in whole:
        np.testing.assert_array_equal(whole[name], parts[name], strict=True)


@settings(max_examples=60, deadline=None)
@given(strings=st.sets(st.text(alphabet="ab\x00é𠀀", max_size=12)))
def test_alphabetical_order(strings: set[str]) -> None:
    given = list(strings)
    order = alphabetical_order(pa.array(given, pa.string())).tolist()
    assert [given[k] for k in order] == sorted(given)


@pytest.mark.parametrize("n_features", [2, 2**9, 2**31, 2**40, 2**48])
@settings(max_examples=20, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_sort_rows(n_features: int, data: st.DataObject, seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 5, 32, 33, 300]), max_size=6))
    indptr = np.cumsum([0, *sizes])
    features = random.integers(-1, n_features, 50, dtype=np.int64)
    ngrams, counts = random.integers(0, 50, indptr[-1], dtype=np.int32), random.random(indptr[-1])
    ends, indices, values = sort_rows(indptr, ngrams, counts, features, n_features)
    for d in range(len(sizes)):
        row: dict[int, float] = {}
        for k in range(indptr[d], indptr[d + 1]):
            feature = int(features[ngrams[k]])
            if feature >= 0:
                row[feature] = row[feature] + counts[k] if feature in row else counts[k]
        assert indices[ends[d] : ends[d + 1]].tolist() == sorted(row)
        assert values[ends[d] : ends[d + 1]].tolist() == [row[feature] for feature in sorted(row)]


def test_real_counts_of_one_hash_are_summed_alphabetically() -> None:
    options = TextOptions(hash_bits=1)
    arrays = {"indptr": np.array([0, 3]), "ngrams": np.array([2, 0, 1], np.int32), "counts": np.array([1e16, 1.0, 1.0])}
    _, indices, values = encode_rows(arrays, np.ones(3, np.int64), 2, options)
    assert indices.tolist() == [1]
    assert values.tolist() == [1.0 + 1.0 + 1e16]
