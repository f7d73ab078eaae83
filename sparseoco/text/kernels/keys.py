"""Merging sorted keys and putting features in order."""

import numpy as np

from sparseoco.text.kernels import kernel


@kernel
def total_grams(indptr, grams, counts, dropped, size):
    """(occurrences, documents) int64 of each of `size` grams over the rows not dropped; the whole part of
    each count, which is of use only where counts are whole."""
    totals = np.zeros(size, np.int64)
    documents = np.zeros(size, np.int64)
    for d in range(indptr.size - 1):
        if dropped[d]:
            continue
        for k in range(indptr[d], indptr[d + 1]):
            totals[grams[k]] += np.int64(counts[k])
            documents[grams[k]] += 1
    return totals, documents


@kernel
def local_keys(keys, nodes, place, rank, low, packed, shift):
    """Keys in alphabetical numbers of the grams `nodes`: place[prefix] · 2^low + rank[last token].

    packed  (nodes.size,) uint64, filled with key · 2^shift + node: sorted, it has the keys in order, with their nodes
    """
    for i in range(nodes.size):
        key = keys[nodes[i]]
        prefix = np.uint64(place[np.int64(key >> np.uint64(32))])
        last = np.uint64(rank[np.int64(key & np.uint64(0xFFFFFFFF))])
        packed[i] = (((prefix << low) | last) << shift) | (np.uint64(nodes[i]) if shift else np.uint64(0))


@kernel
def unpack_keys(packed, low, shift):
    """(keys prefix · 2^32 + last token, nodes int32) of what `local_keys` packed."""
    keys, nodes = np.empty(packed.size, np.uint64), np.empty(packed.size, np.int32)
    last, node = (np.uint64(1) << low) - np.uint64(1), (np.uint64(1) << shift) - np.uint64(1)
    for i in range(packed.size):
        key = packed[i] >> shift
        keys[i] = ((key >> low) << np.uint64(32)) | (key & last)
        nodes[i] = packed[i] & node
    return keys, nodes


@kernel
def take_columns(table, rows, first, second):
    """(table[rows, first], table[rows, second])."""
    a, b = np.empty(rows.size, table.dtype), np.empty(rows.size, table.dtype)
    for i in range(rows.size):
        a[i], b[i] = table[rows[i], first], table[rows[i], second]
    return a, b


@kernel
def spread(values, places, nodes, result):
    """result[nodes[i]] = values[places[i]]."""
    for i in range(nodes.size):
        result[nodes[i]] = values[places[i]]


@kernel
def global_keys(keys, first, prefix_map, token_map):
    """Keys of a piece's slice in common numbers: prefix_map[(key >> 32) − first] · 2^32 + token_map[low half]."""
    result = np.empty(keys.size, np.uint64)
    for i in range(keys.size):
        prefix = np.int64(keys[i] >> np.uint64(32)) - first
        token = np.int64(keys[i] & np.uint64(0xFFFFFFFF))
        result[i] = (np.uint64(prefix_map[prefix]) << np.uint64(32)) | np.uint64(token_map[token])
    return result


@kernel
def distinct(ordered):
    """The distinct values of a sorted array."""
    result = np.empty(ordered.size, ordered.dtype)
    n = 0
    for i in range(ordered.size):
        if i == 0 or ordered[i] != ordered[i - 1]:
            result[n] = ordered[i]
            n += 1
    return result[:n].copy()


@kernel
def locate(keys, known):
    """(keys.size,) int32: the place of each key in `known`, or −1; both strictly increase. Gallops, so a short list
    costs its length times a logarithm and a long one its length."""
    places = np.empty(keys.size, np.int32)
    at = 0
    for i in range(keys.size):
        key = keys[i]
        step = 1
        low = at
        while at < known.size and known[at] < key:
            low = at + 1
            at += step
            step <<= 1
        if at > low:
            high = min(at, known.size)
            while low < high:
                middle = (low + high) >> 1
                if known[middle] < key:
                    low = middle + 1
                else:
                    high = middle
            at = low
        places[i] = at if at < known.size and known[at] == key else -1
    return places


@kernel
def add_at(places, values, sums):
    """sums[places[i]] += values[i], leaving out places below 0."""
    for i in range(places.size):
        if places[i] >= 0:
            sums[places[i]] += values[i]


@kernel
def rank_by_count(counts, chosen):
    """(counts.size,) int64: the rank of each chosen feature by falling count, ties in their order; −1 for the others.

    A counting sort below 2^16; the few greater counts are sorted by comparison.
    """
    limit = 1 << 16
    starts = np.zeros(limit, np.int64)
    n_large = 0
    for i in range(counts.size):
        if chosen[i]:
            if counts[i] >= limit:
                n_large += 1
            else:
                starts[counts[i]] += 1
    large, falling = np.empty(n_large, np.int64), np.empty(n_large, np.int64)
    at = n_large
    for value in range(limit - 1, -1, -1):
        size = starts[value]
        starts[value] = at
        at += size
    ids = np.full(counts.size, -1, np.int64)
    k = 0
    for i in range(counts.size):
        if chosen[i]:
            if counts[i] >= limit:
                large[k], falling[k] = i, -counts[i]
                k += 1
            else:
                ids[i] = starts[counts[i]]
                starts[counts[i]] += 1
    ids[large[np.argsort(falling, kind="mergesort")]] = np.arange(n_large)
    return ids
