"""Some features of a store alone: a store of the same documents, the other features left out, ids counted anew.

Its format is that of any store, so whatever learns from a store learns on these features, with the bits that it would
learn from the columns cut out of the matrix. Row i of its vocabulary names its feature i as the source names it; a file
beside the manifest says which features of which store they are. Documents left without a feature stay: they are rounds.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import StorageError
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.commit import commit_json, digest_value, read_json
from sparseoco.storage.locations import Location
from sparseoco.store.manifest import (
    SCHEMA_VERSION,
    FeatureTable,
    Manifest,
    ShardEntry,
    commit_manifest,
    latest_manifest,
)
from sparseoco.store.shards import Rows, Store, write_shard, write_vocabulary

KEPT = "kept.npz"


class KeptFeatures(NamedTuple):
    """Which features of which store a store is made of."""

    source: Store
    features: NDArray[np.int64]
    """Ids in the source, increasing: feature i of this store is feature ``features[i]`` there."""
    model_sha256: str
    """SHA-256 of the model.json of the model that kept them."""

    @property
    def description(self) -> dict[str, Any]:
        """What a model says of the features it was learned on."""
        ids = digest_value(self.features.tolist())
        return {"model_sha256": self.model_sha256, "features": self.features.size, "features_sha256": ids}

    def places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids here of features of the source, −1 for those that were left out (and for −1)."""
        found = np.minimum(np.searchsorted(self.features, ids), self.features.size - 1)
        return np.where(self.features[found] == ids, found, -1)


def kept_features(folder: Location) -> KeptFeatures | None:
    """What the store in a folder is made of, as `describe_kept` has it; None for one that was ingested.

    Raises `StorageError` where the source is another by now.
    """
    path = folder / KEPT
    if not path.exists():
        return None
    with read_checkpoint(path) as (described, read):
        place, digest, model_sha256 = (described[name] for name in ("source", "manifest", "model_sha256"))
        features = read("features")
    source = Store.open(place)
    if source.manifest.digest != digest:
        raise StorageError(f"{place} was changed while a run was learning on some of its features; run again.")
    return KeptFeatures(source, features, model_sha256)


def describe_kept(kept: KeptFeatures, folder: Location) -> None:
    """Commit what `kept_features` reads."""
    source = {"source": str(kept.source.folder.resolve()), "manifest": kept.source.manifest.digest}
    write_checkpoint(folder / KEPT, source | {"model_sha256": kept.model_sha256}, [("features", kept.features)])


def cut_shard(kept: KeptFeatures, shard: int, folder: Location) -> ShardEntry:
    """Write one shard of the source with its other features left out; gives its entry, which is kept beside it."""
    entry_path = folder / f"entry-{shard}.json"
    if entry_path.exists():
        return ShardEntry.model_validate(read_json(entry_path))
    rows = kept.source.read(shard)
    places = kept.places(rows.indices)
    inside = places >= 0
    before = np.concatenate([[0], np.cumsum(inside)])
    part = Rows(None, rows.labels, before[rows.indptr], places[inside], rows.counts[inside])
    entry = write_shard(folder, part, n_features=kept.features.size)
    commit_json(entry_path, entry.model_dump(mode="json"))
    return entry


def commit_kept(kept: KeptFeatures, folder: Location) -> Store:
    """Make the store visible whose shards `cut_shard` has written, and give it.

    Its digest is a function of those of its source and of the model.
    """
    source = kept.source.manifest
    shards = tuple(cut_shard(kept, shard, folder) for shard in range(len(source.shards)))
    named = kept.source.describe(kept.features)
    counted = (named[name].to_numpy() for name in ("count", "documents"))
    vocabulary = write_vocabulary(folder, named["term"].combine_chunks(), *counted)
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        version=1,
        sparseoco=__version__,
        options=source.options,
        options_digest=digest_value([source.digest, kept.model_sha256]),
        features=FeatureTable(kind="vocabulary", count=kept.features.size, files=(vocabulary,)),
        labels=source.labels,
        rows=source.rows,
        nonzeros=sum(entry.nonzeros for entry in shards),
        sources=source.sources,
        shards=shards,
    )
    if latest_manifest(folder) is None:
        commit_manifest(folder, manifest)
    return Store.open(folder)
