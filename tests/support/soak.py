"""Many nightly runs on tiny increments into one folder, and what each of them costs."""

import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sparseoco.pipeline.nightly import run_nightly
from tests.support.nightly_runs import prepare

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
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError
