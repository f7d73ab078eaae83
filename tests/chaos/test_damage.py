"""A flipped bit, a file cut short or swapped: the same result or one sentence, never a signal or a traceback."""

import os
import random
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.commands import BEFORE, write_inputs
from tests.support.damage import damaged, reshaped
from tests.support.folders import folder_bytes
from tests.support.forks import End, Forks
from tests.support.nightly_runs import arrive

# ----------------------------------------------------------------------------------------------------------------------
# Every kind of artifact: commands that leave a small one, its files, and commands that read it.


READ = "tests.chaos.readers:"
LINES = "the grey wave and old tide\nmoss fox tree\ntram street lamp roof\n\n"


class Kind(NamedTuple):
    """A kind of artifact.

    Parameters
    ----------
    build : list of commands
        Leave the artifacts, of what the commands `BEFORE` have left.
    files : tuple of str
        Patterns of the artifacts.
    read : list of commands
        Each trial runs one of them, in turn.
    warm : bool
        Whether readers find compiled code loaded.
    """

    build: list[str]
    files: tuple[str, ...]
    read: list[str]
    warm: bool = True


INGEST = " ".join(BEFORE[0])
HASHED = "ingest places.jsonl --out hashed --min-df 1 --shard-bytes 8192 --hash-bits 8"
RICH = f"{INGEST} --labels multi --group-field by --time-field at".replace("--out store", "--out rich")
STAGED = INGEST.replace("--out store", "--out staged")
KILLED = "tests.faults.commands:killed_at_commit"
RUN = "run places.toml"
SEARCH = "search store --out found --algorithm rda --grid lam=0.001,0.01 --folds 2 --epochs 2 --threads 1"
OPTIMUM = "optimum store --out opt --alpha 1,10 --threads 1"
REGRET = "regret run --marks 3"
SCORE = "score run places.jsonl --out scores --keep-class sea --shard-bytes 8192 --threads 1 --keep-top"
GENERATE = "generate corpus --bytes 20KB --vocabulary 500"

KINDS: dict[str, Kind] = {
    "store": Kind(
        [],
        ("store/*",),
        [f"{READ}store store", "train store --out model --algorithm rda --threads 1", "status store", INGEST],
    ),
    "hashed store": Kind([HASHED], ("hashed/*",), [f"{READ}store hashed", HASHED]),
    "rich store": Kind([RICH], ("rich/*",), [f"{READ}store rich", RICH]),
    "search": Kind(
        [],
        ("run/run.json", "run/search/*", "run/evaluation.json", "run/test.parquet", "run/report/leaderboard.parquet"),
        ["report run", "status run --json", f"{READ}metrics run", RUN, REGRET],
    ),
    "cells": Kind([], ("run/search/cells/*",), [RUN]),
    "checkpoints": Kind(
        [f"{KILLED} 30 {SEARCH}"],
        ("found/search/cells/*", "found/search/checkpoints/*", "found/run.json"),
        [SEARCH],
    ),
    "model": Kind(
        [],
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
    "nightly": Kind(
        [],
        tuple(f"nightly/run/{part}" for part in ("*.json", "*.parquet", "nightly/**/*", "models/**/*", "shards/*")),
        [
            "nightly nightly/places.toml",
            "status nightly/run --json",
            "predict nightly/run --proba",
            "nightly nightly/places.toml --rollback 1",
        ],
    ),
    "regret": Kind([REGRET], ("run/regret/**/*",), ["report run", REGRET, f"{READ}tables run/regret"]),
    "optimum": Kind([OPTIMUM], ("opt/**/*",), [OPTIMUM, "predict opt/alpha-1.0 --margins", f"{READ}tables opt"]),
    "scores": Kind(
        [f"{SCORE} 10%"],
        ("scores/*", "scores/*/*"),
        [f"{SCORE} 10%", f"{SCORE} 20%", f"{READ}scores scores"],
    ),
    "staged pieces": Kind([f"{READ}ended_before_manifest {STAGED}"], ("staged/**/*", "staged/.staging/**/*"), [STAGED]),
    "synthetic corpus": Kind([GENERATE], ("corpus/**/*",), [GENERATE]),
    "compile cache": Kind([f"{READ}kernels"], ("cache/**/*.nb?",), [f"{READ}kernels"], warm=False),
}


# ----------------------------------------------------------------------------------------------------------------------
# Damage to one file of a tree of artifacts, and whether a command notices, heals or is not affected.


# Names of files that have measured times, or a process; cells have seconds.
TIMED = re.compile(
    r"timings\.parquet|nightly\.html|report\.html|leaderboard\.parquet|\.lock|/(cells|checkpoints)/|cache/"
)
SECONDS = re.compile(r'"seconds": [\d.e+-]+|\d+(\.\d+)? (ms|s|min|h)( \d+ s)?\b( ago)?|"last_written": [^,}]+')


def restore(folder: Path, contents: dict[str, bytes]) -> None:
    """Give a folder these files, as it had them before a command."""
    now = folder_bytes(folder, without=())
    for name in now.keys() - contents.keys():
        (folder / name).unlink()
    for name, data in contents.items():
        if now.get(name) != data:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


COMPILING = 600.0  # seconds: the first time


def wrong_end(end: End, expected: End) -> str | None:
    if end.code is None:
        return "it did not end"
    if end.code < 0:
        return f"signal {-end.code}"
    if "Traceback" in end.err:
        return "traceback: " + end.err.strip().splitlines()[-1]
    if end.code == expected.code == 0 and SECONDS.sub("", end.out) != SECONDS.sub("", expected.out):
        return f"other output: {end.out!r}, not {expected.out!r}"
    if end.code not in (0, expected.code):
        said = [line for line in end.err.splitlines() if line.startswith("sparseoco: ")]
        if len(said) != 1:
            return f"code {end.code} without a sentence: {end.err[-200:]!r}"
    return None


# ----------------------------------------------------------------------------------------------------------------------
# A bit flipped at random, a file cut short or swapped: the same result or one sentence, never a signal or a
# traceback.
#
# SPARSEOCO_CHAOS_TRIALS is the number of damages of each kind of artifact, SPARSEOCO_CHAOS_SEED the seed.


TRIALS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "200"))
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, Forks]]:
    """A folder, what is in it before each test, and forks in it that find compiled code loaded."""
    folder = tmp_path_factory.mktemp("damage") / "tree"
    folder.mkdir()
    write_inputs(folder)
    with Forks(folder, f"{READ}loaded") as forks:
        for command in BEFORE:
            assert forks.run(command, seconds=COMPILING).code == 0
        arrive(folder / "nightly", 3)
        yield folder, Path(shutil.copytree(folder, folder.with_name("before"))), forks


