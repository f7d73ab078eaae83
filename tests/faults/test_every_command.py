"""Every command, disturbed at its N-th commit and run again: the bytes of an undisturbed one, or an error with a code.

Full disks, kills, cut wires, power that fails and clocks that jump, in a folder and in an object store, with damage
to what is left. By default at a commit of every kind of file that any command writes, and with damage to one file, or
to two if a command is quick, of which one also in a store; with the marker ``slow`` at every commit, and with damage
to every file in both places.
"""

import random
import re
import shutil
import signal
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

from sparseoco.storage.commit import remove_folder
from sparseoco.storage.locations import Location, location, resolve_against
from tests.faults.commands import BEFORE, COMMANDS, RESULTS, many_commits, write_inputs
from tests.support.commands import call
from tests.support.damage import KINDS as DAMAGES
from tests.support.damage import damaged, failing_commit, failing_put, jumping_clock, recorded
from tests.support.folders import LOCK, assert_same_folder, folder_bytes
from tests.support.forks import Forks
from tests.support.nightly_runs import arrive

Files = dict[str, bytes]


HEALED = re.compile("/(\\.staging|cells|checkpoints|kept)/")
"""Files that are written again; a command may refuse others that are damaged."""


class Commands(NamedTuple):
    """The commands in a folder with their inputs; what they write is there, or below `root` in an object store."""

    folder: Path
    before: Path
    root: str
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def result(self, name: str) -> Location:
        return resolve_against(location(self.root), RESULTS.get(name, "out"))

    def command(self, name: str) -> list[str]:
        """The words of a command; a run file names its folder."""
        for file in ("rich.toml", "nightly/places.toml"):
            text = (self.before / file).read_text()
            folder = self.result(name) if "://" in self.root else re.search('out = "(.*)"', text)[1]
            (self.folder / file).write_text(re.sub('out = ".*"', f'out = "{folder}"', text))
        own = RESULTS.get(name, "out")
        return [str(self.result(name)) if word == own and "://" in self.root else word for word in COMMANDS[name]]

    def restore(self, name: str, files: Files | None = None) -> None:
        """Give the result of a command this content, or that which it had before."""
        before = self.before / RESULTS.get(name, "out")
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
        self.capsys.readouterr()
        with many_commits():
            ended = call(self.patch, *self.command(name))
        said = [line for line in self.capsys.readouterr().err.splitlines() if line.startswith("sparseoco: ")]
        assert len(said) == (ended != 0), said
        return re.fullmatch(r".*\[([a-z-]+)\]", said[0])[1] if said else ""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The folder that commands work in, and a copy of it as it was before them."""
    folder = tmp_path_factory.mktemp("commands") / "work"
    write_inputs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in BEFORE:
            assert call(patch, *command) == 0
        arrive(folder / "nightly", 2)
        assert call(patch, *BEFORE[-1]) == 0  # there is a model to roll back to
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
    with Forks(prepared[0], "tests.chaos.readers:loaded") as forks:
        yield forks


KINDS = {
    "ingest": "vocabulary-#.parquet shard-#.parquet sources-#.parquet shards-#.parquet manifest-#.json",
    "ingest hashed": "names-#.parquet frequencies-#.parquet",
    "ingest more": "",
    "search": "#-#-#-#.learner metrics.parquet #-#.json feature_survival.parquet curves.parquet #-#.parquet "
    "timings.parquet held_out.parquet run.json best.json #-#-#-#.json",
    "train": "#-slopes-#.npy #-total.npz sizes.npy epoch-#.npz epoch-#.json epoch-#.npy",
    "train on features": "vocabulary.parquet weights.parquet features.npz curve.parquet learner.npz entry-#.json "
    "model.json",
    "run": "#-#-#-part-#-#.npz labels.npz range-#.json test.parquet evaluation.json shard-#.npz",
    "nightly": "history-quarantine.parquet history-classes.parquet history-configurations.parquet promoted.json "
    "history-timings.parquet increments.parquet history.parquet",
    "rollback": "history-rollbacks.parquet nightly.html",
    "optimum": "optimum.parquet optimum.json column-#.npz",
    "regret": "curve-#.npz bound-#.json regret.parquet slopes.parquet leaderboard.parquet report.html optimum-#.npz",
    "score": "parts-#.parquet #.parquet manifest.json kept-#.parquet kept.json distribution.parquet scores.html #.kept",
    "score ids": "",
    "generate": "planted.json part-#.jsonl",
}
"""Every kind of file that commands commit, at the command that is disturbed at a commit of it by default."""


QUICK = ("ingest", "ingest hashed", "score", "score ids", "generate")
"""Commands of which two files are damaged by default."""


VARIANTS = ("ingest hashed", "ingest more", "train on features", "score ids")
"""Commands that another one here is nearly the same as: by default they are not killed, and no wire is cut."""


def kind(path: Location) -> str:
    """The kind of a file that is committed: its name without digests and numbers; of a folder, nothing."""
    name = re.fullmatch(r"\.(.+)\.[0-9a-f]{8}-[0-9a-f]{8}\.tmp", path.name)
    return re.sub(r"[0-9a-f]{8,}|\d+", "#", name[1]) if name else ""


def numbers(commits: Sequence[Location], kinds: list[str], every: bool, choose: random.Random) -> list[int]:
    """The number of a commit of each kind, or of any one; or those of every one."""
    if every or not commits:
        return list(range(1, len(commits) + 1))
    places = defaultdict(list)
    for number, path in enumerate(commits, 1):
        places[kind(path)].append(number)
    return [choose.choice(places[name]) for name in kinds] or [choose.randint(1, len(commits))]


def check_resumed(commands: Commands, name: str, expected: Files, what: object) -> None:
    """A shard whose commit failed after it was written may be left unlisted; nothing else may differ."""
    assert commands.run(name) == "", what
    assert_same_folder(commands.result(name), expected, more=True, what=what)


def check_damage(
    commands: Commands, name: str, expected: Files, few: int, choose: random.Random, without: str = LOCK
) -> None:
    """The command on what a result holds gives the same bytes; with damage to a file, or it refuses it.

    Files that are written again are damaged first.
    """
    result = commands.result(name)
    left = folder_bytes(result, without=())
    check_resumed(commands, name, expected, "not damaged")
    files = [file for file, data in left.items() if data and not {LOCK, without} & set(file.split("/"))]
    files = choose.sample(files, len(files))
    for file in sorted(files, key=lambda file: not HEALED.search(f"/{file}"))[:few]:
        how = choose.choice((*DAMAGES, "swapped"))
        given = damaged(left, file, how, choose)
        commands.restore(name, given)
        code = commands.run(name)
        assert not (code and HEALED.search(f"/{file}")), f"{file} is {how}: {code}"
        if not code:
            wanted, place = dict(expected), resolve_against(result, file)
            if (place.read_bytes() if place.exists() else None) == given.get(file):  # the command did not read it
                wanted.pop(file, None)
            assert_same_folder(result, wanted, more=True, what=f"{file} is {how}")


@pytest.mark.fault(5, 12, 13, 14, 15, 20, 22, 49, 50, 52)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["few", "every"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_disturbed(commands: Callable[[str], Commands], forks: Forks, name: str, every: bool) -> None:
    choose, here, own = random.Random(name), commands("."), KINDS[name].split()
    few = 10_000 if every else 1 + (name in QUICK)
    variant = name in VARIANTS and not every
    here.restore(name)
    folder = here.folder / RESULTS.get(name, "out")
    with recorded(folder, ahead=False) as behind, recorded(folder, ahead=True) as ahead, failing_commit(0) as synced:
        assert here.run(name) == ""
    assert set(own) <= {kind(path) for path in synced} <= {"", *chain(*map(str.split, KINDS.values()))}
    expected = folder_bytes(here.result(name))
    check_damage(here, name, expected, few, choose)
    for number in numbers(synced, own[:1], every, choose):
        here.restore(name)
        with failing_commit(number):
            assert here.run(name) in ("disk-full", ""), number  # a checkpoint that cannot be written stops nothing
        with jumping_clock():
            check_resumed(here, name, expected, f"a full disk at {number}, and the clock")
    for number in [] if variant else numbers(synced, own[-1:], every, choose):
        here.restore(name)
        end = forks.run(["tests.faults.commands:killed_at_commit", str(number), *COMMANDS[name]], seconds=300)
        assert end.code == -signal.SIGKILL, (number, end)
        # An increment that was killed before its decision is decided without a comparison if its state is then corrupt.
        check_damage(here, name, expected, few, choose, "checkpoints" if name == "nightly" else LOCK)
    rest = own[1:] if variant else own[1:-1]
    for disk, kinds in ((behind, rest[::2]), (ahead, rest[1::2])):
        kept = disk.states[-1] if disk.states else expected
        lost = {file for file, data in expected.items() if not HEALED.search(f"/{file}") and kept.get(file) != data}
        assert not lost  # when the command ends
        for number in numbers(disk.paths, kinds, every, choose):
            here.restore(name, disk.states[number - 1])
            check_resumed(here, name, expected, f"power at {number}, {'behind' if disk is behind else 'ahead'}")

    # It leaves the same files in an object store, also if the wire is cut before or after an object.
    there = commands(f"memory://{uuid.uuid4().hex}")
    there.restore(name)
    with failing_put(0) as written, jumping_clock():
        assert there.run(name) == ""
    if name == "search":  # it names the store by a path from the search
        expected = expected | {"run.json": (there.result(name) / "run.json").read_bytes()}
    assert_same_folder(there.result(name), expected)
    if few > 1:
        check_damage(there, name, expected, few if every else 1, choose)
    for after in (False, True) if every else (choose.random() < 0.5,):
        for number in [] if variant else numbers(written, [], every, choose):
            there.restore(name)
            with failing_put(number, after=after):
                assert there.run(name) in ("io-error", ""), (number, after)
            check_resumed(there, name, expected, f"put {number}")
