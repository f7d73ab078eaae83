"""Uniting the vocabularies of pieces.

Tokens are united and sorted by their bytes, which is the order of their code points. Because a space sorts before every
character of a word, the key (place of the prefix in its level) · 2^32 + (place of the last token) then sorts n-grams
alphabetically as a number, and a piece's sorted keys stay sorted when put in common numbers. A level-n gram begins with
the same token as its prefix, so the grams that begin in a range of tokens can be merged apart from all others.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.errors import InputError
from sparseoco.text.arrays import load_arrays, save_arrays, string_array, string_buffers
from sparseoco.text.kernels.order import add_at, distinct, global_keys, locate

MAX_GRAMS = 2**31 - 1
HALF = np.uint64(32)


def unite_tokens(pieces: list[str], target: Path) -> tuple[int, NDArray[np.int64]]:
    """Stage the sorted union of the pieces' tokens and, for each piece, the place of each of its tokens in it.

    Returns the number of tokens and how many of the first piece's … last piece's keys begin with each: a weight by
    which to cut the tokens into ranges.
    """
    strings: list[pa.Array] = []
    for path in pieces:
        arrays, _ = load_arrays(Path(path))
        strings.append(string_array(arrays["token_bytes"], arrays["token_offsets"]).cast(pa.large_string()))
    united = pa.chunked_array(strings, pa.large_string()).combine_chunks().dictionary_encode()
    order = pc.sort_indices(united.dictionary.cast(pa.large_binary())).to_numpy()
    places = np.empty(order.size, np.int32)
    places[order] = np.arange(order.size, dtype=np.int32)
    numbers = places[united.indices.to_numpy()]
    tokens = united.dictionary.take(pa.array(order))
    arrays = {}
    arrays["token_bytes"], arrays["token_offsets"] = string_buffers(tokens)
    weights = np.zeros(order.size + 1, np.int64)
    begin = 0
    for i, part in enumerate(strings):
        arrays[f"map_{i}"] = numbers[begin : begin + len(part)]
        weights[arrays[f"map_{i}"]] += 1
        begin += len(part)
    save_arrays(target, arrays)
    return order.size, weights


def token_ranges(pieces: list[str], tokens: Path, parts: int) -> list[int]:
    """Bounds that cut the tokens into at most `parts` ranges of about equally many grams, judged by the first piece."""
    arrays, _ = load_arrays(tokens)
    piece, _ = load_arrays(Path(pieces[0]))
    n = arrays["token_offsets"].size - 1
    token_map = arrays["map_0"]
    if "keys_2" in piece and piece["keys_2"].size:
        keys = piece["keys_2"]
        first = token_map[(keys[np.arange(1, parts) * keys.size // parts] >> HALF).astype(np.int64)]
    else:
        first = np.arange(1, parts) * n // parts
    return sorted({0, n, *(int(token) for token in first)}) if n else [0, 0]


def merge_range(pieces: list[str], tokens: str, low: int, high: int, counted_from: int, target: str) -> list[int]:
    """Merge the grams whose first token lies in [low, high); stages keys_<n>, totals_<n> and documents_<n>.

    Prefix places in keys_<n> count from the beginning of the range. Gives the sizes of the levels.
    """
    maps, _ = load_arrays(Path(tokens))
    opened = [load_arrays(Path(path))[0] for path in pieces]
    arrays: dict[str, NDArray[Any]] = {}
    sizes = [high - low]
    # Of each piece: the slice of the level below that lies in the range, and its places in the range.
    slices: list[tuple[int, int]] = []
    prefix_maps: list[NDArray[np.int32]] = []
    for i in range(len(pieces)):
        token_map = maps[f"map_{i}"]
        begin, end = np.searchsorted(token_map, [low, high]).tolist()
        slices.append((begin, end))
        prefix_maps.append(token_map[begin:end] - np.int32(low))
    level = 1
    if counted_from == 1:
        _add_totals(opened, slices, prefix_maps, 1, sizes[0], arrays)
    while any(f"keys_{level + 1}" in piece for piece in opened):
        level += 1
        keys: list[NDArray[np.uint64]] = []
        for i, piece in enumerate(opened):
            local = piece[f"keys_{level}"]
            bounds = np.array(slices[i], np.uint64) << HALF
            begin, end = np.searchsorted(local, bounds).tolist()
            keys.append(global_keys(local[begin:end], slices[i][0], prefix_maps[i], maps[f"map_{i}"]))
            slices[i] = (begin, end)
        united = distinct(np.sort(np.concatenate(keys)))
        if united.size > MAX_GRAMS:
            raise InputError(
                f"More than {MAX_GRAMS:,} different {level}-grams: use hash_bits, or a smaller ngram_range."
            )
        prefix_maps = [locate(local, united) for local in keys]
        arrays[f"keys_{level}"] = united
        sizes.append(united.size)
        if level >= counted_from:
            _add_totals(opened, slices, prefix_maps, level, united.size, arrays)
    save_arrays(Path(target), arrays, {"sizes": sizes})
    return sizes


def _add_totals(
    opened: list[dict[str, NDArray[Any]]],
    slices: list[tuple[int, int]],
    places: list[NDArray[np.int32]],
    level: int,
    size: int,
    arrays: dict[str, NDArray[Any]],
) -> None:
    for what in (f"totals_{level}", f"documents_{level}"):
        sums = np.zeros(size, np.int64)
        for piece, (begin, end), place in zip(opened, slices, places, strict=True):
            add_at(place, piece[what][begin:end], sums)
        arrays[what] = sums
