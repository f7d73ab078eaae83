"""Every command, disturbed at its N-th commit and run again: the bytes of an undisturbed one, or an error with a code.

Full disks, kills, cut wires, power that fails and clocks that jump, in a folder and in an object store, with damage
to what is left. By default at one commit of each kind of fault, of quick commands at some; with the marker ``slow`` at
every one, and with damage to every file.
"""

import random
import re
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparseoco.storage.commit import remove_folder
from sparseoco.storage.locations import Location, location, resolve_against
from tests.faults.commands import BEFORE, COMMANDS, RESULTS, many_commits, write_inputs
from tests.support.commands import call
from tests.support.damage import KINDS, damaged, failing_commit, failing_put
from tests.support.disks import jumping_clock, recorded
from tests.support.folders import LOCK, assert_same_folder, folder_bytes
from tests.support.forks import Forks
from tests.support.nightly_runs import arrive

Files = dict[str, bytes]


HEALED = re.compile("/(\\.staging|cells|checkpoints|kept)/")
"""Files that are written again; a command may refuse others that are damaged."""


class Commands:
    """The commands in a folder with their inputs; what they write is there, or below `root` in an object store."""

    def __init__(
        self, folder: Path, before: Path, root: str, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self.root, self._before, self._patch, self._capsys = folder, root, before, patch, capsys

    def result(self, name: str) -> Location:
        return resolve_against(location(self.root), RESULTS.get(name, "out"))

    def command(self, name: str) -> list[str]:
        """The words of a command; a run file names its folder."""
        for file in ("rich.toml", "nightly/places.toml"):
            text = (self._before / file).read_text()
            folder = self.result(name) if "://" in self.root else re.search('out = "(.*)"', text)[1]
            (self.folder / file).write_text(re.sub('out = ".*"', f'out = "{folder}"', text))
        own = RESULTS.get(name, "out")
        return [str(self.result(name)) if word == own and "://" in self.root else word for word in COMMANDS[name]]

    def restore(self, name: str, files: Files | None = None) -> None:
        """Give the result of a command this content, or that which it had before."""
        before = self._before / RESULTS.get(name, "out")
        remove_folder(self.result(name))
        for file, data in (folder_bytes(before, without=()) if files is None else files).items():
            place = resolve_against(self.result(name), file)
            if isinstance(place, Path):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            else:
                place.put(data, "overwrite")

    def run(self, name: str) -> str:
        """Run a command; gives the code of its error, or nothing. It has printed one sentence for an error."""
        self._capsys.readouterr()
        with many_commits():
            ended = call(self._patch, *self.command(name))
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
    arrive(folder / "nightly", 3)
    (folder / "nightly" / "incoming" / "broken.jsonl").write_text("{")
    return folder, Path(shutil.copytree(folder, folder.parent / "before"))


@pytest.fixture
def commands(
    prepared: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], Commands]]:
    monkeypatch.chdir(prepared[0])
    yield lambda root: Commands(*prepared, root, monkeypatch, capsys)
    for name in RESULTS:
        Commands(*prepared, ".", monkeypatch, capsys).restore(name)


@pytest.fixture(scope="module")
def forks(prepared: tuple[Path, Path]) -> Iterator[Forks]:
    with Forks(prepared[0]) as forks:
        yield forks


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Files]:
    """What undisturbed commands wrote in a folder."""
    return {}


def some(count: int, few: int, choose: random.Random) -> list[int]:
    """The numbers of at most `few` commits."""
    return sorted(choose.sample(range(1, count + 1), min(few, count)))


def check_resumed(commands: Commands, name: str, expected: Files, what: object) -> None:
    """A shard whose commit failed after it was written may be left unlisted; nothing else may differ."""
    assert commands.run(name) == "", what
    assert_same_folder(commands.result(name), expected, more=True, what=what)


