"""Small stores of shards with something to learn in them."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from sparseoco.store.entries import add_entries
from sparseoco.store.manifest import ClassEntry, LabelTable, commit_manifest
from sparseoco.store.shards import LabelSets, Store, write_shard
from sparseoco.store.terms import term_weights, write_dense
from sparseoco.store.weighting import Weighting

WEIGHTINGS = [
    Weighting(tf=tf, idf=idf, norm=norm)
    for tf, idf, norm in product(("count", "binary", "log"), (False, True), ("none", "l2"))
]


def make_store(folder: Path, *, rows: int = 300, features: int = 200, classes: int = 2, shard_rows: int = 100) -> Path:
    """A store whose content depends on rows, features and classes only, cut into shards of `shard_rows`."""
    random = np.random.default_rng(0)
    labels = np.sort(random.integers(0, classes, rows)).astype(np.int32)  # sorted: the order of examples matters
    chance = random.random((classes, features)) ** 6
    dense = random.random((rows, features)) < chance[labels]
    counts = np.where(dense, random.geometric(0.7, (rows, features)), 0)
    write_dense(folder, counts, labels, {}, shard_rows=shard_rows)
    return folder


def _rewritten(source: Path, folder: Path, change: Callable[[Any, int], Any], **update: Any) -> Path:
    """A copy of a store with other shards: ``change(shard, first row)``; `update` is of its manifest."""
    store, first, entries = Store.open(source), 0, []
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(store.n_shards):
        shard = store.read(number, ids=True)
        entries.append(write_shard(folder, change(shard, first), n_features=store.n_features))
        first += len(shard.labels)
    for entry in store.manifest.features.files:
        (folder / entry.file).write_bytes((source / entry.file).read_bytes())
    commit_manifest(folder, store.manifest.model_copy(update={**add_entries(folder, None, entries), **update}))
    return folder


def with_columns(source: Path, folder: Path, *, multilabel: bool = False, numbers: bool = False) -> Path:
    """A copy of a store whose documents have weights, groups and times, and other labels: numbers, or label sets in
    which a document keeps its class, gains the next one if its row is a multiple of 3 and loses both if of 7."""
    table = Store.open(source).manifest.labels
    n_classes = len(table.classes)

    def change(shard: Any, first: int) -> Any:
        rows = np.arange(first, first + len(shard.labels))
        labels: Any = shard.labels
        if numbers:
            labels = shard.labels + 0.25 * np.sin(rows)
        if multilabel:
            sets = [
                [] if row % 7 == 0 else sorted({int(k), (int(k) + 1) % n_classes} if row % 3 == 0 else {int(k)})
                for row, k in zip(rows.tolist(), shard.labels.tolist(), strict=True)
            ]
            sizes = np.cumsum([0, *map(len, sets)])
            labels = LabelSets(sizes, np.array([k for own in sets for k in own], np.int32))
        columns = {
            "weight": ((rows % 4) / 2).astype(np.float32),
            "group": rows // 10,
            "time": 1e9 + rows.astype(np.float64),
        }
        return shard._replace(labels=labels, columns=columns)

    kind: Any = "multi" if multilabel else "numbers" if numbers else "classes"
    changed = table.model_copy(update={"kind": kind} | ({"classes": ()} if numbers else {}))
    return _rewritten(source, folder, change, labels=changed, columns=("weight", "group", "time"))


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
    weights = term_weights(Store.open(source), weighting)

    def change(shard: Any, _: int) -> Any:
        return shard._replace(counts=weights.values(shard.indptr, shard.indices, shard.counts))

    return _rewritten(source, folder, change)
