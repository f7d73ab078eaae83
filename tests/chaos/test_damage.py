"""A flipped bit, a file cut short or swapped: the same result or one sentence, never a signal or a traceback."""

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from tests.support.forks import End, Forks
from tests.support.nightly_runs import arrive, prepare
from tests.support.texts import write_reviews, write_run_file
from tests.support.wrong_shapes import reshaped

# ----------------------------------------------------------------------------------------------------------------------
# Every kind of artifact: commands that leave a small one, its files, and commands that read it.


Command = list[str]
READ = "tests.chaos.readers:"
LINES = "the grey wave and old tide\nmoss fox tree\ntram street lamp roof\n\n"


class Kind(NamedTuple):
    """A kind of artifact.

    Parameters
    ----------
    prepare : callable
        Writes the inputs to a folder.
    build : list of commands
        Leave the artifacts.
    files : tuple of str
        Patterns of the artifacts.
    read : list of commands
        Each trial runs one of them, in turn.
    arrive : callable
        Changes the inputs between the two.
    warm : bool
        Whether readers find compiled code loaded.
    """

    prepare: Callable[[Path], object]
    build: list[Command]
    files: tuple[str, ...]
    read: list[Command]
    arrive: Callable[[Path], object] = lambda folder: None
    warm: bool = True


def _rich(folder: Path) -> None:
    """Records with several labels, sample weights, groups, times and fields."""
    write_reviews(folder / "places.jsonl", rows=60, classes=3)
    rows = [json.loads(line) for line in (folder / "places.jsonl").read_text().splitlines()]
    for k, row in enumerate(rows):
        row["label"] = [row["label"]] if k % 3 else [row["label"], "sea"]
        row |= {"w": k % 4 / 2, "by": f"g{k // 5}", "at": 1e9 + k, "title": row["text"][:9], "price": k * 1.5}
    (folder / "places.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rich.toml").write_text(
        'out = "run"\n[ingest]\ninputs = ["places.jsonl"]\nlabels = "multi"\nmin_df = 1\nshard_bytes = 8192\n'
        'weight_field = "w"\ngroup_field = "by"\ntime_field = "at"\nngram_range = [1, 1]\n'
        '[ingest.fields.title]\ntype = "text"\n[ingest.fields.text]\ntype = "text"\n'
        '[ingest.fields.price]\ntype = "number"\ntransform = "bins"\nbins = 3\n'
        "[search]\nfolds = 2\nepochs = 1\nalgorithms.rda = { lam = [1e-3] }\n[cluster]\nthreads = 1\n"
    )


def _reviews(folder: Path) -> None:
    write_run_file(folder)
    path = folder / "places.toml"
    path.write_text(path.read_text().replace("folds = 3", "folds = 2").replace("threads = 2", "threads = 1"))


def _nightly(folder: Path) -> None:
    prepare(folder, 2, **{"threads = 2": "threads = 1", "confidence = 0": "confidence = 0\nmargin = 0.9"})


INGEST = ["ingest", "places.jsonl", "--out", "store", "--min-df", "1", "--shard-bytes", "8192"]
SEARCH = ["--algorithm", "rda", "--grid", "lam=0.001,0.01", "--folds", "2", "--epochs", "2", "--threads", "1"]
OPTIMUM = ["optimum", "store", "--out", "opt", "--alpha", "1,10", "--threads", "1"]
TRAIN = ["train", "store", "--out", "model", "--threads", "1"]
COUNTS = ["--tf", "count", "--no-idf", "--norm", "none", "--threads", "1"]
WARM = ["train", "run/shards", "--out", "next", "--algorithm", "rda", "--warm-start", "run/model", *COUNTS]
AUTO = ["train", "store", "--out", "mix", "--algorithm", "auto", "--grid", "adagrad.lam=0.001,0.01", "--threads", "1"]
THREADS = ["--threads", "1"]
GENERATE = ["generate", "corpus", "--bytes", "20KB", "--vocabulary", "500"]
SCORE = ["score", "run", "places.jsonl", "--out", "scores", "--keep-class", "sea", "--shard-bytes", "8192", *THREADS]

