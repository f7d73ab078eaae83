"""The n-grams of the documents of a split: numbered by sorting their keys, then counted row by row.

Tokens are numbered alphabetically, so the n-grams of each length are, too. A run is a sequence of tokens that n-grams
do not leave: a document, or a word of one. Sorting beats a hash table, which would be larger than the caches.
"""

import numpy as np

from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import ONE
from sparseoco.text.kernels.keys import HALF, LOW

BLOCK_BITS = 16


@kernel
def rename(tokens, ranks):
    """Replace each token number by ranks[number], in place."""
    for i in range(tokens.size):
        tokens[i] = ranks[tokens[i]]


@kernel
def pack_ngrams(prefixes, tokens, runs, n, low, high, token_bits, position_bits, packed):
    """Write (prefix − low, last token, position) of the n-grams with a prefix in [low, high), one word each; (count).

    prefixes, tokens   int32 by position: number of the n-gram of n − 1 tokens that begins there; number of the token
    runs               (runs + 1,) positions; packed uint64, with space for all positions
    """
    m = 0
    for r in range(runs.size - 1):
        for i in range(runs[r], runs[r + 1] - n + 1):
            prefix = prefixes[i]
            if low <= prefix < high:
                key = (np.uint64(prefix - low) << token_bits) | np.uint64(tokens[i + n - 1])
                packed[m] = (key << position_bits) | np.uint64(i)
                m += 1
    return m


@kernel
def number_ngrams(packed, low, token_bits, position_bits, n_keys, keys, numbers):
    """Number the distinct keys of sorted words of `pack_ngrams` from `n_keys` on; returns the next number.

    keys      uint64, by number: prefix · 2^32 + last token
    numbers   int32, by position
    """
    token, position = (ONE << token_bits) - ONE, (ONE << position_bits) - ONE
    # Written by way of blocks of positions that fit the caches: as a position occurs once, each block has its space.
    pairs = np.empty(numbers.size, np.uint64)
    ends = np.arange((numbers.size >> BLOCK_BITS) + 1) << BLOCK_BITS
    last = ~np.uint64(0)
    k = n_keys - 1
    for word in packed:
        key = word >> position_bits
        k += key != last
        last = key
        keys[k] = (((key >> token_bits) + np.uint64(low)) << HALF) | (key & token)
        at = word & position
        block = at >> np.uint64(BLOCK_BITS)
        pairs[np.uint64(ends[block])] = (at << HALF) | np.uint64(k)
        ends[block] += 1
    for block in range(ends.size):
        for pair in pairs[block << BLOCK_BITS : ends[block]]:
            numbers[pair >> HALF] = np.int32(pair & LOW)
    return k + 1


@kernel
def count_ngrams(numbers, shortest, firsts, runs, row_runs, min_n, n_ngrams):
    """Count n-grams, one entry for each that a document contains.

    numbers    (levels, positions) int32: number, in its level, of the n-gram of n = shortest + level tokens
    firsts     (levels,) int64: number of the first n-gram of each level
    runs       (runs + 1,) positions; row_runs (rows + 1,): the runs of each document
    min_n      n-grams of fewer tokens are counted if they are a whole run

    Returns indptr int64, ngrams int32, counts uint32 (CSR, the n-grams of a document by n and in order of first
    appearance).
    """
    rows = row_runs.size - 1
    levels, positions = numbers.shape
    last = np.full(n_ngrams, -1, np.int32)  # the last entry of each n-gram
    indptr = np.zeros(rows + 1, np.int64)
    ngrams, counts = np.empty(levels * positions + 1, np.int32), np.empty(levels * positions + 1, np.uint32)
    nonzeros = np.int32(0)
    for d in range(rows):
        begin = nonzeros
        for level in range(levels):
            n = shortest + level
            own = numbers[level]
            for r in range(row_runs[d], row_runs[d + 1]):
                if n < min_n and runs[r + 1] - runs[r] != n:
                    continue
                for i in range(runs[r], runs[r + 1] - n + 1):
                    # No branch on whether the document has the n-gram already: it could not be predicted.
                    ngram = np.uint64(firsts[level] + own[i])
                    new = last[ngram] < begin
                    entry = np.uint64(nonzeros if new else last[ngram])
                    ngrams[entry] = np.int32(ngram)
                    counts[entry] = np.uint32(1) if new else counts[entry] + np.uint32(1)
                    last[ngram] = np.int32(entry)
                    nonzeros += np.int32(new)
        indptr[d + 1] = nonzeros
    return indptr, ngrams[:nonzeros], counts[:nonzeros]


@kernel
def sum_entries(ngrams, counts, n_ngrams):
    """(n_ngrams, 2) int32: the total count of each n-gram, and its documents."""
    sums = np.zeros((n_ngrams, 2), np.int32)
    for k in range(ngrams.size):
        ngram = np.uint64(ngrams[k])
        sums[ngram, 0] += np.int32(counts[k])
        sums[ngram, 1] += np.int32(1)
    return sums
