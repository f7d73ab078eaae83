"""Merge the n-grams of pieces, in groups and then in ranges.

Because a space sorts before every word character, the key (position of the prefix in its level) · 2^32 + (position of
the last token) sorts n-grams alphabetically as a number, and sorted keys stay sorted in positions of merged n-grams. An
n-gram begins with the same token as its prefix, so n-grams can be merged by ranges of their first token. Within a
range, positions of prefixes begin at its first; those of last tokens are global. The key of a token is its position.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.array_files import ArrayReader, Arrays
from sparseoco.text.block_files import BlockReader, read_block, write_blocks
from sparseoco.text.kernels.keys import HALF, add_at, compose, map_keys, merge_pair
from sparseoco.text.vocabulary.exchange import Exchange, open_pieces
from sparseoco.text.vocabulary.selection import Selection, describe_range
from sparseoco.text.vocabulary.tokens import global_positions

MAX_NGRAMS = 2**31 - 1
SUMS = ("totals", "documents", "known")
_NO_KEYS = np.empty(0, np.uint64)


def merge_ngrams(parts: Sequence[Arrays]) -> tuple[Arrays, list[list[NDArray[np.int32]]]]:
    """Merge sorted n-grams.

    Parameters
    ----------
    parts : sequence of Arrays
        keys_<n> of each level, uint64, strictly increasing, and of some levels totals_<n>, documents_<n> and known_<n>.

    Returns
    -------
    merged : Arrays
        The same arrays of the union, with sums.
    positions : list of list of ndarray of int32
        For each level and part the positions of its n-grams in the union.

    Raises
    ------
    InputError
        For 2^31 n-grams of one length or more.
    """
    merged: Arrays = {}
    positions: list[list[NDArray[np.int32]]] = []
    while any(f"keys_{len(positions) + 1}" in part for part in parts):
        n = len(positions) + 1
        keys = [part.get(f"keys_{n}", _NO_KEYS) for part in parts]
        if n > 1:
            keys = [_map_prefixes(own, above) for own, above in zip(keys, positions[-1], strict=True)]
        level, level_positions = _union(keys)
        if level.size > MAX_NGRAMS:
            raise InputError(
                f"More than {MAX_NGRAMS:,} distinct {n}-grams: use hash_bits, or a smaller ngram_range.",
                code="too-many-terms",
            )
        positions.append(level_positions)
        merged[f"keys_{n}"] = level
        for name in (f"{what}_{n}" for what in SUMS):
            if any(name in part for part in parts):
                merged[name] = _sum([part.get(name) for part in parts], positions[-1], level.size)
    return merged, positions


def _map_prefixes(keys: NDArray[np.uint64], positions: NDArray[np.int32]) -> NDArray[np.uint64]:
    """The keys with positions of prefixes in the union."""
    if not keys.size or positions[-1] == positions.size - 1:  # positions increase: each is its own
        return keys
    moved = (positions - np.arange(positions.size)).astype(np.uint64) << HALF
    return keys + moved[(keys >> HALF).astype(np.int64)]


def _union(keys: Sequence[NDArray[np.uint64]]) -> tuple[NDArray[np.uint64], list[NDArray[np.int32]]]:
    """(the sorted union of arrays that strictly increase, the positions of each in it), merged in pairs."""
    if len(keys) == 1:
        return keys[0], [np.arange(keys[0].size, dtype=np.int32)]
    middle = len(keys) // 2
    left, left_positions = _union(keys[:middle])
    right, right_positions = _union(keys[middle:])
    union, left_map, right_map = merge_pair(left, right)
    return union, [
        *(compose(left_map, own) for own in left_positions),
        *(compose(right_map, own) for own in right_positions),
    ]


def _sum(
    parts: Sequence[NDArray[np.integer] | None], positions: Sequence[NDArray[np.int32]], size: int
) -> NDArray[np.integer]:
    total = np.zeros(size, np.int64)
    for part, position in zip(parts, positions, strict=True):
        if part is not None:
            add_at(total, position, part)
    return total.astype(np.int32) if total.max(initial=0) < 2**31 else total  # int32 halves the staged bytes


def merge_group(exchange: Exchange, group: int) -> None:
    """Write the merged n-grams of a group.

    Blocks: of each range the merged n-grams, then positions_<n> of those of all pieces and begins_<n>, where those of
    each piece begin; at the end sizes_<n>, the n-grams of each piece. Positions are of counted levels.
    """
    target = exchange.path("group-ngrams", group)
    if target.is_file():
        return
    to_global, _ = global_positions(exchange, group)
    with (
        open_pieces(exchange.pieces(group)) as pieces,
        BlockReader(exchange.path("group-tokens", group)) as tokens,
        write_blocks(target, 2 * exchange.n_ranges + 1) as write,
    ):
        parts = []
        for i, piece in enumerate(pieces):
            block = tokens[exchange.n_ranges + i]
            parts.append(_Piece(piece, to_global[block["map"]], block["cuts"]))
        for r in range(exchange.n_ranges):
            merged, positions = merge_ngrams([part.ngrams(r) for part in parts])
            write(merged)
            maps: Arrays = {}
            for n in range(exchange.counted_from, len(positions) + 1):
                maps[f"positions_{n}"] = np.concatenate(positions[n - 1])
                maps[f"begins_{n}"] = np.cumsum([0, *(own.size for own in positions[n - 1])])
            write(maps)
        levels = range(exchange.counted_from, max(len(part.cuts) for part in parts) + 1)
        write({f"sizes_{n}": np.array([part.size(n) for part in parts]) for n in levels})


class _Piece:
    """The n-grams of a piece by range, with global positions of tokens."""

    def __init__(self, piece: ArrayReader, tokens: NDArray[np.int32], cuts: NDArray[np.int64]) -> None:
        self._piece = piece
        self._tokens = tokens
        self.cuts = [cuts]  # of each level
        while (name := f"keys_{len(self.cuts) + 1}") in piece:
            self.cuts.append(np.searchsorted(piece[name], self.cuts[-1].astype(np.uint64) << HALF))

    def size(self, n: int) -> int:
        return int(self.cuts[n - 1][-1]) if n <= len(self.cuts) else 0

    def ngrams(self, number: int) -> Arrays:
        """The n-grams of a range, as `merge_ngrams` takes them."""
        result: Arrays = {}
        first = before = 0  # of the prefixes: the first, and their number
        for n, cuts in enumerate(self.cuts, 1):
            begin, end = (int(cut) for cut in cuts[number : number + 2])
            if n == 1:
                result["keys_1"] = self._tokens[begin:end].astype(np.uint64)
            else:
                keys = self._piece.read(f"keys_{n}", begin, end)
                result[f"keys_{n}"] = map_keys(keys, first, np.arange(before, dtype=np.int32), self._tokens)
            for name in (f"{what}_{n}" for what in SUMS):
                if name in self._piece:
                    result[name] = self._piece.read(name, begin, end)
            first, before = begin, end - begin
        return result


def merge_range(exchange: Exchange, selection: Selection, number: int) -> None:
    """Write the merged n-grams of a range.

    Blocks: the two of `describe_range`, the merged n-grams, and of each group positions_<n> of its n-grams.
    """
    target = exchange.path("range-ngrams", number)
    if target.is_file():
        return
    parts = [read_block(exchange.path("group-ngrams", group), 2 * number) for group in range(exchange.n_groups)]
    merged, positions = merge_ngrams(parts)
    with write_blocks(target, 3 + exchange.n_groups) as write:
        for arrays in describe_range(exchange, selection, number, merged):
            write(arrays)
        write(merged)
        levels = range(exchange.counted_from, len(positions) + 1)
        for group in range(exchange.n_groups):
            write({f"positions_{n}": positions[n - 1][group] for n in levels})
