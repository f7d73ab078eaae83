"""The n-grams of texts: the arrays of partial counts that `counting.partial_counts` describes."""

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.text.array_files import Arrays, store_strings, string_array
from sparseoco.text.counting.preprocess import preprocess
from sparseoco.text.documents import Texts
from sparseoco.text.kernels.keys import map_keys, pack_sortable, unpack_sortable
from sparseoco.text.kernels.ngrams import (
    CHARACTERS,
    COUNT,
    DOCUMENTS,
    SHORT_WORDS,
    WORD_CHARACTERS,
    WORDS,
    count_ngrams,
)
from sparseoco.text.tokenizer import TokenizerOptions

# Seed of the hash tables, random to prevent collision attacks; no result depends on it.
_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))


def count_text(texts: Texts, options: TokenizerOptions) -> Arrays:
    """The n-grams of texts, and their counts."""
    words, bounds = preprocess(texts, options)
    low, high = options.ngram_range
    if options.counts_characters:
        unit = WORD_CHARACTERS if options.analyzer == "char_wb" else CHARACTERS
    else:
        unit = WORDS if options.pattern.shortest > 1 and not options.pattern.folds_numbers else SHORT_WORDS
    # Work space for typical text. NumPy asks the system for large pages; the kernel enlarges it if needed.
    slots = 1 << 10
    while high > 1 and slots * 12 < words.size * (high - 1):
        slots <<= 1
    room = 1024 + words.size * high // 32
    indptr, ngrams, counts, keys, lengths, state, token_bytes, token_offsets = count_ngrams(
        words, bounds, unit, low, high, _SEED,
        np.zeros(2 * slots, np.uint64), np.empty(room, np.uint64), np.empty(room, np.int8),
        np.empty(4 * room, np.int32), np.empty(4 * room, np.int32), np.empty(4 * room, np.uint32),
    )  # fmt: skip
    del words
    arrays: Arrays = {"indptr": indptr, "ngrams": ngrams, "counts": smallest_dtype(counts)}
    tokens = string_array(token_bytes, token_offsets)
    order = alphabetical_order(tokens)
    token_rank = inverse(order)
    position = np.empty(lengths.size, np.uint32)  # of each n-gram in its level
    for n in range(1, high + 1):
        nodes = np.flatnonzero(lengths == n).astype(np.int32)
        if n == 1:
            nodes = nodes[order]
        else:
            arrays[f"keys_{n}"], nodes = _sort_by_key(keys, nodes, position, token_rank)
        position[nodes] = np.arange(nodes.size, dtype=np.uint32)
        arrays[f"nodes_{n}"] = nodes
        if n >= options.counted_from:
            arrays[f"totals_{n}"] = state[nodes, COUNT]
            arrays[f"documents_{n}"] = state[nodes, DOCUMENTS]
    store_strings(arrays, "token", tokens.take(pa.array(order)))
    return arrays


def _sort_by_key(
    keys: NDArray[np.uint64], nodes: NDArray[np.int32], position: NDArray[np.uint32], token_rank: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """(keys in terms of alphabetical positions, nodes) of the n-grams of a level, in alphabetical order."""
    node_bits, token_bits = position.size.bit_length(), token_rank.size.bit_length()
    if 2 * node_bits + token_bits <= 64:
        bits = np.uint64(token_bits), np.uint64(node_bits)
        packed = pack_sortable(keys, nodes, position, token_rank, *bits)
        packed.sort()
        return unpack_sortable(packed, *bits)  # type: ignore[no-any-return]
    mapped = map_keys(keys[nodes], 0, position, token_rank)
    order = np.argsort(mapped)
    return mapped[order], nodes[order]


def named_counts(
    indptr: NDArray[np.int64], features: NDArray[np.int64], counts: NDArray[Any], names: pa.Array
) -> Arrays:
    """Counts of named features in CSR format: entry (d, features[k]) of the feature names[features[k]]."""
    order = alphabetical_order(names)
    arrays: Arrays = {
        "indptr": indptr,
        "ngrams": features.astype(np.int32),
        "counts": counts,
        "nodes_1": order.astype(np.int32),
        "totals_1": np.empty(0, np.int64),
    }
    store_strings(arrays, "token", names.take(pa.array(order)))
    sum_totals(arrays)
    return arrays


def sum_totals(arrays: Arrays) -> None:
    """Set totals_<n> and documents_<n> from the entries.

    Totals of real values are sums of their integer parts; those of the fields that are numbers are their documents.
    """
    ngrams = arrays["ngrams"]
    totals = np.zeros(n_ngrams(arrays), np.int64)
    with np.errstate(invalid="ignore"):  # values beyond 64 bits
        np.add.at(totals, ngrams, arrays["counts"].astype(np.int64))
    documents = np.bincount(ngrams, minlength=totals.size)
    if "numbers" in arrays:
        totals[arrays["numbers"]] = documents[arrays["numbers"]]
    for n in counted_levels(arrays):
        arrays[f"totals_{n}"] = totals[arrays[f"nodes_{n}"]]
        arrays[f"documents_{n}"] = documents[arrays[f"nodes_{n}"]]


def all_levels(arrays: Arrays) -> list[int]:
    """The lengths n of the n-grams of partial counts, including those that are only prefixes."""
    return _levels(arrays, "nodes_")


def counted_levels(arrays: Arrays) -> list[int]:
    """The lengths n of the counted n-grams of partial counts."""
    return _levels(arrays, "totals_")


def _levels(arrays: Arrays, prefix: str) -> list[int]:
    return sorted(int(name.removeprefix(prefix)) for name in arrays if name.startswith(prefix))


def n_ngrams(arrays: Arrays) -> int:
    """Number of n-grams of partial counts, including those that are only prefixes."""
    return sum(arrays[f"nodes_{n}"].size for n in all_levels(arrays))


def alphabetical_order(strings: pa.Array) -> NDArray[np.int64]:
    """The positions of strings sorted by their bytes, which is the order of code points."""
    order: NDArray[np.int64] = pc.sort_indices(strings.cast(pa.large_binary())).to_numpy()
    return order


def inverse(order: NDArray[Any]) -> NDArray[np.int64]:
    """The inverse permutation: the rank of each element."""
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank


def smallest_dtype(counts: NDArray[Any]) -> NDArray[Any]:
    """Integer counts as uint8 or uint16 if all fit, else as they are."""
    largest = int(counts.max(initial=0))
    return counts.astype(np.uint8 if largest < 2**8 else np.uint16) if largest < 2**16 else counts
