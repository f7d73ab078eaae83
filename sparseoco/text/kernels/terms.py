"""Spelling n-grams: from places in a trie to bytes."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def term_offsets(order, parents, lasts, token_offsets):
    """(order.size + 1,) int64: where each term begins when those of the grams `order` are written end to end."""
    offsets = np.empty(order.size + 1, np.int64)
    at = 0
    for k in range(order.size):
        offsets[k] = at
        gram = order[k]
        while gram >= 0:
            token = lasts[gram]
            at += token_offsets[token + 1] - token_offsets[token]
            gram = parents[gram]
            at += gram >= 0
    offsets[order.size] = at
    return offsets


@njit(nogil=True, cache=True, error_model="numpy")
def write_terms(order, parents, lasts, token_bytes, token_offsets, offsets):
    """The bytes of those terms: tokens joined by a space, written from the last token back to the first."""
    result = np.empty(offsets[order.size], np.uint8)
    for k in range(order.size):
        gram = order[k]
        at = offsets[k + 1]
        while gram >= 0:
            token = lasts[gram]
            begin = token_offsets[token]
            size = token_offsets[token + 1] - begin
            at -= size
            for i in range(size):
                result[at + i] = token_bytes[begin + i]
            gram = parents[gram]
            if gram >= 0:
                at -= 1
                result[at] = 32
    return result
