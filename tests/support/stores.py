"""Small stores of shards with something to learn in them."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from sparseoco.store.manifest import SCHEMA_VERSION, ClassEntry, FeatureTable, LabelTable, Manifest, commit_manifest
from sparseoco.store.shards import ShardRows, write_shard, write_vocabulary


def make_store(folder: Path, *, rows: int = 300, features: int = 200, classes: int = 2, shard_rows: int = 100) -> Path:
    """A store whose content depends on rows, features and classes only, cut into shards of `shard_rows`."""
    random = np.random.default_rng(0)
    labels = np.sort(random.integers(0, classes, rows)).astype(np.int32)  # sorted: the order of examples matters
    chance = random.random((classes, features)) ** 6
    dense = random.random((rows, features)) < chance[labels]
    counts = np.where(dense, random.geometric(0.7, (rows, features)), 0)
    entries = []
    for first in range(0, rows, shard_rows):
        part = counts[first : first + shard_rows]
        where = np.nonzero(part)
        entries.append(
            write_shard(
                folder,
                ShardRows(
                    ids=pa.array([f"d{i}" for i in range(first, first + len(part))]),
                    labels=labels[first : first + len(part)],
                    indptr=np.concatenate([[0], np.cumsum((part > 0).sum(axis=1))]),
                    indices=where[1].astype(np.int32),
                    counts=part[where].astype(np.uint16),
                ),
                n_features=features,
            )
        )
    terms = pa.array([f"t{i}" for i in range(features)])
    vocabulary = write_vocabulary(folder, terms, counts.sum(axis=0), (counts > 0).sum(axis=0))
    commit_manifest(
        folder,
        Manifest(
            schema_version=SCHEMA_VERSION,
            version=1,
            sparseoco="0",
            options={},
            options_digest="",
            features=FeatureTable(kind="vocabulary", count=features, files=(vocabulary,)),
            labels=LabelTable(
                kind="classes",
                classes=tuple(ClassEntry(name=f"c{k}", rows=int((labels == k).sum())) for k in range(classes)),
            ),
            rows=rows,
            nonzeros=int((counts > 0).sum()),
            sources=(),
            shards=tuple(entries),
        ),
    )
    return folder
