"""Local and remote paths, and paths relative to one another."""

import os
import pickle
import re
import sys
from pathlib import Path

import pytest

from sparseoco.core.errors import DamagedError, FolderInUseError
from sparseoco.storage.commit import as_local_file, commit_bytes, read_bytes, remove_file, remove_folder
from sparseoco.storage.locations import (
    is_local,
    is_remote_uri,
    local_work_folder,
    location,
    relative_path,
    resolve_against,
)
from sparseoco.storage.locks import exclusive_lock
from tests.support.errors import raises_code


def test_a_local_path_is_a_path(tmp_path: Path) -> None:
    assert location("a/b") == Path("a/b")
    assert location(tmp_path) is tmp_path
    assert location(f"file://{tmp_path}") == tmp_path
    assert is_local(tmp_path)
    assert not is_remote_uri("C:/x")
    assert not is_remote_uri("file:///x")


def test_a_remote_path_has_the_methods_of_a_local_one() -> None:
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
def test_a_relative_path_leads_back(place: str, folder: str, between: str) -> None:
    assert relative_path(location(place), location(folder)) == between
    found = resolve_against(location(folder), between)
    assert (str(found.resolve()) if is_local(found) else str(found)) == place


def test_the_work_folder_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEOCO_SCRATCH", str(tmp_path))
    assert local_work_folder(Path("run")) == Path("run")
    one, other = local_work_folder(location("s3://bucket/one")), local_work_folder(location("s3://bucket/two"))
    assert one.parent == other.parent == tmp_path
    assert one != other == local_work_folder(location("s3://bucket/two"))


def test_another_store_than_s3() -> None:
    folder = location("memory://somewhere/run")
    commit_bytes(folder / "a" / "file", b"[1]", replace=False)
    with pytest.raises(FileExistsError):
        commit_bytes(folder / "a" / "file", b"[2]", replace=False)
    assert read_bytes(folder / "a" / "file") == b"[1]"
    assert [path.name for path in folder.glob("*/file")] == ["file"]
    with as_local_file(folder / "a" / "file") as local:
        assert local.read_bytes() == b"[1]"
    with exclusive_lock(folder):
        assert (folder / ".lock").exists()
    assert not (folder / ".lock").exists()
    remove_file(folder / "a" / "file")
    remove_file(folder / "a" / "file")
    with raises_code("missing-file", folder / "a" / "file", kind=DamagedError):
        read_bytes(folder / "a" / "file")
    remove_folder(folder)
    remove_folder(folder)


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    expected = raises_code("folder-in-use", f"process {os.getpid()}", kind=FolderInUseError)
    with exclusive_lock(tmp_path), expected, exclusive_lock(tmp_path):
        pass
    with exclusive_lock(tmp_path, wait=True):
        pass


def test_s3_profiles_need_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "ours")
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "obstore.auth.boto3", raising=False)
    with raises_code("missing-package", "sparseoco[s3]"):
        location("s3://bucket/run").exists()


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("nothing://x/y", "unknown-scheme"),
        ("http://host/x.jsonl", "unknown-scheme"),
        ("https://host/x.jsonl", "unknown-scheme"),
        ("s3:///x", "invalid-uri"),
        ("s3://x/../y", "invalid-uri"),
        ("s3://somebody:word@x/y", "credentials-in-uri"),
        ("https://host/x.jsonl?X-Amz-Date=1&X-Amz-Signature=secret", "credentials-in-uri"),
        ("https://host/x.jsonl?sv=1&sig=secret", "credentials-in-uri"),
        ("simplecache::s3://somebody:secret@bucket/x", "credentials-in-uri"),
    ],
)
def test_invalid_uris(uri: str, code: str) -> None:
    """One with credentials would be written to manifests."""
    with raises_code(code) as error:
        location(uri)
    assert code != "credentials-in-uri" or not re.search("secret|somebody", str(error.value))


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?"])
def test_a_name_is_never_a_pattern(name: str) -> None:
    folder = location(f"memory://bucket/{name}")
    commit_bytes(folder / "file", b"mine")
    commit_bytes(location("memory://bucket/run1/file"), b"other")
    assert [path.name for path in folder.glob("*")] == ["file"]
    remove_folder(folder)
    assert not folder.exists()
    assert location("memory://bucket/run1/file").read_bytes() == b"other"
    assert location(f"/runs/{name}") == Path(f"/runs/{name}")
