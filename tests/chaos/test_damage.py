"""Damaged files, reads and writes that fail, inputs that change: the same result or one sentence, never a traceback."""

import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.storage import inputs as stored
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.chaos.readers import __name__ as readers
from tests.faults.commands import BEFORE, write_inputs
from tests.support.damage import CHANGES, damaged, reshaped
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.forks import End, Forks
from tests.support.ingests import COMPRESSORS, write_files
from tests.support.nightly_runs import arrive
from tests.support.tables import TABLE_WRITERS, WRITERS
from tests.support.texts import write_run_file

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
    write_files(folder, {name: data for name, data in contents.items() if now.get(name) != data})


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


# ----------------------------------------------------------------------------------------------------------------------
# The n-th read or write of a file fails, is interrupted or is short, for many n: the same files, or one sentence.
#
# `faults.c` is compiled for it; without a compiler the test is skipped.


STRIDE = int(os.environ.get("SPARSEOCO_CHAOS_STRIDE", "5"))  # 1: every n
FAULTS = {"no space": 1, "read error": 2, "interrupted read": 3, "short read": 4, "write error": 5, "short write": 6}
INGESTING = ["ingest", "places.jsonl", "--out", "out", "--min-df", "1", "--threads", "1"]
TRAIN = ["train", "store", "--out", "out", "--algorithm", "rda", "--threads", "1"]
PREDICT = ["predict", "model", "places.jsonl", "--proba"]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library to preload."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("shim") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return str(library)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(15, 18)
@pytest.mark.parametrize("command", [INGESTING, TRAIN, PREDICT], ids=lambda command: command[0])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_call_that_fails(fault: str, command: list[str], shim: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    write_run_file(folder)
    with Forks(folder, "tests.chaos.readers:kernels", LD_PRELOAD=shim) as forks:
        prepared = [[*INGESTING[:3], "store", *INGESTING[4:]], ["train", "store", "--out", "model", *TRAIN[4:]]]
        for first in prepared:
            assert forks.run(first, seconds=600).code == 0
        whole = forks.run(command, seconds=600)
        assert whole.code == 0
        expected = folder_bytes(folder)
        shutil.rmtree(folder / "out", ignore_errors=True)
        number, failed = 1, 0
        while True:
            end = forks.run([f"{readers}:with_fault", str(FAULTS[fault]), str(number), f"{folder}/", "calls", *command])
            assert end.code is not None, (fault, number)
            assert end.code >= 0, (fault, number)
            assert "Traceback" not in end.err, (fault, number, end.err)
            calls = int((folder / "calls").read_text())
            (folder / "calls").unlink()
            if end.code == 0:
                assert end.out == whole.out, (fault, number)
            else:
                failed += 1
                assert len([line for line in end.err.splitlines() if line.startswith("sparseoco: ")]) == 1, end.err
                assert forks.run(command).out == whole.out, (fault, number)
            assert_same_folder(folder, expected, more=True, what=(fault, number))
            shutil.rmtree(folder / "out", ignore_errors=True)
            if calls < number:
                break
            number += STRIDE
        assert number > 3
        assert failed or fault in ("interrupted read", "short read", "short write")
        assert not failed or fault not in ("interrupted read", "short read", "short write")


# ----------------------------------------------------------------------------------------------------------------------
# Inputs that change at random moments of an ingest: the store has one version of the text, or the run says so.
#
# SPARSEOCO_CHAOS_TRIALS is five times the number of changes of each kind of input, SPARSEOCO_CHAOS_SEED the seed.


MOMENTS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "300")) // 5
Result = tuple[str, list[str]]


def rows(seed: int, n: int = 4000) -> list[dict[str, str]]:
    rng = random.Random(seed)
    return [
        {"id": f"d{k}", "label": "pn"[k % 2], "text": "\n".join(f"w{rng.randrange(3000)}" for _ in range(12))}
        for k in range(n)
    ]


INPUTS = [*(f"{name}{packing}" for name in ("a.jsonl", "a.csv") for packing in COMPRESSORS), *TABLE_WRITERS, "p/7.txt"]


def content(folder: Path, name: str, seed: int) -> bytes:
    if "/" in name:
        return " ".join(row["text"] for row in rows(seed, 50)).encode()
    base = next(base for base in WRITERS if name.startswith(base))
    WRITERS[base](pa.Table.from_pylist(rows(seed)), folder / base, 500)
    return COMPRESSORS[name.removeprefix(base)]((folder / base).read_bytes())


def run(source: Path, out: Path) -> Result:
    try:
        ingest([str(source)], out, TextOptions(), shard_bytes=50_000)
    except SparseocoError as error:
        return error.code, [str(error)]
    return "", sorted(path.name for path in out.iterdir() if path.name.startswith(("shard-", "vocabulary-")))


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(53, 54)
@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_change_at_random_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 100_000)
    before, after = (content(tmp_path, name, seed) for seed in (1, 2))
    path = tmp_path / "in" / name
    source = tmp_path / "in" if "/" in name else path
    if "/" in name:
        write_files(source, {f"{row['label']}/{k}.txt": row["text"] for k, row in enumerate(rows(0, 800))})
    write_files(tmp_path / "in", {name: before})
    run(source, tmp_path / "compiled")
    started = time.monotonic()
    expected = run(source, tmp_path / "expected")
    seconds = time.monotonic() - started
    assert expected[0] == ""
    wrong = []
    for trial in range(MOMENTS):
        rng = random.Random(f"{SEED} {name} {trial}")
        change = rng.choice([*CHANGES, lambda path, _: os.utime(path)])
        wait, out = rng.random() * seconds, tmp_path / f"out-{trial}"
        path.write_bytes(before)
        time.sleep(0.02)  # more than a tick of the clock of the file system
        later = threading.Timer(wait, change, (path, after))
        later.start()
        found = run(source, out)
        later.join()
        place = f"{trial}: {change.__name__} after {wait:.3f} s: {found}"
        if found == expected:
            continue
        if found[0] == "input-changed":
            if list(out.glob("manifest-*")):
                wrong.append(f"{place}, committed")
            path.write_bytes(before)
            if run(source, out) != expected:
                wrong.append(f"{place}, and not again")
        elif found != run(source, tmp_path / f"other-{trial}"):
            wrong.append(place)
        for folder in ("out", "other"):
            shutil.rmtree(tmp_path / f"{folder}-{trial}", ignore_errors=True)
    assert not wrong, "\n".join([f"seed {SEED}:", *wrong])
