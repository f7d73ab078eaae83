"""What one split counts to: a piece, staged as one file of arrays.

Arrays of a piece (all numbering is its own):

    indptr int64, grams int32              CSR; the grams of a document by order of first appearance
    counts uint8 | uint16 | uint32 | float64
    token_bytes uint8, token_offsets       distinct tokens, sorted by their bytes
    nodes_<n> int32    for each gram of n tokens, in alphabetical order, its number in `grams`
    keys_<n> uint64    (n ≥ 2) (place of its first n − 1 tokens in level n − 1) · 2^32 + place of its last token
    totals_<n>, documents_<n>              counted levels: occurrences, documents that hold it
    id_bytes, id_offsets, lines int64, labels float64 | label_bytes, label_offsets
"""

import os
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value, remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.text.array_files import Arrays, load_arrays, save_arrays, string_array, string_buffers
from sparseoco.text.counting.allocator import keep_memory
from sparseoco.text.counting.preprocess import clean
from sparseoco.text.documents import BadRow, Bags, Documents
from sparseoco.text.kernels.keys import local_keys, take_columns, total_grams, unpack_keys
from sparseoco.text.kernels.ngrams import COUNT, DOCUMENTS, count_grams
from sparseoco.text.options import TextOptions
from sparseoco.text.splits import Split, read_split

# Tables hash with a seed that differs from process to process; no result depends on it.
_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))


class PieceInfo(NamedTuple):
    """What the driver must know of a piece without opening it."""

    path: str
    split: Split
    rows: int
    nonzeros: int
    empty: int
    levels: tuple[int, ...]
    bad: list[BadRow]
    counts: str


def count_documents(documents: Documents | Bags, options: TextOptions) -> Arrays:
    """Count documents into the arrays of a piece."""
    counted = _count_bags(documents) if isinstance(documents, Bags) else _count_text(documents, options)
    counted["lines"] = documents.lines
    counted["id_bytes"], counted["id_offsets"] = string_buffers(documents.ids)
    if isinstance(documents.labels, np.ndarray):
        counted["labels"] = documents.labels
    elif documents.labels is not None:
        counted["label_bytes"], counted["label_offsets"] = string_buffers(documents.labels)
    return counted


def count_split(split: Split, options: TextOptions, path: str, labelled: bool) -> PieceInfo:
    """Count one split and stage its piece at `path`; a piece that is already there is taken as it is.

    How many rows may be bad is for who sees all splits (`count_bad`).
    """
    target = location(path)
    if not target.exists():
        keep_memory()
        documents = read_split(split, options, labelled=labelled)
        arrays = count_documents(documents, options)
        levels = [arrays[f"nodes_{n}"].size for n in range(1, options.ngram_range[1] + 1) if f"nodes_{n}" in arrays]
        facts = {
            "empty": int(np.count_nonzero(np.diff(arrays["indptr"]) == 0)),
            "levels": levels,
            "bad": documents.bad,
        }
        save_arrays(target, arrays, facts)
    if split.staged:
        remove_file(location(split.path))
    return _describe(target, split)


def _describe(path: Location, split: Split) -> PieceInfo:
    arrays, facts = load_arrays(path)
    return PieceInfo(
        path=str(path),
        split=split,
        rows=arrays["indptr"].size - 1,
        nonzeros=arrays["grams"].size,
        empty=facts["empty"],
        levels=tuple(facts["levels"]),
        bad=[BadRow(*row) for row in facts["bad"]],
        counts=arrays["counts"].dtype.name,
    )


def count_bad(split: Split, bad: list[BadRow], options: TextOptions, before: int) -> int:
    """How many rows count as bad, `before` of them in the splits before this one.

    Raises `InputError` if they are more than may be, naming the first that is too many.
    """
    counted = [row for row in bad if row.counted]
    if before + len(counted) <= options.max_bad_rows:
        return before + len(counted)
    row = counted[options.max_bad_rows - before]
    place = f"{split.name}/{row.file}" if row.file else f"{split.name}, line {row.line}"
    limit = (
        "allow some bad rows with max_bad_rows"
        if options.max_bad_rows == 0
        else f"more bad rows than max_bad_rows = {options.max_bad_rows}"
    )
    raise InputError(f"{place}: {row.reason} ({limit}).")