KINDS: dict[str, Kind] = {
    "store": Kind(
        _reviews,
        [INGEST],
        ("store/*",),
        [[READ + "store", "store"], [*TRAIN, "--algorithm", "rda"], ["status", "store"], INGEST],
    ),
    "hashed store": Kind(
        _reviews,
        [[*INGEST, "--hash-bits", "8"]],
        ("store/*",),
        [[READ + "store", "store"], [*INGEST, "--hash-bits", "8"]],
    ),
    "rich store": Kind(
        _rich,
        [["run", "rich.toml"]],
        ("run/shards/*",),
        [[READ + "store", "run/shards"], ["run", "rich.toml"]],
    ),
    "search": Kind(
        _reviews,
        [["run", "places.toml"]],
        ("run/run.json", "run/search/*", "run/evaluation.json", "run/test.parquet", "run/report/leaderboard.parquet"),
        [
            ["report", "run"],
            ["status", "run", "--json"],
            [READ + "metrics", "run"],
            ["run", "places.toml"],
            ["regret", "run", "--marks", "3"],
        ],
    ),
    "cells": Kind(_reviews, [["run", "places.toml"]], ("run/search/cells/*",), [["run", "places.toml"]]),
    "checkpoints": Kind(
        _reviews,
        [INGEST, [READ + "ended_at_commit", "30", "search", "store", "--out", "run", *SEARCH]],
        ("run/search/cells/*", "run/search/checkpoints/*", "run/run.json"),
        [["search", "store", "--out", "run", *SEARCH]],
    ),
    "model": Kind(
        _reviews,
        [["run", "places.toml"]],
        ("run/model/*",),
        [
            ["predict", "run/model", "--proba", "--margins"],
            ["explain", "run/model", "--json"],
            ["compare", "run/model", "run/model", "--json"],
            ["evaluate", "run", "places.jsonl", "--json"],
            ["status", "run/model"],
            [
                "train",
                "run/shards",
                "--out",
                "next",
                "--algorithm",
                "rda",
                "--warm-start",
                "run/model",
                "--threads",
                "1",
            ],
            ["report", "run"],
        ],
    ),
    "mixture": Kind(
        _reviews,
        [INGEST, AUTO],
        ("mix/*",),
        [["predict", "mix", "--proba", "--margins"], [READ + "mixture_page", "mix"], [READ + "tables", "mix"], AUTO],
    ),
    "nightly": Kind(
        _nightly,
        [["nightly", "places.toml"]],
        ("run/*.json", "run/*.parquet", "run/nightly/**/*", "run/models/**/*", "run/shards/*"),
        [
            ["nightly", "places.toml"],
            ["status", "run", "--json"],
            ["predict", "run", "--proba"],
            ["nightly", "places.toml", "--rollback", "1"],
        ],
        lambda folder: arrive(folder, 3),
    ),
    "regret": Kind(
        _reviews,
        [["run", "places.toml"], ["regret", "run", "--marks", "3"]],
        ("run/regret/**/*",),
        [["report", "run"], ["regret", "run", "--marks", "3"], [READ + "tables", "run/regret"]],
    ),
    "optimum": Kind(
        _reviews,
        [INGEST, OPTIMUM],
        ("opt/**/*",),
        [OPTIMUM, ["predict", "opt/alpha-1.0", "--margins"], [READ + "tables", "opt"]],
    ),
    "scores": Kind(
        _reviews,
        [["run", "places.toml"], [*SCORE, "--keep-top", "10%"]],
        ("scores/*", "scores/*/*"),
        [[*SCORE, "--keep-top", "10%"], [*SCORE, "--keep-top", "20%"], [READ + "scores", "scores"]],
    ),
    "staged pieces": Kind(
        _reviews, [[READ + "ended_before_manifest", *INGEST]], ("store/**/*", "store/.staging/**/*"), [INGEST]
    ),
    "fetched corpus": Kind(
        lambda folder: (folder / "c.txt").write_text("hello\n" * 9),
        [[READ + "fetched", "c.txt", "corpora"]],
        ("corpora/**/*",),
        [[READ + "fetched", "c.txt", "corpora"]],
    ),
    "synthetic corpus": Kind(lambda folder: None, [GENERATE], ("corpus/**/*",), [GENERATE]),
    "compile cache": Kind(
        lambda folder: None, [[READ + "kernels"]], ("cache/**/*.nb?",), [[READ + "kernels"]], warm=False
    ),
}


# ----------------------------------------------------------------------------------------------------------------------
# Damage to one file of a tree of artifacts, and whether a command notices, heals or is not affected.


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


# ----------------------------------------------------------------------------------------------------------------------
# A bit flipped at random, a file cut short or swapped: the same result or one sentence, never a signal or a
# traceback.
#
# SPARSEOCO_CHAOS_TRIALS is the number of flips of each kind of file, SPARSEOCO_CHAOS_SEED the seed.


TRIALS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "200"))
OTHERS = max(TRIALS // 6, 1)  # cuts, swaps, values of another shape
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")


@pytest.mark.chaos
@pytest.mark.fault(12, 13, 49, 50, 52, 57)
@pytest.mark.parametrize("kind", list(KINDS))
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    choose = random.Random(SEED)
    with Tree(kind, tmp_path) as tree:
        damages = list(tree.flips(TRIALS, f"{SEED} {kind}"))
        damages += tree.reshapes(OTHERS, f"{SEED} {kind}")
        for others in (list(tree.truncations()), list(tree.swaps())):
            damages += choose.sample(others, min(OTHERS, len(others)))
        wrong = [tree.check(damage, i) for i, damage in enumerate(damages)]
    found = [line for line in wrong if line is not None]
    assert not found, "\n".join([f"seed {SEED}, {len(found)} of {len(wrong)}:", *found])
