"""Rows of the features of a vocabulary: only its own n-grams are looked up, others are neither numbered nor counted."""

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.kernels.weighting import RowWeighting
from sparseoco.text.array_files import Arrays, string_buffers
from sparseoco.text.counting.ngrams import HASH_SEED, keeps_singles, tokenize
from sparseoco.text.counting.preprocess import preprocess
from sparseoco.text.documents import Texts
from sparseoco.text.kernels.lookup import NgramRange, NgramTables, count_found, key_tables, sum_found
from sparseoco.text.kernels.preprocess import SLACK
from sparseoco.text.kernels.tokenize import find_words, tokenize_words
from sparseoco.text.tokenizer import TokenizerOptions
from sparseoco.text.vocabulary.trie import Vocabulary

Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint32]]


class NgramIndex:
    """Finds the features of a vocabulary in texts.

    Parameters
    ----------
    vocabulary : Vocabulary
        Of fewer than 2^31 n-grams.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def count(self, texts: Texts, options: TokenizerOptions) -> Rows:
        """The counts of features in texts.

        Returns
        -------
        indptr, indices, counts : int64, int32, uint32
            CSR matrix of shape (texts, features), whose indices increase in each row.
        """
        rows: Rows = count_found(*self._found(texts, options), self.vocabulary.size)
        return rows

    def columns(self, counts: Arrays, options: TokenizerOptions) -> tuple[NDArray[np.int64], int]:
        """(the feature of each n-gram of partial counts or −1, number of features)."""
        return self.vocabulary.features(counts), self.vocabulary.size

    def weighted_sums(
        self, texts: Texts, options: TokenizerOptions, weighting: RowWeighting, places: NDArray[Any], weights: Any
    ) -> NDArray[np.float64]:
        """(texts, outputs): `kernels.weighting.weighted_sums` of the weighted counts of features in texts."""
        found = self._found(texts, options)
        sums: NDArray[np.float64] = sum_found(*found, self.vocabulary.size, weighting, places, weights)
        return sums

    def _found(self, texts: Texts, options: TokenizerOptions) -> tuple[Any, ...]:
        """The first arguments of `count_found`."""
        longest = min(options.ngram_range[1], len(self.vocabulary.ids))
        ngrams = NgramRange(options.counted_from, options.ngram_range[0], longest)
        return *self._tokens(texts, options), ngrams, self._tables

    def _tokens(
        self, texts: Texts, options: TokenizerOptions
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of texts by position, −1 for those that the vocabulary does not have; runs, runs of each text."""
        if not options.counts_characters:
            words = preprocess(texts, options)
            tokens, runs = find_words(*words, keeps_singles(options), HASH_SEED, *self._words)
            return tokens, runs, np.arange(runs.size)
        names, numbers, runs, row_runs = tokenize(texts, options)
        known = self.vocabulary.tokens
        found = pc.fill_null(pc.index_in(names.cast(known.type), value_set=known), -1)
        return found.to_numpy().astype(np.int32)[numbers], runs, row_runs

    @cached_property
    def _words(self) -> tuple[NDArray[Any], ...]:
        """The hash table of the tokens (see `find_words`)."""
        data, offsets = string_buffers(self.vocabulary.tokens)
        separated = np.insert(data, offsets[1:], 0)
        clean = np.concatenate([separated, np.zeros(SLACK, np.uint8)])
        _, _, tokens = tokenize_words(clean, np.array([0, separated.size]), True, HASH_SEED)
        words: tuple[NDArray[Any], ...] = tokens
        return words

    @cached_property
    def _tables(self) -> NgramTables:
        firsts = np.cumsum([0, *self.vocabulary.level_sizes])
        keys = np.concatenate([np.empty(0, np.uint64), *self.vocabulary.keys])
        ids = np.concatenate(self.vocabulary.ids).astype(np.int32)
        return NgramTables(firsts, ids, keys, *key_tables(keys, firsts[1:] - firsts[1]))
