"""Counts and vocabulary equal those of CountVectorizer for any text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Features, count_texts
from tests.support.count_vectorizer import counted, ingested, same
from tests.support.errors import raises_code

DIFFICULT = [
    "ΑΣ ΣΑΣ Σ ΑΣ. ΟΔΥΣΣΕΥΣ ὈΔΥΣΣΕΎΣ_ΑΣ ΑΣ̈ Α'Σ",  # final sigma, or not
    "İstanbul IŞIK ıİiI ǅ ŉ ß ẞ ﬁ ﬀ ŐŰ",  # lower-casing that lengthens
    "e\u0301te\u0301 n\u0303 \u0301\u0301\u0301 a\u0308b",  # combining marks are no word characters
    "a\u200db\u200dcd नमस्ते ক্ষ 👩\u200d👩\u200d👧 क्\u200dष",
    "٠١٢٣ 一二三 ௰௱ Ⅷⅷ ①② ½⅓ ²³ 1_000 __ _ ___a",
    "𝔘𝔫𝔦 𝟘𝟙 𠀀𠀁 𐐀𐐁 𞤀𞤁 \U0003ffff\U000e0001",  # astral planes, unassigned code points
    "\x00ab\x00cd\x1c\x85\u2028\u00a0ab\ufeffcd\uffff",
    "don't stop-me now!!! x y zz i.e. e.g. 3.14 a1 1a",
    "",
    "a é é. é, ñ  𠀀 ",  # single characters of one to four bytes
    "the the The THE the cat the Cat sat",
    "longer_than_eight longer_than_eighteen longer_t longer_th abcdefgh abcdefghi ABCDEFGH",
]

characters = st.one_of(
    st.sampled_from("ab AB1_ .,'\n\t\"\\ΣσςİIıßéÉ٣一\u0301\u200d\u00a0𝔘𠀀\x00"),
    st.characters(exclude_categories=["Cs"]),
)
texts = st.lists(st.text(characters, max_size=40), min_size=1, max_size=8)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ngram_range": (1, 2)},
        {"ngram_range": (2, 2)},
        {"ngram_range": (1, 4)},
        {"ngram_range": (3, 4)},
        {"lowercase": False, "ngram_range": (1, 2)},
        {"min_df": 2, "ngram_range": (1, 2)},
        {"min_df": 0.1, "max_df": 0.3},
        {"max_df": 2, "ngram_range": (1, 3)},
        {"max_features": 7},
        {"max_features": 20, "ngram_range": (1, 3)},
        {"max_features": 20, "ngram_range": (2, 3), "max_df": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("shard_bytes", [1024, 1 << 20])
def test_difficult_texts(tmp_path: Path, options: dict[str, Any], shard_bytes: int) -> None:
    documents = [*DIFFICULT, " ".join(DIFFICULT), DIFFICULT[0] * 30, "the " * 70_000]
    same(ingested(tmp_path, documents, shard_bytes=shard_bytes, **options), counted(documents, **options))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts, st.sampled_from([(1, 1), (1, 2), (2, 3), (1, 4), (4, 4)]), st.booleans())
def test_any_text(documents: list[str], ngrams: tuple[int, int], lowercase: bool) -> None:
    options: dict[str, Any] = {"ngram_range": ngrams, "lowercase": lowercase}
    try:
        matrix, terms = counted(documents, **options)
    except ValueError:
        reject()  # no token at all
    indptr, indices, counts = count_texts(documents, Features.named(terms), TextOptions.of(options))
    assert (indptr == matrix.indptr).all()
    assert (indices == matrix.indices).all()
    assert (counts == matrix.data).all()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    texts,
    st.sampled_from([(1, 1), (1, 2), (2, 3)]),
    st.one_of(st.integers(1, 3), st.floats(0, 0.6)),
    st.one_of(st.integers(2, 5), st.floats(0.5, 1)),
    st.one_of(st.none(), st.integers(1, 9)),
)
def test_any_selection(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[str],
    ngrams: tuple[int, int],
    min_df: float,
    max_df: float,
    max_features: int | None,
) -> None:
    options = {"ngram_range": ngrams, "min_df": min_df, "max_df": max_df, "max_features": max_features}
    folder = tmp_path_factory.mktemp("any")
    try:
        theirs = counted(documents, **options)
    except ValueError:
        with raises_code("empty-vocabulary"):
            ingested(folder, documents, **options)
    else:
        same(ingested(folder, documents, **options), theirs)


def test_every_code_point(tmp_path: Path) -> None:
    """Every code point, in a word, by itself twice, and after a sigma; a document for each block of 1,024."""
    points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000 and (p < 0x30000 or p >= 0x10FF00)]
    documents = [
        " ".join(f"x{chr(p)}y {chr(p)}{chr(p)} ΑΣ{chr(p)}Σ" for p in points[k : k + 1024])
        for k in range(0, len(points), 1024)
    ]
    same(ingested(tmp_path, documents, lowercase=True), counted(documents))


def test_extreme_sizes(tmp_path: Path) -> None:
    """A token of 5 MB, a million tokens in one document, tokens with a common prefix."""
    rng = np.random.default_rng(0)
    many = " ".join(map(str, rng.integers(10, 60_000, 1_000_000)))
    alike = " ".join("abcdefgh" * 5 + str(i) for i in range(20_000))
    documents = ["ab" * 2_500_000 + " short", many, alike, alike]
    same(ingested(tmp_path, documents), counted(documents))
