"""Counts to shards: feature ids, hashed features, labels, repeated ids."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.core.logs import log_event, report_progress
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.store.entries import ShardEntry, ShardTable, is_written, read_table
from sparseoco.store.manifest import ClassEntry, FileEntry, LabelTable, Manifest
from sparseoco.store.shards import LabelSets, ShardRows, Store, write_frequencies, write_shard, write_terms
from sparseoco.text import array_files
from sparseoco.text.array_files import Arrays
from sparseoco.text.counting import COLUMN, PartialCounts, counted_levels, level_bounds, without_rows
from sparseoco.text.documents import hash_strings
from sparseoco.text.features import FeatureMap
from sparseoco.text.formats import TABLES, UNLABELLED
from sparseoco.text.kernels.ngrams import LOW, hash_terms
from sparseoco.text.kernels.preprocess import sort_rows
from sparseoco.text.options import HASH_SEED, TextOptions
from sparseoco.text.passes import TextJob
from sparseoco.text.vocabulary import Exchange, Vocabulary, plan_exchange

# ----------------------------------------------------------------------------------------------------------------------
# Document frequencies of a store whose vocabulary files do not have those of all documents.
#
# Each shard's are staged by the task that writes it; tasks sum those of a group of shards, then of groups, in memory
# bounded by the features.


Frequencies = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Feature ids, increasing, and documents with each."""

GROUP = 256  # files that one task sums
PENDING = 1 << 22  # frequencies of shards in memory before they are summed


def merge_frequencies(job: TextJob, previous: Manifest | None, paths: list[str]) -> FileEntry:
    """Write the document frequencies of a store with these new shards."""
    while len(paths) > GROUP:
        groups = [paths[first : first + GROUP] for first in range(0, len(paths), GROUP)]
        targets = [job.staging / f"{digest_value(group)[:32]}.frequencies" for group in groups]
        job.wait("sum", [job.once(target, _sum_group, group) for target, group in zip(targets, groups, strict=True)])
        paths = list(map(str, targets))
    entry: FileEntry = job.tasks.submit(_write_sum, str(job.out), previous, paths).result()
    return entry


def _sum_group(target: Location, paths: list[str]) -> None:
    features, documents = sum_frequencies([], paths)
    array_files.save_arrays(target, {"features": features, "documents": documents})


def _write_sum(out: str, previous: Manifest | None, paths: list[str]) -> FileEntry:
    known = [] if previous is None else [Store(location(out), previous).present_frequencies()]
    return write_frequencies(location(out), *sum_frequencies(known, paths))


def sum_frequencies(known: list[Frequencies], paths: Iterable[str]) -> Frequencies:
    """The sums over staged files and those known. Files are summed when they are as large as the sum, so that each
    is read few times."""
    pending, size, total = known, 0, 0
    for path in paths:
        arrays, _ = array_files.load_arrays(location(path))
        pending.append((arrays["features"], arrays["documents"]))
        size += arrays["features"].size
        if size > max(PENDING, total):
            pending, size = [_sum(pending)], 0
            total = pending[0][0].size
    return _sum(pending)


def _sum(parts: list[Frequencies]) -> Frequencies:
    features, position = np.unique(np.concatenate([np.empty(0, np.int64), *(p[0] for p in parts)]), return_inverse=True)
    documents = np.zeros(features.size, np.int64)
    np.add.at(documents, position, np.concatenate([np.empty(0, np.int64), *(p[1] for p in parts)]))
    return features, documents


# ----------------------------------------------------------------------------------------------------------------------
# Hashed features: XXH64 of a term, in place of a vocabulary.


