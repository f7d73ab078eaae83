"""Terms by number and numbers by term."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location
from sparseoco.text.array_files import (
    ArrayReader,
    Arrays,
    BlockReader,
    packed_strings,
    read_block,
    save_arrays,
    stored_strings,
    string_array,
    string_buffers,
    write_blocks,
)
from sparseoco.text.counting import (
    alphabetical_order,
    inverse,
    level_bounds,
    tokenize,
)
from sparseoco.text.documents import Texts
from sparseoco.text.kernels.lookup import NgramRange, NgramTables, find_ngrams, key_tables
from sparseoco.text.kernels.ngrams import HALF, pack_keys, unpack_keys
from sparseoco.text.kernels.preprocess import leading_bytes, sort_rows, term_offsets, write_terms
from sparseoco.text.tokenizer import LONGEST_NGRAM, WORDS, Naming, TokenizerOptions
from sparseoco.text.vocabulary.exchange import Exchange, open_pieces, split_terms, token_spaces

# ----------------------------------------------------------------------------------------------------------------------
# The vocabulary: a trie of n-grams over sorted tokens, and the feature of each n-gram.


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
        if sizes.max(initial=1) > LONGEST_NGRAM:
            raise ValueError(f"a term has more than {LONGEST_NGRAM} tokens")
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
        bounds = level_bounds(counts)
        features = np.full(bounds[-1], -1, np.int64)
        positions = token_map
        for n in range(1, len(self.ids) + 1):
            if n > 1:
                if f"keys_{n}" not in counts:
                    break
                prefix, last = unpack_keys(counts[f"keys_{n}"])
                prefix, last = positions[prefix], token_map[last]
                known = np.flatnonzero((prefix >= 0) & (last >= 0))
                positions = np.full(prefix.size, -1, np.int64)
                positions[known] = _locate(pack_keys(prefix[known], last[known]), self.keys[n - 2])
            if f"totals_{n}" in counts:
                found = positions >= 0
                features[bounds[n - 1] : bounds[n]][found] = self.ids[n - 1][positions[found]]
        return features

    @property
    def level_sizes(self) -> list[int]:
        """Number of n-grams of each length."""
        return [len(self.tokens), *(keys.size for keys in self.keys)]

    def terms(self, numbers: NDArray[np.int64], naming: Naming = WORDS) -> pa.Array:
        """Names of n-grams, numbered over all levels concatenated. Strings, or large strings from 2 GiB on."""
        parents, lasts = ngram_parents([np.arange(len(self.tokens), dtype=np.uint64), *self.keys])
        return ngram_names(numbers, parents, lasts.astype(np.int32), self.tokens, naming, len(self.level_sizes))


def _locate(keys: NDArray[np.uint64], known: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The position of each key in `known`, or −1; both increase."""
    if not known.size:
        return np.full(keys.size, -1)
    places = np.minimum(np.searchsorted(known, keys), known.size - 1)
    return np.where(known[places] == keys, places, -1)


