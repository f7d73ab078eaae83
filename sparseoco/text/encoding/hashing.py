"""Hashed features: XXH64 of a term, in place of a vocabulary."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.text.array_files import Arrays, stored_strings
from sparseoco.text.counting.ngrams import all_levels, counted_levels
from sparseoco.text.hashing import hash_strings
from sparseoco.text.options import TextOptions
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
