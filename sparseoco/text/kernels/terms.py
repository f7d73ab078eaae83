"""Spelling n-grams: from places in a trie to bytes."""

import numpy as np

from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import load8, store8


@kernel
def term_offsets(order, parents, lasts, token_offsets):
    """(order.size + 1,) int64: where each term begins when those of the grams `order` are written end to end."""
    offsets = np.empty(order.size + 1, np.int64)
    at = 0
    for k in range(order.size):
        offsets[k] = at
        gram = order[k]
        while gram >= 0:
            token = lasts[gram]
            at += token_offsets[token + 1] - token_offsets[token] + 1
            gram = parents[gram]
        at -= 1
    offsets[order.size] = at
    return offsets


@kernel
def write_terms(order, parents, lasts, token_bytes, token_offsets, offsets, depth):
    """The bytes of those terms, tokens joined by a space, and eight bytes of slack; token_bytes has slack, too.

    Eight bytes are copied at a time: what overruns a token is overwritten by the next.
    """
    result = np.empty(offsets[order.size] + 8, np.uint8)
    chain = np.empty(depth, np.int64)
    at = 0
    for k in range(order.size):
        gram = order[k]
        n = 0
        while gram >= 0:
            chain[n] = lasts[gram]
            n += 1
            gram = parents[gram]
        for i in range(n - 1, -1, -1):
            begin = token_offsets[chain[i]]
            size = token_offsets[chain[i] + 1] - begin
            done = 0
            while done < size:
                store8(result, at + done, load8(token_bytes, begin + done))
                done += 8
            at += size
            if i > 0:
                result[at] = 32
                at += 1
    return result
