"""Hashed features: XXH64 of a term, in place of a vocabulary."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.kernels.weighting import RowWeighting
from sparseoco.text.array_files import Arrays, stored_strings, string_buffers
from sparseoco.text.counting.ngrams import all_levels, counted_levels, tokenize
from sparseoco.text.documents import Texts
from sparseoco.text.hashing import hash_strings
from sparseoco.text.kernels.hashed_lookup import HashTable, sum_hashed
from sparseoco.text.kernels.lookup import NgramRange
from sparseoco.text.options import TextOptions
from sparseoco.text.tokenizer import TokenizerOptions
from sparseoco.text.vocabulary.trie import Vocabulary


class HashedNgrams(NamedTuple):
    """The hashed features of partial counts.

    Parameters
    ----------
    features : ndarray of int64
        The feature of each n-gram by its number, or −1 if it is only a prefix.
    terms : pyarrow.Array of strings
        The counted n-grams in alphabetical order, level by level.
    nodes, totals, documents : ndarray of int64
        The number of each of these terms, its occurrences, and the documents with it.
    """

    features: NDArray[np.int64]
    terms: pa.Array
    nodes: NDArray[np.int64]
    totals: NDArray[np.int64]
    documents: NDArray[np.int64]


def hash_ngrams(arrays: Arrays, options: TextOptions) -> HashedNgrams:
    """Hash the n-grams of partial counts."""
    assert options.hash_bits is not None
    levels = all_levels(arrays)
    starts = np.cumsum([0, *(arrays[f"nodes_{n}"].size for n in levels)])
    counted = counted_levels(arrays)
    nodes, totals, documents = (
        np.concatenate([arrays[f"{what}_{n}"] for n in counted]).astype(np.int64, copy=False)
        for what in ("nodes", "totals", "documents")
    )
    keys = tuple(arrays[f"keys_{n}"] for n in levels[1:])
    trie = Vocabulary(stored_strings(arrays, "token"), keys, (), 0)
    numbers = np.arange(starts[counted[0] - 1], starts[-1])
    if counted[0] < options.ngram_range[0]:  # of short words; the other n-grams of these levels are only prefixes
        occurs = documents > 0
        numbers, nodes, totals, documents = (array[occurs] for array in (numbers, nodes, totals, documents))
    terms = trie.terms(numbers, options.naming)
    features = np.full(starts[-1], -1, np.int64)
    features[nodes] = hash_strings(terms, options.hash_seed, options.hash_bits)
    return HashedNgrams(features, terms, nodes, totals, documents)


class HashIndex:
    """Finds hashed features in texts.

    Parameters
    ----------
    ids : ndarray of int64
        The hashes that have a place, increasing; fewer than 2^31.
    bits, seed : int
        Of the hashes.
    counts_others : bool
        Whether all other hashes are counted, too.
    """

    def __init__(self, ids: NDArray[np.int64], bits: int, seed: int, counts_others: bool) -> None:
        self.ids, self.bits, self.seed, self.counts_others = ids, bits, seed, counts_others

    def columns(self, counts: Arrays, options: TextOptions) -> tuple[NDArray[np.int64], int]:
        """(the column of each n-gram of partial counts or −1, number of columns).

        A column is a place, or with `counts_others` a hash.
        """
        hashing = options.model_copy(update={"hash_bits": self.bits, "hash_seed": self.seed})
        hashed, size = hash_ngrams(counts, hashing).features, self.ids.size
        if self.counts_others:
            return hashed, 1 << self.bits
        if not size:
            return np.full(hashed.size, -1), 0
        places = np.minimum(np.searchsorted(self.ids, hashed), size - 1)
        return np.where(self.ids[places] == hashed, places, -1), size

    def weighted_sums(
        self, texts: Texts, options: TokenizerOptions, weighting: RowWeighting, places: NDArray[Any], weights: Any
    ) -> NDArray[np.float64]:
        """(texts, outputs): `kernels.weighting.weighted_sums` of the weighted counts of features in texts.

        `places` and the weighting have an entry for each of the ids and, with `counts_others`, one for all others.
        """
        names, *tokens = tokenize(texts, options)
        data, offsets = string_buffers(names)
        padded = np.concatenate([data, np.zeros(8, np.uint8)])
        space = 0 if options.counts_characters else 1
        ngrams = NgramRange(options.counted_from, *options.ngram_range)
        sums: NDArray[np.float64] = sum_hashed(
            *tokens, ngrams, padded, offsets, space, self._table, weighting, places, weights
        )
        return sums

    @cached_property
    def _table(self) -> HashTable:
        leading = min(self.bits, self.ids.size.bit_length())  # buckets have less than one id on average
        shift = self.bits - leading
        sizes = np.bincount(self.ids >> shift, minlength=1 << leading)
        firsts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        ids = np.append(self.ids.astype(np.uint64), ~np.uint64(0))
        bits, seed = np.uint64(self.bits), np.uint64(self.seed)
        return HashTable(ids, firsts, np.uint64(shift), bits, seed, self.counts_others)
