"""Names of n-grams: from numbers in a trie to bytes."""

import numpy as np

from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import load8, store8


@kernel
def term_offsets(numbers, parents, lasts, token_offsets, spaces):
    """(numbers.size + 1,) int64: offsets of the names of n-grams when they are concatenated.

    spaces   uint8: bytes between the tokens of an n-gram, 1 or 0, by its first token
    """
    offsets = np.empty(numbers.size + 1, np.int64)
    at = 0
    for k in range(numbers.size):
        offsets[k] = at
        ngram = numbers[k]
        n, token = 0, np.int64(0)
        while ngram >= 0:
            token = np.int64(lasts[ngram])
            at += token_offsets[token + 1] - token_offsets[token]
            n += 1
            ngram = parents[ngram]
        at += n - 1 if spaces[token] else 0
    offsets[numbers.size] = at
    return offsets


@kernel
def write_terms(numbers, parents, lasts, token_bytes, token_offsets, spaces, offsets, depth):
    """The bytes of the names, tokens joined as `spaces` says, with eight bytes of slack; so has token_bytes.

    Copies eight bytes at a time: bytes beyond the end of a token are overwritten by the next token.
    """
    result = np.empty(offsets[numbers.size] + 8, np.uint8)
    chain = np.empty(depth, np.int64)
    at = 0
    for k in range(numbers.size):
        ngram = numbers[k]
        n = 0
        while ngram >= 0:
            chain[n] = lasts[ngram]
            n += 1
            ngram = parents[ngram]
        for i in range(n - 1, -1, -1):
            begin = token_offsets[chain[i]]
            size = token_offsets[chain[i] + 1] - begin
            done = 0
            while done < size:
                store8(result, at + done, load8(token_bytes, begin + done))
                done += 8
            at += size
            if i > 0 and spaces[chain[n - 1]]:
                result[at] = 32
                at += 1
    return result


@kernel
def leading_bytes(data, offsets):
    """(strings,) uint64: the first eight bytes of each string, zero-padded, in the order of their values."""
    result = np.zeros(offsets.size - 1, np.uint64)
    for k in range(result.size):
        word = np.uint64(0)
        for i in range(offsets[k], min(offsets[k] + 8, offsets[k + 1])):
            word |= np.uint64(data[i]) << np.uint64(56 - 8 * (i - offsets[k]))
        result[k] = word
    return result
