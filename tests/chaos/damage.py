"""Damage to one file of a tree of artifacts, and whether a command notices, heals or is not affected."""

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.chaos.kinds import KINDS, LINES, Command
from tests.support.forks import End, Forks
from tests.support.wrong_shapes import reshaped

# Names of files that have measured times, or a process; cells have seconds.
TIMED = re.compile(
    r"timings\.parquet|nightly\.html|report\.html|mixture\.html|leaderboard\.parquet|\.lock|/(cells|checkpoints)/|cache/"
)
SECONDS = re.compile(r'"seconds": [\d.e+-]+|\d+(\.\d+)? (ms|s|min|h)( \d+ s)?\b( ago)?|"last_written": [^,}]+')


class Damage(NamedTuple):
    """Other content for a file; `forged` if its checksum matches, so that other results are to be expected."""

    file: str
    what: str
    data: bytes
    forged: bool = False


class Tree:
    """A folder of artifacts of one kind, as `KINDS` describes them, and the forks that read them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._kind = kind, KINDS[kind]
        self.folder = folder / "tree"
        self.folder.mkdir()
        self._kind.prepare(self.folder)
        env = {} if self._kind.warm else {"NUMBA_CACHE_DIR": str(self.folder / "cache")}
        self._forks = Forks(self.folder, READ_WARM if self._kind.warm else "", **env)
        for command in self._kind.build:
            end = self._forks.run(command, LINES, seconds=COMPILING)
            assert end.code == 0, (command, end)
        self._kind.arrive(self.folder)
        self._contents = self._read()
        names = {
            str(path.relative_to(self.folder)) for pattern in self._kind.files for path in self.folder.glob(pattern)
        }
        self.files = sorted(name for name in names if self._contents.get(name) and not name.endswith(".lock"))
        assert self.files
        self._expected = [self._undisturbed(command) for command in self._kind.read]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._forks.__exit__(kind, error, at)

    def _undisturbed(self, command: Command) -> tuple[End, dict[str, bytes]]:
        end = self._forks.run(command, LINES, seconds=COMPILING)
        left = self._read()
        self._restore()
        assert "Traceback" not in end.err, end.err
        return end, left

    def _read(self) -> dict[str, bytes]:
        """The content of every file."""
        found = {}
        for parent, _, names in os.walk(self.folder):
            for name in names:
                path = Path(parent, name)
                found[str(path.relative_to(self.folder))] = path.read_bytes()
        return found

    def _restore(self) -> None:
        """The tree as it was before a command."""
        now = self._read()
        for name in now.keys() - self._contents.keys():
            (self.folder / name).unlink()
        for name, data in self._contents.items():
            if now.get(name) != data:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes(data)

    def content(self, file: str) -> bytes:
        """The content of a file without damage."""
        return self._contents[file]

    def flips(self, count: int, seed: str) -> Iterator[Damage]:
        """One random bit of a random file each."""
        choose = random.Random(seed)
        for _ in range(count):
            file = choose.choice(self.files)
            data = bytearray(self._contents[file])
            place, bit = choose.randrange(len(data)), choose.randrange(8)
            data[place] ^= 1 << bit
            yield Damage(file, f"byte {place}, bit {bit}", bytes(data))

    def truncations(self) -> Iterator[Damage]:
        """Every file cut at every 4 KiB, in its middle, and to nothing."""
        for file in self.files:
            data = self._contents[file]
            for size in sorted({*range(0, len(data), 4096), len(data) // 2}):
                yield Damage(file, f"cut to {size} bytes", data[:size])

    def swaps(self) -> Iterator[Damage]:
        """Every file with the content of the next one with the same suffix."""
        for suffix in sorted({Path(file).suffix for file in self.files}):
            same = [file for file in self.files if Path(file).suffix == suffix]
            for file, other in zip(same, [*same[1:], same[0]], strict=True):
                if self._contents[file] != self._contents[other]:
                    yield Damage(file, f"the content of {other}", self._contents[other])

    def reshapes(self, count: int, seed: str) -> Iterator[Damage]:
        """One random value of a random JSON file each is another one, or missing, and the checksum matches."""
        choose = random.Random(seed)
        files = [file for file in self.files if file.endswith(".json")]
        for _ in range(count if files else 0):
            file = choose.choice(files)
            data, what = reshaped(self._contents[file], choose)
            yield Damage(file, what, data, forged=True)

    def check(self, damage: Damage, trial: int) -> str | None:
        """What is wrong with what a command makes of the damage: None for one sentence, or no difference."""
        command = self._kind.read[trial % len(self._kind.read)]
        expected, left = self._expected[trial % len(self._kind.read)]
        (self.folder / damage.file).write_bytes(damage.data)
        end = self._forks.run(command, LINES)
        wrong = _wrong(end, expected)
        if damage.forged and wrong is not None and wrong.startswith("other output"):
            wrong = None
        elif wrong is None and end.code == expected.code and not damage.forged:
            now = self._read()
            other = sorted(
                name
                for name in now.keys() | left.keys()
                if now.get(name) != left.get(name)
                and not TIMED.search(name)
                and not (name == damage.file and now.get(name) == damage.data)
            )
            wrong = f"other content of {other}" if other else None
        self._restore()
        if wrong is None:
            return None
        return f"{self.kind} | {damage.file} | {damage.what} | {' '.join(command)} | {wrong}"


COMPILING = 600.0  # seconds: the first time
READ_WARM = "tests.chaos.readers:kernels"


def _wrong(end: End, expected: End) -> str | None:
    if end.code is None:
        return "it did not end"
    if end.code < 0:
        return f"signal {-end.code}"
    if "Traceback" in end.err:
        return "traceback: " + end.err.strip().splitlines()[-1]
    if end.code == expected.code == 0 and SECONDS.sub("", end.out) != SECONDS.sub("", expected.out):
        return f"other output: {_difference(end.out, expected.out)}"
    if end.code not in (0, expected.code):
        said = [line for line in end.err.splitlines() if line.startswith("sparseoco: ")]
        if len(said) != 1:
            return f"code {end.code} without a sentence: {end.err[-200:]!r}"
    return None


def _difference(out: str, expected: str) -> str:
    for ours, theirs in zip(out.splitlines(), expected.splitlines(), strict=False):
        if ours != theirs:
            return f"{ours[:100]!r}, not {theirs[:100]!r}"
    return f"{len(out)} characters, not {len(expected)}"
