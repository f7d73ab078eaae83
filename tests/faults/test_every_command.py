"""Every command, disturbed at its N-th commit and run again: the bytes of an undisturbed one, or an error with a code.

By default at one commit of each kind of fault; with the marker ``slow`` at every one, and with a bit flipped in every
file.
"""

import random
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.commands import BEFORE, COMMANDS, RESULTS, many_commits, write_inputs
from tests.support.commands import call
from tests.support.damage import failing_commit, flip_bit
from tests.support.folders import LOCK, assert_same_folder, folder_bytes
from tests.support.forks import Forks


class Undisturbed(NamedTuple):
    """What a command leaves, and how many commits it makes."""

    files: dict[str, bytes]
    commits: int


class Commands:
    """The commands in a folder with their inputs; `forks` runs them in another process."""

    def __init__(
        self, folder: Path, before: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self._before, self._patch, self._capsys = folder, before, patch, capsys

    def result(self, name: str) -> Path:
        return self.folder / RESULTS.get(name, "out")

    def reset(self, name: str) -> None:
        """Give the result of a command the content it had before."""
        shutil.rmtree(self.result(name), ignore_errors=True)
        if (self._before / RESULTS.get(name, "out")).exists():
            shutil.copytree(self._before / RESULTS.get(name, "out"), self.result(name))

    def run(self, name: str) -> str:
        """Run a command; gives the code of its error, or nothing. It has printed one sentence for an error."""
        self._capsys.readouterr()
        with many_commits():
            ended = call(self._patch, *COMMANDS[name])
        said = [line for line in self._capsys.readouterr().err.splitlines() if line.startswith("sparseoco: ")]
        assert len(said) == (ended != 0), said
        return re.fullmatch(r".*\[([a-z-]+)\]", said[0])[1] if said else ""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The folder that commands work in, and a copy of it as it was before them."""
    folder = tmp_path_factory.mktemp("commands") / "work"
    folder.mkdir()
    write_inputs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in BEFORE:
            assert call(patch, *command) == 0
    return folder, Path(shutil.copytree(folder, folder.parent / "before"))


@pytest.fixture
def commands(
    prepared: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Commands]:
    monkeypatch.chdir(prepared[0])
    found = Commands(*prepared, monkeypatch, capsys)
    yield found
    for name in RESULTS:
        found.reset(name)


@pytest.fixture(scope="module")
def forks(prepared: tuple[Path, Path]) -> Iterator[Forks]:
    with Forks(prepared[0]) as forks:
        yield forks


def some(count: int, few: int, choose: random.Random) -> list[int]:
    """The numbers of at most `few` commits."""
    return sorted(choose.sample(range(1, count + 1), min(few, count)))


def check_resumed(commands: Commands, name: str, expected: Undisturbed, what: object) -> None:
    """A shard whose commit failed after it was written may be left unlisted; nothing else may differ."""
    assert commands.run(name) == "", what
    assert_same_folder(commands.result(name), expected.files, more=True, what=what)


def check_flips(
    commands: Commands, name: str, expected: Undisturbed, few: int, choose: random.Random, without: str = LOCK
) -> None:
    """The command on what a result holds gives the same bytes; with a bit of a file flipped, or it refuses it."""
    result = commands.result(name)
    left = Path(shutil.copytree(result, commands.folder.parent / "left")) if result.exists() else None
    check_resumed(commands, name, expected, "not damaged")
    if left is None:
        return
    names = (path.relative_to(left) for path in sorted(left.rglob("*")) if path.is_file() and path.stat().st_size)
    files = [file for file in names if file.name != LOCK and without not in file.parts]
    for file in choose.sample(files, min(few, len(files))):
        shutil.rmtree(result)
        shutil.copytree(left, result)
        bit = flip_bit(result / file, choose)
        data = (result / file).read_bytes()
        if commands.run(name) == "":
            wanted = dict(expected.files)
            if (result / file).exists() and (result / file).read_bytes() == data:  # the command did not read it
                wanted.pop(str(file), None)
            assert_same_folder(result, wanted, more=True, what=f"{file}, bit {bit}")
    shutil.rmtree(left)


@pytest.mark.fault(5, 12, 13, 15, 49, 50, 52)
@pytest.mark.parametrize("few", [1, pytest.param(10_000, marks=pytest.mark.slow)], ids=["few", "every"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_disturbed(commands: Commands, forks: Forks, name: str, few: int) -> None:
    choose = random.Random(name)
    commands.reset(name)
    with failing_commit(0) as synced:
        assert commands.run(name) == ""
    expected = Undisturbed(folder_bytes(commands.result(name)), len(synced))
    check_flips(commands, name, expected, few, choose)
    for number in some(expected.commits, few, choose):
        commands.reset(name)
        with failing_commit(number):
            assert commands.run(name) in ("disk-full", ""), number  # a checkpoint that cannot be written stops nothing
        check_resumed(commands, name, expected, f"a full disk at {number}")
    for number in some(expected.commits, few, choose):
        commands.reset(name)
        end = forks.run(["tests.faults.commands:killed_at_commit", str(number), *COMMANDS[name]], seconds=300)
        assert end.code == -signal.SIGKILL, (number, end)
        # An increment that was killed before its decision is decided without a comparison if its state is then corrupt.
        check_flips(commands, name, expected, min(few, 3), choose, "checkpoints" if name == "nightly" else LOCK)
