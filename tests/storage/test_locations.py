"""What a place is, and how places are named from one another."""

import pickle
import sys
from pathlib import Path

import pytest

from sparseoco.core.errors import FolderInUseError, InputError, StorageError
from sparseoco.storage.commit import commit_bytes, exclusive_lock, on_disk, read_json, remove_file, remove_folder
from sparseoco.storage.locations import (
    file_system,
    is_address,
    is_local,
    local_work_folder,
    location,
    relative,
    resolve_against,
)


def test_a_path_is_a_path(tmp_path: Path) -> None:
    assert location("a/b") == Path("a/b")
    assert location(tmp_path) is tmp_path
    assert location(f"file://{tmp_path}") == tmp_path
    assert is_local(tmp_path)
    assert not is_address("C:/x")
    assert not is_address("file:///x")


def test_an_address_is_a_path_with_the_same_methods() -> None:
    place = location("s3://bucket/folder/file.json")
    assert str(place) == "s3://bucket/folder/file.json"
    assert (place.name, place.stem, place.suffix) == ("file.json", "file", ".json")
    assert str(place.parent / "other") == "s3://bucket/folder/other"
    assert str(place.with_suffix(".npy")) == "s3://bucket/folder/file.npy"
    assert str(place.resolve()) == str(place.absolute()) == place.as_uri() == str(place)
    assert location(str(place)) == place == pickle.loads(pickle.dumps(place))  # as Dask sends it
    assert type(pickle.loads(pickle.dumps(place))) is type(place)
    assert not is_local(place)
    assert len({place, location(str(place))}) == 1


@pytest.mark.parametrize(
    ("place", "folder", "between"),
    [
        ("/runs/one/shards", "/runs/one", "shards"),
        ("/runs/shards", "/runs/one", "../shards"),
        ("s3://bucket/runs/shards", "s3://bucket/runs/one", "../shards"),
        ("s3://bucket/shards", "s3://bucket/runs/one", "../../shards"),
        ("s3://other/shards", "s3://bucket/runs/one", "s3://other/shards"),
        ("/runs/shards", "s3://bucket/runs/one", "/runs/shards"),
        ("s3://bucket/shards", "/runs/one", "s3://bucket/shards"),
    ],
)
def test_a_place_is_found_again_from_a_folder(place: str, folder: str, between: str) -> None:
    assert relative(location(place), location(folder)) == between
    found = resolve_against(location(folder), between)
    assert (str(found.resolve()) if is_local(found) else str(found)) == place


def test_a_workplace_is_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEOCO_SCRATCH", str(tmp_path))
    assert local_work_folder(Path("run")) == Path("run")
    one, other = local_work_folder(location("s3://bucket/one")), local_work_folder(location("s3://bucket/two"))
    assert one.parent == other.parent == tmp_path
    assert one != other == local_work_folder(location("s3://bucket/two"))


def test_any_file_system_will_do() -> None:
    folder = location("memory://somewhere/run")
    commit_bytes(folder / "a" / "file", b"[1]", replace=False)
    with pytest.raises(FileExistsError):
        commit_bytes(folder / "a" / "file", b"[2]", replace=False)
    assert read_json(folder / "a" / "file") == [1]
    assert [path.name for path in folder.glob("*/file")] == ["file"]
    with on_disk(folder / "a" / "file") as local:
        assert local.read_bytes() == b"[1]"
    with exclusive_lock(folder):
        assert (folder / ".lock").exists()
    assert not (folder / ".lock").exists()
    remove_file(folder / "a" / "file")
    remove_file(folder / "a" / "file")
    with pytest.raises(StorageError, match="is not there"):
        read_json(folder / "a" / "file")
    remove_folder(folder)
    remove_folder(folder)


def test_who_waits_for_a_folder_gets_it(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path), pytest.raises(FolderInUseError, match="in use by process"), exclusive_lock(tmp_path):
        pass
    with exclusive_lock(tmp_path, wait=True):
        pass


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sparseoco.storage.buckets", None)
    with pytest.raises(InputError, match=r"pip install 'sparseoco\[s3\]'"):
        location("s3://bucket/run")


def test_what_is_no_place_is_said() -> None:
    for address in ("nothing://x/y", "s3:///x", "s3://somebody:word@x/y"):
        with pytest.raises(InputError):
            location(address)


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?"])
def test_a_folder_that_would_stand_for_others_is_refused(name: str) -> None:
    """fsspec would list, and remove, what is in folders that match."""
    for kind in ("s3", "memory"):
        with pytest.raises(InputError, match="would stand for other folders too"):
            location(f"{kind}://bucket/{name}/shards")
    assert file_system(f"s3://bucket/{name}.txt")[1] == f"bucket/{name}.txt"
    assert location(f"/runs/{name}") == Path(f"/runs/{name}")


@pytest.mark.parametrize(
    "address",
    [
        "https://host/x.jsonl?X-Amz-Date=1&X-Amz-Signature=secret",
        "https://host/x.jsonl?sv=1&sig=secret",
        "simplecache::s3://somebody:secret@bucket/x",
    ],
)
def test_an_address_that_opens_a_file_by_itself_is_refused(address: str) -> None:
    """It would stand in manifests."""
    for open_ in (location, file_system):
        with pytest.raises(InputError, match="holds credentials") as error:
            open_(address)
        assert "secret" not in str(error.value)
