"""The vocabulary: a trie of n-grams over sorted tokens, and the feature of each n-gram."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.text.array_files import Arrays, stored_strings, string_array, string_buffers
from sparseoco.text.counting.ngrams import alphabetical_order, inverse, n_ngrams
from sparseoco.text.kernels.keys import HALF, LOW, locate, pack_keys, unpack_keys
from sparseoco.text.kernels.terms import term_offsets, write_terms
from sparseoco.text.tokenizer import MAX_TOKENS, WORDS, Naming
from sparseoco.text.vocabulary.naming import split_terms, token_spaces


class Vocabulary(NamedTuple):
    """Levels of n-grams in alphabetical order.

    Parameters
    ----------
    tokens : pyarrow.Array of strings
        Strictly increasing by their bytes.
    keys : tuple of ndarray of uint64
        For each level n ≥ 2, strictly increasing: (position of the prefix in level n − 1) · 2^32 + last token.
    ids : tuple of ndarray of int64
        For each level n ≥ 1 the feature of each n-gram, or −1 if it is only a prefix.
    size : int
        Number of features.
    """

    tokens: pa.Array
    keys: tuple[NDArray[np.uint64], ...]
    ids: tuple[NDArray[Any], ...]
    size: int

    @classmethod
    def from_terms(cls, terms: pa.Array | list[str], naming: Naming = WORDS) -> "Vocabulary":
        """The vocabulary in which term i is feature i. Raises `ValueError` for a term that is too long an n-gram."""
        strings = pa.array(terms, pa.large_string()) if isinstance(terms, list) else terms.cast(pa.large_string())
        if isinstance(strings, pa.ChunkedArray):
            strings = strings.combine_chunks()
        flat, sizes = split_terms(strings, naming)
        if sizes.max(initial=1) > MAX_TOKENS:
            raise ValueError(f"a term has more than {MAX_TOKENS} tokens")
        flat = flat.dictionary_encode()
        order = alphabetical_order(flat.dictionary)
        tokens = inverse(order)[flat.indices.to_numpy()] if len(flat) else np.empty(0, np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        ids = [np.full(order.size, -1, np.int64)]
        unigrams = np.flatnonzero(sizes == 1)
        ids[0][tokens[starts[unigrams]]] = unigrams
        keys: list[NDArray[np.uint64]] = []
        position = tokens[starts] if len(sizes) else np.empty(0, np.int64)  # of each term's prefix in its level
        for n in range(2, int(sizes.max(initial=1)) + 1):
            longer = np.flatnonzero(sizes >= n)
            packed = pack_keys(position[longer], tokens[starts[longer] + n - 1])
            level, position[longer] = np.unique(packed, return_inverse=True)
            ends = longer[sizes[longer] == n]
            level_ids = np.full(level.size, -1, np.int64)
            level_ids[position[ends]] = ends
            keys.append(level)
            ids.append(level_ids)
        return cls(flat.dictionary.take(pa.array(order)), tuple(keys), tuple(ids), len(sizes))

    def features(self, counts: Arrays) -> NDArray[np.int64]:
        """The feature of each n-gram of partial counts, by its number; −1 for terms that are not in the vocabulary."""
        tokens = stored_strings(counts, "token").cast(self.tokens.type)
        token_map = pc.fill_null(pc.index_in(tokens, value_set=self.tokens), -1).to_numpy().astype(np.int64)
        features = np.full(n_ngrams(counts), -1, np.int64)
        positions = token_map
        for n in range(1, len(self.ids) + 1):
            if n > 1:
                if f"keys_{n}" not in counts:
                    break
                prefix, last = unpack_keys(counts[f"keys_{n}"])
                prefix, last = positions[prefix], token_map[last]
                known = np.flatnonzero((prefix >= 0) & (last >= 0))
                positions = np.full(prefix.size, -1, np.int64)
                positions[known] = locate(pack_keys(prefix[known], last[known]), self.keys[n - 2])
            if f"totals_{n}" in counts:
                found = positions >= 0
                features[counts[f"nodes_{n}"][found]] = self.ids[n - 1][positions[found]]
        return features

    @property
    def level_sizes(self) -> list[int]:
        """Number of n-grams of each length."""
        return [len(self.tokens), *(keys.size for keys in self.keys)]

    def terms(self, numbers: NDArray[np.int64], naming: Naming = WORDS) -> pa.Array:
        """Names of n-grams, numbered over all levels concatenated. Strings, or large strings from 2 GiB on."""
        parents, lasts = self.parents()
        return ngram_names(numbers, parents, lasts, self.tokens, naming, len(self.level_sizes))

    def parents(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(number of the prefix or −1, last token) of all n-grams, levels concatenated."""
        parents = [np.full(len(self.tokens), -1, np.int64)]
        lasts = [np.arange(len(self.tokens), dtype=np.int32)]
        first = 0
        for keys in self.keys:
            parents.append((keys >> HALF).astype(np.int64) + first)
            lasts.append((keys & LOW).astype(np.int32))
            first += parents[-2].size
        return np.concatenate(parents), np.concatenate(lasts)


def ngram_names(
    numbers: NDArray[np.int64],
    parents: NDArray[np.int64],
    lasts: NDArray[np.int32],
    tokens: pa.Array,
    naming: Naming,
    depth: int,
) -> pa.Array:
    """Names of n-grams of at most `depth` tokens: strings, or large strings from 2 GiB on.

    Parameters
    ----------
    parents, lasts : ndarray
        The number of the prefix of each n-gram or −1, and its last token.
    tokens : pyarrow.Array of strings
    """
    spaces = token_spaces(tokens, naming)
    token_bytes, token_offsets = string_buffers(tokens)
    padded = np.concatenate([token_bytes, np.zeros(8, np.uint8)])
    offsets = term_offsets(numbers, parents, lasts, token_offsets, spaces)
    data = write_terms(numbers, parents, lasts, padded, token_offsets, spaces, offsets, depth)
    return string_array(data, offsets)
