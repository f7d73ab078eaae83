"""Small stores of shards with something to learn in them."""

from pathlib import Path
from typing import Any

import numpy as np

from sparseoco.store.manifest import ClassEntry, LabelTable, commit_manifest
from sparseoco.store.segments import LabelSets, add_entries
from sparseoco.store.shards import Store, write_dense, write_shard
from sparseoco.store.terms import term_weights
from sparseoco.store.weighting import Weighting


def make_store(folder: Path, *, rows: int = 300, features: int = 200, classes: int = 2, shard_rows: int = 100) -> Path:
    """A store whose content depends on rows, features and classes only, cut into shards of `shard_rows`."""
    random = np.random.default_rng(0)
    labels = np.sort(random.integers(0, classes, rows)).astype(np.int32)  # sorted: the order of examples matters
    chance = random.random((classes, features)) ** 6
    dense = random.random((rows, features)) < chance[labels]
    counts = np.where(dense, random.geometric(0.7, (rows, features)), 0)
    write_dense(folder, counts, labels, {}, shard_rows=shard_rows)
    return folder


def with_columns(source: Path, folder: Path, *, multilabel: bool = False, numbers: bool = False) -> Path:
    """A copy of a store whose documents have weights, groups and times, and other labels: numbers, or label sets in
    which a document keeps its class, gains the next one if its row is a multiple of 3 and loses both if of 7."""
    store, first, entries = Store.open(source), 0, []
    n_classes = len(store.classes)
    for shard in range(store.n_shards):
        part = store.read(shard, ids=True)
        rows = np.arange(first, first + len(part.labels))
        labels: Any = part.labels
        if numbers:
            labels = part.labels + 0.25 * np.sin(rows)
        if multilabel:
            sets = [
                [] if row % 7 == 0 else sorted({int(k), (int(k) + 1) % n_classes} if row % 3 == 0 else {int(k)})
                for row, k in zip(rows.tolist(), part.labels.tolist(), strict=True)
            ]
            sizes = np.cumsum([0, *map(len, sets)])
            labels = LabelSets(sizes, np.array([k for own in sets for k in own], np.int32))
        columns = {
            "weight": ((rows % 4) / 2).astype(np.float32),
            "group": rows // 10,
            "time": 1e9 + rows.astype(np.float64),
        }
        part = part._replace(labels=labels, columns=columns)
        entries.append(write_shard(folder, part, n_features=store.n_features))
        first += len(rows)
    for entry in store.manifest.features.files:
        (folder / entry.file).write_bytes((source / entry.file).read_bytes())
    kind: Any = "multi" if multilabel else "numbers" if numbers else "classes"
    table = store.manifest.labels.model_copy(update={"kind": kind} | ({"classes": ()} if numbers else {}))
    update = {**add_entries(folder, None, entries), "labels": table, "columns": ("weight", "group", "time")}
    commit_manifest(folder, store.manifest.model_copy(update=update))
    return folder


def store_of(folder: Path, kind: str = "plain", **shape: int) -> Path:
    """A store of `make_store`, or one `with_columns` and labels of a kind: classes, numbers or multi."""
    source = make_store(folder / "source", **shape)
    if kind == "plain":
        return source
    return with_columns(source, folder / "store", multilabel=kind == "multi", numbers=kind == "numbers")


def with_classes(store: Path, *names: str) -> Path:
    """The store with other names of its classes, in a newer manifest."""
    manifest = Store.open(store).manifest
    labels = LabelTable(kind="classes", classes=tuple(ClassEntry(name=name, rows=1) for name in names))
    commit_manifest(store, manifest.model_copy(update={"version": manifest.version + 1, "labels": labels}))
    return store


def with_values(source: Path, folder: Path, weighting: Weighting) -> Path:
    """A copy of a store whose counts are the values that a weighting makes of them."""
    store = Store.open(source)
    weights, entries = term_weights(store, weighting), []
    for shard in range(store.n_shards):
        part = store.read(shard, ids=True)
        values = weights.values(part.indptr, part.indices, part.counts)
        entries.append(write_shard(folder, part._replace(counts=values), n_features=store.n_features))
    for entry in store.manifest.features.files:
        (folder / entry.file).write_bytes((source / entry.file).read_bytes())
    commit_manifest(folder, store.manifest.model_copy(update=add_entries(folder, None, entries)))
    return folder
