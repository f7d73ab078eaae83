"""The steps of an ingest between the raw files and the manifest, each over all pieces."""

import itertools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.core.logs import log_event
from sparseoco.storage.commit import commit_json, digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.store.manifest import FileEntry, ShardEntry
from sparseoco.store.shards import Rows, Store, write_names, write_shard, write_vocabulary
from sparseoco.text.array_files import load_arrays, save_arrays, string_array
from sparseoco.text.counting.partial_counts import PieceInfo, count_bad, count_split, without_rows
from sparseoco.text.encoding.encode import counted_levels, encode_rows, hash_features
from sparseoco.text.encoding.labels import UNLABELLED, Labels, find_duplicates
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import Source
from sparseoco.text.splits import Cutter
from sparseoco.text.tasks import Result, Tasks
from sparseoco.text.vocabulary.merge import Merged, collect_tokens, merge_range, token_edges, token_ranges, unite_range
from sparseoco.text.vocabulary.selection import select, select_more
from sparseoco.text.vocabulary.trie import Vocabulary

# Grams of all pieces that one step merges: enough for a step to be worth its while, few enough for its memory.
MERGED_GRAMS = 1 << 20
MAX_RANGES = 256
UNITED_TOKENS = 1 << 21  # tokens of all pieces that one step unites: 200 MB


class Plan(NamedTuple):
    """Where an ingest works and how."""

    out: Location
    staging: Location
    options: TextOptions
    shard_bytes: int
    progress: Callable[[str, int, int], None]
    tasks: Tasks


class SourceState(NamedTuple):
    """A source as it was read."""

    bytes: int
    sha256: str


class Grams(NamedTuple):
    """Paths of the merged grams of this ingest and of the features they became."""

    tokens: str
    ranges: list[str]
    counted_from: int
    ids: str

    def open(self) -> tuple[Merged, NDArray[Any]]:
        """The grams, and the feature of each counted one."""
        arrays, _ = load_arrays(location(self.ids))
        return Merged(location(self.tokens), [location(path) for path in self.ranges], self.counted_from), arrays["ids"]


class Features(NamedTuple):
    """What the grams of pieces become: features of a vocabulary frozen before, or of the grams just merged.

    key      names the choice
    known    features there were before: what has no id below `size` then is unknown and dropped
    written  the step that writes the new terms to the store; None where there are none
    """

    key: str
    frozen: str | None
    grams: Grams | None
    known: int
    size: int
    written: Result | None


class EncodedShard(NamedTuple):
    """A written shard, the occurrences of terms that its vocabulary lacks, the names of hashed features."""

    entry: ShardEntry
    dropped: int
    names: FileEntry | None


def count_sources(plan: Plan, sources: list[Source]) -> tuple[list[PieceInfo], list[SourceState]]:
    """Cut and count all sources; no more splits are under way than keep the workers busy.

    Raises `InputError` naming file and line when more than options.max_bad_rows rows of them all are bad.
    """
    started: list[Result] = []
    pieces: list[PieceInfo] = []
    states: list[SourceState] = []
    total = sum(source.bytes for source in sources)
    done = bad = 0

    def take(result: Result) -> None:
        nonlocal bad
        piece: PieceInfo = result.result()
        bad = count_bad(piece.split, piece.bad, plan.options, bad)
        pieces.append(piece)

    def piece_path(key: str) -> Location:
        return plan.staging / f"{key}.piece"

    for index, source in enumerate(sources):
        cutter = Cutter(
            index,
            source,
            plan.options,
            plan.shard_bytes,
            plan.staging,
            lambda key: piece_path(key).exists(),
            hand_over=plan.tasks.in_process,
        )
        labelled = source.format not in UNLABELLED
        try:
            for split in cutter:
                started.append(plan.tasks(count_split, split, plan.options, str(piece_path(split.key)), labelled))
                while len(started) - len(pieces) > 2 * plan.tasks.width + 1:
                    take(started[len(pieces)])
                plan.progress("count", done + cutter.bytes, total)
        except InputError:
            for result in started[len(pieces) :]:
                take(result)  # what is wrong further up is said first
            raise
        states.append(SourceState(cutter.bytes, cutter.sha256))
        done += source.bytes
    for result in started[len(pieces) :]:
        take(result)
    plan.progress("count", total, total)
    return pieces, states


def drop_duplicates(plan: Plan, pieces: list[PieceInfo], store: Store | None) -> list[PieceInfo]:
    """The pieces without documents whose id was seen before (see `find_duplicates`)."""
    found = find_duplicates(pieces, plan.options, store)
    results = {index: plan.tasks(without_rows, pieces[index], rows) for index, rows in found.items()}
    return [results[index].result() if index in results else piece for index, piece in enumerate(pieces)]


