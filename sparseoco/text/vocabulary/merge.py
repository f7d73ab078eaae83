"""Merge the vocabularies of partial counts, range by range.

Tokens are sorted by their bytes, which is the order of their code points. Because a space sorts before every word
character, the key (position of the prefix in its level) · 2^32 + (position of the last token) sorts n-grams
alphabetically as a number, and the sorted keys of a split stay sorted in positions of the merged vocabulary. An n-gram
begins with the same token as its prefix, so n-grams can be merged by ranges of their first token.
"""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location, location
from sparseoco.text.array_files import (
    ArrayParts,
    ArrayReader,
    Arrays,
    load_arrays,
    save_arrays,
    store_strings,
    stored_strings,
    string_array,
)
from sparseoco.text.counting.ngrams import alphabetical_order, inverse, n_ngrams
from sparseoco.text.kernels.keys import HALF, locate, map_keys, unpack_keys
from sparseoco.text.vocabulary.trie import Vocabulary

MAX_NGRAMS = 2**31 - 1
SAMPLED_SPLITS, SAMPLED_TOKENS = 32, 8  # to choose token ranges: splits, and tokens of a split for each range


def sample_token_bounds(counts: list[str], parts: int) -> list[bytes]:
    """At most `parts` − 1 increasing tokens that divide all tokens into about equal ranges, from a sample."""
    sample: list[bytes] = []
    for number in np.linspace(0, len(counts) - 1, min(len(counts), SAMPLED_SPLITS)).astype(int):
        with ArrayReader(location(counts[number])) as split:
            n = split.size("token_offsets") - 1
            step = max(1, -(-n // (SAMPLED_TOKENS * parts)))
            sample += [_token(split, k) for k in range(0, n, step)]
    sample.sort()
    return sorted({sample[i * len(sample) // parts] for i in range(1, parts)}) if sample else []


def unite_tokens(counts: list[str], low: bytes | None, high: bytes | None, target: str) -> None:
    """Stage the sorted union of the tokens in [low, high) of all splits; None means no bound.

    Arrays: token_bytes, token_offsets; positions int32, of the tokens of all splits in the union; begins (splits + 1,),
    offsets of the splits in `positions`.
    """
    strings: list[pa.Array] = []
    for path in counts:
        with ArrayReader(location(path)) as split:
            begin = 0 if low is None else _first_not_below(split, low)
            end = split.size("token_offsets") - 1 if high is None else _first_not_below(split, high)
            offsets = split.read("token_offsets", begin, end + 1)
            data = split.read("token_bytes", int(offsets[0]), int(offsets[-1]))
        strings.append(string_array(data, offsets - offsets[0]).cast(pa.large_string()))
    united = pa.chunked_array(strings, pa.large_string()).combine_chunks().dictionary_encode()
    order = alphabetical_order(united.dictionary)
    arrays: Arrays = {
        "begins": np.cumsum([0, *map(len, strings)]),
        "positions": inverse(order).astype(np.int32)[united.indices.to_numpy()],
    }
    store_strings(arrays, "token", united.dictionary.take(pa.array(order)))
    save_arrays(location(target), arrays)


def collect_tokens(ranges: list[str], n_splits: int, target: str) -> None:
    """Stage the sorted union of all tokens, and, as map_<i>, the positions of the tokens of split i in it."""
    with ExitStack() as opened:
        readers = [opened.enter_context(ArrayReader(location(path))) for path in ranges]
        _collect(readers, n_splits, location(target))


def _collect(readers: list[ArrayReader], n_splits: int, target: Location) -> None:
    begins = [reader["begins"] for reader in readers]
    first_token = np.cumsum([0, *(reader.size("token_offsets") - 1 for reader in readers)])
    first_byte = np.cumsum([0, *(reader.size("token_bytes") for reader in readers)])
    if first_token[-1] > MAX_NGRAMS:
        raise InputError(f"More than {MAX_NGRAMS:,} distinct tokens: use hash_bits.", code="too-many-terms")

    def offsets() -> Iterator[NDArray[Any]]:
        yield np.zeros(1, np.int64)
        for reader, first in zip(readers, first_byte, strict=False):
            yield reader.read("token_offsets", 1, reader.size("token_offsets")) + first

    def positions(split: int) -> Iterator[NDArray[Any]]:
        for reader, begin, first in zip(readers, begins, first_token, strict=False):
            yield reader.read("positions", int(begin[split]), int(begin[split + 1])) + np.int32(first)

    arrays = {
        "token_bytes": ArrayParts(
            np.dtype(np.uint8), int(first_byte[-1]), (reader["token_bytes"] for reader in readers)
        ),
        "token_offsets": ArrayParts(np.dtype(np.int64), int(first_token[-1]) + 1, offsets()),
    }
    for split in range(n_splits):
        size = int(sum(begin[split + 1] - begin[split] for begin in begins))
        arrays[f"map_{split}"] = ArrayParts(np.dtype(np.int32), size, positions(split))
    save_arrays(target, arrays)


def _token(split: ArrayReader, number: int) -> bytes:
    begin, end = split.read("token_offsets", number, number + 2).tolist()
    return split.read("token_bytes", begin, end).tobytes()


def _first_not_below(split: ArrayReader, bound: bytes) -> int:
    return bisect_left(range(split.size("token_offsets") - 1), bound, key=lambda number: _token(split, number))


def token_ranges(counts: list[str], tokens: Location, parts: int) -> list[int]:
    """Bounds of at most `parts` ranges of tokens with about equally many n-grams, estimated from the first split."""
    arrays, _ = load_arrays(tokens)
    split, _ = load_arrays(location(counts[0]))
    n = arrays["token_offsets"].size - 1
    keys = split.get("keys_2")
    if keys is not None and keys.size:
        first = arrays["map_0"][unpack_keys(keys[np.arange(1, parts) * keys.size // parts])[0]]
    else:
        first = np.arange(1, parts) * n // parts
    return sorted({0, n, *(int(token) for token in first)}) if n else [0, 0]


def merge_range(counts: list[str], tokens: str, low: int, high: int, counted_from: int, target: str) -> None:
    """Merge the n-grams whose first token is in [low, high), and stage them.

    Arrays: keys_<n> (n ≥ 2; positions of prefixes are relative to the range); for counted levels totals_<n>,
    documents_<n>, and positions_<n>, of the n-grams of each split, split by split. slices_<n> (splits, 2) int64:
    (begin, end) of the n-grams of each split, in alphabetical order, that are in the range.
    """
    arrays: Arrays = {}
    sizes: list[int] = []

    def finish_level(n: int, size: int) -> None:
        sizes.append(size)
        arrays[f"slices_{n}"] = np.array(slices, np.int64)
        if n >= counted_from:
            arrays.update(_sum(counts, (f"totals_{n}", f"documents_{n}"), slices, positions, size))
            arrays[f"positions_{n}"] = np.concatenate(positions)

    with ArrayReader(location(tokens)) as maps:
        # For each split: the slice of a level that is in the range, and its positions in the merged level.
        slices = [(maps.search(f"map_{i}", low), maps.search(f"map_{i}", high)) for i in range(len(counts))]
        positions = [maps.read(f"map_{i}", begin, end) - np.int32(low) for i, (begin, end) in enumerate(slices)]
        finish_level(1, high - low)
        level = 2
        while True:
            name = f"keys_{level}"
            keys: list[NDArray[np.uint64]] = []
            found = False
            for i, path in enumerate(counts):
                first = slices[i][0]
                begin, end, local = 0, 0, np.empty(0, np.uint64)
                with ArrayReader(location(path)) as split:
                    if name in split:
                        found = True
                        begin, end = (split.search(name, bound << 32) for bound in slices[i])
                        local = split.read(name, begin, end)
                keys.append(map_keys(local, first, positions[i], maps[f"map_{i}"]) if local.size else local)
                slices[i] = (begin, end)
            if not found:
                break
            ordered = np.sort(np.concatenate(keys))
            merged = ordered[np.append(True, ordered[1:] != ordered[:-1])] if ordered.size else ordered
            if merged.size > MAX_NGRAMS:
                raise InputError(
                    f"More than {MAX_NGRAMS:,} distinct {level}-grams: use hash_bits, or a smaller ngram_range.",
                    code="too-many-terms",
                )
            positions = [locate(local, merged) for local in keys]
            arrays[name] = merged
            finish_level(level, merged.size)
            level += 1
    save_arrays(location(target), arrays, {"sizes": sizes})


def _sum(
    counts: list[str],
    names: tuple[str, ...],
    slices: list[tuple[int, int]],
    positions: list[NDArray[np.int32]],
    size: int,
) -> Arrays:
    """The sums over all splits of arrays of a level."""
    sums = {name: np.zeros(size, np.int64) for name in names}
    for path, (begin, end), position in zip(counts, slices, positions, strict=True):
        if begin < end:
            with ArrayReader(location(path)) as split:
                for name, total in sums.items():
                    total[position] += split.read(name, begin, end)  # no position occurs twice in a split
    # int32 halves the staged bytes.
    return {name: s.astype(np.int32) if s.max(initial=0) < 2**31 else s for name, s in sums.items()}


class MergedNgrams:
    """The merged n-grams: the staged union of the tokens, and one file per range.

    N-grams are numbered level by level, alphabetically in each. Levels below `counted_from` are only prefixes; `first`
    is the number of the first counted n-gram.
    """

    def __init__(self, tokens: Location, ranges: list[Location], counted_from: int) -> None:
        self._tokens = tokens
        self._ranges = ranges
        sizes = []
        for path in ranges:
            with ArrayReader(path) as part:
                sizes.append(part.facts["sizes"])
        self._sizes = np.array(sizes, np.int64)  # (ranges, levels)
        self._levels = range(counted_from, self._sizes.shape[1] + 1)
        self.first = int(self._sizes[:, : counted_from - 1].sum())

    def sums(self, what: str) -> NDArray[np.int64]:
        """`totals` or `documents` of the counted n-grams."""
        result = np.empty(int(self._sizes[:, self._levels.start - 1 :].sum()), np.int64)
        begin = 0
        for n in self._levels:
            for part in self._parts(f"{what}_{n}"):
                result[begin : begin + part.size] = part
                begin += part.size
        return result

    def trie(self) -> Vocabulary:
        """All n-grams, without features."""
        keys: list[NDArray[np.uint64]] = []
        for n in range(2, self._sizes.shape[1] + 1):
            first = np.concatenate([[0], np.cumsum(self._sizes[:, n - 2])]).astype(np.uint64) << HALF
            keys.append(
                np.concatenate([part + offset for part, offset in zip(self._parts(f"keys_{n}"), first, strict=False)])
            )
        united, _ = load_arrays(self._tokens)
        return Vocabulary(stored_strings(united, "token").cast(pa.large_string()), tuple(keys), (), 0)

    def features(self, counts: Arrays, index: int, ids: NDArray[Any]) -> NDArray[np.int64]:
        """The feature of each n-gram of split `index`, if counted n-gram g is the feature ids[g]."""
        result = np.full(n_ngrams(counts), -1, np.int64)
        sizes = self._sizes[:, self._levels.start - 1 :]
        first = np.cumsum(sizes.T.reshape(-1)).reshape(sizes.T.shape) - sizes.T  # by level and range
        for r, path in enumerate(self._ranges):
            with ArrayReader(path) as part:
                for level, n in enumerate(self._levels):
                    slices = part[f"slices_{n}"]
                    begin = int((slices[:index, 1] - slices[:index, 0]).sum())
                    start, end = slices[index].tolist()
                    positions = part.read(f"positions_{n}", begin, begin + end - start)
                    level_ids = ids[first[level, r] : first[level, r] + sizes[r, level]]
                    result[counts[f"nodes_{n}"][start:end]] = level_ids[positions]
        return result

    def _parts(self, name: str) -> Iterator[NDArray[Any]]:
        """An array of each range."""
        for path in self._ranges:
            with ArrayReader(path) as part:
                yield part[name]
