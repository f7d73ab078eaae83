"""Merging the n-grams of all splits, numbering them, and the vocabulary of an ingest."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.storage.temporary import unnamed_file
from sparseoco.store.entries import unlike_manifest
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import Store, write_terms
from sparseoco.text.array_files import ArrayReader, Arrays, BlockReader, read_block, write_blocks
from sparseoco.text.counting import SUMS, PartialCounts, level_bounds, merge_ngrams
from sparseoco.text.kernels.ngrams import HALF, map_keys, pack_keys, unpack_keys
from sparseoco.text.options import VocabularyPolicy
from sparseoco.text.tasks import TextJob
from sparseoco.text.tokenizer import Naming
from sparseoco.text.vocabulary.exchange import Exchange, open_pieces, plan_exchange
from sparseoco.text.vocabulary.index import (
    collect_tokens,
    global_positions,
    ngram_names,
    ngram_parents,
    sample_edges,
    sampled_pieces,
    take_tokens,
    unite_group,
    unite_range,
)
from sparseoco.text.vocabulary.selection import (
    Selection,
    choose_features,
    chosen_terms,
    describe_range,
    n_levels,
    range_terms,
    stage_known_terms,
)

# ----------------------------------------------------------------------------------------------------------------------
# Merge the n-grams of pieces, in groups and then in ranges (see `counting.merge_ngrams`).
#
# An n-gram begins with the same token as its prefix, so n-grams can be merged by ranges of their first token. Within a
# range, positions of prefixes begin at its first; those of last tokens are global. The key of a token is its position.


def merge_group(target: Location, exchange: Exchange, group: int, names: Sequence[str]) -> None:
    """Write the merged n-grams of a group of pieces with these names.

    Blocks: of each range the merged n-grams, then positions_<n> of those of all pieces and begins_<n>, where those of
    each piece begin; at the end sizes_<n>, the n-grams of each piece. Positions are of counted levels.
    """
    to_global, _ = global_positions(exchange, group)
    with (
        open_pieces(exchange.pieces(names)) as pieces,
        BlockReader(exchange.path("group-tokens", group)) as tokens,
        write_blocks(target, 2 * exchange.n_ranges + 1) as write,
    ):
        parts = []
        for i, piece in enumerate(pieces):
            block = tokens.block(exchange.n_ranges + i)
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


def merge_range(target: Location, exchange: Exchange, selection: Selection, number: int) -> None:
    """Write the merged n-grams of a range.

    Blocks: that of `describe_range`, the merged n-grams, and of each group positions_<n> of its n-grams.
    """
    parts = [read_block(exchange.path("group-ngrams", group), 2 * number) for group in range(exchange.n_groups)]
    merged, positions = merge_ngrams(parts)
    with write_blocks(target, 2 + exchange.n_groups) as write:
        write(describe_range(exchange, selection, number, merged))
        write(merged)
        levels = range(exchange.counted_from, len(positions) + 1)
        for group in range(exchange.n_groups):
            write({f"positions_{n}": positions[n - 1][group] for n in levels})


# ----------------------------------------------------------------------------------------------------------------------
# The ids of features: for the n-grams of every range, the vocabulary files, and back to groups and pieces.


def number_range(exchange: Exchange, selection: Selection, number: int, n_features: int, out: str) -> FileEntry | None:
    """Write the ids of the n-grams of a range, one block per group, and its new terms into the store `out`.

    Returns
    -------
    FileEntry or None
        The vocabulary file, with terms by increasing id; None if no term is new.
    """
    with BlockReader(exchange.path("range-ngrams", number)) as blocks:
        merged = blocks.block(1)
        terms = range_terms(exchange, selection, number, merged)
        new, new_ids = chosen_terms(exchange, selection, number, terms)
        ids = (terms.known.astype(np.int64) - 1).astype(np.int32 if n_features < 2**31 else np.int64)
        ids[new] = new_ids
        entry = None
        if new.size:
            shorter = range(1, min(exchange.counted_from, n_levels(merged) + 1))
            first = sum(merged[f"keys_{n}"].size for n in shorter)  # the number of the first counted n-gram
            names = _names(exchange, merged, new + first, selection.options.naming)
            counts, documents = (values[new].astype(np.int64) for values in (terms.counts, terms.documents))
            entry = write_terms(location(out), "vocabulary", new_ids, names, counts, documents)
        levels = range(exchange.counted_from, n_levels(merged) + 1)
        starts = np.cumsum([0, *(merged[f"keys_{n}"].size for n in levels)])
        target = exchange.path("range-ids", number)
        if not target.is_file():
            with write_blocks(target, exchange.n_groups) as write:
                for group in range(exchange.n_groups):
                    own = blocks.block(2 + group)
                    write({f"ids_{n}": ids[starts[k] + own[f"positions_{n}"]] for k, n in enumerate(levels)})
    return entry


def _names(exchange: Exchange, merged: Arrays, numbers: NDArray[np.int64], naming: Naming) -> pa.Array:
    """The names of n-grams of a range, whose levels are numbered together."""
    levels = [merged[f"keys_{n}"] for n in range(1, n_levels(merged) + 1)]
    parents, lasts = ngram_parents(levels)
    tokens, places = _ranked(lasts)
    return ngram_names(numbers, parents, places, take_tokens(exchange, tokens), naming, len(levels))


def _ranked(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """(the distinct values below 2^31 in increasing order, the place of each value among them)."""
    ordered, order = unpack_keys(np.sort(pack_keys(values, np.arange(values.size))))  # faster than np.unique
    first = np.diff(ordered, prepend=-1) > 0
    places = np.empty(values.size, np.int32)
    places[order] = np.cumsum(first) - 1
    return ordered[first], places


def gather_ids(target: Location, exchange: Exchange, group: int) -> None:
    """Write the ids of the n-grams of a group: of each piece a block with ids_<n> of each counted level."""
    with BlockReader(exchange.path("group-ngrams", group)) as maps, unnamed_file() as scratch:
        sizes = maps.block(2 * exchange.n_ranges)
        levels = [int(name.removeprefix("sizes_")) for name in sizes]
        n_pieces = len(next(iter(sizes.values()), ()))
        # Ranges come one after the other: the ids of pieces are put together in a file, not in memory.
        ends = np.cumsum(np.stack([sizes[f"sizes_{n}"] for n in levels], axis=1)).reshape(n_pieces, len(levels))
        filled = ends - np.stack([sizes[f"sizes_{n}"] for n in levels], axis=1)
        begins = filled.copy()
        dtype = np.dtype(np.int32)
        for r in range(exchange.n_ranges):
            ids = read_block(exchange.path("range-ids", r), group)
            own = maps.block(2 * r + 1)
            for k, n in enumerate(levels):
                if f"ids_{n}" not in ids:
                    continue
                dtype = ids[f"ids_{n}"].dtype
                found = ids[f"ids_{n}"][own[f"positions_{n}"]]
                cuts = own[f"begins_{n}"]
                for i in range(n_pieces):
                    part = found[cuts[i] : cuts[i + 1]]
                    scratch.seek(int(filled[i, k]) * dtype.itemsize)
                    scratch.write(part.data)
                    filled[i, k] += part.size
        with write_blocks(target, n_pieces) as write:
            for i in range(n_pieces):
                block: Arrays = {}
                for k, n in enumerate(levels):
                    scratch.seek(int(begins[i, k]) * dtype.itemsize)
                    size = int(ends[i, k] - begins[i, k]) * dtype.itemsize
                    block[f"ids_{n}"] = np.frombuffer(scratch.read(size), dtype)
                write(block)


# ----------------------------------------------------------------------------------------------------------------------
# The features of an ingest: a vocabulary built from partial counts, extended by them, or frozen.


class FeatureMap(NamedTuple):
    """Maps the n-grams of splits to features.

    Parameters
    ----------
    exchange : Exchange
        Its last step wrote the features.
    n_known, n_features : int
        Number of features before and after this ingest.
    """

    exchange: Exchange
    n_known: int
    n_features: int

    def features(self, counts: Arrays, index: int) -> NDArray[np.int64]:
        """The feature of each n-gram of the partial counts of split `index`, or −1."""
        group, member = divmod(index, self.exchange.group_size)
        ids = read_block(self.exchange.path("group-ids", group), member)
        bounds = level_bounds(counts)
        features = np.full(bounds[-1], -1, np.int64)
        for n in range(1, bounds.size):
            if f"ids_{n}" in ids:
                features[bounds[n - 1] : bounds[n]] = ids[f"ids_{n}"]
        return features


def build_features(
    job: TextJob, counts: list[PartialCounts], store: Store | None, policy: VocabularyPolicy
) -> tuple[FeatureMap, tuple[FileEntry, ...]]:
    """The features of an ingest, and the vocabulary files of its new terms.

    Without a store the vocabulary is new. The vocabulary of a store does not change (frozen), or new terms are appended
    (extend).

    Raises
    ------
    InputError
        If no term is left, or if ids would need more bits than in the existing shards.
    StorageError
        If the vocabulary is not that of the manifest.
    """
    extends = store is None or policy == "extend"
    names = [location(split.path).name for split in counts]
    known_files = () if store is None else store.manifest.features.files
    n_known = 0 if store is None else store.manifest.features.count
    n_fields = len(job.options.naming.namespaces or [()])
    known_sizes = np.zeros(n_fields, np.int64)
    folders = str(job.out), str(job.staging)
    staged = [job.tasks(stage_known_terms, *folders, entry, n_known, job.options) for entry in known_files]
    found = 0
    for result in staged:
        name, n_terms, sizes = result.result()
        names.append(name)
        found += n_terms
        known_sizes += sizes
    if found != n_known:
        raise unlike_manifest(job.out, f"the vocabulary has {found:,} terms, not {n_known:,}")
    # Sums of real values would not be counts; those of fields are not summed.
    real = any(split.dtype == "float64" for split in counts) and not job.options.fields
    n_documents = sum(split.rows for split in counts)
    selection = Selection(job.options, n_documents, n_known, tuple(known_sizes.tolist()), extends, real)
    key = digest_value([job.options.digest, names, extends])[:32]
    size = n_known + sum(split.n_ngrams for split in counts)
    exchange = plan_exchange(job.staging, key, names, size, job.options.counted_from)

    groups, ranges = range(exchange.n_groups), range(exchange.n_ranges)
    members = [exchange.group(names, group) for group in groups]
    path = exchange.path
    if exchange.n_ranges > 1:
        job.once(path("edges"), sample_edges, exchange, sampled_pieces(names)).result()
    job.wait("unite", [job.once(path("group-tokens", n), unite_group, exchange, members[n]) for n in groups])
    job.wait("unite", [job.once(path("range-tokens", n), unite_range, exchange, n) for n in ranges])
    tokens = job.once(path("tokens"), collect_tokens, exchange) if extends else None
    job.wait("merge", [job.once(path("group-ngrams", n), merge_group, exchange, n, members[n]) for n in groups])
    job.wait("merge", [job.once(path("range-ngrams", n), merge_range, exchange, selection, n) for n in ranges])
    n_features: int = job.tasks(choose_features, exchange, selection, store is None).result()
    if 0 < n_known <= 2**31 < n_features:
        raise InputError(
            f"{job.out} would have more than 2^31 features: ingest into a new folder.", code="too-many-terms"
        )
    if tokens is not None:
        tokens.result()
    numbering = [job.tasks(number_range, exchange, selection, r, n_features, str(job.out)) for r in ranges]
    written = job.wait("number", numbering)
    job.wait("number", [job.once(path("group-ids", n), gather_ids, exchange, n) for n in groups])
    files = tuple(entry for entry in written if isinstance(entry, FileEntry))
    return FeatureMap(exchange, n_known, n_features), files