def hash_ngrams(
    arrays: Arrays, options: TextOptions
) -> tuple[NDArray[np.int64], pa.Array, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Hash the n-grams of partial counts.

    Returns
    -------
    features : ndarray of int64
        The feature of each n-gram by its number, or −1 if it is only a prefix.
    terms : pyarrow.Array of strings
        The counted n-grams in alphabetical order, level by level.
    numbers, totals, documents : ndarray of int64
        The number of each of these terms, its occurrences, and the documents with it.
    """
    assert options.hash_bits is not None
    bounds, counted = level_bounds(arrays), counted_levels(arrays)
    totals, documents = (
        np.concatenate([arrays[f"{what}_{n}"] for n in counted]).astype(np.int64, copy=False)
        for what in ("totals", "documents")
    )
    keys = tuple(arrays[f"keys_{n}"] for n in range(2, bounds.size))
    trie = Vocabulary(array_files.stored_strings(arrays, "token"), keys, (), 0)
    numbers = np.arange(bounds[counted[0] - 1], bounds[-1])
    if counted[0] < options.ngram_range[0]:  # of short words; the other n-grams of these levels are only prefixes
        occurs = documents > 0
        numbers, totals, documents = numbers[occurs], totals[occurs], documents[occurs]
    terms = trie.terms(numbers, options.naming)
    features = np.full(bounds[-1], -1, np.int64)
    data, offsets = array_files.string_buffers(terms)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    features[numbers] = hash_terms(padded, offsets, np.uint64(HASH_SEED), options.hash_bits)  # many more than documents
    return features, terms, numbers, totals, documents


class HashIndex(NamedTuple):
    """Finds hashed features in counts.

    Parameters
    ----------
    ids : ndarray of int64
        The hashes that have a place, increasing. Column i counts the terms whose hash is ids[i], or with
        `counts_others` i.
    bits : int
        Of the hashes.
    counts_others : bool
        Whether all other hashes are counted, too.
    """

    ids: NDArray[np.int64]
    bits: int
    counts_others: bool = False

    def columns(self, counts: Arrays, options: TextOptions) -> tuple[NDArray[np.int64], int]:
        """(the column of each n-gram of partial counts or −1, number of columns)."""
        hashed = hash_ngrams(counts, options.model_copy(update={"hash_bits": self.bits}))[0]
        if self.counts_others:
            return hashed, 1 << self.bits
        places = np.searchsorted(self.ids, hashed)
        return np.where(np.append(self.ids, -2)[places] == hashed, places, -1), self.ids.size


# ----------------------------------------------------------------------------------------------------------------------
# The labels of a store: the table of classes.


class LabelEncoding(NamedTuple):
    """The label table of the manifest, and the class names: empty without labels, None for numbers."""

    table: LabelTable
    classes: tuple[str, ...] | None

    def column(self, counts: Arrays) -> NDArray[np.int32] | NDArray[np.float64] | LabelSets:
        """The labels of a shard."""
        if self.classes is None:
            return counts["labels"]
        if not self.classes:
            return np.full(counts["indptr"].size - 1, -1, np.int32)
        found = pc.index_in(array_files.stored_strings(counts, "label"), value_set=pa.array(self.classes, pa.string()))
        codes = np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int32)
        if self.table.kind != "multi":
            return codes
        indptr = counts["label_indptr"]
        order = np.lexsort((codes, np.repeat(np.arange(indptr.size - 1), np.diff(indptr))))
        return LabelSets(indptr, codes[order])


def encode_labels(counts: list[PartialCounts], options: TextOptions, previous: Manifest | None) -> LabelEncoding:
    """The labels of an ingest. Classes are those of the store, else those of the options, else those that occur."""
    if any(split.split.format in UNLABELLED for split in counts):
        return LabelEncoding(LabelTable(kind="classes"), ())
    if options.labels == "numbers":
        return LabelEncoding(LabelTable(kind="numbers"), None)
    occurrences: Counter[str] = Counter()
    for split in counts:
        occurrences.update(split.labels)
    if previous is None:
        names = list(occurrences if options.classes is None else options.classes)
        try:
            names.sort(key=lambda name: (int(name), name))  # integers by value
        except ValueError:
            names.sort()
        rows = dict.fromkeys(names, 0)
    else:
        rows = {entry.name: entry.rows for entry in previous.labels.classes}
    classes = tuple(ClassEntry(name=name, rows=before + occurrences.get(name, 0)) for name, before in rows.items())
    return LabelEncoding(LabelTable(kind=options.labels, classes=classes), tuple(rows))


# ----------------------------------------------------------------------------------------------------------------------
# Documents whose id occurred before, found by an exchange of the ids.
#
# Tasks of groups of shards and partial counts divide their ids by ranges of hashes; a task per range compares its ids;
# the groups then leave documents out: the client holds no list of them. A document is numbered by its file and row:
# file · 2^32 + row.


HASH_BITS = 63
ROW_BITS = 32


def drop_duplicates(job: TextJob, counts: list[PartialCounts], store: Store | None) -> list[PartialCounts]:
    """The partial counts without documents whose id occurred before, in the store or in these splits.

    All of them if duplicates are allowed. Raises `InputError`, with both positions, if duplicates are an error.
    """
    if job.options.duplicates == "all":
        return counts
    shards = ShardTable.of([]) if store is None else store.shards
    names = [f"{shard.file} {shard.sha256}" for shard in shards]
    names += [location(split.path).name for split in counts]
    n_rows = int(shards.row_offsets[-1]) + sum(split.rows for split in counts)
    if not any(split.rows for split in counts):
        return counts
    exchange = plan_exchange(job.staging, digest_value(names)[:32], names, n_rows, 1)
    groups, ranges = range(exchange.n_groups), range(exchange.n_ranges)
    divided = [(exchange.path("group-ids", n), n, exchange.group(names, n)) for n in groups]
    job.wait("compare", [job.once(path, _divide_ids, exchange, str(job.out), *group) for path, *group in divided])
    compared = [job.tasks.submit(_compare_ids, exchange, len(shards), number) for number in ranges]
    found: list[tuple[int, int]] = [pair for result in compared if (pair := result.result()) is not None]
    if not found:
        return counts
    if job.options.duplicates == "error":
        positions = " and ".join(_position(document, counts, store) for document in reversed(min(found)))
        raise InputError(
            f"Two documents have the same id: {positions} (duplicates = first keeps the first, all keeps both).",
            code="duplicate-id",
        )
    dropping = []
    for group in groups:
        files = range(group * exchange.group_size, min(exchange.n_pieces, (group + 1) * exchange.group_size))
        own = {file: counts[file - len(shards)] for file in files if file >= len(shards)}
        dropping.append(job.tasks.submit(_drop_rows, exchange, group, own))
    return [split for result in dropping for split in result.result()]


def _divide_ids(target: Location, exchange: Exchange, out: str, group: int, names: list[str]) -> None:
    """Write the ids of a group, one block for each range of hashes, with their documents, in order."""
    parts, documents = [pa.array([], pa.large_string())], [np.empty(0, np.int64)]
    for file, name in enumerate(names, group * exchange.group_size):
        ids = _read_ids(exchange, out, name)
        parts.append(ids.cast(pa.large_string()))
        documents.append(np.arange(len(ids)) + (file << ROW_BITS))
    ids, numbers = pa.concat_arrays(parts), np.concatenate(documents)
    bounds = [number * 2**HASH_BITS // exchange.n_ranges for number in range(1, exchange.n_ranges)]
    ranges = np.searchsorted(np.array(bounds, np.int64), _hash_ids(ids), side="right")
    order = np.argsort(ranges, kind="stable")
    cuts = np.searchsorted(ranges[order], np.arange(exchange.n_ranges + 1))
    with array_files.write_blocks(target, exchange.n_ranges) as write:
        for number in range(exchange.n_ranges):
            own = order[cuts[number] : cuts[number + 1]]
            write({"documents": numbers[own]} | array_files.packed_strings("id", ids.take(pa.array(own))))


def _read_ids(exchange: Exchange, out: str, name: str) -> pa.Array:
    """The ids of partial counts, or of a shard, whose name is followed by its digest."""
    name, _, sha256 = name.partition(" ")
    if sha256:
        column = read_table(location(out), FileEntry(file=name, bytes=0, sha256=sha256), ["id"])["id"]
        return column.combine_chunks()
    with array_files.ArrayReader(location(exchange.folder) / name, ("id_",)) as file:
        return array_files.string_array(file["id_bytes"], file["id_offsets"])


def _hash_ids(ids: pa.Array) -> NDArray[np.int64]:
    return hash_strings(ids, 0, HASH_BITS)


def _compare_ids(exchange: Exchange, n_shards: int, number: int) -> tuple[int, int] | None:
    """Find the duplicates in a range of hashes, and write their documents if there are any: one block per group.

    Returns the first duplicate, and the first document with its id; None without duplicates.
    """
    blocks = [array_files.read_block(exchange.path("group-ids", group), number) for group in range(exchange.n_groups)]
    documents = np.concatenate([block["documents"] for block in blocks])
    ids = pa.chunked_array(
        [array_files.stored_strings(block, "id").cast(pa.large_string()) for block in blocks]
    ).combine_chunks()
    codes = ids.dictionary_encode().indices.to_numpy()  # numbered by first appearance
    repeated = codes <= np.maximum.accumulate(np.concatenate([[-1], codes]))[:-1]
    first = documents[~repeated]  # with each id
    # Duplicates in the store were allowed when they were ingested.
    found = np.flatnonzero(repeated & (documents >= n_shards << ROW_BITS))
    if not found.size:
        return None
    dropped = documents[found]
    bounds = np.arange(exchange.n_groups + 1) * exchange.group_size << ROW_BITS
    cuts = np.searchsorted(dropped, bounds)
    with array_files.write_blocks(exchange.path("duplicates", number), exchange.n_groups) as write:
        for group in range(exchange.n_groups):
            write({"documents": dropped[cuts[group] : cuts[group + 1]]})
    return int(dropped[0]), int(first[codes[found[0]]])


def _drop_rows(exchange: Exchange, group: int, counts: dict[int, PartialCounts]) -> list[PartialCounts]:
    """The partial counts of a group, by the number of their file, without duplicates."""
    ranges = (exchange.path("duplicates", number) for number in range(exchange.n_ranges))
    found = [array_files.read_block(path, group)["documents"] for path in ranges if path.is_file()]
    dropped = np.sort(np.concatenate([np.empty(0, np.int64), *found]))
    rest = []
    for file, split in counts.items():
        begin, end = np.searchsorted(dropped, [file << ROW_BITS, (file + 1) << ROW_BITS])
        rows = dropped[begin:end] - (file << ROW_BITS)
        rest.append(without_rows(split, rows))
    return rest


def _position(document: int, counts: list[PartialCounts], store: Store | None) -> str:
    """File and line of a document, for messages."""
    n_shards = 0 if store is None else store.n_shards
    file, row = document >> ROW_BITS, document & (2**ROW_BITS - 1)
    if store is not None and file < n_shards:
        return store.sources[store.shards[file].source].path
    split = counts[file - n_shards]
    with array_files.ArrayReader(location(split.path), ("lines",)) as counted:
        line = int(counted["lines"][row])
    unit = "row" if split.split.format in TABLES else "line"
    return f"{split.split.name}, {unit} {line}"


# ----------------------------------------------------------------------------------------------------------------------
# From the n-grams of a split to rows of features.


INT32_FEATURES = 2**31


CountRows: TypeAlias = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]
"""The indptr, indices and counts of documents in CSR format."""


def encode_rows(arrays: Arrays, features: NDArray[np.int64], n_features: int, options: TextOptions) -> CountRows:
    """The documents of partial counts as rows of features.

    Parameters
    ----------
    arrays : Arrays
        Partial counts.
    features : ndarray of int64
        The feature of each n-gram, or −1.
    n_features : int
        The indices are int32 up to 2^31 features, int64 beyond.

    Returns
    -------
    indptr, indices, counts
        CSR; feature ids increase within a row, and counts of n-grams with equal ids are summed.

    Raises
    ------
    InputError
        For a sum of counts beyond 32 bits.
    """
    indptr, ngrams, counts = arrays["indptr"], arrays["ngrams"], arrays["counts"]
    features = features.astype(np.int32 if n_features <= INT32_FEATURES else np.int64)
    if options.hash_bits is None:
        return sort_rows(indptr, ngrams, counts, features, n_features)  # type: ignore[no-any-return]
    real = counts.dtype == np.float64
    if real:  # sums depend on their order: alphabetical, as the numbers of n-grams
        order = np.arange(features.size, dtype=np.int32)
        indptr, ngrams, counts = sort_rows(indptr, ngrams, counts, order, features.size)
    indptr, indices, sums = sort_rows(indptr, ngrams, counts.astype(np.float64), features, n_features)
    if real:
        return indptr, indices, sums
    if sums.max(initial=0) > LOW:
        raise InputError(
            "Terms of one document with the same hash have a total count above 2^32 − 1; increase hash_bits.",
            code="count-overflow",
        )
    return indptr, indices, sums.astype(np.uint32)


# ----------------------------------------------------------------------------------------------------------------------
# Encoding partial counts as the shards of the store, in tasks of one or several splits.


Piece: TypeAlias = tuple[str, int, int, Location]
"""The path of partial counts, the number of the split, that of its source, and the file of the entry of its shard."""


class EncodedShard(NamedTuple):
    """A written shard.

    Parameters
    ----------
    entry : ShardEntry
        Its entry in the manifest.
    dropped : int
        Occurrences of terms that a frozen vocabulary lacks.
    names : FileEntry or None
        The names of hashed features.
    """

    entry: ShardEntry
    dropped: int
    names: FileEntry | None


class ShardEncoder(NamedTuple):
    """Encodes the shards of an ingest; sent to every task.

    `feature_map` is None for hashed features; `with_frequencies` is whether document frequencies are staged.
    """

    out: Location
    options: TextOptions
    labels: LabelEncoding
    feature_map: FeatureMap | None
    n_features: int
    dtype: str
    with_frequencies: bool

    def encode_all(self, pieces: Sequence[Piece]) -> list[EncodedShard]:
        """Write the shards of some pieces, one after the other (see `encode`)."""
        return [self.encode(*piece) for piece in pieces]

    def encode(self, path: str, index: int, source: int, memo: Location) -> EncodedShard:
        """Write the partial counts of split `index` as a shard, and its entry to `memo`, for a rerun after a kill."""
        frequencies = memo.with_suffix(".frequencies")
        if memo.exists():
            facts = array_files.load_arrays(memo)[1]
            names = facts["names"] and FileEntry(**facts["names"])
            shard = EncodedShard(ShardEntry(**facts["entry"]), facts["dropped"], names)
            written = all(is_written(self.out, file) for file in (shard.entry, names) if file is not None)
            if written and (not self.with_frequencies or frequencies.exists()):
                return shard
        arrays, _ = array_files.load_arrays(location(path))
        names = None
        if self.feature_map is not None:
            features = self.feature_map.features(arrays, index)
        else:
            features, terms, numbers, totals, documents = hash_ngrams(arrays, self.options)
            if len(terms):
                names = write_terms(self.out, "names", features[numbers], terms, totals, documents)
        indptr, indices, values = encode_rows(arrays, features, self.n_features, self.options)
        if self.with_frequencies:
            present, documents = np.unique(indices, return_counts=True)
            array_files.save_arrays(
                frequencies, {"features": present.astype(np.int64), "documents": documents.astype(np.int64)}
            )
        dtype = np.dtype(self.dtype)
        if dtype.kind == "u":  # sums of hashed counts may need a wider one
            dtype = np.result_type(dtype, np.min_scalar_type(int(values.max(initial=0))))
        rows = ShardRows(
            array_files.stored_strings(arrays, "id"),
            self.labels.column(arrays),
            indptr,
            indices,
            values.astype(dtype, copy=False),
            {name: arrays[f"{COLUMN}{name}"] for name in self.options.columns},
        )
        entry = write_shard(self.out, rows, n_features=self.n_features, source=source)
        dropped = 0
        # Terms that the selection of a new vocabulary excludes do not count as dropped.
        if self.feature_map is not None and self.feature_map.n_known > 0:
            unknown = arrays["counts"][features[arrays["ngrams"]] < 0]
            dropped = int(np.count_nonzero(unknown) if self.dtype == "float64" else unknown.sum())
        described = names and names.model_dump(mode="json")
        array_files.save_arrays(
            memo, {}, {"entry": entry.model_dump(mode="json"), "dropped": dropped, "names": described}
        )
        return EncodedShard(entry, dropped, names)


def encode_shards(
    job: TextJob,
    counts: list[PartialCounts],
    labels: LabelEncoding,
    feature_map: FeatureMap | None,
    previous: Manifest | None,
) -> tuple[list[EncodedShard], list[str]]:
    """Write every split as a shard; sources are numbered after those of the previous version of the store.

    Returns the shards, and the paths of their staged document frequencies, if they are needed.
    """
    first_source = 0 if previous is None else previous.n_sources
    dtype = np.result_type(np.uint16, *(split.dtype for split in counts)).name
    n_features = feature_map.n_features if feature_map is not None else 1 << (job.options.hash_bits or 0)
    with_frequencies = feature_map is None or previous is not None
    encoder = ShardEncoder(job.out, job.options, labels, feature_map, n_features, dtype, with_frequencies)
    key = feature_map.exchange.key if feature_map is not None else "hashed"
    pieces: list[Piece] = []
    for index, split in enumerate(counts):
        source = first_source + split.split.source  # changes if new files precede it in a rerun
        state = [location(split.path).name, source, key, job.options.digest, dtype, labels.classes]
        pieces.append((split.path, index, source, job.staging / f"{digest_value(state)[:32]}.shard"))
    per_task = job.splits_per_task(len(pieces))
    calls = ((encoder.encode_all, pieces[first : first + per_task]) for first in range(0, len(pieces), per_task))
    shards: list[EncodedShard] = []
    shard: EncodedShard
    for written in job.tasks.in_order(calls, len(pieces)):
        for shard in written:
            log_event("ingest", "shard written", shard=shard.entry.file, rows=shard.entry.rows, bytes=shard.entry.bytes)
            shards.append(shard)
        report_progress("write", len(shards), len(pieces))
    memos = [memo for *_, memo in pieces] if with_frequencies else []
    return shards, [str(memo.with_suffix(".frequencies")) for memo in memos]