def ngram_parents(levels: Sequence[NDArray[np.uint64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(number of the prefix or −1, last token) of all n-grams, numbered over all levels, by their keys."""
    halves = [unpack_keys(keys) for keys in levels]
    firsts = np.cumsum([0, *(keys.size for keys in levels)])  # the numbers of the prefixes of the next level begin here
    longer = (prefix + first for (prefix, _), first in zip(halves[1:], firsts, strict=False))
    return np.concatenate([np.full(levels[0].size, -1), *longer]), np.concatenate([last for _, last in halves])


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


# ----------------------------------------------------------------------------------------------------------------------
# The tokens of an exchange: united in groups, then in ranges, so that every token of a piece has a global position.
#
# Tokens are sorted by their bytes, which is the order of their code points.


MAX_TOKENS = 2**31 - 1
SAMPLED_PIECES, SAMPLED_NGRAMS = 32, 8  # to choose edges: pieces, and n-grams of all of them for each range


def sampled_pieces(names: Sequence[str]) -> list[str]:
    """Some of the pieces with these names, from which edges are chosen."""
    return [names[k] for k in np.unique(np.linspace(0, len(names) - 1, SAMPLED_PIECES).astype(int))]


def sample_edges(target: Location, exchange: Exchange, names: Sequence[str]) -> None:
    """Choose the tokens between ranges with about equally many n-grams, from a sample of the pieces."""
    sample: list[bytes] = []
    with open_pieces(exchange.pieces(names)) as pieces:
        for piece in pieces:
            sample += _sample_first_tokens(piece, -(-SAMPLED_NGRAMS * exchange.n_ranges // len(pieces)))
    sample.sort()
    edges = [sample[i * len(sample) // exchange.n_ranges] if sample else b"" for i in range(1, exchange.n_ranges)]
    save_arrays(target, packed_strings("edge", pa.array(edges, pa.large_binary()).cast(pa.large_string())))


def _sample_first_tokens(piece: ArrayReader, wanted: int) -> list[bytes]:
    """The first tokens of about `wanted` n-grams of a piece, evenly spaced in each level."""
    sizes = [piece.size("token_offsets") - 1]
    while f"keys_{len(sizes) + 1}" in piece:
        sizes.append(piece.size(f"keys_{len(sizes) + 1}"))
    step = max(1, sum(sizes) // wanted)
    found = []
    for level, size in enumerate(sizes, 1):
        for position in range(step // 2, size, step):
            for n in range(level, 1, -1):
                position = int(piece.read(f"keys_{n}", position, position + 1)[0] >> HALF)
            begin, end = piece.read("token_offsets", position, position + 2).tolist()
            found.append(piece.read("token_bytes", begin, end).tobytes())
    return found


def unite_group(target: Location, exchange: Exchange, names: Sequence[str]) -> None:
    """Write the united tokens of a group of pieces with these names.

    Blocks: of each range its tokens; of each piece `map`, the positions of its tokens in the group, and `cuts`, where
    ranges begin in its own tokens.
    """
    edges = exchange.edges()
    with open_pieces(exchange.pieces(names)) as pieces:
        cuts = [_cut_tokens(piece, edges) for piece in pieces]
        maps: list[list[NDArray[np.int32]]] = [[] for _ in pieces]
        first = 0
        with write_blocks(target, exchange.n_ranges + len(pieces)) as write:
            for r in range(exchange.n_ranges):
                tokens = [_read_tokens(piece, *cut[r : r + 2]) for piece, cut in zip(pieces, cuts, strict=True)]
                united, positions = unite_strings(tokens)
                write(packed_strings("token", united))
                for own, position in zip(maps, positions, strict=True):
                    own.append(position + np.int32(first))
                first += _checked(len(united))
            for own, cut in zip(maps, cuts, strict=True):
                write({"map": np.concatenate(own), "cuts": cut})


def unite_range(target: Location, exchange: Exchange, number: int) -> None:
    """Write the united tokens of a range.

    Blocks: the tokens; of each group `positions` of its tokens in the range, and `size`, the tokens of the range.
    """
    groups = range(exchange.n_groups)
    parts = [stored_strings(read_block(exchange.path("group-tokens", group), number), "token") for group in groups]
    united, positions = unite_strings(parts)
    size = np.array([len(united)])
    with write_blocks(target, 1 + exchange.n_groups) as write:
        write(packed_strings("token", united))
        for position in positions:
            write({"positions": position, "size": size})


def collect_tokens(target: Location, exchange: Exchange) -> None:
    """Write the tokens of all ranges in one file. Blocks: of each range its tokens; `starts`, their first positions."""
    sizes = []
    with write_blocks(target, exchange.n_ranges + 1) as write:
        for r in range(exchange.n_ranges):
            arrays = read_block(exchange.path("range-tokens", r), 0)
            sizes.append(arrays["token_offsets"].size - 1)
            write(arrays)
        write({"starts": np.cumsum([0, *sizes])})


def take_tokens(exchange: Exchange, positions: NDArray[np.int64]) -> pa.Array:
    """The tokens at increasing global positions, as large strings; ranges without any of them are not read."""
    found = [pa.array([], pa.large_string())]
    with BlockReader(exchange.path("tokens")) as tokens:
        starts = tokens.block(exchange.n_ranges)["starts"]
        cuts = np.searchsorted(positions, starts)
        for r in np.flatnonzero(np.diff(cuts)):
            own = stored_strings(tokens.block(int(r)), "token").cast(pa.large_string())
            found.append(own.take(pa.array(positions[cuts[r] : cuts[r + 1]] - starts[r])))
    return pa.concat_arrays(found)


def global_positions(exchange: Exchange, group: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """(the global position of each token of a group, the first global position of each range and the end)."""
    positions, sizes = [], []
    for r in range(exchange.n_ranges):
        block = read_block(exchange.path("range-tokens", r), 1 + group)
        positions.append(block["positions"])
        sizes.append(int(block["size"][0]))
    starts = np.cumsum([0, *sizes])
    _checked(int(starts[-1]))
    return np.concatenate([p + np.int32(s) for p, s in zip(positions, starts[:-1], strict=True)]), starts


def unite_strings(parts: list[pa.Array]) -> tuple[pa.Array, list[NDArray[np.int32]]]:
    """(the sorted union of sorted strings, the positions of those of each part in it)."""
    if len(parts) == 1:
        return parts[0], [np.arange(len(parts[0]), dtype=np.int32)]
    strings = pa.chunked_array([part.cast(pa.large_string()) for part in parts], pa.large_string())
    united = strings.combine_chunks().dictionary_encode()
    order = alphabetical_order(united.dictionary)
    positions = inverse(order).astype(np.int32)[united.indices.to_numpy()]
    return united.dictionary.take(pa.array(order)), np.split(positions, np.cumsum([len(part) for part in parts])[:-1])


def _cut_tokens(piece: ArrayReader, edges: list[bytes]) -> NDArray[np.int64]:
    """Where ranges begin in the tokens of a piece, and the end."""
    offsets, data = piece["token_offsets"], piece["token_bytes"].tobytes()
    bounds, size = offsets.tolist() if edges else [], offsets.size - 1
    cuts = [0]
    for edge in edges:
        cuts.append(bisect_left(range(size), edge, lo=cuts[-1], key=lambda k: data[bounds[k] : bounds[k + 1]]))
    return np.array([*cuts, size])


def _read_tokens(piece: ArrayReader, begin: int, end: int) -> pa.Array:
    offsets = piece.read("token_offsets", begin, end + 1)
    data = piece.read("token_bytes", int(offsets[0]), int(offsets[-1]))
    return string_array(data, offsets - offsets[0])


def _checked(size: int) -> int:
    if size > MAX_TOKENS:
        raise InputError(f"More than {MAX_TOKENS:,} distinct tokens: use hash_bits.", code="too-many-terms")
    return size


# ----------------------------------------------------------------------------------------------------------------------
# Rows of the features of a vocabulary: only its own n-grams are looked up, others are neither numbered nor counted.


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

    @classmethod
    def of(cls, terms: pa.Array | list[str], naming: Naming = WORDS) -> Self:
        """Column i counts terms[i]; terms are distinct. Raises `ValueError` for a term that is too long an n-gram."""
        return cls(Vocabulary.from_terms(terms, naming))

    def count(self, texts: Texts, options: TokenizerOptions) -> Rows:
        """The counts of features in texts.

        Returns
        -------
        indptr, indices, counts : int64, int32, uint32
            CSR matrix of shape (texts, features), whose indices increase in each row.
        """
        names, numbers, *runs = tokenize(texts, options)
        tokens = self._find(names)[numbers]
        longest = min(options.ngram_range[1], len(self.vocabulary.ids))
        ngrams = NgramRange(options.counted_from, options.ngram_range[0], longest)
        indptr, features = find_ngrams(tokens, *runs, ngrams, self._tables)
        rows: Rows = sort_rows(indptr, features, np.ones(features.size, np.uint32), self._features, self._features.size)
        return rows

    def columns(self, counts: Arrays, options: TokenizerOptions) -> tuple[NDArray[np.int64], int]:
        """(the feature of each n-gram of partial counts or −1, number of features)."""
        return self.vocabulary.features(counts), self.vocabulary.size

    def _find(self, names: pa.Array) -> NDArray[np.int32]:
        """The position of each of these tokens in the vocabulary, or −1."""
        leading = np.sort(leading_bytes(*string_buffers(names)))
        leading = leading[np.diff(leading, prepend=~leading[:1]) != 0]  # in a third of the time of np.unique
        first, last = (np.searchsorted(self._leading, leading, side) for side in ("left", "right"))
        sizes = last - first  # of the tokens that begin as one of these: all bytes decide among them
        candidates = np.repeat(last - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
        known = self.vocabulary.tokens.take(pa.array(candidates))
        found = pc.fill_null(pc.index_in(names.cast(known.type), value_set=known), -1).to_numpy()
        places: NDArray[np.int32] = np.append(candidates, -1).astype(np.int32)[found]
        return places

    @cached_property
    def _leading(self) -> NDArray[np.uint64]:
        """The first bytes of the tokens of the vocabulary."""
        leading: NDArray[np.uint64] = leading_bytes(*string_buffers(self.vocabulary.tokens))
        return leading

    @cached_property
    def _features(self) -> NDArray[np.int32]:
        return np.arange(self.vocabulary.size, dtype=np.int32)

    @cached_property
    def _tables(self) -> NgramTables:
        firsts = np.cumsum([0, *self.vocabulary.level_sizes])
        keys = np.concatenate([np.empty(0, np.uint64), *self.vocabulary.keys])
        ids = np.concatenate(self.vocabulary.ids).astype(np.int32)
        return NgramTables(firsts, ids, keys, *key_tables(keys, firsts[1:] - firsts[1]))
