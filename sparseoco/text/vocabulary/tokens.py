"""The tokens of an exchange: united in groups, then in ranges, so that every token of a piece has a global position.

Tokens are sorted by their bytes, which is the order of their code points.
"""

from bisect import bisect_left

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.array_files import ArrayReader, Arrays, store_strings, stored_strings, string_array
from sparseoco.text.block_files import BlockReader, read_block, write_blocks
from sparseoco.text.counting.ngrams import alphabetical_order, inverse
from sparseoco.text.kernels.keys import HALF
from sparseoco.text.vocabulary.exchange import Exchange, open_pieces

MAX_TOKENS = 2**31 - 1
SAMPLED_PIECES, SAMPLED_NGRAMS = 32, 8  # to choose edges: pieces, and n-grams of all of them for each range


def sample_edges(exchange: Exchange) -> None:
    """Choose the tokens between ranges with about equally many n-grams, from a sample of the pieces."""
    target = exchange.path("edges")
    if target.is_file():
        return
    sample: list[bytes] = []
    numbers = np.unique(np.linspace(0, exchange.n_pieces - 1, SAMPLED_PIECES).astype(int))
    wanted = -(-SAMPLED_NGRAMS * exchange.n_ranges // numbers.size)
    for group in np.unique(numbers // exchange.group_size):
        members = numbers[numbers // exchange.group_size == group] - group * exchange.group_size
        paths = exchange.pieces(int(group))
        with open_pieces([paths[member] for member in members]) as pieces:
            for piece in pieces:
                sample += _sample_first_tokens(piece, wanted)
    sample.sort()
    edges = [sample[i * len(sample) // exchange.n_ranges] if sample else b"" for i in range(1, exchange.n_ranges)]
    arrays: Arrays = {}
    store_strings(arrays, "edge", pa.array(edges, pa.large_binary()).cast(pa.large_string()))
    with write_blocks(target, 1) as write:
        write(arrays)


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


def unite_group(exchange: Exchange, group: int) -> None:
    """Write the united tokens of a group.

    Blocks: of each range its tokens; of each piece `map`, the positions of its tokens in the group, and `cuts`, where
    ranges begin in its own tokens.
    """
    target = exchange.path("group-tokens", group)
    if target.is_file():
        return
    edges = exchange.edges()
    with open_pieces(exchange.pieces(group)) as pieces:
        cuts = [_cut_tokens(piece, edges) for piece in pieces]
        maps: list[list[NDArray[np.int32]]] = [[] for _ in pieces]
        first = 0
        with write_blocks(target, exchange.n_ranges + len(pieces)) as write:
            for r in range(exchange.n_ranges):
                tokens = [_read_tokens(piece, *cut[r : r + 2]) for piece, cut in zip(pieces, cuts, strict=True)]
                united, positions = unite_strings(tokens)
                write(_token_arrays(united))
                for own, position in zip(maps, positions, strict=True):
                    own.append(position + np.int32(first))
                first += _checked(len(united))
            for own, cut in zip(maps, cuts, strict=True):
                write({"map": np.concatenate(own), "cuts": cut})


def unite_range(exchange: Exchange, number: int) -> None:
    """Write the united tokens of a range.

    Blocks: the tokens; of each group `positions` of its tokens in the range, and `size`, the tokens of the range.
    """
    target = exchange.path("range-tokens", number)
    if target.is_file():
        return
    groups = range(exchange.n_groups)
    parts = [stored_strings(read_block(exchange.path("group-tokens", group), number), "token") for group in groups]
    united, positions = unite_strings(parts)
    size = np.array([len(united)])
    with write_blocks(target, 1 + exchange.n_groups) as write:
        write(_token_arrays(united))
        for position in positions:
            write({"positions": position, "size": size})


def collect_tokens(exchange: Exchange) -> None:
    """Write the tokens of all ranges in one file. Blocks: of each range its tokens; `starts`, their first positions."""
    target = exchange.path("tokens")
    if target.is_file():
        return
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
        starts = tokens[exchange.n_ranges]["starts"]
        cuts = np.searchsorted(positions, starts)
        for r in np.flatnonzero(np.diff(cuts)):
            own = stored_strings(tokens[int(r)], "token").cast(pa.large_string())
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


def _token_arrays(tokens: pa.Array) -> Arrays:
    arrays: Arrays = {}
    store_strings(arrays, "token", tokens)
    return arrays


def _checked(size: int) -> int:
    if size > MAX_TOKENS:
        raise InputError(f"More than {MAX_TOKENS:,} distinct tokens: use hash_bits.", code="too-many-terms")
    return size
