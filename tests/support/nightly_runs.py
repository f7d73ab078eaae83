"""Nightly runs on increments of synthetic reviews, files that arrive one after the other; what many of them cost."""

import gc
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow.parquet as pq

from sparseoco.pipeline.nightly import run_nightly
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.training.learner import Learner
from tests.support.folders import GROUPED, folder_bytes
from tests.support.texts import COUNTS, replaced, write_reviews

RUN_FILE = f"""
name = "places"
out = "run"

[ingest]
inputs = ["incoming"]
vocabulary = "extend"
ngram_range = [1, 1]
min_df = 1
shard_bytes = 65536
{COUNTS}
[search]
loss = "logistic"
seed = 3
algorithms.cl-fobos = {{ lam = [1e-4, 1e-2], eta0 = [0.1, 0.3, 1.0] }}
algorithms.rda = {{ lam = [1e-3], gamma = [1, 3] }}

[nightly]
window = 2
confidence = 0

[cluster]
threads = 2
"""
ROWS = 90


def arrive(folder: Path, increment: int, *, rows: int = ROWS, classes: int = 3, to: str = "incoming") -> Path:
    """The file of an increment; its documents are of all classes in turn and have new words."""
    path = folder / to / f"increment-{increment}.jsonl"
    write_reviews(path, rows=rows, classes=classes, first=increment * rows)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [lines[k] for start in range(classes) for k in range(start, rows, classes)]
    for line in lines:
        line["text"] += f" new{increment} {line['label']}{increment}"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def prepare(folder: Path, increments: int = 0, **changes: str) -> RunFile:
    """A run file in a folder, and the files of that many increments; `changes` replace text in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "places.toml").write_text(replaced(RUN_FILE, changes))
    for increment in range(1, increments + 1):
        arrive(folder, increment)
    return load_run_file(folder / "places.toml")


def nights(folder: Path, increments: int, **changes: str) -> RunFile:
    """A run whose increments came one by one; what it had after each is kept in the folders `after-1`, `after-2`, …"""
    run = prepare(folder, **changes)
    for increment in range(1, increments + 1):
        arrive(folder, increment)
        run_nightly(run)
        shutil.copytree(folder / "run", folder / f"after-{increment}")
    return run


UNGUARDED = {"confidence = 0": "confidence = 0\nmax_drop = 1\nmax_shift = 1\nmax_bad_share = 1"}
PROMOTES = {"window = 2": "window = 2\nmargin = 0.9"}  # whoever comes


def promoting(folder: Path, increments: int) -> Path:
    """The folder of a run that has promoted all of so many increments but the last, which is empty."""
    run = nights(folder, increments - 1, **PROMOTES)
    (folder / "incoming" / f"increment-{increments}.jsonl").write_text("")
    run_nightly(run)
    return folder


def copy_of(original: Path, folder: Path, increments: int, **changes: str) -> RunFile:
    """A copy of a run as it was after so many increments, which continues with those that arrive in the folder `later`.

    Its other inputs are where they were.
    """
    results = original / f"after-{increments}"
    shutil.copytree(results if results.exists() else original / "run", folder / "run")
    (folder / "later").mkdir()
    inputs = [original / "incoming" / f"increment-{number}.jsonl" for number in range(1, increments + 1)]
    listed = json.dumps([*map(str, inputs), str(folder / "later")])
    return prepare(folder, **{'inputs = ["incoming"]': f"inputs = {listed}"}, **changes)


def contents(folder: Path) -> dict[str, bytes]:
    """What a run leaves that two equal runs have alike: nothing in seconds, that says when, or how it was grouped."""
    return folder_bytes(folder, without=GROUPED | {"history-timings.parquet", "nightly.html"})


def rows_of(run: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run / f"{table}.parquet").to_pylist()
    return rows


def new_learner(row: dict[str, Any], n_features: int) -> Learner:
    """A learner of three classes, with the configuration in a row of a nightly run's tables."""
    return Learner(
        row["algorithm"],
        grid=[json.loads(row["parameters"])],
        n_features=n_features,
        n_classes=3,
        dtype="float32",
        intercept=True,
    )


# ----------------------------------------------------------------------------------------------------------------------
# Many nightly runs on tiny increments into one folder, and what each of them costs.


DOCUMENTS = 6
_counting: list[Counter[str]] = []


class RunCost(NamedTuple):
    """What a run took and left: processor seconds, calls of the system, and the bytes of the folder."""

    seconds: float
    opens: int
    listings: int
    bytes: int
    descriptors: int
    rss: int


def write_increment(folder: Path, increment: int, *, varied: bool = False) -> None:
    """A file of a few documents; `varied`: with three classes, sample weights and another text field."""
    (folder / "incoming").mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for row in range(DOCUMENTS):
        label = row % (3 if varied else 2)
        number = increment * DOCUMENTS + row
        text = f"word{label} word{number % 7} word{number % 11} new{increment}"
        line: dict[str, Any] = {"id": f"d{number}", "label": f"c{label}", "text": text}
        if varied:
            line |= {"title": f"head{label} head{number % 5}", "weight": 1 + number % 3}
        lines.append(line)
    path = folder / "incoming" / f"increment-{increment:05d}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def soak(folder: Path, runs: int, *, varied: bool = False, **changes: str) -> Iterator[RunCost]:
    """Run `runs` increments one after the other in this process; yields the cost of each."""
    fields = 'weight_field = "weight"\nfields = { text = { type = "text" }, title = { type = "text" } }\n'
    defaults = {
        "shard_bytes = 65536": f"shard_bytes = 65536\n{fields if varied else ''}",
        "lam = [1e-4, 1e-2], eta0 = [0.1, 0.3, 1.0]": "lam = [1e-4], eta0 = [0.1, 1.0]",
        "gamma = [1, 3]": "gamma = [1]",
        "threads = 2": "threads = 1",
        "ngram_range = [1, 1]": 'ngram_range = [1, 1]\nduplicates = "all"',
    }
    run = prepare(folder, **(defaults | changes))
    for increment in range(1, runs + 1):
        write_increment(folder, increment, varied=varied)
        with counted_calls() as calls:
            started = time.process_time()
            run_nightly(run)
            seconds = time.process_time() - started
        yield RunCost(
            seconds,
            calls["open"],
            calls["os.scandir"] + calls["os.listdir"],
            sum(path.lstat().st_size for path in (folder / "run").rglob("*") if not path.is_dir()),
            len(os.listdir("/proc/self/fd")),
            resident_bytes(),
        )


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the audit events of this process: files that are opened, folders that are listed."""
    if not _counting:
        sys.addaudithook(_count)
    counts: Counter[str] = Counter()
    _counting.append(counts)
    try:
        yield counts
    finally:
        _counting[-1] = Counter()


def _count(event: str, _: Any) -> None:
    if event in ("open", "os.scandir", "os.listdir") and _counting:
        _counting[-1][event] += 1


def resident_bytes() -> int:
    """The memory of this process, after a collection."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)
