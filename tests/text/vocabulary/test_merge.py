"""The merge of sorted n-grams."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.text.vocabulary.merge import merge_ngrams

keys = st.sets(st.integers(0, 30)).map(lambda values: np.array(sorted(values), np.uint64))


@given(st.lists(keys, min_size=1, max_size=7), st.integers(1, 2**31))
def test_a_merge_is_the_sorted_union_with_sums(parts, total):
    totals = [np.full(part.size, total, np.int64) for part in parts]
    merged, (positions,) = merge_ngrams(
        [{"keys_1": part, "totals_1": own} for part, own in zip(parts, totals, strict=True)]
    )
    union, expected = np.unique(np.concatenate(parts), return_counts=True)
    np.testing.assert_array_equal(merged["keys_1"], union)
    np.testing.assert_array_equal(merged["totals_1"], expected * total)
    for part, own in zip(parts, positions, strict=True):
        np.testing.assert_array_equal(union[own], part)
