"""Selection and order of features: the arithmetic of CountVectorizer, with ids by frequency."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary.trie import Vocabulary


@dataclass
class Candidates:
    """The counted n-grams `first`, `first` + 1, … of a trie, and their selection by the options.

    Parameters
    ----------
    totals, documents : ndarray of int64
        Occurrences of each n-gram, and documents with it.
    first : int
        Number of the first counted n-gram.
    trie : callable
        Returns the trie; only needed to break ties under `max_features`.
    n_documents : int
    fields : ndarray of int64, optional
        The text field of each n-gram, −1 for categories and numbers, which are all selected. `max_features` is the
        number of terms of each field.
    """

    totals: NDArray[np.int64]
    documents: NDArray[np.int64]
    first: int
    trie: Callable[[], Vocabulary]
    n_documents: int
    options: TextOptions
    fields: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        self.low, self.high = (
            bound if isinstance(bound, int) else bound * self.n_documents
            for bound in (self.options.min_df, self.options.max_df)
        )

    def select(self) -> NDArray[np.int64]:
        """The feature of each n-gram of a new vocabulary, or −1.

        Features are ordered by decreasing count, equal counts by length, then alphabetically.
        Raises `InputError` if no term is left.
        """
        if not self.documents.any():
            raise InputError(
                "No document has a term: none of its text is a token (token_pattern, stop_words, ngram_range).",
                code="empty-vocabulary",
            )
        if self.high < self.low:
            raise InputError(
                f"max_df allows at most {self.high:g} documents, min_df at least {self.low:g}: no term passes both.",
                code="empty-vocabulary",
            )
        chosen = self._choose(self._pass(), [0] * max(1, len(self.options.text_fields)))
        if not chosen.any():
            raise InputError("No term is left: decrease min_df or increase max_df.", code="empty-vocabulary")
        return _rank_by_count(self.totals, chosen)

    def select_new(self, known: NDArray[np.int64], size: int, sizes: list[int]) -> NDArray[np.int64]:
        """The feature of each n-gram of an extended vocabulary of `size` features, or −1.

        `known` has the existing features, which do not change, or −1. New features must pass min_df and max_df among
        the new documents alone; their ids follow after `size`, up to max_features in total. `sizes` are the existing
        features of each text field, or all of them without fields.
        """
        chosen = self._choose((known < 0) & self._pass(), sizes)
        if self.fields is not None:
            chosen &= known < 0
        return np.where(chosen, _rank_by_count(self.totals, chosen) + size, known)

    def _choose(self, passed: NDArray[np.bool_], sizes: list[int]) -> NDArray[np.bool_]:
        """The most frequent of the n-grams that passed, in addition to `sizes` existing terms of each text field."""
        most = self.options.max_features
        limits = [None if most is None else max(0, most - size) for size in sizes]
        if self.fields is None:
            return self._most_frequent(passed, limits[0])
        chosen = (self.fields < 0) & (self.documents > 0)
        for field, limit in enumerate(limits):
            chosen |= self._most_frequent(passed & (self.fields == field), limit)
        return chosen

    def _pass(self) -> NDArray[np.bool_]:
        return (self.documents >= max(1, self.low)) & (self.documents <= self.high)

    def _most_frequent(self, chosen: NDArray[np.bool_], limit: int | None) -> NDArray[np.bool_]:
        """The `limit` most frequent of the chosen terms; ties are broken as in CountVectorizer.

        It sorts the terms in alphabetical order, all lengths mixed, with an unstable algorithm: only the same sort of
        the same numbers gives the same ties.
        """
        if limit is None or np.count_nonzero(chosen) <= limit:
            return chosen
        alphabetical = _alphabetical_order(self.trie(), self.first)
        candidates = alphabetical[chosen[alphabetical]]
        selected = np.zeros_like(chosen)
        selected[candidates[(-self.totals[candidates]).argsort()[:limit]]] = True
        return selected


def _rank_by_count(counts: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The rank of each chosen term by decreasing count, ties in their order; −1 for the others."""
    positions = np.flatnonzero(chosen)
    falling = -counts[positions]
    # A stable sort of 16 bits is a radix sort; the few larger counts, which come first, are then sorted by comparison.
    order = np.argsort((np.maximum(falling, -0xFFFF) + 0xFFFF).astype(np.uint16), kind="stable")
    large = np.count_nonzero(falling <= -0xFFFF)
    order[:large] = order[:large][np.argsort(falling[order[:large]], kind="stable")]
    ranks = np.full(counts.size, -1, np.int64)
    ranks[positions[order]] = np.arange(positions.size)
    return ranks


def _alphabetical_order(trie: Vocabulary, first: int) -> NDArray[np.int64]:
    """N-grams from number `first` on in alphabetical order, all lengths mixed; a prefix precedes its extensions."""
    parents, lasts = trie.parents()
    columns = [np.zeros(parents.size - first, np.int64) for _ in trie.level_sizes]
    begin = 0
    for n, size in enumerate(trie.level_sizes, 1):
        ngrams = np.arange(begin, begin + size)
        if begin >= first:
            prefix = ngrams
            for k in reversed(range(n)):
                columns[k][ngrams - first] = lasts[prefix].astype(np.int64) + 1
                prefix = parents[prefix]
        begin += size
    return np.lexsort(columns[::-1])
