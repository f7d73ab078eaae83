"""The transposed store: its documents are the features of a store, and its features are the documents.

The format is that of any store (`sparseoco.store.shards`): Parquet shards verified by SHA-256, laid out for many passes
by the same `Corpus`. Row i is feature i; its indices are the numbers of the documents that have the feature, in
increasing order, with their counts. Labels are 0 and ids are empty; the labels of the documents are in a separate file
(`transposed_labels`).

There are two phases of tasks, each of which has one shard or one range of features in memory. First every shard is
sorted by feature and written as a piece with one part per range. Then every range concatenates its parts of all pieces,
in the order of the shards, as a shard of the new store. Ranges depend only on the data. Tasks are pure and their files
are committed atomically, so a killed run resumes and produces the same bytes.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.core.errors import DamagedError
from sparseoco.execution.pool import TaskPool, remove_damaged
from sparseoco.kernels.columns import Rows, with_intercept
from sparseoco.kernels.full_pass import append_entries
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.commit import commit_json, digest_value, make_folder, read_validated, remove_file, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.entries import ShardEntry
from sparseoco.store.manifest import (
    SCHEMA_VERSION,
    FeatureTable,
    LabelTable,
    Manifest,
    commit_manifest,
    latest_manifest,
)
from sparseoco.store.segments import add_entries
from sparseoco.store.shards import ShardRows, Store, StoreReference, open_store, store_reference, write_shard
from sparseoco.store.terms import term_weights
from sparseoco.store.weighting import COUNTS, Weighting

RANGE_NONZEROS = 1 << 23
RANGE_FEATURES = 1 << 20
LABELS = "labels.npz"
_lock = threading.Lock()  # blocks that run in parallel share one
_verified: set[str] = set()  # folders that this process has written, or found intact


def transpose(
    client: Client, store: Store, folder: Location, weighting: Weighting = COUNTS, *, intercept: bool = False
) -> Store:
    """The transposed store, in a subfolder of `folder` named by what it depends on; written if missing.

    With a `weighting`, its counts are the weights (float64) that the terms have in their documents; with an
    `intercept`, one more feature, the last one, is 1 in every document. One of an earlier run is verified; if it is
    damaged, it is written again.

    Raises `StorageError` for a corrupt shard or a full disk, `SparseocoError` if a task fails.
    """
    name = digest_value([store.manifest.digest, weighting.model_dump(mode="json"), intercept])
    own = folder.resolve() / f"columns-{name[:32]}"
    with _lock:
        manifest = _find(client, own) or _write(client, store, own, weighting, intercept=intercept)
        _verified.add(str(own))
    return Store(own, manifest)


def _find(client: Client, own: Location) -> Manifest | None:
    """The manifest of a transposed store whose files are intact; None if there is none."""
    if str(own) not in _verified and remove_damaged(TaskPool(client), own):
        remove_folder(own)
    manifest = latest_manifest(own)
    if manifest is None or str(own) in _verified:
        return manifest
    names = {path.name for path in own.glob("*")}
    needed = {LABELS, *(segment.file for segment in manifest.shard_segments)}
    if needed <= names and {entry.file for entry in Store(own, manifest).shards} <= names:
        return manifest
    remove_folder(own)
    return None


def _write(client: Client, store: Store, own: Location, weighting: Weighting, *, intercept: bool) -> Manifest:
    pieces = own / "pieces"
    make_folder(pieces)
    edges = range_edges(store.document_frequencies(), store.manifest.nonzeros)
    if intercept:
        edges.append(store.n_features + 1)
    source, values = store_reference(store), weighting.model_dump(mode="json")
    shards, ranges = range(store.n_shards), range(len(edges) - 1)
    pool = TaskPool(client, "The store could not be transposed")
    pool.map(_cut_shard, [(source, shard, edges, str(pieces), values) for shard in shards])
    pool.call(_merge_labels, source, str(own), str(pieces))
    entries = pool.map(_merge_range, [(source, edges, r, str(own), str(pieces), values) for r in ranges])
    manifest = _manifest(store, own, [ShardEntry.model_validate(entry) for entry in entries])
    commit_manifest(own, manifest)
    remove_folder(pieces)
    for leftover in own.glob(".*.tmp"):  # of tasks that were killed
        remove_file(leftover)
    return manifest


def transposed_labels(columns: Store) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The labels of the documents of a store written by `transpose`, and their weights, None if they have none.

    Raises `StorageError` if they are corrupt.
    """
    with read_checkpoint(columns.folder / LABELS) as (described, read):
        return read("labels"), read("weights") if described["weighted"] else None


def range_edges(frequencies: NDArray[np.int64], nonzeros: int) -> list[int]:
    """Bounds of ranges of features, each with about `RANGE_NONZEROS` entries or a single feature.

    `frequencies` are those of the vocabulary, which may be older than the last documents: they are scaled to a sum of
    `nonzeros`.
    """
    counts = frequencies.astype(np.float64)
    counts *= nonzeros / max(counts.sum(), 1.0)
    before = np.concatenate([[0.0], np.cumsum(counts)])
    edges = [0]
    while edges[-1] < counts.size:
        first = edges[-1]
        stop = int(np.searchsorted(before, before[first] + RANGE_NONZEROS, side="right")) - 1
        edges.append(min(max(stop, first + 1), first + RANGE_FEATURES, counts.size))
    return edges


