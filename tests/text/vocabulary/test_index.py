"""The features of any vocabulary are found in any texts, as CountVectorizer with that vocabulary finds them.

Their weighted sums have the same bits as those of the rows of counts.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparseoco.kernels.order import weighted_sums
from sparseoco.store.terms import TermWeights
from sparseoco.store.weighting import Weighting
from sparseoco.text.documents import Texts
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary.index import NgramIndex, Vocabulary
from tests.support.count_vectorizer import vectorizer

LONG = "incomprehensibilities"  # longer than the 16 bytes that are compared first
words = st.one_of(
    st.sampled_from(["ab", "abc", "b", "été", LONG, LONG + "x", LONG[:16], "日本", "日"]), st.text("abé ", max_size=6)
)
texts = st.lists(st.lists(words, max_size=12).map(" ".join), min_size=1, max_size=6)
NGRAM_RANGES = st.sampled_from([(1, 1), (1, 2), (2, 2), (2, 4), (5, 6)])
tokenizers = st.one_of(
    st.fixed_dictionaries(
        {"ngram_range": NGRAM_RANGES, "token_pattern": st.sampled_from(["words", "short_words", "hyphens"])}
    ),
    st.fixed_dictionaries({"ngram_range": NGRAM_RANGES, "analyzer": st.sampled_from(["char", "char_wb"])}),
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts, texts, tokenizers, st.data())
def test_any_vocabulary(known: list[str], seen: list[str], options: dict[str, Any], data: st.DataObject) -> None:
    try:
        terms = vectorizer(**options).fit(known).get_feature_names_out().tolist()
    except ValueError:  # no token at all
        return
    chosen = data.draw(st.permutations(terms))[: data.draw(st.integers(1, len(terms)))]
    expected = vectorizer(**options).set_params(vocabulary=chosen).transform(seen)
    expected.sort_indices()
    ours = TextOptions.of(options)
    index = NgramIndex(Vocabulary.from_terms(chosen, ours.naming))
    found = index.count(Texts.of(pa.array(seen)), ours)
    for a, b in zip(found, (expected.indptr, expected.indices, expected.data), strict=True):
        np.testing.assert_array_equal(a, b)


weightings = st.builds(
    Weighting, tf=st.sampled_from(["count", "binary", "log"]), idf=st.booleans(), norm=st.sampled_from(["none", "l2"])
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts, texts, tokenizers, weightings, st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_weighted_sums(
    known: list[str], seen: list[str], options: dict[str, Any], weighting: Weighting, outputs: int, seed: int
) -> None:
    try:
        terms = vectorizer(**options).fit(known).get_feature_names_out().tolist()
    except ValueError:  # no token at all
        return
    rng, ours, documents = np.random.default_rng(seed), TextOptions.of(options), Texts.of(pa.array(seen))
    index = NgramIndex(Vocabulary.from_terms(rng.permutation(terms).tolist(), ours.naming))
    places = rng.integers(-1, 5, len(terms)).astype(np.int32)
    weights, values = rng.normal(size=(5, outputs)), TermWeights(weighting, rng.uniform(1, 9, len(terms)))
    found = index.weighted_sums(documents, ours, values.rows, places, weights)
    indptr, indices, counts = index.count(documents, ours)
    expected = weighted_sums(indptr, indices, values.values(indptr, indices, counts), places, weights)
    assert found.tobytes() == expected.tobytes()


def test_many_features_are_sorted_by_radix() -> None:
    """More features than a digit has values, rows longer than those sorted by insertion."""
    rng = np.random.default_rng(0)
    terms = [f"w{k}" for k in rng.permutation(5000)]
    documents = [" ".join(f"w{k}" for k in rng.integers(0, 6000, size)) for size in (0, 1, 47, 49, 3000)]
    options = TextOptions()
    indptr, indices, counts = NgramIndex(Vocabulary.from_terms(terms, options.naming)).count(
        Texts.of(pa.array(documents)), options
    )
    expected = vectorizer(ngram_range=(1, 1)).set_params(vocabulary=terms).transform(documents)
    expected.sort_indices()
    np.testing.assert_array_equal(indptr, expected.indptr)
    np.testing.assert_array_equal(indices, expected.indices)
    np.testing.assert_array_equal(counts, expected.data)
