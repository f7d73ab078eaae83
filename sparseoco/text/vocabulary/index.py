"""Rows of the features of a vocabulary: only its own n-grams are looked up, others are neither numbered nor counted."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.text.array_files import string_buffers
from sparseoco.text.counting.ngrams import HASH_SEED, keeps_singles, tokenize
from sparseoco.text.counting.preprocess import preprocess
from sparseoco.text.documents import Texts
from sparseoco.text.kernels.lookup import count_found, find_longer, key_table
from sparseoco.text.kernels.preprocess import SLACK
from sparseoco.text.kernels.tokenize import find_words, tokenize_words
from sparseoco.text.tokenizer import TokenizerOptions
from sparseoco.text.vocabulary.trie import Vocabulary

Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint32]]


class _Tables(NamedTuple):
    """Hash tables of the tokens (see `find_words`) and of the keys of each level; features, levels concatenated."""

    tokens: tuple[NDArray[Any], ...]
    keys: tuple[NDArray[np.uint32], ...]
    ids: NDArray[np.int32]
    firsts: NDArray[np.int64]


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
        tokens, runs, row_runs = self._tokens(texts, options)
        tables, vocabulary = self._tables, self.vocabulary
        shortest, longest = options.counted_from, options.ngram_range[1]
        level, levels = tokens, [tokens]
        for n in range(2, min(longest, len(vocabulary.ids)) + 1):
            level = find_longer(level, tokens, runs, n, vocabulary.keys[n - 2], tables.keys[n - 2])
            levels.append(level)
        found = levels[shortest - 1 :]
        counted = np.array(found, np.int32).reshape(len(found), tokens.size)
        firsts = tables.firsts[shortest - 1 :]
        rows: Rows = count_found(
            counted, shortest, options.ngram_range[0], tables.ids, firsts, runs, row_runs, vocabulary.size
        )
        return rows

    def _tokens(
        self, texts: Texts, options: TokenizerOptions
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of texts by position, −1 for those that the vocabulary does not have; runs, runs of each text."""
        if not options.counts_characters:
            words = preprocess(texts, options)
            tokens, runs = find_words(*words, keeps_singles(options), HASH_SEED, *self._tables.tokens)
            return tokens, runs, np.arange(runs.size)
        names, numbers, runs, row_runs = tokenize(texts, options)
        known = self.vocabulary.tokens
        found = pc.fill_null(pc.index_in(names.cast(known.type), value_set=known), -1)
        return found.to_numpy().astype(np.int32)[numbers], runs, row_runs

    @cached_property
    def _tables(self) -> _Tables:
        data, offsets = string_buffers(self.vocabulary.tokens)
        separated = np.insert(data, offsets[1:], 0)
        clean = np.concatenate([separated, np.zeros(SLACK, np.uint8)])
        _, _, tokens = tokenize_words(clean, np.array([0, separated.size]), True, HASH_SEED)
        return _Tables(
            tokens,
            tuple(key_table(keys) for keys in self.vocabulary.keys),
            np.concatenate(self.vocabulary.ids).astype(np.int32),
            np.cumsum([0, *self.vocabulary.level_sizes]),
        )
