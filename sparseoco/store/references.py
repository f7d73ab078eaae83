"""References to stores: what tasks are sent, and open from a cache of their process."""

from functools import lru_cache
from typing import NamedTuple

from sparseoco.core.errors import StorageError
from sparseoco.storage.locations import location
from sparseoco.store.manifest import read_manifest
from sparseoco.store.shards import Store

CACHED = 8  # stores that a process keeps open


class StoreReference(NamedTuple):
    """A version of a store, or its increment.

    Parameters
    ----------
    folder : str
        The folder of the store.
    version : int
        The version.
    digest : str
        The digest of the manifest, which is that of the version or that of its increment.
    """

    folder: str
    version: int
    digest: str


def store_reference(store: Store) -> StoreReference:
    """The reference from which a task opens exactly this store."""
    return StoreReference(str(store.folder.resolve()), store.manifest.version, store.manifest.digest)


@lru_cache(CACHED)
def open_store(reference: StoreReference) -> Store:
    """The store of a reference, from a cache of the process: the folder is not listed, later versions do not matter.

    Raises `StorageError` if its manifest is missing or corrupt, or another one than when the reference was made.
    """
    folder = location(reference.folder)
    whole = Store(folder, read_manifest(folder, reference.version))
    for store in (whole, whole.increment):
        if store.manifest.digest == reference.digest:
            return store
    raise StorageError(
        f"{folder} was changed while a run was reading version {reference.version}; run again.", code="store-changed"
    )
