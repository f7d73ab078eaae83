"""Margins of texts with hashed features have the same bits as those of their rows of counts."""

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparseoco.store.terms import TermWeights
from sparseoco.store.weighting import Weighting
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Features, count_texts
from sparseoco.training.models import ModelFeatures

LONG = "incomprehensibilities"  # two of them have more than the 32 bytes that XXH64 reads at once
known = st.sampled_from(["ab", "abc", "b", "été", LONG, LONG[:16], "日本", "日"])
words = st.one_of(known, st.text("abé ", max_size=6))
texts = st.lists(st.lists(words, max_size=40).map(" ".join), min_size=1, max_size=5)
tokenizers = st.fixed_dictionaries(
    {
        "ngram_range": st.sampled_from([(1, 1), (1, 2), (2, 2), (2, 4), (5, 6)]),
        "analyzer": st.sampled_from(["word", "char", "char_wb"]),
        "hash_bits": st.sampled_from([4, 5, 11, 22, 31, 32, 33, 48]),
    }
)
weightings = st.builds(
    Weighting, tf=st.sampled_from(["count", "binary", "log"]), idf=st.booleans(), norm=st.sampled_from(["none", "l2"])
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts, tokenizers, weightings, st.booleans(), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_hashed_margins(
    documents: list[str], tokenizer: dict[str, Any], weighting: Weighting, counts_others: bool, outputs: int, seed: int
) -> None:
    rng, options = np.random.default_rng(seed), TextOptions.of(tokenizer)
    bits = tokenizer["hash_bits"]
    none = np.empty(0, np.int64)
    hashes = count_texts(documents, Features.hashed(none, bits, counts_others=True), options)[1]
    chosen = rng.random(hashes.size) < rng.choice([0.0, 0.5, 1.0])
    ids = np.union1d(hashes[chosen], rng.integers(0, 1 << bits, rng.integers(0, 40))).astype(np.int64)
    features = ModelFeatures(
        Features.hashed(ids, bits, counts_others),
        TermWeights(weighting, rng.uniform(1, 9, ids.size + 1)),
        ids if counts_others else None,
        np.append(rng.integers(-1, 5, ids.size), -1).astype(np.int32),
        5,
        None,
    )
    weights = rng.normal(size=(5, outputs))
    expected = features.margins(*count_texts(documents, features.counted, options), weights)
    assert features.text_margins(documents, options, weights).tobytes() == expected.tobytes()
