"""The n-grams of the documents of a split: numbered by sorting their keys, then counted row by row.

Tokens are numbered alphabetically, so the n-grams of each length are, too. A run is a sequence of tokens that n-grams
do not leave: a document, or a word of one. Sorting beats a hash table, which would be larger than the caches.
"""

import numpy as np

from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import ONE, ZERO
from sparseoco.text.kernels.keys import HALF, LOW

BLOCK_BITS = 16


@kernel
def rename(tokens, ranks):
    """Replace each token number by ranks[number], in place."""
    for i in range(tokens.size):
        tokens[i] = ranks[tokens[i]]


@kernel
def pack_ngrams(prefixes, tokens, runs, n, levels, low, high, token_bits, position_bits, packed):
    """Write (prefix − low, next tokens, position) for each prefix in [low, high), one word each; returns their number.

    prefixes, tokens   int32 by position: number of the n-gram of n − 1 tokens that begins there; number of the token
    runs               (runs + 1,) positions; packed uint64, with space for all positions
    levels             tokens after a prefix, at least one of its run; each is its number + 1, or 0 beyond the run
    """
    top, ahead = token_bits * np.uint64(levels - 1), np.uint64(n - 1)
    m = 0
    for r in range(runs.size - 1):
        following = np.uint64(0)
        for i in range(runs[r + 1] - n, runs[r] - 1, -1):
            at = np.uint64(i)
            following = (np.uint64(tokens[at + ahead] + 1) << top) | (following >> token_bits)
            prefix = prefixes[at]
            if low <= prefix < high:
                key = (np.uint64(prefix - low) << (top + token_bits)) | following
                packed[m] = (key << position_bits) | at
                m += 1
    return m


@kernel
def distinct_keys(packed, base, position_bits, first, pairs, ends):
    """Number the distinct keys of sorted words of `pack_ngrams` from `first` on; returns their number.

    packed  the words; base + key of each distinct key is written over the first of them
    pairs   uint64: position · 2^32 + number, by blocks of 2^BLOCK_BITS positions, each of which occurs once
    ends    int64, by block: the end of its pairs so far
    """
    position = (ONE << position_bits) - ONE
    last = ~np.uint64(0)
    k = -1
    for word in packed:
        key = word >> position_bits
        k += key != last
        last = key
        packed[k] = base + key
        at = word & position
        block = at >> np.uint64(BLOCK_BITS)
        pairs[np.uint64(ends[block])] = (at << HALF) | np.uint64(first + k)
        ends[block] += 1
    return k + 1


@kernel
def number_level(sequences, shift, token_bits, numbers):
    """Number the n-grams that distinct sorted sequences of tokens begin with; returns their keys uint64.

    sequences   uint64: prefix and following tokens, of which all but the last `shift` bits are those of the n-gram
    numbers     int32, by sequence: of the n-gram without its last token; becomes that of the n-gram, if there is one
    """
    keys = np.empty(sequences.size, np.uint64)
    token_mask = (ONE << token_bits) - ONE
    last = ~np.uint64(0)
    k = -1
    for i in range(sequences.size):
        ngram = sequences[i] >> shift
        token = ngram & token_mask
        if token != ZERO:
            if ngram != last:
                k += 1
                keys[k] = (np.uint64(numbers[i]) << HALF) | (token - ONE)
                last = ngram
            numbers[i] = k
    return keys[: k + 1]


@kernel
def write_numbers(pairs, ends, sequence_numbers, numbers):
    """Write sequence_numbers[number] to its position of `numbers`, for pairs of `distinct_keys`.

    Block by block, so that the positions fit the caches; the numbers of a block ascend.
    """
    for block in range(ends.size):
        for pair in pairs[block << BLOCK_BITS : ends[block]]:
            numbers[pair >> HALF] = sequence_numbers[pair & LOW]


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
    sums = np.zeros(n_ngrams, np.uint64)  # both in one word
    for k in range(ngrams.size):
        sums[np.uint64(ngrams[k])] += (ONE << HALF) | np.uint64(counts[k])
    return sums.view(np.int32).reshape(n_ngrams, 2)
