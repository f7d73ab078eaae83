"""Uniting the vocabularies of pieces.

Tokens are united and sorted by their bytes, which is the order of their code points. Because a space sorts before every
character of a word, the key (place of the prefix in its level) · 2^32 + (place of the last token) then sorts n-grams
alphabetically as a number, and a piece's sorted keys stay sorted when put in common numbers. A level-n gram begins with
the same token as its prefix, so the grams that begin in a range of tokens can be merged apart from all others.
"""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location, location
from sparseoco.text.array_files import Parts, Reader, load_arrays, save_arrays, string_array, string_buffers
from sparseoco.text.kernels.keys import add_at, distinct, global_keys, locate, spread
from sparseoco.text.vocabulary.trie import Vocabulary

MAX_GRAMS = 2**31 - 1
SAMPLED_PIECES, SAMPLED_TOKENS = 32, 8  # for cutting tokens into parts: of each sampled piece so many for each part
HALF = np.uint64(32)


def token_edges(pieces: list[str], parts: int) -> list[bytes]:
    """At most `parts` − 1 increasing tokens that cut the pieces' tokens into parts of about one size, by a sample."""
    sample: list[bytes] = []
    for number in np.linspace(0, len(pieces) - 1, min(len(pieces), SAMPLED_PIECES)).astype(int):
        with Reader(location(pieces[number])) as piece:
            n = piece.size("token_offsets") - 1
            step = max(1, -(-n // (SAMPLED_TOKENS * parts)))
            sample += [_token(piece, k) for k in range(0, n, step)]
    sample.sort()
    return sorted({sample[i * len(sample) // parts] for i in range(1, parts)}) if sample else []


def unite_range(pieces: list[str], low: bytes | None, high: bytes | None, target: str) -> None:
    """Stage the sorted union of the pieces' tokens in [low, high), None being no bound.

    token_bytes, token_offsets; begins (pieces + 1,): where each piece's tokens begin in numbers int32, the place of
    each in the union.
    """
    strings: list[pa.Array] = []
    for path in pieces:
        with Reader(location(path)) as piece:
            begin = 0 if low is None else _first_not_below(piece, low)
            end = piece.size("token_offsets") - 1 if high is None else _first_not_below(piece, high)
            offsets = piece.read("token_offsets", begin, end + 1)
            data = piece.read("token_bytes", int(offsets[0]), int(offsets[-1]))
        strings.append(string_array(data, offsets - offsets[0]).cast(pa.large_string()))
    united = pa.chunked_array(strings, pa.large_string()).combine_chunks().dictionary_encode()
    order = pc.sort_indices(united.dictionary.cast(pa.large_binary())).to_numpy()
    places = np.empty(order.size, np.int32)
    places[order] = np.arange(order.size, dtype=np.int32)
    arrays = {"begins": np.cumsum([0, *map(len, strings)]), "numbers": places[united.indices.to_numpy()]}
    arrays["token_bytes"], arrays["token_offsets"] = string_buffers(united.dictionary.take(pa.array(order)))
    save_arrays(location(target), arrays)


def collect_tokens(ranges: list[str], pieces: int, target: str) -> None:
    """Stage the sorted union of all tokens, and as map_<i> the place in it of each token of the i-th piece."""
    with ExitStack() as opened:
        readers = [opened.enter_context(Reader(location(path))) for path in ranges]
        _collect(readers, pieces, location(target))


def _collect(readers: list[Reader], pieces: int, target: Location) -> None:
    begins = [reader["begins"] for reader in readers]
    tokens = np.cumsum([0, *(reader.size("token_offsets") - 1 for reader in readers)])
    data = np.cumsum([0, *(reader.size("token_bytes") for reader in readers)])
    if tokens[-1] > MAX_GRAMS:
        raise InputError(f"More than {MAX_GRAMS:,} different tokens: use hash_bits.")

    def bytes_of() -> Iterator[NDArray[Any]]:
        for reader in readers:
            yield reader["token_bytes"]

    def offsets() -> Iterator[NDArray[Any]]:
        yield np.zeros(1, np.int64)
        for r, reader in enumerate(readers):
            yield reader.read("token_offsets", 1, reader.size("token_offsets")) + data[r]

    def numbers(piece: int) -> Iterator[NDArray[Any]]:
        for r, reader in enumerate(readers):
            part = reader.read("numbers", int(begins[r][piece]), int(begins[r][piece + 1]))
            yield part + np.int32(tokens[r])

    arrays = {
        "token_bytes": Parts(np.dtype(np.uint8), int(data[-1]), bytes_of()),
        "token_offsets": Parts(np.dtype(np.int64), int(tokens[-1]) + 1, offsets()),
    }
    for piece in range(pieces):
        size = int(sum(begin[piece + 1] - begin[piece] for begin in begins))
        arrays[f"map_{piece}"] = Parts(np.dtype(np.int32), size, numbers(piece))
    save_arrays(target, arrays)


def _token(piece: Reader, number: int) -> bytes:
    begin, end = piece.read("token_offsets", number, number + 2).tolist()
    return piece.read("token_bytes", begin, end).tobytes()


def _first_not_below(piece: Reader, bound: bytes) -> int:
    return bisect_left(range(piece.size("token_offsets") - 1), bound, key=lambda number: _token(piece, number))


def token_ranges(pieces: list[str], tokens: Location, parts: int) -> list[int]:
    """Bounds that cut the tokens into at most `parts` ranges of about equally many grams, judged by the first piece."""
    arrays, _ = load_arrays(tokens)
    piece, _ = load_arrays(location(pieces[0]))
    n = arrays["token_offsets"].size - 1
    token_map = arrays["map_0"]
    if "keys_2" in piece and piece["keys_2"].size:
        keys = piece["keys_2"]
        first = token_map[(keys[np.arange(1, parts) * keys.size // parts] >> HALF).astype(np.int64)]
    else:
        first = np.arange(1, parts) * n // parts
    return sorted({0, n, *(int(token) for token in first)}) if n else [0, 0]


def merge_range(pieces: list[str], tokens: str, low: int, high: int, counted_from: int, target: str) -> None:
    """Merge the grams whose first token lies in [low, high), and stage them.

    keys_<n> (n ≥ 2; places of prefixes count from the beginning of the range); for counted levels totals_<n>,
    documents_<n>, and places_<n>: where the grams of each piece went, piece after piece. slices_<n> (pieces, 2) int64
    says which of a piece's grams, in alphabetical order, lie in the range: (begin, end).
    """
    arrays: dict[str, NDArray[Any]] = {}
    with Reader(location(tokens)) as maps:
        # Of each piece: the slice of a level that lies in the range, and its places there.
        slices = [(maps.search(f"map_{i}", low), maps.search(f"map_{i}", high)) for i in range(len(pieces))]
        places = [maps.read(f"map_{i}", begin, end) - np.int32(low) for i, (begin, end) in enumerate(slices)]
        arrays["slices_1"] = np.array(slices, np.int64)
        sizes = [high - low]
        _add_totals(pieces, slices, places, 1, high - low, counted_from, arrays)
        level = 2
        while True:
            keys: list[NDArray[np.uint64]] = []
            found = False
            for i, path in enumerate(pieces):
                with Reader(location(path)) as piece:
                    name = f"keys_{level}"
                    found |= name in piece
                    begin, end = (piece.search(name, bound << 32) for bound in slices[i]) if name in piece else (0, 0)
                    local = piece.read(name, begin, end) if name in piece else np.empty(0, np.uint64)
                keys.append(global_keys(local, slices[i][0], places[i], maps[f"map_{i}"]) if local.size else local)
                slices[i] = (begin, end)
            if not found:
                break
            united = distinct(np.sort(np.concatenate(keys)))
            if united.size > MAX_GRAMS:
                raise InputError(
                    f"More than {MAX_GRAMS:,} different {level}-grams: use hash_bits, or a smaller ngram_range."
                )
            places = [locate(local, united) for local in keys]
            arrays[f"keys_{level}"] = united
            sizes.append(united.size)
            arrays[f"slices_{level}"] = np.array(slices, np.int64)
            _add_totals(pieces, slices, places, level, united.size, counted_from, arrays)
            level += 1
    save_arrays(location(target), arrays, {"sizes": sizes})


def _add_totals(
    pieces: list[str],
    slices: list[tuple[int, int]],
    places: list[NDArray[np.int32]],
    level: int,
    size: int,
    counted_from: int,
    arrays: dict[str, NDArray[Any]],
) -> None:
    if level < counted_from:
        return
    names = (f"totals_{level}", f"documents_{level}")
    sums = [np.zeros(size, np.int64) for _ in names]
    for path, (begin, end), place in zip(pieces, slices, places, strict=True):
        if begin < end:
            with Reader(location(path)) as piece:
                for name, own in zip(names, sums, strict=True):
                    add_at(place, piece.read(name, begin, end), own)
    for name, own in zip(names, sums, strict=True):
        arrays[name] = own.astype(np.int32) if own.max(initial=0) < 2**31 else own  # half the bytes to hand on
    arrays[f"places_{level}"] = np.concatenate(places)


class Merged:
    """The merged grams: the staged union of the tokens, and one file a range.

    Grams are numbered level by level, alphabetically in each; the levels below `counted_from` are prefixes only, and
    `first` is the number of the first counted gram.
    """

    def __init__(self, tokens: Location, ranges: list[Location], counted_from: int) -> None:
        self._tokens = tokens
        self._ranges = ranges
        sizes = []
        for path in ranges:
            with Reader(path) as part:
                sizes.append(part.facts["sizes"])
        self._sizes = np.array(sizes, np.int64)  # (ranges, levels)
        self._levels = range(counted_from, self._sizes.shape[1] + 1)
        self.first = int(self._sizes[:, : counted_from - 1].sum())

    def sums(self, what: str) -> NDArray[np.int64]:
        """`totals` or `documents` of the counted grams."""
        result = np.empty(int(self._sizes[:, self._levels.start - 1 :].sum()), np.int64)
        at = 0
        for n in self._levels:
            for part in self._parts(f"{what}_{n}"):
                result[at : at + part.size] = part
                at += part.size
        return result

    def trie(self) -> Vocabulary:
        """All grams, none of them a feature."""
        keys: list[NDArray[np.uint64]] = []
        for n in range(2, self._sizes.shape[1] + 1):
            before = np.concatenate([[0], np.cumsum(self._sizes[:, n - 2])]).astype(np.uint64) << HALF
            keys.append(
                np.concatenate([part + offset for part, offset in zip(self._parts(f"keys_{n}"), before, strict=False)])
            )
        united, _ = load_arrays(self._tokens)
        tokens = string_array(united["token_bytes"], united["token_offsets"]).cast(pa.large_string())
        return Vocabulary(tokens, tuple(keys), (), 0)

    def features(self, piece: dict[str, NDArray[Any]], index: int, ids: NDArray[Any]) -> NDArray[np.int64]:
        """The feature of each gram of the piece that was the `index`-th, where counted gram g is the feature ids[g]."""
        result = np.full(sum(array.size for name, array in piece.items() if name.startswith("nodes_")), -1, np.int64)
        sizes = self._sizes[:, self._levels.start - 1 :]
        below = np.cumsum(sizes.T.reshape(-1)).reshape(sizes.T.shape) - sizes.T  # grams before, by level and range
        for r, path in enumerate(self._ranges):
            with Reader(path) as part:
                for level, n in enumerate(self._levels):
                    slices = part[f"slices_{n}"]
                    begin = int((slices[:index, 1] - slices[:index, 0]).sum())
                    start, end = slices[index].tolist()
                    places = part.read(f"places_{n}", begin, begin + end - start)
                    first = int(below[level, r])
                    own = ids[first : first + int(sizes[r, level])]
                    spread(own, places, piece[f"nodes_{n}"][start:end], result)
        return result

    def _parts(self, name: str) -> Iterator[NDArray[Any]]:
        """An array of each range."""
        for path in self._ranges:
            with Reader(path) as part:
                yield part[name]
