"""The features that a model kept, taken out of a store by the workers: see `sparseoco.store.feature_subset`.

A task a shard, each a pure function of its paths, so that any of them may run twice; what a killed run has written is
found there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.execution.pool import Call, TaskPool
from sparseoco.storage.commit import digest_value, make_folder, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.feature_subset import KeptFeatures, commit_kept, cut_shard, describe_kept, kept_features
from sparseoco.store.manifest import latest_manifest
from sparseoco.store.shards import Store
from sparseoco.training.warm_start import Origin


@contextmanager
def feature_subset_of(
    client: Client, store: Store, origin: Origin | None, folder: Location, progress: ProgressCallback
) -> Iterator[Store]:
    """The store, or, with a model, a store of the features that it kept: in `folder`, which is removed in the end.

    The workers must see the folder. What stands there when a run is killed or fails is taken up by the next.

    Raises as `features_of`, `StorageError` for a shard that cannot be trusted or a full disk.
    """
    if origin is None:
        yield store
        return
    yield _make(client, features_of(origin, store), folder, progress)
    remove_folder(folder)


def features_of(origin: Origin, store: Store) -> KeptFeatures:
    """The features of a store that have a nonzero weight in a model, for any class.

    Raises `InputError` if the model's features are not the store's, or it kept none.
    """
    model = origin.open()
    if model.description.get("features_sha256") != store.features_digest():
        raise InputError(
            f"{model.folder} was not learned on the features of {store.folder}: features can be taken from a model of "
            "the same vocabulary, or the same hash, only."
        )
    if not model.kept.size:
        raise InputError(f"{model.folder} kept no feature: all its weights are 0, and there is nothing to learn on.")
    return KeptFeatures(store, model.kept, origin.sha256)


def _make(client: Client, kept: KeptFeatures, folder: Location, progress: ProgressCallback) -> Store:
    own = folder.resolve() / digest_value([kept.source.manifest.digest, kept.model_sha256])[:32]
    if latest_manifest(own) is not None:
        return Store.open(own)
    make_folder(own)
    describe_kept(kept, own)
    count = len(kept.source.manifest.shards)
    calls: dict[str, Call] = {str(shard): (_cut_on_worker, str(own), shard) for shard in range(count)}
    pool = TaskPool(client, "The feature subset could not be written")
    for error in pool.run_all(calls, lambda done: progress("features", done, count)).values():
        raise error
    return commit_kept(kept, own)


def _cut_on_worker(folder: str, shard: int) -> None:
    kept = kept_features(location(folder))
    assert kept is not None
    cut_shard(kept, shard, location(folder))
