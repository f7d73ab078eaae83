"""The n-grams of documents that a vocabulary has."""

import numpy as np
from numba.extending import register_jitable

from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.intrinsics import ONE, ZERO, prefetch
from sparseoco.text.kernels.keys import HALF, LOW
from sparseoco.text.kernels.rows import insertion_sort
from sparseoco.text.kernels.tokenize import mix

SHORT = 48  # rows up to this size are sorted by insertion
DIGIT, LAST = np.uint32(11), np.uint32(2**11 - 1)  # bits of a digit, the last of its buckets


@kernel
def key_table(keys):
    """A hash table of distinct keys: uint32, open addressing, position + 1 and bits of the hash above; 0 is free."""
    capacity = 16
    while capacity < 2 * keys.size:
        capacity *= 2
    mask = np.uint64(capacity - 1)
    table = np.zeros(capacity, np.uint32)
    for i in range(keys.size):
        h = mix(keys[i])
        slot = (h >> HALF) & mask
        while table[slot] != 0:
            slot = (slot + ONE) & mask
        table[slot] = np.uint32((h & LOW & ~mask) | np.uint64(i + 1))
    return table


@kernel
def find_longer(prefixes, tokens, runs, n, keys, table):
    """The n-grams that begin at each position: (positions,) int32, the position of their key in `keys`, or −1.

    prefixes   int32 by position: the number of the n-gram of n − 1 tokens that begins there, or −1
    tokens     int32 by position, −1 for unknown ones; runs (runs + 1,), which n-grams do not leave
    """
    mask = np.uint64(table.size - 1)
    longest = 0
    for r in range(runs.size - 1):
        longest = max(longest, runs[r + 1] - runs[r])
    wanted, hashes, places = np.empty(longest, np.uint64), np.empty(longest, np.uint64), np.empty(longest, np.int64)
    found = np.full(tokens.size, -1, np.int32)
    for r in range(runs.size - 1):
        m = np.int64(0)
        for i in range(runs[r], runs[r + 1] - n + 1):
            prefix, last = prefixes[i], tokens[i + n - 1]
            key = (np.uint64(np.uint32(prefix)) << HALF) | np.uint64(np.uint32(last))
            h = mix(key)
            wanted[m], hashes[m], places[m] = key, h, i
            prefetch(table, np.int64((h >> HALF) & mask))
            m += np.int64((prefix | last) >= 0)
        for k in range(m):
            key, h = wanted[k], hashes[k]
            tag = h & LOW & ~mask
            slot = (h >> HALF) & mask
            while True:
                entry = np.uint64(table[slot])
                if entry == ZERO:
                    break
                if entry & ~mask == tag and keys[np.int64(entry & mask) - 1] == key:
                    found[places[k]] = np.int32(np.int64(entry & mask) - 1)
                    break
                slot = (slot + ONE) & mask
    return found


@register_jitable
def _sort(features, other, size, n_features, starts):
    """Sort `size` features, less than n_features, by radix; returns (sorted, other) of the buffers."""
    if size <= SHORT:
        insertion_sort(features, size)
        return features, other
    shift = np.uint32(0)
    while shift < 32 and n_features - 1 >> np.int64(shift) > 0:
        starts[:] = 0
        for k in range(size):
            starts[(features[k] >> shift) & LAST] += 1
        start = 0
        for bucket in range(starts.size):
            start, starts[bucket] = start + starts[bucket], start
        for k in range(size):
            bucket = (features[k] >> shift) & LAST
            other[starts[bucket]] = features[k]
            starts[bucket] += 1
        features, other = other, features
        shift += DIGIT
    return features, other


@kernel
def count_found(levels, shortest, min_n, ids, firsts, runs, row_runs, n_features):
    """The rows of found n-grams in CSR format: (indptr int64, features int32, counts uint32), features increase.

    levels     (levels, positions) int32: the number in its level of the n-gram that begins there, or −1; of
               n = shortest + level tokens
    min_n      n-grams of fewer tokens are counted if they are a whole run
    ids        int32: the feature of n-gram i of level l is ids[firsts[l] + i], less than n_features, or −1
    row_runs   (rows + 1,): document d is runs row_runs[d] to row_runs[d + 1]
    """
    rows = row_runs.size - 1
    longest = 0
    for d in range(rows):
        longest = max(longest, runs[row_runs[d + 1]] - runs[row_runs[d]])
    buffer, other = np.empty(len(levels) * longest, np.uint32), np.empty(len(levels) * longest, np.uint32)
    starts = np.empty(np.int64(LAST) + 1, np.int64)
    indptr = np.zeros(rows + 1, np.int64)
    features, counts = np.empty(levels.size, np.int32), np.empty(levels.size, np.uint32)
    nonzeros = 0
    for d in range(rows):
        size = 0
        for level in range(len(levels)):
            n = shortest + level
            for r in range(row_runs[d], row_runs[d + 1]):
                if n < min_n and runs[r + 1] - runs[r] != n:
                    continue
                for i in range(runs[r], runs[r + 1] - n + 1):
                    number = levels[level, i]
                    if number >= 0:
                        feature = ids[firsts[level] + number]
                        buffer[size] = feature
                        size += feature >= 0
        buffer, other = _sort(buffer, other, size, n_features, starts)
        begin = nonzeros
        for k in range(size):
            feature = np.int32(buffer[k])
            if nonzeros > begin and features[nonzeros - 1] == feature:
                counts[nonzeros - 1] += np.uint32(1)
            else:
                features[nonzeros], counts[nonzeros] = feature, 1
                nonzeros += 1
        indptr[d + 1] = nonzeros
    return indptr, features[:nonzeros], counts[:nonzeros]