def build_features(plan: Plan, pieces: list[PieceInfo]) -> Features:
    """Unite the pieces' vocabularies and choose the features. Raises `InputError` where no term is left."""
    key = digest_value([plan.options.digest, _names(pieces)])[:32]
    merged, grams = _merge(plan, pieces, key)
    totals, documents = _frequencies(merged, pieces)
    ids = select(totals, documents, merged.first, merged.trie, _rows(pieces), plan.options)
    return _chosen(plan, pieces, key, grams, ids, 0)


def extend_features(plan: Plan, pieces: list[PieceInfo], store: Store) -> Features:
    """The vocabulary of a store, with the new terms of the pieces after it that pass the options (`select_more`).

    Raises `InputError` if ids would outgrow those of the shards that are there.
    """
    table = store.manifest.features
    if not any(piece.rows for piece in pieces):
        return freeze_features(plan, store)
    key = digest_value([plan.options.digest, _names(pieces), [file.sha256 for file in table.files]])[:32]
    merged, grams = _merge(plan, pieces, key)
    totals, documents = _frequencies(merged, pieces)
    trie = merged.trie()
    known = Vocabulary.from_terms(store.vocabulary()["term"].combine_chunks()).features_of(trie, grams.counted_from)
    ids = select_more(known, table.count, totals, documents, merged.first, lambda: trie, _rows(pieces), plan.options)
    if table.count <= 2**31 <= int(ids.max(initial=-1)):
        raise InputError(f"{store.folder} would have more than 2^31 features: ingest into a new folder.")
    return _chosen(plan, pieces, key, grams, ids, table.count)


def _chosen(
    plan: Plan, pieces: list[PieceInfo], key: str, grams: Grams, ids: NDArray[np.int64], known: int
) -> Features:
    """Stage the feature of each merged gram, and have the terms from feature `known` on written."""
    size = max(known, int(ids.max(initial=-1)) + 1)
    save_arrays(location(grams.ids), {"ids": ids.astype(np.int32) if size < 2**31 else ids})
    written = plan.tasks(_write_vocabulary, str(plan.out), grams, known, _real(pieces)) if size > known else None
    return Features(key, None, grams, known, size, written)


def _names(pieces: list[PieceInfo]) -> list[str]:
    return [location(piece.path).name for piece in pieces]


def _rows(pieces: list[PieceInfo]) -> int:
    return sum(piece.rows for piece in pieces)


