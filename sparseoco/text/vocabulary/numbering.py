"""The ids of features: for the n-grams of every range, the vocabulary files, and back to groups and pieces."""

import os
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.storage.locations import location
from sparseoco.storage.temporary import unnamed_file
from sparseoco.store.manifest import FileEntry
from sparseoco.store.writing import write_vocabulary
from sparseoco.text.array_files import Arrays, read_exactly
from sparseoco.text.block_files import BlockReader, read_block, write_blocks
from sparseoco.text.counting.ngrams import n_ngrams
from sparseoco.text.kernels.keys import pack_keys, unpack_keys
from sparseoco.text.tokenizer import Naming
from sparseoco.text.vocabulary.exchange import Exchange
from sparseoco.text.vocabulary.selection import Selection, chosen_terms, n_levels, range_terms
from sparseoco.text.vocabulary.tokens import take_tokens
from sparseoco.text.vocabulary.trie import ngram_names


def number_range(exchange: Exchange, selection: Selection, number: int, n_features: int, out: str) -> FileEntry | None:
    """Write the ids of the n-grams of a range, one block per group, and its new terms into the store `out`.

    Returns
    -------
    FileEntry or None
        The vocabulary file, with terms by increasing id; None if no term is new.
    """
    with BlockReader(exchange.path("range-ngrams", number)) as blocks:
        merged = blocks[2]
        terms = range_terms(exchange, selection, number, merged)
        new, new_ids = chosen_terms(exchange, selection, number, merged, terms)
        ids = (terms.known.astype(np.int64) - 1).astype(_ids_dtype(n_features))
        ids[new] = new_ids
        entry = None
        if new.size:
            first = terms_begin(exchange, merged)
            names = _names(exchange, merged, new + first, selection.options.naming)
            counts, documents = (values[new].astype(np.int64) for values in (terms.counts, terms.documents))
            entry = write_vocabulary(location(out), new_ids, names, counts, documents)
        levels = range(exchange.counted_from, n_levels(merged) + 1)
        starts = np.cumsum([0, *(merged[f"keys_{n}"].size for n in levels)])
        target = exchange.path("range-ids", number)
        if not target.is_file():
            with write_blocks(target, exchange.n_groups) as write:
                for group in range(exchange.n_groups):
                    own = blocks[3 + group]
                    write({f"ids_{n}": ids[starts[k] + own[f"positions_{n}"]] for k, n in enumerate(levels)})
    return entry


def terms_begin(exchange: Exchange, merged: Arrays) -> int:
    """The number of the first counted n-gram of a range, if those of all levels are numbered."""
    return sum(merged[f"keys_{n}"].size for n in range(1, min(exchange.counted_from, n_levels(merged) + 1)))


def _names(exchange: Exchange, merged: Arrays, numbers: NDArray[np.int64], naming: Naming) -> pa.Array:
    """The names of n-grams of a range, whose levels are numbered together."""
    depth = n_levels(merged)
    ends = np.cumsum([merged[f"keys_{n}"].size for n in range(1, depth + 1)])
    used = np.zeros(ends[-1], np.bool_)
    used[numbers] = True
    parents: list[NDArray[np.int64]] = []  # of the used n-grams, from the longest to the shortest
    lasts: list[NDArray[np.int64]] = []
    for n in range(depth, 0, -1):
        keys = merged[f"keys_{n}"]
        prefixes, last = unpack_keys(keys[used[ends[n - 1] - keys.size : ends[n - 1]]])
        if n > 1:
            prefixes += ends[n - 2] - merged[f"keys_{n - 1}"].size
            used[prefixes] = True
        parents.append(prefixes if n > 1 else np.full(last.size, -1))
        lasts.append(last)
    parent, last = np.concatenate(parents[::-1]), np.concatenate(lasts[::-1])
    ranks = np.cumsum(used) - 1
    longer = parent >= 0
    parent[longer] = ranks[parent[longer]]
    tokens, places = _ranked(last)
    return ngram_names(ranks[numbers], parent, places, take_tokens(exchange, tokens), naming, depth)


def _ranked(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(the distinct values below 2^31 in increasing order, the place of each value among them)."""
    ordered, order = unpack_keys(np.sort(pack_keys(values, np.arange(values.size))))  # faster than np.unique
    first = np.diff(ordered, prepend=-1) > 0
    places = np.empty(values.size, np.int32)
    places[order] = np.cumsum(first) - 1
    return ordered[first], places


def gather_ids(exchange: Exchange, group: int) -> None:
    """Write the ids of the n-grams of a group: of each piece a block with ids_<n> of each counted level."""
    target = exchange.path("group-ids", group)
    if target.is_file():
        return
    with BlockReader(exchange.path("group-ngrams", group)) as maps, unnamed_file() as scratch:
        sizes = maps[2 * exchange.n_ranges]
        levels = [int(name.removeprefix("sizes_")) for name in sizes]
        n_pieces = len(next(iter(sizes.values()), ()))
        # Ranges come one after the other: the ids of pieces are put together in a file, not in memory.
        ends = np.cumsum(np.stack([sizes[f"sizes_{n}"] for n in levels], axis=1)).reshape(n_pieces, len(levels))
        filled = ends - np.stack([sizes[f"sizes_{n}"] for n in levels], axis=1)
        begins = filled.copy()
        dtype = np.dtype(np.int32)
        for r in range(exchange.n_ranges):
            ids = read_block(exchange.path("range-ids", r), group)
            own = maps[2 * r + 1]
            for k, n in enumerate(levels):
                if f"ids_{n}" not in ids:
                    continue
                dtype = ids[f"ids_{n}"].dtype
                found = ids[f"ids_{n}"][own[f"positions_{n}"]]
                cuts = own[f"begins_{n}"]
                for i in range(n_pieces):
                    part = found[cuts[i] : cuts[i + 1]]
                    _write_at(scratch.fileno(), part, int(filled[i, k]))
                    filled[i, k] += part.size
        with write_blocks(target, n_pieces) as write:
            for i in range(n_pieces):
                block: Arrays = {}
                for k, n in enumerate(levels):
                    block[f"ids_{n}"] = np.empty(ends[i, k] - begins[i, k], dtype)
                    read_exactly(
                        scratch.fileno(), block[f"ids_{n}"].view(np.uint8).data, int(begins[i, k]) * dtype.itemsize
                    )
                write(block)


def _write_at(descriptor: int, values: NDArray[Any], position: int) -> None:
    view, at = memoryview(values.view(np.uint8).data), position * values.itemsize
    while len(view):
        size = os.pwrite(descriptor, view, at)
        view, at = view[size:], at + size


def piece_features(exchange: Exchange, index: int, counts: Arrays) -> NDArray[np.int64]:
    """The feature of each n-gram of the partial counts `index`, or −1."""
    group, member = divmod(index, exchange.group_size)
    ids = read_block(exchange.path("group-ids", group), member)
    features = np.full(n_ngrams(counts), -1, np.int64)
    for name, values in ids.items():
        level = name.removeprefix("ids_")
        if f"nodes_{level}" in counts:
            features[counts[f"nodes_{level}"]] = values
    return features


def _ids_dtype(n_features: int) -> type[np.integer[Any]]:
    return np.int32 if n_features < 2**31 else np.int64
