"""Terms by number and numbers by term, and the exchange of files by which the tokens of all splits are united."""

import math
import resource
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location, location
from sparseoco.text import array_files
from sparseoco.text.counting import alphabetical_order, inverse, level_bounds, tokenize
from sparseoco.text.documents import Texts
from sparseoco.text.kernels.lookup import NgramRange, NgramTables, find_ngrams, key_tables
from sparseoco.text.kernels.ngrams import HALF, pack_keys, unpack_keys
from sparseoco.text.kernels.preprocess import leading_bytes, sort_rows, term_offsets, write_terms
from sparseoco.text.options import LONGEST_NGRAM, WORDS, Naming, TokenizerOptions

# ----------------------------------------------------------------------------------------------------------------------
# The exchange that turns partial counts into a vocabulary: pieces are merged in groups, groups in ranges of tokens.
#
# A piece is a file of sorted n-grams: the partial counts of a split, or a file of the vocabulary of the store. Groups
# of pieces are merged first, so that every piece is opened a fixed number of times; a task per range of tokens then
# reads its block of the file of each group. Every task commits one file, named by what it depends on, so that a killed
# run resumes; Dask's P2P shuffle keeps its state on the workers and starts again when one is lost.
#
# The files, one of each task, in the order in which they are written:
#
#     edges            the tokens between ranges, from a sample of the pieces
#     group-tokens     the tokens of a group by range, and their positions by piece
#     range-tokens     the tokens of a range, and their positions by group
#     tokens           all tokens by range, for the names of terms
#     group-ngrams     the n-grams of a group by range, and their positions by piece
#     range-ngrams     the n-grams of a range with their sums, and their positions by group
#     chosen           the ids of the terms of each range by count (`features`)
#     range-ids        the ids of the n-grams of a range by group; and a vocabulary file of the store
#     group-ids        the ids of the n-grams of a group by piece


# N-grams of all pieces in a range or group: enough to amortise the task. With more ranges than `MAX_RANGES`, they grow
# up to the memory of a task. The store does not depend on the number of workers, so neither do ranges.
NGRAMS_PER_TASK = 1 << 20
MAX_NGRAMS_PER_RANGE = 1 << 23
MAX_RANGES = 1024
RANGES_PER_PIECE = 4  # at most, of a group: bounds the files that are opened for each piece
MERGED = ("token_", "keys_", "totals_", "documents_", "known_")  # beginnings of the names of the arrays of n-grams
MAX_SMALL_PIECES = 256  # in a group, for their number alone


