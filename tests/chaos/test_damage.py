"""A flipped bit, a file cut short or swapped: the same result or one sentence, never a signal or a traceback."""

import os
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from tests.faults.commands import write_inputs
from tests.support.damage import damaged
from tests.support.folders import folder_bytes
from tests.support.forks import End, Forks
from tests.support.nightly_runs import arrive
from tests.support.wrong_shapes import reshaped

# ----------------------------------------------------------------------------------------------------------------------
# Every kind of artifact: commands that leave a small one, its files, and commands that read it.


READ = "tests.chaos.readers:"
LINES = "the grey wave and old tide\nmoss fox tree\ntram street lamp roof\n\n"


class Kind(NamedTuple):
    """A kind of artifact.

    Parameters
    ----------
    build : list of commands
        Leave the artifacts, of the inputs of `tests.faults.commands`.
    files : tuple of str
        Patterns of the artifacts.
    read : list of commands
        Each trial runs one of them, in turn.
    arrive : callable
        Changes the inputs between the two.
    warm : bool
        Whether readers find compiled code loaded.
    """

    build: list[str]
    files: tuple[str, ...]
    read: list[str]
    arrive: Callable[[Path], object] = lambda folder: None
    warm: bool = True


INGEST = "ingest places.jsonl --out store --min-df 1 --shard-bytes 8192"
RICH = f"{INGEST} --labels multi --weight-field w --group-field by --time-field at".replace("places", "rich")
KILLED = "tests.faults.commands:killed_at_commit"
RUN = "run places.toml"
SEARCH = "search store --out run --algorithm rda --grid lam=0.001,0.01 --folds 2 --epochs 2 --threads 1"
AUTO = "train store --out mix --algorithm auto --grid adagrad.lam=0.001,0.01 --threads 1"
OPTIMUM = "optimum store --out opt --alpha 1,10 --threads 1"
REGRET = "regret run --marks 3"
SCORE = "score run places.jsonl --out scores --keep-class sea --shard-bytes 8192 --threads 1 --keep-top"
GENERATE = "generate corpus --bytes 20KB --vocabulary 500"

KINDS: dict[str, Kind] = {
    "store": Kind(
        [INGEST],
        ("store/*",),
        [f"{READ}store store", "train store --out model --algorithm rda --threads 1", "status store", INGEST],
    ),
    "hashed store": Kind([f"{INGEST} --hash-bits 8"], ("store/*",), [f"{READ}store store", f"{INGEST} --hash-bits 8"]),
    "rich store": Kind([RICH], ("store/*",), [f"{READ}store store", RICH]),
    "search": Kind(
        [RUN],
        ("run/run.json", "run/search/*", "run/evaluation.json", "run/test.parquet", "run/report/leaderboard.parquet"),
        ["report run", "status run --json", f"{READ}metrics run", RUN, REGRET],
    ),
    "cells": Kind([RUN], ("run/search/cells/*",), [RUN]),
    "checkpoints": Kind(
        [INGEST, f"{KILLED} 30 {SEARCH}"],
        ("run/search/cells/*", "run/search/checkpoints/*", "run/run.json"),
        [SEARCH],
    ),
    "model": Kind(
        [RUN],
        ("run/model/*",),
        [
            "predict run/model --proba --margins",
            "explain run/model --json",
            "compare run/model run/model --json",
            "evaluate run places.jsonl --json",
            "status run/model",
            "train run/shards --out next --algorithm rda --warm-start run/model --threads 1",
            "report run",
        ],
    ),
    "mixture": Kind(
        [INGEST, AUTO],
        ("mix/*",),
        ["predict mix --proba --margins", f"{READ}mixture_page mix", f"{READ}tables mix", AUTO],
    ),
    "nightly": Kind(
        ["nightly nightly/places.toml"],
        tuple(f"nightly/run/{part}" for part in ("*.json", "*.parquet", "nightly/**/*", "models/**/*", "shards/*")),
        [
            "nightly nightly/places.toml",
            "status nightly/run --json",
            "predict nightly/run --proba",
            "nightly nightly/places.toml --rollback 1",
        ],
        lambda folder: arrive(folder / "nightly", 3),
    ),
    "regret": Kind([RUN, REGRET], ("run/regret/**/*",), ["report run", REGRET, f"{READ}tables run/regret"]),
    "optimum": Kind(
        [INGEST, OPTIMUM], ("opt/**/*",), [OPTIMUM, "predict opt/alpha-1.0 --margins", f"{READ}tables opt"]
    ),
    "scores": Kind(
        [RUN, f"{SCORE} 10%"],
        ("scores/*", "scores/*/*"),
        [f"{SCORE} 10%", f"{SCORE} 20%", f"{READ}scores scores"],
    ),
    "staged pieces": Kind([f"{READ}ended_before_manifest {INGEST}"], ("store/**/*", "store/.staging/**/*"), [INGEST]),
    "synthetic corpus": Kind([GENERATE], ("corpus/**/*",), [GENERATE]),
    "compile cache": Kind([f"{READ}kernels"], ("cache/**/*.nb?",), [f"{READ}kernels"], warm=False),
}


