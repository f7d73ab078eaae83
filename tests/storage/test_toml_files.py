"""Files of options: what is read, and what is refused."""

from pathlib import Path

import pytest

from sparseoco.storage.locations import MAX_BYTES, read_toml
from tests.support.errors import raises_code


def test_values(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("# options\nname = 'é'\n[search]\nlam = [1e-4, inf]\n")
    assert read_toml(path) == {"name": "é", "search": {"lam": [1e-4, float("inf")]}}
    path.write_bytes(b"#" * MAX_BYTES)
    assert read_toml(path) == {}


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("run.yaml", b"", "unknown-format"),
        ("large.toml", b"#" * (MAX_BYTES + 1), "file-too-large"),
        ("latin.toml", b"\xff", "encoding"),
        ("twice.toml", b"a = 1\na = 2\n", "invalid-toml"),
        ("date.toml", b"a = 2020-99-99\n", "invalid-toml"),
        ("deep.toml", b"a = " + b"[" * 5000, "invalid-toml"),
    ],
)
def test_refused_files(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    (tmp_path / name).write_bytes(content)
    with raises_code(code, tmp_path / name):
        read_toml(tmp_path / name)


def test_missing_files(tmp_path: Path) -> None:
    with raises_code("missing-file", tmp_path / "none.toml"):
        read_toml(tmp_path / "none.toml")
    with raises_code("unreadable-file", tmp_path / "folder.toml"):
        (tmp_path / "folder.toml").mkdir()
        read_toml(tmp_path / "folder.toml")