class Exchange(NamedTuple):
    """The division of pieces into groups and of tokens into ranges.

    Parameters
    ----------
    folder : str
        Of the staging files; pieces are files of it too.
    key : str
        Begins the names of all files of the exchange.
    n_pieces, group_size, n_ranges : int
        Pieces, those of a group, and ranges of tokens.
    counted_from : int
        The length of the shortest n-grams that are counted; shorter ones are only prefixes.
    """

    folder: str
    key: str
    n_pieces: int
    group_size: int
    n_ranges: int
    counted_from: int

    @property
    def n_groups(self) -> int:
        """Number of groups of pieces."""
        return -(-self.n_pieces // self.group_size)

    def path(self, name: str, number: int = 0) -> Location:
        """The file of this name of a group or range."""
        return location(self.folder) / f"{self.key}.{name}-{number}"

    def group(self, names: Sequence[str], number: int) -> list[str]:
        """The names of the pieces of a group, of the names of all pieces."""
        return list(names[number * self.group_size : (number + 1) * self.group_size])

    def edges(self) -> list[bytes]:
        """The first tokens of all ranges but the first."""
        if self.n_ranges == 1:
            return []
        strings = array_files.stored_strings(array_files.read_block(self.path("edges"), 0), "edge")
        return strings.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def plan_exchange(folder: Location, key: str, names: Sequence[str], size: int, counted_from: int) -> Exchange:
    """Plan the exchange of pieces with these file names and `size` n-grams in all."""
    n_ranges = max(1, min(MAX_RANGES, math.ceil(size / NGRAMS_PER_TASK)), math.ceil(size / MAX_NGRAMS_PER_RANGE))
    small = min(MAX_SMALL_PIECES, len(names) * NGRAMS_PER_TASK // max(1, size))
    group_size = max(1, small, math.ceil(n_ranges / RANGES_PER_PIECE))
    return Exchange(str(folder), key, len(names), group_size, n_ranges, counted_from)


@contextmanager
def open_pieces(exchange: Exchange, names: Sequence[str]) -> Iterator[list[array_files.ArrayReader]]:
    """Open pieces of a group by their names. The limit on open files is raised as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as opened:
        paths = [location(exchange.folder) / name for name in names]
        yield [opened.enter_context(array_files.ArrayReader(path, MERGED)) for path in paths]


# ----------------------------------------------------------------------------------------------------------------------
# From the names of terms to their tokens and fields, as a `Naming` says.


def split_terms(terms: pa.Array, naming: Naming) -> tuple[pa.Array, NDArray[np.int64]]:
    """(the tokens of all terms, number of tokens of each); terms are large strings."""
    if naming.namespaces is None:
        lists = _characters(terms) if naming.characters else pc.split_pattern(terms, " ")
    else:
        fields = term_fields(terms, naming)
        rows = [np.flatnonzero(fields == field) for field in range(-1, len(naming.namespaces))]
        others, *texts = (terms.take(pa.array(own)) for own in rows)
        parts = [pa.ListArray.from_arrays(pa.array(np.arange(len(others) + 1), pa.int32()), others)]
        parts += [_without_prefix(text, *space) for text, space in zip(texts, naming.namespaces, strict=True)]
        lists = pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows))))
    return lists.flatten(), np.diff(lists.offsets.to_numpy()).astype(np.int64)


def term_fields(strings: pa.Array, naming: Naming) -> NDArray[np.int64]:
    """The position in `namespaces` of the field of terms, or of their first tokens; −1 for none."""
    found = np.full(len(strings), -1, np.int64)
    for field, (name, _) in enumerate(naming.namespaces or ()):
        found[np.asarray(pc.starts_with(strings, name))] = field
    return found


def _without_prefix(terms: pa.Array, name: str, characters: bool) -> pa.ListArray:
    """The tokens of terms that begin with a namespace, which stays with the first token of each."""
    rest = pc.utf8_slice_codeunits(terms, len(name))
    lists = _characters(rest) if characters else pc.split_pattern(rest, " ")
    tokens, offsets = lists.flatten(), lists.offsets
    first = np.zeros(len(tokens), np.bool_)
    first[offsets[:-1].to_numpy()] = True
    prefixes = pc.if_else(pa.array(first), pa.scalar(name, pa.large_string()), pa.scalar("", pa.large_string()))
    named = pc.binary_join_element_wise(prefixes, tokens, pa.scalar("", pa.large_string()))
    return pa.ListArray.from_arrays(offsets, named)


def _characters(terms: pa.Array) -> pa.ListArray:
    data, offsets = array_files.string_buffers(terms)
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    characters = array_files.string_array(data, np.append(starts, data.size)).cast(pa.large_string())
    return pa.ListArray.from_arrays(pa.array(np.searchsorted(starts, offsets), pa.int32()), characters)


# ----------------------------------------------------------------------------------------------------------------------
# The vocabulary: a trie of n-grams over sorted tokens, and the feature of each n-gram.


Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint32]]


@dataclass(frozen=True, eq=False)
class Vocabulary:
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
        """The vocabulary in which term i is feature i; terms are distinct.

        Raises `ValueError` for a term that is too long an n-gram.
        """
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

    def columns(self, counts: array_files.Arrays, options: TokenizerOptions) -> tuple[NDArray[np.int64], int]:
        """(the feature of each n-gram of partial counts, by its number, or −1, number of features)."""
        tokens = array_files.stored_strings(counts, "token").cast(self.tokens.type)
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
                keys, level = pack_keys(prefix[known], last[known]), self.keys[n - 2]
                if level.size:
                    places = np.minimum(np.searchsorted(level, keys), level.size - 1)
                    positions[known] = np.where(level[places] == keys, places, -1)
            if f"totals_{n}" in counts:
                found = positions >= 0
                features[bounds[n - 1] : bounds[n]][found] = self.ids[n - 1][positions[found]]
        return features, self.size

    def terms(self, numbers: NDArray[np.int64], naming: Naming = WORDS) -> pa.Array:
        """Names of n-grams, numbered over all levels concatenated. Strings, or large strings from 2 GiB on."""
        parents = NgramParents.of([np.arange(len(self.tokens), dtype=np.uint64), *self.keys])
        return ngram_names(numbers, parents._replace(lasts=parents.lasts.astype(np.int32)), self.tokens, naming)

    def count(self, texts: Texts, options: TokenizerOptions) -> Rows:
        """The counts of features in texts, by a vocabulary of fewer than 2^31 n-grams.

        Only its own n-grams are looked up; others are neither numbered nor counted.

        Returns
        -------
        indptr, indices, counts : int64, int32, uint32
            CSR matrix of shape (texts, features), whose indices increase in each row.
        """
        names, numbers, *runs = tokenize(texts, options)
        tokens = self._find(names)[numbers]
        longest = min(options.ngram_range[1], len(self.ids))
        ngrams = NgramRange(options.counted_from, options.ngram_range[0], longest)
        indptr, features = find_ngrams(tokens, *runs, ngrams, self._tables)
        rows: Rows = sort_rows(indptr, features, np.ones(features.size, np.uint32), self._features, self._features.size)
        return rows

    def _find(self, names: pa.Array) -> NDArray[np.int32]:
        """The position of each of these tokens in the vocabulary, or −1."""
        leading = np.sort(leading_bytes(*array_files.string_buffers(names)))
        leading = leading[np.diff(leading, prepend=~leading[:1]) != 0]  # in a third of the time of np.unique
        first, last = (np.searchsorted(self._leading, leading, side) for side in ("left", "right"))
        sizes = last - first  # of the tokens that begin as one of these: all bytes decide among them
        candidates = np.repeat(last - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
        known = self.tokens.take(pa.array(candidates))
        found = pc.fill_null(pc.index_in(names.cast(known.type), value_set=known), -1).to_numpy()
        return np.asarray(np.append(candidates, -1).astype(np.int32)[found])

    @cached_property
    def _leading(self) -> NDArray[np.uint64]:
        """The first bytes of the tokens of the vocabulary."""
        return np.asarray(leading_bytes(*array_files.string_buffers(self.tokens)))

    @cached_property
    def _features(self) -> NDArray[np.int32]:
        return np.arange(self.size, dtype=np.int32)

    @cached_property
    def _tables(self) -> NgramTables:
        firsts = np.cumsum([0, len(self.tokens), *(keys.size for keys in self.keys)])
        keys = np.concatenate([np.empty(0, np.uint64), *self.keys])
        ids = np.concatenate(self.ids).astype(np.int32)
        return NgramTables(firsts, ids, keys, *key_tables(keys, firsts[1:] - firsts[1]))


class NgramParents(NamedTuple):
    """The prefix and the last token of n-grams, numbered over all levels.

    Parameters
    ----------
    prefixes, lasts : ndarray
        The number of the prefix of each n-gram or −1, and its last token.
    depth : int
        Tokens of the longest n-grams.
    """

    prefixes: NDArray[np.int64]
    lasts: NDArray[Any]
    depth: int

    @classmethod
    def of(cls, levels: Sequence[NDArray[np.uint64]]) -> "NgramParents":
        """Those of all n-grams, by the keys of each level."""
        halves = [unpack_keys(keys) for keys in levels]
        firsts = np.cumsum([0, *(keys.size for keys in levels)])  # where the prefixes of the next level begin
        longer = (prefix + first for (prefix, _), first in zip(halves[1:], firsts, strict=False))
        prefixes = np.concatenate([np.full(levels[0].size, -1), *longer])
        return cls(prefixes, np.concatenate([last for _, last in halves]), len(levels))


def ngram_names(numbers: NDArray[np.int64], parents: NgramParents, tokens: pa.Array, naming: Naming) -> pa.Array:
    """Names of n-grams, whose last tokens are int32: strings, or large strings from 2 GiB on."""
    prefixes, lasts, depth = parents
    # Bytes between the tokens of the terms that begin with each of the tokens: 1 for a space, or 0.
    if naming.namespaces is None:
        spaces = np.full(len(tokens), 0 if naming.characters else 1, np.uint8)
    else:
        own = np.array([*(0 if characters else 1 for _, characters in naming.namespaces), 1], np.uint8)
        spaces = own[term_fields(tokens, naming)]
    token_bytes, token_offsets = array_files.string_buffers(tokens)
    padded = np.concatenate([token_bytes, np.zeros(8, np.uint8)])
    offsets = term_offsets(numbers, prefixes, lasts, token_offsets, spaces)
    data = write_terms(numbers, prefixes, lasts, padded, token_offsets, spaces, offsets, depth)
    return array_files.string_array(data, offsets)


# ----------------------------------------------------------------------------------------------------------------------
# The tokens of an exchange: united in groups, then in ranges, so that every token of a piece has a global position.
#
# Tokens are sorted by their bytes, which is the order of their code points.


MAX_TOKENS = 2**31 - 1
SAMPLED_PIECES, SAMPLED_NGRAMS = 32, 8  # to choose edges: pieces, and n-grams of all of them for each range


def sample_edges(target: Location, exchange: Exchange, names: Sequence[str]) -> None:
    """Choose the tokens between ranges with about equally many n-grams, from a sample of the pieces."""
    sample: list[bytes] = []
    with open_pieces(exchange, names) as pieces:
        for piece in pieces:
            sample += _sample_first_tokens(piece, -(-SAMPLED_NGRAMS * exchange.n_ranges // len(pieces)))
    sample.sort()
    edges = [sample[i * len(sample) // exchange.n_ranges] if sample else b"" for i in range(1, exchange.n_ranges)]
    array_files.save_arrays(
        target, array_files.packed_strings("edge", pa.array(edges, pa.large_binary()).cast(pa.large_string()))
    )


def _sample_first_tokens(piece: array_files.ArrayReader, wanted: int) -> list[bytes]:
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
    with open_pieces(exchange, names) as pieces:
        cuts = [_cut_tokens(piece, edges) for piece in pieces]
        maps: list[list[NDArray[np.int32]]] = [[] for _ in pieces]
        first = 0
        with array_files.write_blocks(target, exchange.n_ranges + len(pieces)) as write:
            for r in range(exchange.n_ranges):
                tokens = [_read_tokens(piece, *cut[r : r + 2]) for piece, cut in zip(pieces, cuts, strict=True)]
                united, positions = unite_strings(tokens)
                write(array_files.packed_strings("token", united))
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
    parts = [
        array_files.stored_strings(array_files.read_block(exchange.path("group-tokens", group), number), "token")
        for group in groups
    ]
    united, positions = unite_strings(parts)
    size = np.array([len(united)])
    with array_files.write_blocks(target, 1 + exchange.n_groups) as write:
        write(array_files.packed_strings("token", united))
        for position in positions:
            write({"positions": position, "size": size})


def collect_tokens(target: Location, exchange: Exchange) -> None:
    """Write the tokens of all ranges in one file. Blocks: of each range its tokens; `starts`, their first positions."""
    sizes = []
    with array_files.write_blocks(target, exchange.n_ranges + 1) as write:
        for r in range(exchange.n_ranges):
            arrays = array_files.read_block(exchange.path("range-tokens", r), 0)
            sizes.append(arrays["token_offsets"].size - 1)
            write(arrays)
        write({"starts": np.cumsum([0, *sizes])})


def take_tokens(exchange: Exchange, positions: NDArray[np.int64]) -> pa.Array:
    """The tokens at increasing global positions, as large strings; ranges without any of them are not read."""
    found = [pa.array([], pa.large_string())]
    with array_files.BlockReader(exchange.path("tokens")) as tokens:
        starts = tokens.block(exchange.n_ranges)["starts"]
        cuts = np.searchsorted(positions, starts)
        for r in np.flatnonzero(np.diff(cuts)):
            own = array_files.stored_strings(tokens.block(int(r)), "token").cast(pa.large_string())
            found.append(own.take(pa.array(positions[cuts[r] : cuts[r + 1]] - starts[r])))
    return pa.concat_arrays(found)


def global_positions(exchange: Exchange, group: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """(the global position of each token of a group, the first global position of each range and the end)."""
    positions, sizes = [], []
    for r in range(exchange.n_ranges):
        block = array_files.read_block(exchange.path("range-tokens", r), 1 + group)
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


def _cut_tokens(piece: array_files.ArrayReader, edges: list[bytes]) -> NDArray[np.int64]:
    """Where ranges begin in the tokens of a piece, and the end."""
    offsets, data = piece["token_offsets"], piece["token_bytes"].tobytes()
    bounds, size = offsets.tolist() if edges else [], offsets.size - 1
    cuts = [0]
    for edge in edges:
        cuts.append(bisect_left(range(size), edge, lo=cuts[-1], key=lambda k: data[bounds[k] : bounds[k + 1]]))
    return np.array([*cuts, size])


def _read_tokens(piece: array_files.ArrayReader, begin: int, end: int) -> pa.Array:
    offsets = piece.read("token_offsets", begin, end + 1)
    data = piece.read("token_bytes", int(offsets[0]), int(offsets[-1]))
    return array_files.string_array(data, offsets - offsets[0])


def _checked(size: int) -> int:
    if size > MAX_TOKENS:
        raise InputError(f"More than {MAX_TOKENS:,} distinct tokens: use hash_bits.", code="too-many-terms")
    return size