def check_damage(
    commands: Commands, name: str, expected: Files, few: int, choose: random.Random, without: str = LOCK
) -> None:
    """The command on what a result holds gives the same bytes; with damage to a file, or it refuses it."""
    result = commands.result(name)
    left = folder_bytes(result, without=())
    check_resumed(commands, name, expected, "not damaged")
    files = [file for file, data in left.items() if data and not {LOCK, without} & set(file.split("/"))]
    for file in choose.sample(files, min(few, len(files))):
        kind = choose.choice((*KINDS, "swapped"))
        given = damaged(left, file, kind, choose)
        commands.restore(name, given)
        code = commands.run(name)
        assert not (code and HEALED.search(f"/{file}")), f"{file} is {kind}: {code}"
        if not code:
            wanted, place = dict(expected), resolve_against(result, file)
            if (place.read_bytes() if place.exists() else None) == given.get(file):  # the command did not read it
                wanted.pop(file, None)
            assert_same_folder(result, wanted, more=True, what=f"{file} is {kind}")


QUICK = {"ingest": 4, "ingest hashed": 3, "score": 4, "score ids": 3, "generate": 3}
"""Commands of which more commits and files than one are disturbed by default."""


@pytest.fixture(params=[0, pytest.param(10_000, marks=pytest.mark.slow)], ids=["few", "every"])
def few(request: pytest.FixtureRequest, name: str) -> int:
    return request.param or QUICK.get(name, 1)


@pytest.mark.fault(5, 12, 13, 14, 15, 20, 22, 49, 50, 52)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_disturbed(
    commands: Callable[[str], Commands], undisturbed: dict[str, Files], forks: Forks, name: str, few: int
) -> None:
    choose, here = random.Random(name), commands(".")
    here.restore(name)
    folder = here.folder / RESULTS.get(name, "out")
    with recorded(folder, ahead=False) as behind, recorded(folder, ahead=True) as ahead, failing_commit(0) as synced:
        assert here.run(name) == ""
    expected = undisturbed[name] = folder_bytes(here.result(name))
    check_damage(here, name, expected, few, choose)
    here.restore(name)
    with jumping_clock():
        check_resumed(here, name, expected, "the clock")
    for number in some(len(synced), few, choose):
        here.restore(name)
        with failing_commit(number):
            assert here.run(name) in ("disk-full", ""), number  # a checkpoint that cannot be written stops nothing
        check_resumed(here, name, expected, f"a full disk at {number}")
    for number in some(len(synced), few, choose):
        here.restore(name)
        end = forks.run(["tests.faults.commands:killed_at_commit", str(number), *COMMANDS[name]], seconds=300)
        assert end.code == -signal.SIGKILL, (number, end)
        # An increment that was killed before its decision is decided without a comparison if its state is then corrupt.
        check_damage(here, name, expected, min(few, 3), choose, "checkpoints" if name == "nightly" else LOCK)
    for order, disk in {"behind": behind, "ahead": ahead}.items():
        kept = disk.states[-1] if disk.states else expected
        lost = {file for file, data in expected.items() if not HEALED.search(f"/{file}") and kept.get(file) != data}
        assert not lost  # when the command ends
        for number in some(len(disk.states), few, choose):
            here.restore(name, disk.states[number - 1])
            check_resumed(here, name, expected, f"power at {number}, {order}")


@pytest.mark.fault(5, 12, 13, 49, 50)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_disturbed_in_an_object_store(
    commands: Callable[[str], Commands], undisturbed: dict[str, Files], name: str, few: int
) -> None:
    choose, here, there = random.Random(name), commands("."), commands(f"memory://{uuid.uuid4().hex}")
    if name not in undisturbed:
        here.restore(name)
        assert here.run(name) == ""
        undisturbed[name] = folder_bytes(here.result(name))
    expected = dict(undisturbed[name])
    there.restore(name)
    with failing_put(0) as written:
        assert there.run(name) == ""
    if name == "search":  # it names the store by a path from the search
        expected["run.json"] = (there.result(name) / "run.json").read_bytes()
    assert_same_folder(there.result(name), expected)
    check_damage(there, name, expected, few, choose)
    for number in some(len(written), few, choose):
        for after in (False, True):
            there.restore(name)
            with failing_put(number, after=after):
                assert there.run(name) in ("io-error", ""), (number, after)
            check_resumed(there, name, expected, f"put {number}")
