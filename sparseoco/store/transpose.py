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
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads scipy.sparse when it is used
from distributed import Client
from numpy.typing import NDArray

from sparseoco.core.errors import DamagedError
from sparseoco.execution.clusters import TaskPool, remove_damaged
from sparseoco.kernels.columns import with_intercept
from sparseoco.storage.commit import commit_json, digest_value, make_folder, read_validated, remove_file, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import read_checkpoint, write_checkpoint
from sparseoco.store.entries import ShardEntry, first_manifest
from sparseoco.store.manifest import FeatureTable, LabelTable, Manifest, commit_manifest, latest_manifest
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
    needed = {LABELS, manifest.shard_listing.file}
    if needed <= names and {entry.file for entry in Store(own, manifest).shards} <= names:
        return manifest
    remove_folder(own)
    return None


def _write(client: Client, store: Store, own: Location, weighting: Weighting, *, intercept: bool) -> Manifest:
    edges = range_edges(store.document_frequencies(), store.manifest.nonzeros)
    if intercept:
        edges.append(store.n_features + 1)
    work = Transposition(store_reference(store), edges, weighting, own)
    make_folder(work.pieces)
    pool = TaskPool(client, "The store could not be transposed")
    pool.map(_cut_shard, [(work, shard) for shard in range(store.n_shards)])
    pool.call(_merge_labels, work)
    entries = pool.map(_merge_range, [(work, number) for number in range(len(edges) - 1)])
    manifest = first_manifest(
        own,
        entries,
        options={"columns_of": store.manifest.digest},
        options_digest=store.manifest.digest,
        features=FeatureTable(kind="vocabulary", count=max(store.n_rows, 1), files=()),
        labels=LabelTable(kind="classes"),
    )
    commit_manifest(own, manifest)
    remove_folder(work.pieces)
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


class Transposition(NamedTuple):
    """What the tasks that transpose a store are sent.

    Parameters
    ----------
    source : StoreReference
        The store.
    edges : list of int
        The bounds of the ranges of features. If the last one ends after the features of the store, it has the
        intercept.
    weighting : Weighting
    folder : Location
        The folder of the transposed store.
    """

    source: StoreReference
    edges: list[int]
    weighting: Weighting
    folder: Location

    @property
    def store(self) -> Store:
        """The store."""
        return open_store(self.source)

    @property
    def pieces(self) -> Location:
        """The folder of the files of phase one."""
        return self.folder / "pieces"

    def piece(self, shard: int) -> Location:
        """The file of phase one of a shard."""
        return self.pieces / f"shard-{shard}.npz"

    @property
    def rows_dtype(self) -> np.dtype[Any]:
        """The type of the indices in the shards of the transposed store (see `write_shard`)."""
        return np.dtype(np.int32 if self.store.n_rows <= 2**31 else np.int64)

    @property
    def counts_dtype(self) -> np.dtype[Any]:
        """The type of its counts."""
        return self.store.counts_dtype if self.weighting.is_identity else np.dtype(np.float64)


def _cut_shard(work: Transposition, shard: int) -> None:
    """Phase one: the entries of a shard sorted by feature, with one part per range, in a file.

    Parts have the features that occur (``features``, ``sizes``) and their entries (``rows``, numbered in the whole
    store, and ``counts``).
    """
    path = work.piece(shard)
    if path.exists():
        return
    store, edges = work.store, work.edges
    part = store.read(shard)
    first_row = store.shards.row_offsets[shard]
    shape = (len(part.labels), edges[-1])
    counts = part.counts
    if not work.weighting.is_identity:
        counts = term_weights(store, work.weighting).values(part.indptr, part.indices, counts)
    indptr, indices = part.indptr, part.indices
    if edges[-1] > store.n_features:
        indptr, indices, counts = with_intercept(indptr, indices, counts, store.n_features)
    columns = scipy.sparse.csr_matrix((counts, indices, indptr), shape=shape).tocsc()
    rows = (columns.indices.astype(np.int64) + first_row).astype(work.rows_dtype)
    values = columns.data.astype(work.counts_dtype, copy=False)
    sizes = np.diff(columns.indptr)
    arrays: list[tuple[str, NDArray[Any]]] = [("labels", part.labels)]
    if "weight" in part.columns:
        arrays.append(("weights", part.columns["weight"]))
    for number, (first, stop) in enumerate(pairwise(edges)):
        features = np.flatnonzero(sizes[first:stop])
        own = slice(int(columns.indptr[first]), int(columns.indptr[stop]))
        arrays += [
            (f"{number}.features", features),
            (f"{number}.sizes", sizes[first:stop][features].astype(np.int64)),
            (f"{number}.rows", rows[own]),
            (f"{number}.counts", values[own]),
        ]
    write_checkpoint(path, {"shard": shard}, arrays)


def _merge_range(work: Transposition, number: int) -> ShardEntry:
    """Phase two: the shard of a range of features, concatenated from its parts in the order of the shards."""
    known = work.pieces / f"range-{number}.json"
    with suppress(DamagedError):  # missing or corrupt: it is written again
        entry = read_validated(known, ShardEntry)
        if (work.folder / entry.file).exists():
            return entry
    store = work.store
    size = work.edges[number + 1] - work.edges[number]
    sizes = np.zeros(size, np.int64)
    paths = [work.piece(shard) for shard in range(store.n_shards)]
    for path in paths:
        with read_checkpoint(path) as (_, read):
            sizes[read(f"{number}.features")] += read(f"{number}.sizes")
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.empty(indptr[-1], work.rows_dtype)
    counts = np.empty(indptr[-1], work.counts_dtype)
    ends = indptr[:-1].copy()
    for path in paths:
        with read_checkpoint(path) as (_, read):
            features, lengths, examples, values = (
                read(f"{number}.{name}") for name in ("features", "sizes", "rows", "counts")
            )
            # Entries are sorted by feature: they are appended to those of each feature, which end at `ends`.
            places = np.repeat(ends[features] - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(examples))
            rows[places], counts[places] = examples, values
            ends[features] += lengths
    documents = ShardRows(None, np.zeros(size, np.int32), indptr, rows, counts)
    entry = write_shard(work.folder, documents, n_features=store.n_rows)
    commit_json(known, entry.model_dump(mode="json"))
    return entry


def _merge_labels(work: Transposition) -> None:
    """The labels and weights of all documents in one file."""
    path, store = work.folder / LABELS, work.store
    if path.exists():
        return
    arrays = {"labels": np.empty(store.n_rows, store.labels_dtype)}
    weighted = "weight" in store.manifest.columns
    if weighted:
        arrays["weights"] = np.empty(store.n_rows, np.float32)
    for shard, (first, stop) in enumerate(pairwise(store.shards.row_offsets)):
        with read_checkpoint(work.piece(shard)) as (_, read):
            for name, array in arrays.items():
                read(name, array[first:stop])
    write_checkpoint(path, {"rows": store.n_rows, "weighted": weighted}, arrays.items())