# ----------------------------------------------------------------------------------------------------------------------
# Damage to one file of a tree of artifacts, and whether a command notices, heals or is not affected.


# Names of files that have measured times, or a process; cells have seconds.
TIMED = re.compile(
    r"timings\.parquet|nightly\.html|report\.html|mixture\.html|leaderboard\.parquet|\.lock|/(cells|checkpoints)/|cache/"
)
SECONDS = re.compile(r'"seconds": [\d.e+-]+|\d+(\.\d+)? (ms|s|min|h)( \d+ s)?\b( ago)?|"last_written": [^,}]+')


class Tree:
    """A folder of artifacts of one kind, as `KINDS` describes them, and the forks that read them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._kind = kind, KINDS[kind]
        self.folder = folder / "tree"
        self.folder.mkdir()
        write_inputs(self.folder)
        env = {} if self._kind.warm else {"NUMBA_CACHE_DIR": str(self.folder / "cache")}
        self._forks = Forks(self.folder, READ_WARM if self._kind.warm else "", **env)
        for command in self._kind.build:
            end = self._forks.run(command.split(), LINES, seconds=COMPILING)
            assert end.code == (-signal.SIGKILL if command.startswith(KILLED) else 0), (command, end)
        self._kind.arrive(self.folder)
        self._contents = folder_bytes(self.folder, without=())
        names = {
            str(path.relative_to(self.folder)) for pattern in self._kind.files for path in self.folder.glob(pattern)
        }
        self.files = sorted(name for name in names if self._contents.get(name))
        assert self.files
        self._expected = [self._undisturbed(command) for command in self._kind.read]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._forks.__exit__(kind, error, at)

    def _undisturbed(self, command: str) -> tuple[End, dict[str, bytes]]:
        end = self._forks.run(command.split(), LINES, seconds=COMPILING)
        left = folder_bytes(self.folder, without=())
        self._restore()
        assert "Traceback" not in end.err, end.err
        return end, left

    def _restore(self) -> None:
        """The tree as it was before a command."""
        now = folder_bytes(self.folder, without=())
        for name in now.keys() - self._contents.keys():
            (self.folder / name).unlink()
        for name, data in self._contents.items():
            if now.get(name) != data:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes(data)

    def check(self, trial: int, choose: random.Random) -> str | None:
        """Damage a file and run a command: what is wrong with its end, None for one sentence, or no difference.

        A bit is flipped, the file is cut, empty or has the content of another; or one value of a JSON file is
        another one, or missing, and the checksum matches: then other results are to be expected.
        """
        command = self._kind.read[trial % len(self._kind.read)]
        expected, left = self._expected[trial % len(self._kind.read)]
        file = choose.choice(self.files)
        kinds = ("flipped", "flipped", "flipped", "cut", "empty", "swapped", *["reshaped"] * file.endswith(".json"))
        kind = what = choose.choice(kinds)
        if kind == "reshaped":
            data, what = reshaped(self._contents[file], choose)
        else:
            data = damaged({name: self._contents[name] for name in self.files}, file, kind, choose)[file]
        (self.folder / file).write_bytes(data)
        end = self._forks.run(command.split(), LINES)
        wrong = _wrong(end, expected)
        if kind == "reshaped":
            wrong = None if wrong is not None and wrong.startswith("other output") else wrong
        elif wrong is None and end.code == expected.code:
            now = folder_bytes(self.folder, without=())
            other = sorted(
                name
                for name in now.keys() | left.keys()
                if now.get(name) != left.get(name)
                and not TIMED.search(name)
                and not (name == file and now.get(name) == data)
            )
            wrong = f"other content of {other}" if other else None
        self._restore()
        return None if wrong is None else f"{self.kind} | {file} | {what} | {command} | {wrong}"


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


# ----------------------------------------------------------------------------------------------------------------------
# A bit flipped at random, a file cut short or swapped: the same result or one sentence, never a signal or a
# traceback.
#
# SPARSEOCO_CHAOS_TRIALS is the number of damages of each kind of artifact, SPARSEOCO_CHAOS_SEED the seed.


TRIALS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "200"))
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")


@pytest.mark.chaos
@pytest.mark.fault(12, 13, 49, 50, 52, 57)
@pytest.mark.parametrize("kind", list(KINDS))
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    choose = random.Random(f"{SEED} {kind}")
    with Tree(kind, tmp_path) as tree:
        found = [wrong for trial in range(2 * TRIALS) if (wrong := tree.check(trial, choose)) is not None]
    assert not found, "\n".join([f"seed {SEED}, {len(found)} of {2 * TRIALS}:", *found])
