"""From a piece to rows of features."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.array_files import Arrays, string_array, string_buffers
from sparseoco.text.kernels.hashing import hash_terms
from sparseoco.text.kernels.rows import sort_real_rows, sort_rows
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary.trie import Vocabulary

INT32_FEATURES = 2**31
HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


def encode_rows(
    piece: Arrays, features: NDArray[np.int64], n_features: int, options: TextOptions
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """(indptr, indices, counts) of a piece's documents; feature ids rise within a row, those of one id are summed.

    features   for each gram of the piece its feature, or −1
    Raises `InputError` for a sum of counts that is none of 32 bits.
    """
    # Grams of one feature are added in alphabetical order, so that no sum depends on what else is in the piece.
    kept = np.concatenate([piece[f"nodes_{n}"] for n in counted_levels(piece)])
    kept = kept[features[kept] >= 0]
    order: NDArray[np.int32]
    ids: NDArray[Any]
    if n_features <= INT32_FEATURES:
        # One sort of (feature, place) as a number.
        pairs = np.sort((features[kept].astype(np.uint64) << HALF) | np.arange(kept.size, dtype=np.uint64))
        order, ids = kept[(pairs & LOW).astype(np.int64)].astype(np.int32), (pairs >> HALF).astype(np.int32)
    else:
        order = kept[np.argsort(features[kept], kind="stable")].astype(np.int32)
        ids = features[order]
    sizes = np.zeros(features.size, np.int32)
    for n in counted_levels(piece):
        sizes[piece[f"nodes_{n}"]] = piece[f"documents_{n}"]
    indptr, grams, counts = piece["indptr"], piece["grams"], piece["counts"]
    if counts.dtype == np.float64:
        return sort_real_rows(indptr, grams, counts, order, sizes, ids)  # type: ignore[no-any-return]
    if options.hash_bits is not None:
        counts = counts.astype(np.uint32)  # room for sums
        if int(counts.max(initial=0)) * int(np.diff(indptr).max(initial=0)) > LOW:
            _, _, sums = sort_real_rows(indptr, grams, counts.astype(np.float64), order, sizes, ids)
            if sums.max(initial=0) > LOW:
                raise InputError("Terms of one document that share a hash occur more than 2^32 − 1 times together.")
    short = indptr.size <= 2**16 and counts.itemsize <= 2
    packed = np.empty(counts.size, np.uint32 if short else np.uint64)
    shift = packed.dtype.type(16 if short else 32)
    indptr, indices, values = sort_rows(indptr, grams, counts, order, sizes, ids, packed, shift)
    if options.binary and options.hash_bits is not None:
        values[:] = 1
    return indptr, indices, values


def counted_levels(piece: Arrays) -> list[int]:
    """The n for which a piece counts n-grams."""
    return sorted(int(name.removeprefix("totals_")) for name in piece if name.startswith("totals_"))


def trie_of(piece: Arrays) -> Vocabulary:
    """The grams of a piece as a vocabulary of its own, without features."""
    tokens = string_array(piece["token_bytes"], piece["token_offsets"])
    keys = tuple(piece[f"keys_{n}"] for n in range(2, 101) if f"keys_{n}" in piece)
    return Vocabulary(tokens, keys, (), 0)


def hash_features(piece: Arrays, options: TextOptions) -> tuple[NDArray[np.int64], Any, NDArray[np.int64]]:
    """Hashed features of a piece's grams, by their number in its CSR; beside them the terms, and the number of each."""
    trie = trie_of(piece)
    levels = range(1, len(trie.keys) + 2)
    sizes = [piece[f"nodes_{n}"].size for n in levels]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    counted = counted_levels(piece)
    order = np.concatenate([np.arange(starts[n - 1], starts[n]) for n in counted])
    nodes = np.concatenate([piece[f"nodes_{n}"] for n in counted]).astype(np.int64)
    terms = trie.terms(order)
    data, offsets = string_buffers(terms)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    hashed = hash_terms(padded, offsets, np.uint64(options.hash_seed), options.hash_bits)
    features = np.full(sum(sizes), -1, np.int64)
    features[nodes] = hashed
    return features, terms, nodes
