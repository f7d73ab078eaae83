"""Partial counts: the n-gram counts of one split, in one staging file.

Its arrays, with n-grams and tokens numbered within the split:

    indptr int64, ngrams int32         CSR; the n-grams of a document in order of first appearance
    counts uint8 | uint16 | uint32 | float64
    token_bytes uint8, token_offsets   distinct tokens, sorted by their bytes
    nodes_<n> int32    numbers of the n-grams of n tokens, in alphabetical order
    keys_<n> uint64    (n ≥ 2) (position of the first n − 1 tokens in level n − 1) · 2^32 + position of the last token
    totals_<n>, documents_<n>          counted levels: occurrences, documents with the n-gram
    id_bytes, id_offsets, lines int64, labels float64 | label_bytes, label_offsets [, label_indptr]
    column_<name>      optional columns of shards
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
from sparseoco.text.array_files import Arrays, load_arrays, save_arrays, store_strings, stored_strings, string_array
from sparseoco.text.counting.allocator import retain_freed_memory
from sparseoco.text.counting.preprocess import preprocess
from sparseoco.text.documents import BadRow, CountedDocuments, Documents, store_labels, stored_labels
from sparseoco.text.kernels.keys import map_keys, pack_sortable, unpack_sortable
from sparseoco.text.kernels.ngrams import (
    CHARACTERS,
    COUNT,
    DOCUMENTS,
    SHORT_WORDS,
    WORD_CHARACTERS,
    WORDS,
    count_ngrams,
)
from sparseoco.text.options import TextOptions
from sparseoco.text.splits import Split, read_split

COLUMN = "column_"  # prefix of the names of optional columns
# Seed of the hash tables, random to prevent collision attacks; no result depends on it.
_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))


class PartialCounts(NamedTuple):
    """Summary of the partial counts of a split, for the driver.

    Parameters
    ----------
    path : str
        The staging file.
    rows, nonzeros, empty : int
        Documents, entries of the count matrix, documents without a term.
    levels : tuple of int
        Number of n-grams of each length n.
    bad : list of BadRow
    dtype : str
        Type of the counts.
    multiline : int
        Records that span several lines.
    """

    path: str
    split: Split
    rows: int
    nonzeros: int
    empty: int
    levels: tuple[int, ...]
    bad: list[BadRow]
    dtype: str
    multiline: int


def count_split(split: Split, options: TextOptions, path: str, labelled: bool) -> PartialCounts:
    """Count one split into the file `path`; an existing file is reused.

    The driver, which sees all splits, checks the number of bad rows (`check_bad_rows`).
    """
    target = location(path)
    if not target.exists():
        retain_freed_memory()
        documents = read_split(split, options, labelled=labelled)
        arrays = count_documents(documents, options)
        facts = {
            "empty": int(np.count_nonzero(np.diff(arrays["indptr"]) == 0)),
            "levels": [arrays[f"nodes_{n}"].size for n in all_levels(arrays)],
            "bad": documents.bad,
            "multiline": documents.multiline,
        }
        save_arrays(target, arrays, facts)
    if split.staged:
        remove_file(location(split.path))
    return _describe(target, split)


def count_documents(documents: Documents | CountedDocuments, options: TextOptions) -> Arrays:
    """The arrays of partial counts of documents."""
    if isinstance(documents, Documents):
        arrays = _count_text(documents, options)
    elif options.counts_characters:
        raise InputError(
            f'Documents given as counts have no characters: analyzer = "{options.analyzer}" requires text.',
            code="unsupported-combination",
        )
    else:
        arrays = _from_counted(documents)
    arrays["lines"] = documents.lines
    store_strings(arrays, "id", documents.ids)
    store_labels(arrays, documents.labels)
    return arrays | {f"{COLUMN}{name}": values for name, values in documents.columns.items()}


def all_levels(arrays: Arrays) -> list[int]:
    """The lengths n of the n-grams of partial counts, including those that are only prefixes."""
    return _levels(arrays, "nodes_")


def counted_levels(arrays: Arrays) -> list[int]:
    """The lengths n of the counted n-grams of partial counts."""
    return _levels(arrays, "totals_")


def _levels(arrays: Arrays, prefix: str) -> list[int]:
    return sorted(int(name.removeprefix(prefix)) for name in arrays if name.startswith(prefix))


def n_ngrams(arrays: Arrays) -> int:
    """Number of n-grams of partial counts, including those that are only prefixes."""
    return sum(arrays[f"nodes_{n}"].size for n in all_levels(arrays))


def _describe(path: Location, split: Split) -> PartialCounts:
    arrays, facts = load_arrays(path)
    return PartialCounts(
        path=str(path),
        split=split,
        rows=arrays["indptr"].size - 1,
        nonzeros=arrays["ngrams"].size,
        empty=facts["empty"],
        levels=tuple(facts["levels"]),
        bad=[BadRow(*row) for row in facts["bad"]],
        dtype=arrays["counts"].dtype.name,
        multiline=facts["multiline"],
    )


def _count_text(documents: Documents, options: TextOptions) -> Arrays:
    words, bounds = preprocess(documents, options)
    low, high = options.ngram_range
    if options.counts_characters:
        unit = WORD_CHARACTERS if options.analyzer == "char_wb" else CHARACTERS
    else:
        unit = WORDS if options.pattern.shortest > 1 and not options.pattern.folds_numbers else SHORT_WORDS
    # Work space for typical text. NumPy asks the system for large pages; the kernel enlarges it if needed.
    slots = 1 << 10
    while high > 1 and slots * 12 < words.size * (high - 1):
        slots <<= 1
    room = 1024 + words.size * high // 32
    indptr, ngrams, counts, keys, lengths, state, token_bytes, token_offsets = count_ngrams(
        words, bounds, unit, low, high, _SEED,
        np.zeros(2 * slots, np.uint64), np.empty(room, np.uint64), np.empty(room, np.int8),
        np.empty(4 * room, np.int32), np.empty(4 * room, np.int32), np.empty(4 * room, np.uint32),
    )  # fmt: skip
    del words
    arrays: Arrays = {"indptr": indptr, "ngrams": ngrams, "counts": _smallest_dtype(counts)}
    tokens = string_array(token_bytes, token_offsets)
    order = alphabetical_order(tokens)
    token_rank = inverse(order)
    position = np.empty(lengths.size, np.uint32)  # of each n-gram in its level
    for n in range(1, high + 1):
        nodes = np.flatnonzero(lengths == n).astype(np.int32)
        if n == 1:
            nodes = nodes[order]
        else:
            arrays[f"keys_{n}"], nodes = _sort_by_key(keys, nodes, position, token_rank)
        position[nodes] = np.arange(nodes.size, dtype=np.uint32)
        arrays[f"nodes_{n}"] = nodes
        if n >= options.counted_from:
            arrays[f"totals_{n}"] = state[nodes, COUNT]
            arrays[f"documents_{n}"] = state[nodes, DOCUMENTS]
    store_strings(arrays, "token", tokens.take(pa.array(order)))
    return arrays


def _sort_by_key(
    keys: NDArray[np.uint64], nodes: NDArray[np.int32], position: NDArray[np.uint32], token_rank: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """(keys in terms of alphabetical positions, nodes) of the n-grams of a level, in alphabetical order."""
    node_bits, token_bits = position.size.bit_length(), token_rank.size.bit_length()
    if 2 * node_bits + token_bits <= 64:
        bits = np.uint64(token_bits), np.uint64(node_bits)
        packed = pack_sortable(keys, nodes, position, token_rank, *bits)
        packed.sort()
        return unpack_sortable(packed, *bits)  # type: ignore[no-any-return]
    mapped = map_keys(keys[nodes], 0, position, token_rank)
    order = np.argsort(mapped)
    return mapped[order], nodes[order]


def _from_counted(documents: CountedDocuments) -> Arrays:
    order = alphabetical_order(documents.names)
    integral = bool(
        np.all((documents.counts > 0) & (documents.counts < 2**32) & (documents.counts == np.floor(documents.counts)))
    )
    counts = _smallest_dtype(documents.counts.astype(np.uint32)) if integral else documents.counts
    arrays: Arrays = {
        "indptr": documents.indptr,
        "ngrams": documents.features.astype(np.int32),
        "counts": counts,
        "nodes_1": order.astype(np.int32),
        "totals_1": np.empty(0, np.int64),
    }
    store_strings(arrays, "token", documents.names.take(pa.array(order)))
    _sum_totals(arrays)
    return arrays


def without_rows(counts: PartialCounts, rows: NDArray[np.int64]) -> PartialCounts:
    """Write a copy of partial counts without some of their documents."""
    source = location(counts.path)
    target = source.with_name(f"{source.stem}-{digest_value(rows.tolist())[:16]}.counts")
    arrays, facts = load_arrays(source)
    selected = np.ones(counts.rows, np.bool_)
    selected[rows] = False
    sizes = np.diff(arrays["indptr"])
    entries = np.repeat(selected, sizes)
    arrays["ngrams"], arrays["counts"] = arrays["ngrams"][entries], arrays["counts"][entries]
    arrays["indptr"] = np.concatenate([[0], np.cumsum(sizes[selected])]).astype(np.int64)
    labels = stored_labels(arrays)
    if labels is not None:
        store_labels(arrays, labels[selected] if isinstance(labels, np.ndarray) else labels.filter(pa.array(selected)))
    for name in ("lines", *(name for name in arrays if name.startswith(COLUMN))):
        arrays[name] = arrays[name][selected]
    store_strings(arrays, "id", stored_strings(arrays, "id").filter(pa.array(selected)))
    _sum_totals(arrays)
    facts["empty"] = int(np.count_nonzero(sizes[selected] == 0))
    save_arrays(target, arrays, facts)
    return _describe(target, counts.split)


def _sum_totals(arrays: Arrays) -> None:
    """Set totals_<n> and documents_<n> from the entries; totals of real values are sums of their integer parts."""
    ngrams = arrays["ngrams"]
    totals = np.zeros(n_ngrams(arrays), np.int64)
    with np.errstate(invalid="ignore"):  # values beyond 64 bits
        np.add.at(totals, ngrams, arrays["counts"].astype(np.int64))
    documents = np.bincount(ngrams, minlength=totals.size)
    for n in counted_levels(arrays):
        arrays[f"totals_{n}"] = totals[arrays[f"nodes_{n}"]]
        arrays[f"documents_{n}"] = documents[arrays[f"nodes_{n}"]]


def alphabetical_order(strings: pa.Array) -> NDArray[np.int64]:
    """The positions of strings sorted by their bytes, which is the order of code points."""
    order: NDArray[np.int64] = pc.sort_indices(strings.cast(pa.large_binary())).to_numpy()
    return order


def inverse(order: NDArray[Any]) -> NDArray[np.int64]:
    """The inverse permutation: the rank of each element."""
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank


def _smallest_dtype(counts: NDArray[Any]) -> NDArray[Any]:
    largest = int(counts.max(initial=0))
    return counts.astype(np.uint8 if largest < 2**8 else np.uint16) if largest < 2**16 else counts
