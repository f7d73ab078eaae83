"""The features of an ingest: the n-grams of all splits merged, selected and numbered."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.storage.temporary import unnamed_file
from sparseoco.store.entries import read_table, unlike_manifest
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import Store, check_features, write_terms
from sparseoco.text import array_files, vocabulary
from sparseoco.text.array_files import Arrays
from sparseoco.text.counting import SUMS, PartialCounts, level_bounds, merge_ngrams
from sparseoco.text.kernels.ngrams import HALF, map_keys, pack_keys, unpack_keys
from sparseoco.text.options import Naming, TextOptions, VocabularyPolicy
from sparseoco.text.passes import TextJob
from sparseoco.text.vocabulary import Exchange, Vocabulary, open_pieces, plan_exchange, term_fields

# ----------------------------------------------------------------------------------------------------------------------
# The vocabulary of a store as a piece of an exchange.


def stage_known_terms(
    out: str, staging: str, entry: FileEntry, n_features: int, options: TextOptions
) -> tuple[str, int, list[int]]:
    """Stage the terms of a vocabulary file with their features, of which the store has `n_features`.

    Returns
    -------
    name : str
        The name of the staged file: the arrays of partial counts that n-grams are merged from, and known_<n>, the
        feature of each n-gram plus one, or 0.
    size : int
        The number of terms.
    sizes : list of int
        The number of terms of each text field, or of all without fields.
    """
    name = f"{entry.sha256[:32]}.known"
    target = location(staging) / name
    if not target.is_file():
        table = read_table(location(out), entry, columns=["feature", "term"])
        features = table["feature"].to_numpy()
        check_features(location(out) / entry.file, features, n_features)
        try:
            known = Vocabulary.from_terms(table["term"], options.naming)
        except ValueError as error:
            raise unlike_manifest(location(out) / entry.file, str(error)) from error
        arrays = array_files.packed_strings("token", known.tokens)
        arrays |= {f"keys_{n}": keys for n, keys in enumerate(known.keys, 2)}
        for n, rows in enumerate(known.ids, 1):
            arrays[f"known_{n}"] = np.where(rows < 0, 0, features[rows] + 1)
        sizes = [features.size]
        if options.naming.namespaces is not None:
            fields = term_fields(table["term"], options.naming)
            sizes = np.bincount(fields[fields >= 0], minlength=max(1, len(options.naming.namespaces))).tolist()
        array_files.save_arrays(target, arrays, {"size": features.size, "sizes": sizes})
    with array_files.ArrayReader(target) as file:
        return name, file.facts["size"], file.facts["sizes"]


# ----------------------------------------------------------------------------------------------------------------------
# Selection and order of features: the arithmetic of CountVectorizer, with ids by frequency.
#
# A range reports how many of its candidates have each count; their ids follow from these numbers, so that no task
# holds all terms.


class Selection(NamedTuple):
    """What the selection of terms depends on.

    Parameters
    ----------
    exchange : Exchange
    options : TextOptions
    n_documents : int
        New documents.
    n_known : int
        Features of the store, whose ids do not change.
    known_sizes : tuple of int
        Those of each text field, or of all without fields.
    extends : bool
        Whether new terms become features.
    real : bool
        Whether counts are real values, whose sums would not be counts: terms are in order of their documents.
    """

    exchange: Exchange
    options: TextOptions
    n_documents: int
    n_known: int
    known_sizes: tuple[int, ...]
    extends: bool
    real: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """The fewest and the most documents of a term."""
        low, high = (
            bound if isinstance(bound, int) else bound * self.n_documents
            for bound in (self.options.min_df, self.options.max_df)
        )
        return low, high

    @property
    def limits(self) -> list[int] | None:
        """The most new terms of each text field, or of all without fields."""
        most = self.options.max_features
        return None if most is None else [max(0, most - size) for size in self.known_sizes]


class RangeTerms(NamedTuple):
    """The counted n-grams of a range, level by level.

    Parameters
    ----------
    counts, documents, known : ndarray of int
        Occurrences (or documents, see `Selection`), documents, and the feature of the store plus one, or 0.
    levels : ndarray of int8
        Their lengths.
    groups : ndarray of int16
        The text field, which limits apply to, 0 without fields; −1 for categories and numbers, which are all selected.
    """

    counts: NDArray[np.int64]
    documents: NDArray[np.int64]
    known: NDArray[np.int64]
    levels: NDArray[np.int8]
    groups: NDArray[np.int16]

    def candidates(self, selection: Selection) -> NDArray[np.bool_]:
        """The new terms that pass min_df and max_df."""
        if not selection.extends:
            return np.zeros(self.counts.size, np.bool_)
        low, high = selection.bounds
        passed = (self.documents >= max(1, low)) & (self.documents <= high)
        return np.asarray(np.where(self.groups < 0, self.documents > 0, passed) & (self.known == 0))


def n_levels(merged: Arrays) -> int:
    """The length of the longest n-grams."""
    return sum(name.startswith("keys_") for name in merged)


def range_terms(selection: Selection, number: int, merged: Arrays) -> RangeTerms:
    """The counted n-grams of a range."""
    exchange = selection.exchange
    levels = range(exchange.counted_from, n_levels(merged) + 1)
    sizes = [merged[f"keys_{n}"].size for n in levels]

    def joined(what: str) -> NDArray[np.int64]:
        zeros = (np.zeros(size, np.int64) for size in sizes)
        parts = [merged.get(f"{what}_{n}", zero) for n, zero in zip(levels, zeros, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *parts])

    documents = joined("documents")
    lengths = np.repeat(np.array(levels, np.int8), sizes)
    groups = np.zeros(documents.size, np.int16)
    if selection.options.naming.namespaces is not None:
        tokens = array_files.stored_strings(array_files.read_block(exchange.path("range-tokens", number), 0), "token")
        fields = [term_fields(tokens, selection.options.naming)]  # of the range's tokens, then of longer n-grams
        for n in range(2, n_levels(merged) + 1):
            fields.append(fields[-1][(merged[f"keys_{n}"] >> HALF).astype(np.int64)])
        groups = np.concatenate(fields[exchange.counted_from - 1 :]).astype(np.int16)
    counts = documents if selection.real else joined("totals")
    return RangeTerms(counts, documents, joined("known"), lengths, groups)


def _sizes(groups: NDArray[np.int16], counts: NDArray[np.int64], levels: NDArray[np.int8]) -> Arrays:
    """The number of terms of each group, level and count: groups, counts, levels and sizes, all int64."""
    rows = [np.empty((4, 0), np.int64)]
    for group in range(groups.min(initial=0), groups.max(initial=0) + 1):
        for level in range(1, levels.max(initial=0) + 1):
            own, sizes = np.unique(counts[(groups == group) & (levels == level)], return_counts=True)
            rows.append(np.stack([np.full(own.size, group), own, np.full(own.size, level), sizes]))
    return dict(zip(("groups", "counts", "levels", "sizes"), np.concatenate(rows, axis=1), strict=True))


def choose_features(selection: Selection, new: bool) -> int:
    """Number the terms of all ranges by decreasing count, then length, then in alphabetical order.

    With `max_features` the first terms of each group in this order are selected.

    Writes a block for each range, which `chosen_terms` reads. `new` says that there is no store yet.

    Returns
    -------
    int
        The number of features.

    Raises
    ------
    InputError
        If no term of a new vocabulary is left.
    """
    exchange = selection.exchange
    histograms = [array_files.read_block(exchange.path("range-ngrams", r), 0) for r in range(exchange.n_ranges)]
    if new and not any(histogram["occurring"][0] for histogram in histograms):
        raise InputError(
            "No document has a term: none of its text is a token (token_pattern, stop_words, ngram_range).",
            code="empty-vocabulary",
        )
    low, high = selection.bounds
    if new and high < low:
        raise InputError(
            f"max_df allows at most {high:g} documents, min_df at least {low:g}: no term passes both.",
            code="empty-vocabulary",
        )
    groups, counts, levels, sizes = (
        np.concatenate([histogram[name] for histogram in histograms])
        for name in ("groups", "counts", "levels", "sizes")
    )
    ranges = np.repeat(np.arange(exchange.n_ranges), [histogram["sizes"].size for histogram in histograms])
    order = np.lexsort((ranges, levels, -counts))
    for group, limit in enumerate(selection.limits or []):
        own = order[groups[order] == group]
        before = np.cumsum(sizes[own]) - sizes[own]
        sizes[own] = np.clip(limit - before, 0, sizes[own])
    if new and not sizes.any():
        raise InputError("No term is left: decrease min_df or increase max_df.", code="empty-vocabulary")
    first = np.empty(sizes.size, np.int64)
    first[order] = selection.n_known + np.cumsum(sizes[order]) - sizes[order]
    order = order[np.argsort(ranges[order], kind="stable")]
    ends = np.cumsum(np.bincount(ranges, minlength=exchange.n_ranges))
    with array_files.write_blocks(exchange.path("chosen"), exchange.n_ranges) as write:
        for own in np.split(order, ends[:-1]):
            write({"first": first[own], "sizes": sizes[own], "groups": groups[own]})
    return selection.n_known + int(sizes.sum())


def chosen_terms(selection: Selection, number: int, terms: RangeTerms) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(the new terms of a range by increasing feature id, these ids)."""
    block = array_files.read_block(selection.exchange.path("chosen"), number)
    sizes = block["sizes"]
    positions = np.flatnonzero(terms.candidates(selection))
    positions = positions[np.argsort(-terms.counts[positions], kind="stable")]  # shorter terms are first already
    for group in range(len(selection.limits or [])):
        own = np.flatnonzero(terms.groups[positions] == group)
        positions = np.delete(positions, own[sizes[block["groups"] == group].sum() :])
    begins = np.cumsum(sizes) - sizes
    return positions, np.repeat(block["first"] - begins, sizes) + np.arange(positions.size)


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
    to_global, _ = vocabulary.global_positions(exchange, group)
    with (
        open_pieces(exchange, names) as pieces,
        array_files.BlockReader(exchange.path("group-tokens", group)) as tokens,
        array_files.write_blocks(target, 2 * exchange.n_ranges + 1) as write,
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
        sizes: Arrays = {}
        for n in range(exchange.counted_from, max(len(part.cuts) for part in parts) + 1):
            sizes[f"sizes_{n}"] = np.array([part.cuts[n - 1][-1] if n <= len(part.cuts) else 0 for part in parts])
        write(sizes)


class _Piece:
    """The n-grams of a piece by range, with global positions of tokens."""

    def __init__(self, piece: array_files.ArrayReader, tokens: NDArray[np.int32], cuts: NDArray[np.int64]) -> None:
        self._piece = piece
        self._tokens = tokens
        self.cuts = [cuts]  # of each level
        while (name := f"keys_{len(self.cuts) + 1}") in piece:
            self.cuts.append(np.searchsorted(piece[name], self.cuts[-1].astype(np.uint64) << HALF))

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


def merge_range(target: Location, selection: Selection, number: int) -> None:
    """Write the merged n-grams of a range.

    Blocks: of the candidates their `_sizes`, and the number of all n-grams that occur, which `choose_features` needs;
    the merged n-grams; and of each group positions_<n> of its n-grams.
    """
    exchange = selection.exchange
    parts = [
        array_files.read_block(exchange.path("group-ngrams", group), 2 * number) for group in range(exchange.n_groups)
    ]
    merged, positions = merge_ngrams(parts)
    with array_files.write_blocks(target, 2 + exchange.n_groups) as write:
        terms = range_terms(selection, number, merged)
        own = terms.candidates(selection)
        sizes = _sizes(terms.groups[own], terms.counts[own], terms.levels[own])
        write(sizes | {"occurring": np.array([np.count_nonzero(terms.documents)])})
        write(merged)
        levels = range(exchange.counted_from, len(positions) + 1)
        for group in range(exchange.n_groups):
            write({f"positions_{n}": positions[n - 1][group] for n in levels})


# ----------------------------------------------------------------------------------------------------------------------
# The ids of features: for the n-grams of every range, the vocabulary files, and back to groups and pieces.


def number_range(selection: Selection, number: int, n_features: int, out: str) -> FileEntry | None:
    """Write the ids of the n-grams of a range, one block per group, and its new terms into the store `out`.

    Returns
    -------
    FileEntry or None
        The vocabulary file, with terms by increasing id; None if no term is new.
    """
    exchange = selection.exchange
    with array_files.BlockReader(exchange.path("range-ngrams", number)) as blocks:
        merged = blocks.block(1)
        terms = range_terms(selection, number, merged)
        new, new_ids = chosen_terms(selection, number, terms)
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
            with array_files.write_blocks(target, exchange.n_groups) as write:
                for group in range(exchange.n_groups):
                    own = blocks.block(2 + group)
                    write({f"ids_{n}": ids[starts[k] + own[f"positions_{n}"]] for k, n in enumerate(levels)})
    return entry


def _names(exchange: Exchange, merged: Arrays, numbers: NDArray[np.int64], naming: Naming) -> pa.Array:
    """The names of n-grams of a range, whose levels are numbered together."""
    levels = [merged[f"keys_{n}"] for n in range(1, n_levels(merged) + 1)]
    parents = vocabulary.NgramParents.of(levels)
    # The distinct tokens in increasing order, and the place of each one among them: faster than by np.unique.
    ordered, order = unpack_keys(np.sort(pack_keys(parents.lasts, np.arange(parents.lasts.size))))
    first = np.diff(ordered, prepend=-1) > 0
    places = np.empty(order.size, np.int32)
    places[order] = np.cumsum(first) - 1
    tokens = vocabulary.take_tokens(exchange, ordered[first])
    return vocabulary.ngram_names(numbers, parents._replace(lasts=places), tokens, naming)


def gather_ids(target: Location, exchange: Exchange, group: int) -> None:
    """Write the ids of the n-grams of a group: of each piece a block with ids_<n> of each counted level."""
    with array_files.BlockReader(exchange.path("group-ngrams", group)) as maps, unnamed_file() as scratch:
        sizes = maps.block(2 * exchange.n_ranges)
        levels = [int(name.removeprefix("sizes_")) for name in sizes]
        n_pieces = len(next(iter(sizes.values()), ()))
        # Ranges come one after the other: the ids of pieces are put together in a file, not in memory.
        ends = np.cumsum(np.stack([sizes[f"sizes_{n}"] for n in levels], axis=1)).reshape(n_pieces, len(levels))
        filled = ends - np.stack([sizes[f"sizes_{n}"] for n in levels], axis=1)
        begins = filled.copy()
        dtype = np.dtype(np.int32)
        for r in range(exchange.n_ranges):
            ids = array_files.read_block(exchange.path("range-ids", r), group)
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
        with array_files.write_blocks(target, n_pieces) as write:
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
        ids = array_files.read_block(self.exchange.path("group-ids", group), member)
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
    staged = [job.tasks.submit(stage_known_terms, *folders, entry, n_known, job.options) for entry in known_files]
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
    key = digest_value([job.options.digest, names, extends])[:32]
    size = n_known + sum(split.n_ngrams for split in counts)
    exchange = plan_exchange(job.staging, key, names, size, job.options.counted_from)
    n_documents = sum(split.rows for split in counts)
    selection = Selection(exchange, job.options, n_documents, n_known, tuple(known_sizes.tolist()), extends, real)

    groups, ranges = range(exchange.n_groups), range(exchange.n_ranges)
    members = [exchange.group(names, group) for group in groups]
    path = exchange.path
    if exchange.n_ranges > 1:
        sample = np.unique(np.linspace(0, len(names) - 1, vocabulary.SAMPLED_PIECES).astype(int))
        job.once(path("edges"), vocabulary.sample_edges, exchange, [names[k] for k in sample]).result()
    job.wait("unite", [job.once(path("group-tokens", n), vocabulary.unite_group, exchange, members[n]) for n in groups])
    job.wait("unite", [job.once(path("range-tokens", n), vocabulary.unite_range, exchange, n) for n in ranges])
    tokens = job.once(path("tokens"), vocabulary.collect_tokens, exchange) if extends else None
    job.wait("merge", [job.once(path("group-ngrams", n), merge_group, exchange, n, members[n]) for n in groups])
    job.wait("merge", [job.once(path("range-ngrams", n), merge_range, selection, n) for n in ranges])
    n_features: int = job.tasks.submit(choose_features, selection, store is None).result()
    if 0 < n_known <= 2**31 < n_features:
        raise InputError(
            f"{job.out} would have more than 2^31 features: ingest into a new folder.", code="too-many-terms"
        )
    if tokens is not None:
        tokens.result()
    numbering = [job.tasks.submit(number_range, selection, r, n_features, str(job.out)) for r in ranges]
    written = job.wait("number", numbering)
    job.wait("number", [job.once(path("group-ids", n), gather_ids, exchange, n) for n in groups])
    files = tuple(entry for entry in written if isinstance(entry, FileEntry))
    return FeatureMap(exchange, n_known, n_features), files