def _frequencies(merged: Merged, pieces: list[PieceInfo]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often every gram occurs, and in how many documents: real values have no total that is a count."""
    documents = merged.sums("documents")
    return documents if _real(pieces) else merged.sums("totals"), documents


def _merge(plan: Plan, pieces: list[PieceInfo], key: str) -> tuple[Merged, Grams]:
    """Unite what the pieces counted, a range of it at a time; `Grams.ids` is where the choice is to be staged."""
    paths = [piece.path for piece in pieces]
    tokens = plan.staging / f"{key}.tokens"
    _unite_tokens(plan, pieces, key, tokens)
    low = plan.options.ngram_range[0]
    grams = sum(sum(piece.levels) for piece in pieces)
    # The bounds are in the names, for a rerun may have other workers.
    bounds = token_ranges(paths, tokens, min(MAX_RANGES, _even(plan, grams, MERGED_GRAMS)))
    targets = [plan.staging / f"{key}-{first}-{last}.range" for first, last in itertools.pairwise(bounds)]
    merging = [
        plan.tasks(merge_range, paths, str(tokens), bounds[i], bounds[i + 1], low, str(target))
        for i, target in enumerate(targets)
    ]
    for i, result in enumerate(merging):
        result.result()
        plan.progress("merge", i + 1, len(merging))
    chosen = plan.staging / f"{key}.chosen"
    return Merged(tokens, targets, low), Grams(str(tokens), [str(target) for target in targets], low, str(chosen))


def _unite_tokens(plan: Plan, pieces: list[PieceInfo], key: str, target: Location) -> None:
    """Stage the union of the pieces' tokens, a range of them at a time: no step holds more than `UNITED_TOKENS`."""
    paths = [piece.path for piece in pieces]
    parts = _even(plan, sum(piece.levels[0] for piece in pieces if piece.levels), UNITED_TOKENS)
    edges = [None, *token_edges(paths, parts), None]
    ranges = [str(plan.staging / f"{key}-{i}-of-{len(edges) - 1}.union") for i in range(len(edges) - 1)]
    uniting = [plan.tasks(unite_range, paths, edges[i], edges[i + 1], path) for i, path in enumerate(ranges)]
    for i, result in enumerate(uniting):
        result.result()
        plan.progress("unite", i + 1, len(uniting))
    plan.tasks(collect_tokens, ranges, len(paths), str(target)).result()


def _even(plan: Plan, size: int, at_once: int) -> int:
    """How many steps of at most about `at_once` do `size`, so that no worker waits for the last."""
    return plan.tasks.width * -(-(1 + size // at_once) // plan.tasks.width)


def _real(pieces: list[PieceInfo]) -> bool:
    return any(piece.counts == "float64" for piece in pieces)


def freeze_features(plan: Plan, store: Store) -> Features:
    """The vocabulary of a store that new documents are counted over."""
    path = plan.staging / f"{store.features_digest()[:32]}.vocabulary"
    terms = store.vocabulary()["term"].combine_chunks()
    Vocabulary.from_terms(terms).save(path)
    return Features(path.name, str(path), None, len(terms), len(terms), None)


def encode_pieces(
    plan: Plan, pieces: list[PieceInfo], labels: Labels, features: Features | None, first_source: int
) -> list[EncodedShard]:
    """Write every piece as a shard."""
    counts = np.result_type(np.uint16, *(piece.counts for piece in pieces)).name
    size = features.size if features is not None else 1 << (plan.options.hash_bits or 0)
    started = []
    sent = features._replace(written=None) if features is not None else None
    for index, piece in enumerate(pieces):
        source = first_source + piece.split.source
        parts = [
            location(piece.path).name,
            source,  # another one where files have come since that go before it
            features.key if features is not None else "hashed",
            plan.options.digest,
            counts,
            labels.classes,
        ]
        memo = plan.staging / f"{digest_value(parts)[:32]}.shard.json"
        started.append(
            plan.tasks(
                encode_piece,
                piece.path,
                index,
                sent,
                size,
                plan.options,
                labels.classes,
                counts,
                plan.out,
                source,
                memo,
            )
        )
    shards = []
    for i, result in enumerate(started):
        shard = result.result()
        log_event("ingest", "shard written", shard=shard.entry.file, rows=shard.entry.rows, bytes=shard.entry.bytes)
        shards.append(shard)
        plan.progress("write", i + 1, len(started))
    return shards


def encode_piece(
    piece_path: str,
    index: int,
    chosen: Features | None,
    n_features: int,
    options: TextOptions,
    classes: tuple[str, ...] | None,
    counts: str,
    out: Location,
    source: int,
    memo: Location,
) -> EncodedShard:
    """Write one piece as a shard; `memo` remembers that it was done, for a run that is killed and run again."""
    known = _recall(memo, out)
    if known is not None:
        return known
    piece, _ = load_arrays(location(piece_path))
    names = None
    if chosen is None:
        features, terms, nodes = hash_features(piece, options)
        levels = counted_levels(piece)
        totals = np.concatenate([piece[f"totals_{n}"] for n in levels])
        documents = np.concatenate([piece[f"documents_{n}"] for n in levels])
        if len(terms):
            names = write_names(out, features[nodes], terms, totals, documents)
    elif chosen.frozen is not None:
        features = Vocabulary.load(location(chosen.frozen)).features(piece)
    else:
        assert chosen.grams is not None
        merged, feature_of = chosen.grams.open()
        features = merged.features(piece, index, feature_of)
    indptr, indices, values = encode_rows(piece, features, n_features, options)
    ids = string_array(piece["id_bytes"], piece["id_offsets"])
    rows = Rows(ids, _label_column(piece, classes), indptr, indices, values.astype(counts, copy=False))
    entry = write_shard(out, rows, n_features=n_features, source=source)
    # Of the first vocabulary terms are left out by choice; later ones are unknown to it.
    grown = chosen is not None and chosen.known > 0
    unknown = piece["counts"][features[piece["grams"]] < 0] if grown else piece["counts"][:0]
    dropped = int(np.count_nonzero(unknown) if counts == "float64" else unknown.sum())  # values are no occurrences
    encoded = EncodedShard(entry, dropped, names)
    commit_json(
        memo,
        {
            "entry": entry.model_dump(mode="json"),
            "dropped": dropped,
            "names": names.model_dump(mode="json") if names is not None else None,
        },
    )
    return encoded


def _recall(memo: Location, out: Location) -> EncodedShard | None:
    if not memo.exists():
        return None
    facts = json.loads(memo.read_bytes())
    names = FileEntry(**facts["names"]) if facts["names"] is not None else None
    entry = ShardEntry(**facts["entry"])
    there = all((out / file.file).exists() for file in (entry, names) if file is not None)
    return EncodedShard(entry, facts["dropped"], names) if there else None


def _label_column(piece: dict[str, NDArray[Any]], classes: tuple[str, ...] | None) -> NDArray[Any]:
    rows = piece["indptr"].size - 1
    if classes is None:
        return piece["labels"]
    if not classes:
        return np.full(rows, -1, np.int32)
    labels = string_array(piece["label_bytes"], piece["label_offsets"])
    column = pc.index_in(labels, value_set=pa.array(classes, pa.string()))
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int32)


def _write_vocabulary(out: str, grams: Grams, known: int, real: bool) -> FileEntry:
    merged, ids = grams.open()
    chosen = np.flatnonzero(ids >= known)
    order = np.empty(chosen.size, np.int64)
    order[ids[chosen] - known] = chosen
    documents = merged.sums("documents")[order]
    totals = documents if real else merged.sums("totals")[order]
    return write_vocabulary(location(out), merged.trie().terms(order + merged.first), totals, documents)