def cut_shard(
    store: Store, shard: int, edges: Sequence[int], pieces: Location, weighting: Weighting = COUNTS
) -> Location:
    """Phase one: the entries of a shard sorted by feature, with one part per range, in a file of `pieces`.

    If the last range ends after the features of the store, it has the intercept.

    Parts have the features that occur (``features``, ``sizes``) and their entries (``rows``, numbered in the whole
    store, and ``counts``).
    """
    path = _piece(pieces, shard)
    if path.exists():
        return path
    part = store.read(shard)
    first_row = store.shards.row_offsets[shard]
    shape = (len(part.labels), edges[-1])
    counts = part.counts
    if not weighting.is_identity:
        counts = term_weights(store, weighting).values(part.indptr, part.indices, counts)
    entries = Rows(part.indptr, part.indices, counts)
    if edges[-1] > store.n_features:
        entries = with_intercept(entries, store.n_features)
    columns = csr_matrix((entries.values, entries.indices, entries.indptr), shape=shape).tocsc()
    rows = (columns.indices.astype(np.int64) + first_row).astype(_rows_dtype(store))
    sizes = np.diff(columns.indptr)
    arrays: list[tuple[str, NDArray[Any]]] = [("labels", part.labels)]
    if "weight" in part.columns:
        arrays.append(("weights", part.columns["weight"]))
    for r, (first, stop) in enumerate(pairwise(edges)):
        features = np.flatnonzero(sizes[first:stop])
        own = slice(int(columns.indptr[first]), int(columns.indptr[stop]))
        arrays += [
            (f"{r}.features", features),
            (f"{r}.sizes", sizes[first:stop][features].astype(np.int64)),
            (f"{r}.rows", rows[own]),
            (f"{r}.counts", columns.data[own].astype(_counts_dtype(store, weighting), copy=False)),
        ]
    write_checkpoint(path, {"shard": shard}, arrays)
    return path


def merge_range(
    store: Store, edges: Sequence[int], r: int, folder: Location, pieces: Location, weighting: Weighting = COUNTS
) -> ShardEntry:
    """Phase two: the shard of a range of features, concatenated from its parts in the order of the shards."""
    known = pieces / f"range-{r}.json"
    with suppress(DamagedError):  # missing or corrupt: it is written again
        entry = read_validated(known, ShardEntry)
        if (folder / entry.file).exists():
            return entry
    size = edges[r + 1] - edges[r]
    sizes = np.zeros(size, np.int64)
    paths = [_piece(pieces, shard) for shard in range(store.n_shards)]
    for path in paths:
        with read_checkpoint(path) as (_, read):
            sizes[read(f"{r}.features")] += read(f"{r}.sizes")
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.empty(indptr[-1], _rows_dtype(store))
    counts = np.empty(indptr[-1], _counts_dtype(store, weighting))
    ends = indptr[:-1].copy()
    for path in paths:
        with read_checkpoint(path) as (_, read):
            append_entries(
                *(read(f"{r}.{name}") for name in ("features", "sizes", "rows", "counts")), ends, rows, counts
            )
    documents = ShardRows(None, np.zeros(size, np.int32), indptr, rows, counts)
    entry = write_shard(folder, documents, n_features=store.n_rows)
    commit_json(known, entry.model_dump(mode="json"))
    return entry


def merge_labels(store: Store, folder: Location, pieces: Location) -> Location:
    """The labels and weights of all documents in one file."""
    path = folder / LABELS
    if not path.exists():
        arrays = {"labels": np.empty(store.n_rows, store.labels_dtype)}
        weighted = "weight" in store.manifest.columns
        if weighted:
            arrays["weights"] = np.empty(store.n_rows, np.float32)
        for shard, (first, stop) in enumerate(pairwise(store.shards.row_offsets)):
            with read_checkpoint(_piece(pieces, shard)) as (_, read):
                for name, array in arrays.items():
                    read(name, array[first:stop])
        write_checkpoint(path, {"rows": store.n_rows, "weighted": weighted}, arrays.items())
    return path


def _cut_shard(store: StoreReference, shard: int, edges: list[int], pieces: str, weighting: dict[str, Any]) -> None:
    cut_shard(open_store(store), shard, edges, location(pieces), Weighting.model_validate(weighting))


def _merge_range(
    store: StoreReference, edges: list[int], r: int, folder: str, pieces: str, weighting: dict[str, Any]
) -> dict[str, Any]:
    chosen = Weighting.model_validate(weighting)
    entry = merge_range(open_store(store), edges, r, location(folder), location(pieces), chosen)
    return entry.model_dump(mode="json")


def _merge_labels(store: StoreReference, folder: str, pieces: str) -> None:
    merge_labels(open_store(store), location(folder), location(pieces))


def _piece(pieces: Location, shard: int) -> Location:
    return pieces / f"shard-{shard}.npz"


def _rows_dtype(store: Store) -> np.dtype[Any]:
    """The type of the indices in the shards of the transposed store (see `write_shard`)."""
    return np.dtype(np.int32 if store.n_rows <= 2**31 else np.int64)


def _counts_dtype(store: Store, weighting: Weighting) -> np.dtype[Any]:
    return store.counts_dtype if weighting.is_identity else np.dtype(np.float64)


def _manifest(store: Store, own: Location, shards: list[ShardEntry]) -> Manifest:
    return Manifest(
        schema_version=SCHEMA_VERSION,
        version=1,
        sparseoco=__version__,
        options={"columns_of": store.manifest.digest},
        options_digest=store.manifest.digest,
        features=FeatureTable(kind="vocabulary", count=max(store.n_rows, 1), files=()),
        labels=LabelTable(kind="classes"),
        **add_entries(own, None, shards),
    )
