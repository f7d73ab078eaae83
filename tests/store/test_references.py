import pickle
from pathlib import Path

import pytest

from sparseoco.core.errors import StorageError
from sparseoco.storage.locations import Location
from sparseoco.store.manifest import commit_manifest, read_manifest
from sparseoco.store.segments import add_entries
from sparseoco.store.shards import Store, open_store, store_reference
from tests.support.errors import raises_code
from tests.support.stores import make_store


@pytest.fixture(autouse=True)
def no_cache() -> None:
    open_store.cache_clear()


def grown(folder: Path, version: int) -> Store:
    """A later version of a store, which has its last shard once more."""
    store = Store.open(folder)
    update = {"version": version, **add_entries(folder, store.manifest, store.shards[-1:])}
    commit_manifest(folder, store.manifest.model_copy(update=update))
    return Store.open(folder)


def test_a_task_opens_the_version_of_the_client(tmp_path: Path) -> None:
    first = Store.open(make_store(tmp_path))
    second = grown(tmp_path, 2)
    for store in (first, second, second.increment):
        found = open_store(pickle.loads(pickle.dumps(store_reference(store))))
        assert found.manifest == store.manifest
        assert found.shards == store.shards
    assert [len(store.shards) for store in (first, second, second.increment)] == [3, 4, 1]
    assert second.increment.shards[0] == first.shards[2]


def test_a_process_reads_a_store_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = store_reference(Store.open(make_store(tmp_path)))
    grown(tmp_path, 2)
    read: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path.name), read_bytes(path))[1])
    monkeypatch.setattr(Path, "glob", None)
    stores = [open_store(reference) for _ in range(5)]
    assert {len(store.shards) for store in stores} == {3}
    assert [name.split("-")[0] for name in read] == ["manifest", "shards"]


def test_a_version_that_was_replaced(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path))
    reference = store_reference(store)
    other: Location = tmp_path / "other"
    make_store(tmp_path / "other", rows=200)
    (tmp_path / "manifest-00000001.json").unlink()
    commit_manifest(tmp_path, read_manifest(other, 1))
    with raises_code("store-changed", tmp_path, "version 1", kind=StorageError):
        open_store(reference)
    with raises_code("missing-file", "manifest-00000007.json", kind=StorageError):
        open_store(reference._replace(version=7))
