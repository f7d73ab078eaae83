"""From the n-grams of a split to the features of the store, with sorted rows."""

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import ONE, ZERO
from sparseoco.text.kernels.keys import HALF, LOW

SHORT = 32  # rows up to this size are sorted by insertion
DIGIT, BUCKETS = np.uint64(10), 1 << 10  # the most bits of a digit, and its buckets


@register_jitable
def insertion_sort(words, size):
    """Sort the first `size` words in place."""
    for k in range(1, size):
        word = words[k]
        at = k
        while at > 0 and words[at - 1] > word:
            words[at] = words[at - 1]
            at -= 1
        words[at] = word


@register_jitable
def radix_sort(words, other, size, first, bits, starts):
    """Sort `size` words by their `bits` bits from bit `first` on, stably; returns (sorted, other) of the buffers.

    starts   uint32, `BUCKETS`
    """
    passes = max(ONE, (bits + DIGIT - ONE) // DIGIT)
    digit = (bits + passes - ONE) // passes
    buckets = ONE << digit
    last = buckets - ONE
    shift = first
    while shift < first + bits:
        starts[:buckets] = 0
        for k in range(size):
            starts[(words[k] >> shift) & last] += np.uint32(1)
        start = np.uint32(0)
        for bucket in range(buckets):
            start, starts[bucket] = start + starts[bucket], start
        for k in range(size):
            bucket = (words[k] >> shift) & last
            at = starts[bucket]
            other[np.uint64(at)] = words[k]
            starts[bucket] = at + np.uint32(1)
        words, other = other, words
        shift += digit
    return words, other


@kernel
def sort_rows(indptr, ngrams, counts, features, n_features):
    """CSR in which entry (d, ngram) has become (d, features[ngram]); those with the feature −1 are dropped.

    Features increase in each row. Counts of equal features are summed in the order of the entries.

    features   (n_ngrams,) int32 or int64, less than n_features
    Returns (indptr int64, indices like features, counts like counts).
    """
    rows = indptr.size - 1
    longest = 0
    for d in range(rows):
        longest = max(longest, indptr[d + 1] - indptr[d])
    words, other = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    row_features, row_counts = np.empty(longest, features.dtype), np.empty(longest, counts.dtype)
    starts = np.empty(BUCKETS, np.uint32)
    bits = ZERO
    while n_features > 1 << np.int64(bits):
        bits += np.uint64(1)

    row_ends = np.zeros(rows + 1, np.int64)
    indices, values = np.empty(ngrams.size, features.dtype), np.empty(ngrams.size, counts.dtype)
    n = 0
    for d in range(rows):
        found = ZERO
        for k in range(indptr[d], indptr[d + 1]):
            feature = features[np.uint64(ngrams[k])]
            row_features[found], row_counts[found] = feature, counts[k]
            words[found] = (np.uint64(feature) << HALF) | found
            found += np.uint64(feature >= 0)
        size = np.int64(found)
        if size <= SHORT and bits <= HALF:
            insertion_sort(words, size)
        else:
            words, other = radix_sort(words, other, size, HALF, min(bits, HALF), starts)
            if bits > HALF:  # then by the upper half
                for k in range(size):
                    entry = words[k] & LOW
                    words[k] = (np.uint64(row_features[entry]) >> HALF << HALF) | entry
                words, other = radix_sort(words, other, size, HALF, bits - HALF, starts)
        begin = n
        for k in range(size):
            entry = words[k] & LOW
            feature = row_features[entry]
            if n > begin and indices[n - 1] == feature:
                values[n - 1] += row_counts[entry]
            else:
                indices[n], values[n] = feature, row_counts[entry]
                n += 1
        row_ends[d + 1] = n
    return row_ends, indices[:n], values[:n]