def _count_text(documents: Documents, options: TextOptions) -> Arrays:
    cleaned, bounds = clean(documents, lowercase=options.lowercase)
    low, high = options.ngram_range
    # Room for the usual text, taken here because NumPy asks the system for large pages; the kernel grows it at need.
    places = 1 << 10
    while high > 1 and places * 12 < cleaned.size * (high - 1):
        places <<= 1
    room = 1024 + cleaned.size * high // 32
    indptr, grams, counts, keys, lengths, state, token_bytes, token_offsets = count_grams(
        cleaned, bounds, low, high, _SEED,
        np.zeros(2 * places, np.uint64), np.empty(room, np.uint64), np.empty(room, np.int8),
        np.empty(4 * room, np.int32), np.empty(4 * room, np.int32), np.empty(4 * room, np.uint32),
    )  # fmt: skip
    del cleaned
    if options.binary:
        counts = np.ones(counts.size, np.uint8)
    arrays: Arrays = {"indptr": indptr, "grams": grams, "counts": _narrow(counts)}
    order = pc.sort_indices(string_array(token_bytes, token_offsets).cast(pa.large_binary())).to_numpy()
    rank = _inverse(order)
    place = np.empty(lengths.size, np.uint32)
    for n in range(1, high + 1):
        nodes = np.flatnonzero(lengths == n).astype(np.int32)
        if n == 1:
            nodes = nodes[order]
        else:
            nodes, arrays[f"keys_{n}"] = _alphabetical(keys, nodes, place, rank)
        place[nodes] = np.arange(nodes.size, dtype=np.uint32)
        arrays[f"nodes_{n}"] = nodes
        if n >= low:
            first = DOCUMENTS if options.binary else COUNT
            arrays[f"totals_{n}"], arrays[f"documents_{n}"] = take_columns(state, nodes, first, DOCUMENTS)
    tokens = string_array(token_bytes, token_offsets).take(pa.array(order))
    arrays["token_bytes"], arrays["token_offsets"] = string_buffers(tokens)
    return arrays


def _alphabetical(
    keys: NDArray[np.uint64], nodes: NDArray[np.int32], place: NDArray[np.uint32], rank: NDArray[np.uint64]
) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The grams of a level in alphabetical order, and their keys in alphabetical numbers."""
    bits = int(place.size).bit_length()
    low = int(rank.size).bit_length()
    # Mostly prefix, token and gram fit one word, and sorting words is thrice as fast as sorting places.
    together = 2 * bits + low <= 64
    if not together:
        low = 32
    shift = np.uint64(bits if together else 0)
    packed = np.empty(nodes.size, np.uint64)
    local_keys(keys, nodes, place, rank, np.uint64(low), packed, shift)
    if together:
        packed.sort()
        level, ordered = unpack_keys(packed, np.uint64(low), shift)
        return ordered, level
    order = np.argsort(packed)
    return nodes[order], packed[order]


def _count_bags(bags: Bags) -> Arrays:
    order = pc.sort_indices(bags.names.cast(pa.large_binary())).to_numpy()
    integral = bool(np.all((bags.counts > 0) & (bags.counts < 2**32) & (bags.counts == np.floor(bags.counts))))
    counts = _narrow(bags.counts.astype(np.uint32)) if integral else bags.counts
    grams = bags.features.astype(np.int32)
    totals, documents = total_grams(bags.indptr, grams, counts, np.zeros(len(bags), np.bool_), len(bags.names))
    arrays: Arrays = {
        "indptr": bags.indptr,
        "grams": grams,
        "counts": counts,
        "nodes_1": order.astype(np.int32),
        "totals_1": totals[order],
        "documents_1": documents[order],
    }
    arrays["token_bytes"], arrays["token_offsets"] = string_buffers(bags.names.take(pa.array(order)))
    return arrays


def without_rows(piece: PieceInfo, rows: NDArray[np.int64]) -> PieceInfo:
    """Stage the piece again with documents left out, and its totals without them."""
    source = location(piece.path)
    target = source.with_name(f"{source.stem}-{digest_value(rows.tolist())[:16]}.piece")
    arrays, facts = load_arrays(source)
    kept = np.ones(piece.rows, np.bool_)
    kept[rows] = False
    size = sum(array.size for name, array in arrays.items() if name.startswith("nodes_"))
    totals, documents = total_grams(arrays["indptr"], arrays["grams"], arrays["counts"], ~kept, size)
    for name in [name for name in arrays if name.startswith("totals_")]:
        nodes = arrays[name.replace("totals", "nodes")]
        arrays[name] = totals[nodes]
        arrays[name.replace("totals", "documents")] = documents[nodes]
    sizes = np.diff(arrays["indptr"])
    entries = np.repeat(kept, sizes)
    arrays["grams"], arrays["counts"] = arrays["grams"][entries], arrays["counts"][entries]
    arrays["indptr"] = np.concatenate([[0], np.cumsum(sizes[kept])]).astype(np.int64)
    arrays["lines"] = arrays["lines"][kept]
    for what in ("id", "label"):
        if f"{what}_bytes" in arrays:
            strings = string_array(arrays[f"{what}_bytes"], arrays[f"{what}_offsets"]).filter(pa.array(kept))
            arrays[f"{what}_bytes"], arrays[f"{what}_offsets"] = string_buffers(strings)
    if "labels" in arrays:
        arrays["labels"] = arrays["labels"][kept]
    facts["empty"] = int(np.count_nonzero(sizes[kept] == 0))
    save_arrays(target, arrays, facts)
    return _describe(target, piece.split)


def _narrow(counts: NDArray[Any]) -> NDArray[Any]:
    largest = int(counts.max(initial=0))
    return counts.astype(np.uint8 if largest < 2**8 else np.uint16) if largest < 2**16 else counts


def _inverse(order: NDArray[Any]) -> NDArray[np.uint64]:
    rank = np.empty(order.size, np.uint64)
    rank[order] = np.arange(order.size, dtype=np.uint64)
    return rank
