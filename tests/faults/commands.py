"""Every command that writes a folder, on small inputs, and the same command ended at one of its commits."""

import datetime
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.cli import main
from sparseoco.pipeline.nightly import records
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.search import selection, worker
from sparseoco.storage import commit
from sparseoco.training import stream
from sparseoco.training.options import Halving
from tests.support.nightly_runs import prepare
from tests.support.searches import plain_search
from tests.support.texts import write_reviews, write_run_file

RUN_FILE = """
out = "out"
[ingest]
inputs = ["rich.parquet"]
where = { split = "train" }
min_df = 1
shard_bytes = 8192
weight_field = "w"
ngram_range = [1, 1]
[ingest.fields.title]
type = "text"
[ingest.fields.text]
type = "text"
[ingest.fields.price]
type = "number"
transform = "bins"
bins = 3
[search]
loss = "logistic"
folds = 1
epochs = 2
halving = { factor = 2 }
algorithms.cl-fobos = { lam = [1e-4, 1e-2, 1e-1], eta0 = [0.3] }
algorithms.fobos = { lam = [1e-3], eta0 = [0.1], parts = [1, 2] }
algorithms.cao-rcd = { alpha = [1.0], R = [0.3] }
[evaluate]
where = { split = "test" }
[cluster]
threads = 1
"""
ONE = ["--threads", "1"]
GRID = ["--grid", "lam=1e-3,1e-2", "--grid", "gamma=1"]
INGEST = ["--min-df", "1", "--shard-bytes", "16384", "--weight-field", "w"]
SCORE = ["score", "run", "rich.parquet", "--out", "out", "--keep-class", "town", "--shard-bytes", "8192", *ONE]
COMMANDS = {
    "ingest": ["ingest", "rich.parquet", "--out", "out", "--ngram-range", "1,2", *INGEST, *ONE],
    "ingest hashed": ["ingest", "rich.jsonl", "--out", "out", "--hash-bits", "9", *INGEST, *ONE],
    "ingest more": ["ingest", "rich.jsonl", "more.jsonl", "--out", "grown", *INGEST, *ONE],
    "search": ["search", "store", "--out", "out", "--algorithm", "rda", "--folds", "2", "--epochs", "2", *GRID, *ONE],
    "train": ["train", "store", "--out", "out", "--algorithm", "caos-erm", "--epochs", "3", *ONE],
    "train on features": ["train", "store", "--out", "out", "--features-from", "first", "--epochs", "2", *ONE],
    "run": ["run", "rich.toml"],
    "nightly": ["nightly", "nightly/places.toml"],
    "rollback": ["nightly", "nightly/places.toml", "--rollback", "1"],
    "optimum": ["optimum", "store", "--out", "out", "--alpha", "0.1,1,10", *ONE],
    "regret": ["regret", "run", "--tol", "1e-1", "--marks", "3", *ONE],
    "score": [*SCORE, "--keep-top", "10%"],
    "score ids": [*SCORE, "--keep-top", "10%", "--keep-as", "ids", "--column", "title"],
    "generate": ["generate", "out", "--bytes", "20KB", "--vocabulary", "500"],
}
RESULTS = {"ingest more": "grown", "nightly": "nightly/run", "rollback": "nightly/run", "regret": "run"}
"""Folders that commands change; out unless they are here."""


def write_inputs(folder: Path, rows: int = 160) -> None:
    """The inputs of all commands; the stores and the run that some of them need are made by the commands `BEFORE`."""
    for name, first in (("rich", 0), ("more", rows)):
        write_reviews(folder / f"{name}.jsonl", rows=rows, classes=3, first=first)
        records = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for k, row in enumerate(records):
            row |= {"w": k % 4 / 2, "title": row["text"][:9], "price": k * 1.5, "by": f"g{k // 5}", "at": 1e9 + k}
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
        pq.write_table(pa.Table.from_pylist(records), folder / f"{name}.parquet", row_group_size=100)
    write_run_file(folder, **{"folds = 3": "folds = 1", "threads = 2": "threads = 1"})
    write_reviews(folder / "places.jsonl", rows=rows, classes=3)
    (folder / "rich.toml").write_text(RUN_FILE)
    (folder / "workers.toml").write_text(RUN_FILE.replace("threads = 1", "workers = 2"))
    prepare(folder / "nightly", 1, **{"threads = 2": "threads = 1"})
    run_file = (folder / "nightly" / "places.toml").read_text()
    (folder / "nightly" / "workers.toml").write_text(run_file.replace("threads = 1", "workers = 2"))


BEFORE = (
    *(["ingest", "rich.jsonl", "--out", out, *INGEST, *ONE] for out in ("store", "grown")),
    ["train", "store", "--out", "first", "--set", "lam=1e-2", *ONE],
    ["run", "places.toml"],
    ["nightly", "nightly/places.toml"],  # other files arrive afterwards
)


def quick_run(folder: Path) -> RunFile:
    """A run file in a new folder; its input is beside it, one file for all runs, since a manifest names its sources."""
    text = folder.parent / "places.jsonl"
    path = write_run_file(folder, **{"folds = 3": "folds = 1", "places.jsonl": str(text)})
    if not text.exists():
        (folder / "places.jsonl").rename(text)
    return load_run_file(path)


@contextmanager
def many_commits() -> Iterator[None]:
    """A context in which searches halve small stores and write a checkpoint at every fourth chunk."""
    chunks = count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "POLL_SECONDS", 0)
        patch.setattr(worker, "_pays", lambda *_, **__: next(chunks) % 4 == 0)
        patch.setattr(records, "_now", lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        patch.setattr(stream, "CHUNK_ROWS", 91)
        patch.setattr(selection, "MIN_RUNG_ROWS", 40)
        yield


def killed_at_commit(number: str, *command: str) -> None:
    """Run a command that is killed at a commit."""
    sync, calls = commit._sync, 0

    def kill(path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == int(number):
            os.kill(os.getpid(), 9)
        sync(path)

    commit._sync = kill
    sys.argv = ["sparseoco", *command]
    with many_commits():
        main()


# Searches: halved and stopped early, or of learners with parts.

OPTIONS = plain_search(
    algorithms={"cl-fobos": {"lam": [1e-4, 1e-3, 1e-2, 1e-1], "eta0": [0.01, 0.1, 1.0]}},
    folds=3,
    epochs=5,
    halving=Halving(factor=2),
)
DIVIDED = plain_search(algorithms={"fobos": {"lam": [1e-3], "eta0": [0.1, 0.3], "parts": [1, 2]}}, folds=2, epochs=2)
DETERMINED = ("metrics.parquet", "curves.parquet", "feature_survival.parquet", "best.json")


def tables(run: Path) -> dict[str, bytes]:
    """The tables of a search that do not depend on time."""
    return {name: (run / "search" / name).read_bytes() for name in DETERMINED}
