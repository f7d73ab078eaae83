"""A store with some features of another: the same documents, and new feature ids.

Its format is that of any store, so every step works on a feature subset, with results identical to those on the columns
of the matrix. Its vocabulary has the terms of its features; a file in the same folder has the source and the
ids there. Documents without any of the features stay: they count as rounds.
"""

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import DamagedError
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.commit import commit_json, digest_value
from sparseoco.storage.locations import Location
from sparseoco.storage.validated import read_validated
from sparseoco.store.entries import ShardEntry
from sparseoco.store.manifest import (
    SCHEMA_VERSION,
    FeatureTable,
    Manifest,
    commit_manifest,
    latest_manifest,
)
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.segments import add_entries
from sparseoco.store.shards import Store
from sparseoco.store.writing import write_shard, write_vocabulary

SUBSET = "features.npz"


class FeatureSubset(NamedTuple):
    """The source of a feature subset and the features that were selected."""

    source: Store
    features: NDArray[np.int64]
    """Ids in the source, increasing: feature i of the subset is feature ``features[i]`` of the source."""
    model_sha256: str
    """SHA-256 of the model.json of the model that selected them."""

    @property
    def description(self) -> dict[str, Any]:
        """The description of the subset in models that were learned on it."""
        ids = digest_value(self.features.tolist())
        return {"model_sha256": self.model_sha256, "features": self.features.size, "features_sha256": ids}

    def subset_ids(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids in the subset of features of the source, −1 for those not selected (and for −1)."""
        found = np.minimum(np.searchsorted(self.features, ids), self.features.size - 1)
        return np.where(self.features[found] == ids, found, -1)


def read_feature_subset(folder: Location) -> FeatureSubset | None:
    """The feature subset in a folder, None for a store that was ingested.

    Raises `StorageError` if its source is another one than when the subset was written.
    """
    path = folder / SUBSET
    if not path.exists():
        return None
    with read_checkpoint(path) as (described, read):
        return FeatureSubset(
            open_store(StoreReference(*described["source"])), read("features"), described["model_sha256"]
        )


def write_feature_subset(subset: FeatureSubset, folder: Location) -> None:
    """Write the file that `read_feature_subset` reads."""
    described = {"source": list(store_reference(subset.source)), "model_sha256": subset.model_sha256}
    write_checkpoint(folder / SUBSET, described, [("features", subset.features)])


def cut_shard(subset: FeatureSubset, shard: int, folder: Location) -> ShardEntry:
    """Write the selected features of one shard of the source, and return its entry, which is stored for a rerun."""
    entry_path = folder / f"entry-{shard}.json"
    with suppress(DamagedError):  # missing or corrupt: it is written again
        entry = read_validated(entry_path, ShardEntry)
        if (folder / entry.file).exists():
            return entry
    rows = subset.source.read(shard)
    ids = subset.subset_ids(rows.indices)
    selected = ids >= 0
    before = np.concatenate([[0], np.cumsum(selected)])
    part = rows._replace(indptr=before[rows.indptr], indices=ids[selected], counts=rows.counts[selected])
    entry = write_shard(folder, part, n_features=subset.features.size)
    commit_json(entry_path, entry.model_dump(mode="json"))
    return entry


def commit_feature_subset(subset: FeatureSubset, folder: Location) -> Store:
    """Commit the manifest of the shards that `cut_shard` wrote, and open the store.

    Its digest is a function of those of its source and of the model.
    """
    source = subset.source.manifest
    shards = [cut_shard(subset, shard, folder) for shard in range(subset.source.n_shards)]
    named = subset.source.describe(subset.features)
    documents = subset.source.document_frequencies()[subset.features]
    ids = np.arange(subset.features.size)
    vocabulary = write_vocabulary(folder, ids, named["term"].combine_chunks(), named["count"].to_numpy(), documents)
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        version=1,
        sparseoco=__version__,
        options=source.options,
        options_digest=digest_value([source.digest, subset.model_sha256]),
        features=FeatureTable(kind="vocabulary", count=subset.features.size, files=(vocabulary,)),
        labels=source.labels,
        columns=source.columns,
        fields=source.fields,
        **add_entries(folder, None, shards, subset.source.sources),
    )
    if latest_manifest(folder) is None:
        commit_manifest(folder, manifest)
    return Store.open(folder)
