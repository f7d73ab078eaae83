"""Feature subsets on the cluster: the features with nonzero weights in a model (see `sparseoco.store.feature_subset`).

Each shard is a task, a pure function of its paths, so it may run twice; a killed run resumes with the shards that are
written.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.execution.pool import Call, TaskPool
from sparseoco.execution.work_files import remove_damaged
from sparseoco.storage.commit import digest_value, make_folder, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.feature_subset import (
    FeatureSubset,
    commit_feature_subset,
    cut_shard,
    read_feature_subset,
    write_feature_subset,
)
from sparseoco.store.shards import Store
from sparseoco.training.warm_start import Origin


@contextmanager
def feature_subset(
    client: Client, store: Store, origin: Origin | None, folder: Location, progress: ProgressCallback
) -> Iterator[Store]:
    """The store or, with a model, a store of the features with nonzero weights in it.

    That store is written to `folder`, which the workers must see and which is removed at the end. If a run was killed
    or failed, the next one uses what it has written. Raises as `model_features`, `StorageError` for a corrupt shard or
    a full disk.
    """
    if origin is None:
        yield store
        return
    yield _write(client, model_features(origin, store), folder, progress)
    remove_folder(folder)


def model_features(origin: Origin, store: Store) -> FeatureSubset:
    """The features of a store with a nonzero weight in a model, for any class.

    Raises `InputError` if the model has other features than the store, or all its weights are 0.
    """
    model = origin.open()
    if model.description.get("features_sha256") != store.features_digest():
        raise InputError(
            f"{model.folder} was not trained on the features of {store.folder}: features can only be selected by a "
            "model of the same vocabulary or the same hash.",
            code="features-differ",
        )
    if not model.feature_ids.size:
        raise InputError(f"All weights of {model.folder} are 0: there is no feature to train on.", code="no-features")
    return FeatureSubset(store, model.feature_ids, origin.sha256)


def _write(client: Client, subset: FeatureSubset, folder: Location, progress: ProgressCallback) -> Store:
    target = folder.resolve() / digest_value([subset.source.manifest.digest, subset.model_sha256])[:32]
    pool = TaskPool(client, "The feature subset could not be written")
    remove_damaged(pool, target)
    make_folder(target)
    write_feature_subset(subset, target)
    count = subset.source.n_shards
    calls: dict[str, Call] = {str(shard): (_cut_shard_task, str(target), shard) for shard in range(count)}
    for error in pool.run_all(calls, lambda done: progress("features", done, count)).values():
        raise error
    return commit_feature_subset(subset, target)


def _cut_shard_task(folder: str, shard: int) -> None:
    subset = read_feature_subset(location(folder))
    assert subset is not None
    cut_shard(subset, shard, location(folder))
