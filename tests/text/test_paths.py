"""Paths without symbolic links, of many files at once."""

from pathlib import Path, PurePosixPath

import pytest

from sparseoco.storage.locations import real_path
from sparseoco.text.folders import RealPaths
from sparseoco.text.sources import Source, with_unique_names


def test_links_are_followed_as_for_each_path_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("")
    (tmp_path / "folder").symlink_to(tmp_path / "a")
    (tmp_path / "file").symlink_to(tmp_path / "folder" / "b" / "file")
    (tmp_path / "dangling").symlink_to("nothing")
    monkeypatch.chdir(tmp_path / "folder")
    real = RealPaths()
    inside = ["a/b/file", "folder/b/file", "folder/b", "file", "dangling", "a/none", "folder/b/..", "folder/./b/", ""]
    other = ["b/file", "file", "b/../b/file", "..", "/", "/etc", "//etc/x"]
    for path in [*(f"{tmp_path}/{name}" for name in inside), *other]:
        assert real(path) == real_path(path)
        assert real(path) == real_path(path)
    assert real("s3://bucket/a/../b") == "s3://bucket/a/../b"


def test_names_are_unique_whatever_came_before() -> None:
    earlier = ["/1/x.txt", "/2/x.txt~2", "/3/x.txt", "s3://bucket/y/", "/4/y"]
    new = [Source(path, path, "", "lines", None, 0, None, "") for path in ["/5/x.txt", "/6/x.txt~3", "/7/y", "/8/y"]]
    assert [source.short for source in with_unique_names(new, earlier)] == ["x.txt~4", "x.txt~3~2", "y~3", "y~4"]
    assert PurePosixPath("s3://bucket/y/").name == "y"
