"""Cases 12, 13 and 52 of the faults: staging files damaged between a kill and the resume are counted again."""

import random
import shutil
from pathlib import Path

import pytest

from sparseoco.text import ingest as ingesting
from sparseoco.text.array_files import StagingError, save_arrays
from sparseoco.text.options import TextOptions
from tests.support.damage import KINDS, damage
from tests.support.errors import raises_code
from tests.support.ingests import file_bytes, jsonl, random_texts

OPTIONS = TextOptions.of({"ngram_range": [1, 2], "duplicates": "first"})


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "x.jsonl").write_bytes(jsonl(random_texts(60)))
    return str(tmp_path / "x.jsonl")


def run(text: str, out: Path) -> dict[str, bytes]:
    ingesting.ingest([text], out, OPTIONS, shard_bytes=4096)
    return file_bytes(out)


@pytest.fixture
def killed(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose first ingest was killed right before its commit."""

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ingesting, "commit_manifest", kill)
        run(text, tmp_path / "killed")
    return tmp_path / "killed"


@pytest.mark.fault(52)
def test_damaged_staging_files_are_counted_again(text: str, killed: Path, tmp_path: Path) -> None:
    expected = run(text, tmp_path / "whole")
    files = [path.relative_to(killed) for path in sorted(killed.rglob("*")) if path.is_file()]
    assert len(files) > 15
    for number, name in enumerate(files):
        out = shutil.copytree(killed, tmp_path / f"out-{number}")
        damage(out / name, KINDS[number % len(KINDS)], random.Random(number))
        assert {key: value for key, value in run(text, out).items() if key in expected} == expected, name
        assert not (out / ".staging").exists()


@pytest.mark.fault(52)
def test_a_staging_file_under_the_name_of_another(text: str, killed: Path, tmp_path: Path) -> None:
    expected = run(text, tmp_path / "whole")
    first, second, *_ = sorted(killed.rglob("*.counts"))
    shutil.copy(first, second)
    assert run(text, killed) == expected


@pytest.mark.fault(52)
def test_a_folder_that_damages_all_it_is_given(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ingest starts over once, and then tells the file."""

    def save(path: Path, *content: object) -> None:
        save_arrays(path, *content)
        damage(path, "flipped", random.Random(0))

    monkeypatch.setattr("sparseoco.text.counting.save_arrays", save)
    with raises_code("corrupt-file", ".counts", kind=StagingError):
        run(text, tmp_path / "out")
