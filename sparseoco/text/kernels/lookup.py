"""The features of a vocabulary in rows of tokens."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.text.kernels.ngrams import HALF, LOW, ONE, ZERO, prefetch
from sparseoco.text.kernels.tokenize import mix

# ----------------------------------------------------------------------------------------------------------------------
# The n-grams of documents that a vocabulary has.


class NgramTables(NamedTuple):
    """The n-grams of a vocabulary, numbered over all levels concatenated, for lookups.

    Parameters
    ----------
    firsts : (levels + 1,) int64
        The number of the first n-gram of each level.
    ids : int32
        The feature of each n-gram, or −1 if it is only a prefix.
    keys : uint64
        Those of the levels from the second on, as `Vocabulary.keys`.
    slots : uint32
        Hash tables of these levels, as `key_tables`.
    slot_firsts : (levels,) int64
        Where the tables begin, and the end of the last.
    """

    firsts: NDArray[np.int64]
    ids: NDArray[np.int32]
    keys: NDArray[np.uint64]
    slots: NDArray[np.uint32]
    slot_firsts: NDArray[np.int64]


class NgramRange(NamedTuple):
    """The lengths of the n-grams that are counted: `shortest` to `longest`; below `min_n` only those that are a run."""

    shortest: int
    min_n: int
    longest: int


class _Scratch(NamedTuple):
    """Space for the tokens of a run."""

    prefixes: Any
    wanted: Any
    slots: Any
    places: Any


@compiled
def key_tables(keys, firsts):
    """(tables, their first slots) of the levels keys[firsts[l] : firsts[l + 1]], each of distinct keys.

    Tables are uint32, with open addressing: position in the level + 1 and bits of the hash above; 0 is free.
    """
    slot_firsts = np.zeros(firsts.size, np.int64)
    for level in range(firsts.size - 1):
        capacity = 16
        while capacity < 2 * (firsts[level + 1] - firsts[level]):
            capacity *= 2
        slot_firsts[level + 1] = slot_firsts[level] + capacity
    slots = np.zeros(slot_firsts[-1], np.uint32)
    for level in range(firsts.size - 1):
        table = slots[slot_firsts[level] : slot_firsts[level + 1]]
        mask = np.uint64(table.size - 1)
        for i in range(firsts[level + 1] - firsts[level]):
            h = mix(keys[firsts[level] + i])
            slot = (h >> HALF) & mask
            while table[slot] != 0:
                slot = (slot + ONE) & mask
            table[slot] = np.uint32((h & LOW & ~mask) | np.uint64(i + 1))
    return slots, slot_firsts


@register_jitable
def _find_longer(tokens, n, keys, table, ids, counted, scratch, features, size):
    """Write the features of the n-grams of a run that a level has to features[size:]; returns the new size.

    scratch.prefixes   int32 by position in the run: in, the number in its level of the n-gram of n − 1 tokens that
                       begins there; out, that of the n-gram of n tokens; −1 for those that are not found

    In three passes, each of which prefetches what the next one reads.
    """
    prefixes, wanted, slots, places = scratch.prefixes, scratch.wanted, scratch.slots, scratch.places
    mask = np.uint64(table.size - 1)
    m = ZERO
    for i in range(tokens.size - n + 1):
        prefix, last = prefixes[i], tokens[i + n - 1]
        prefixes[i] = -1
        key = (np.uint64(np.uint32(prefix)) << HALF) | np.uint64(np.uint32(last))
        h = mix(key)
        wanted[m], slots[m], places[m] = key, h, i
        prefetch(table, np.int64((h >> HALF) & mask))
        m += np.uint64((prefix | last) >= 0)
    found = ZERO
    for k in range(m):
        h = slots[k]
        tag = h & LOW & ~mask
        slot = (h >> HALF) & mask
        entry = np.uint64(table[slot])
        while entry != ZERO and entry & ~mask != tag:
            slot = (slot + ONE) & mask
            entry = np.uint64(table[slot])
        prefetch(keys, np.int64(entry & mask) - 1)
        prefetch(ids, np.int64(entry & mask) - 1)
        wanted[found], slots[found], places[found] = wanted[k], (tag << HALF) | slot, places[k]
        found += np.uint64(entry != ZERO)
    for k in range(found):
        tag, slot = slots[k] >> HALF, slots[k] & mask
        while True:
            entry = np.uint64(table[slot])
            if entry == ZERO:
                break
            number = (entry & mask) - ONE
            if entry & ~mask == tag and keys[number] == wanted[k]:
                prefixes[places[k]] = np.int32(number)
                feature = ids[number]
                features[size] = feature
                size += counted & np.uint64(feature >= 0)
                break
            slot = (slot + ONE) & mask
    return size


@compiled
def find_ngrams(tokens, runs, row_runs, ngrams, tables):
    """The features of the n-grams of documents, as often as they occur: (indptr int64, features int32).

    tokens     int32 by position, −1 for unknown ones
    runs       (runs + 1,) int64, positions in tokens, which n-grams do not leave
    row_runs   (rows + 1,): document d is runs row_runs[d] to row_runs[d + 1]
    ngrams     the `NgramRange`, whose longest n-grams are not longer than those of the `NgramTables`
    """
    longest = 0
    for r in range(runs.size - 1):
        longest = max(longest, runs[r + 1] - runs[r])
    words = np.empty((3, longest + 1), np.uint64)
    scratch = _Scratch(np.empty(longest, np.int32), words[0], words[1], words[2])
    indptr = np.zeros(row_runs.size, np.int64)
    # A feature is written before it is known whether it counts.
    features = np.empty(max(0, ngrams.longest - ngrams.shortest + 1) * tokens.size + 1, np.int32)
    size = ZERO
    for d in range(row_runs.size - 1):
        for r in range(row_runs[d], row_runs[d + 1]):
            own = tokens[runs[r] : runs[r + 1]]
            for n in range(1, min(ngrams.longest, own.size) + 1):
                counted = np.uint64(n >= ngrams.shortest and (n >= ngrams.min_n or n == own.size))
                begin, end = tables.firsts[n - 1], tables.firsts[n]
                ids = tables.ids[begin:end]
                if n > 1:
                    keys = tables.keys[begin - tables.firsts[1] : end - tables.firsts[1]]
                    table = tables.slots[tables.slot_firsts[n - 2] : tables.slot_firsts[n - 1]]
                    size = _find_longer(own, n, keys, table, ids, counted, scratch, features, size)
                    continue
                for i in range(own.size):
                    token = own[i]
                    scratch.prefixes[i] = token
                    feature = ids[token] if token >= 0 else np.int32(-1)
                    features[size] = feature
                    size += counted & np.uint64(feature >= 0)
        indptr[d + 1] = np.int64(size)
    return indptr, features[: np.int64(size)]