@pytest.mark.chaos
@pytest.mark.fault(12, 13, 49, 50, 52, 57)
@pytest.mark.parametrize("name", list(KINDS))
def test_damaged_files(name: str, warm: tuple[Path, Path, Forks]) -> None:
    """A bit is flipped, a file is cut, empty or has the content of another; or one value of a JSON file is another one,
    or missing, and the checksum matches: then other results are to be expected."""
    kind, choose, (folder, before, forks) = KINDS[name], random.Random(f"{SEED} {name}"), warm
    shutil.rmtree(folder)
    shutil.copytree(before, folder)
    found = []
    cache = str(folder / "cache")
    with nullcontext(forks) if kind.warm else Forks(folder, NUMBA_CACHE_DIR=cache) as forks:
        for command in kind.build:
            end = forks.run(command.split(), LINES, seconds=COMPILING)
            assert end.code == (-signal.SIGKILL if command.startswith(KILLED) else 0), (command, end)
        contents = folder_bytes(folder, without=())
        paths = sorted({str(path.relative_to(folder)) for pattern in kind.files for path in folder.glob(pattern)})
        artifacts = {path: contents[path] for path in paths if contents.get(path)}
        undisturbed = []
        for command in kind.read:
            end = forks.run(command.split(), LINES, seconds=COMPILING)
            assert "Traceback" not in end.err, end.err
            undisturbed.append((command, end, folder_bytes(folder, without=())))
            restore(folder, contents)
        for trial in range(2 * TRIALS):
            command, expected, left = undisturbed[trial % len(undisturbed)]
            file = choose.choice(list(artifacts))
            damages = ["flipped"] * 3 + ["cut", "empty", "swapped"] + ["reshaped"] * file.endswith(".json")
            damage = what = choose.choice(damages)
            if damage == "reshaped":
                data, what = reshaped(artifacts[file], choose)
            else:
                data = damaged(artifacts, file, damage, choose)[file]
            (folder / file).write_bytes(data)
            end = forks.run(command.split(), LINES)
            wrong = wrong_end(end, expected)
            if damage == "reshaped":
                wrong = None if wrong is not None and wrong.startswith("other output") else wrong
            elif wrong is None and end.code == expected.code:
                now = folder_bytes(folder, without=())
                differ = {n for n in now.keys() | left.keys() if now.get(n) != left.get(n) and not TIMED.search(n)}
                other = sorted(differ - {file} if now.get(file) == data else differ)
                wrong = f"other content of {other}" if other else None
            restore(folder, contents)
            if wrong is not None:
                found.append(f"{name} | {file} | {what} | {command} | {wrong}")
    assert not found, "\n".join([f"seed {SEED}, {len(found)} of {2 * TRIALS}:", *found])
