"""What commands cost beside their work: their start, and opening a store."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparseoco.store.entries import ShardTable, add_entries
from sparseoco.store.manifest import commit_manifest
from sparseoco.store.shards import Store
from tests.benchmarks.support import children_seconds, in_turns, least, python
from tests.support.stores import make_store
from tests.support.texts import RUN_FILE, write_reviews

# ----------------------------------------------------------------------------------------------------------------------
# Processor time of whole commands, with `python -c "import numba, pyarrow"` for comparison.


ROWS = 8000  # 1 MB
LIMITS = {
    ("-c", "import numba, pyarrow"): 1.0,
    ("-m", "sparseoco", "--version"): 0.4,
    ("-m", "sparseoco", "--help"): 0.4,
    ("-m", "sparseoco", "search", "--help"): 0.4,
    ("-m", "sparseoco", "search", "shards", "--fold", "3"): 0.4,
    ("-m", "sparseoco", "predict", "run/model"): 1.0,
}
"""Seconds of processor by arguments of Python."""
RUN, RUN_LIMIT = ("-m", "sparseoco", "run"), 3.5  # all steps of a corpus of 1 MB


@pytest.mark.benchmark
def test_start(tmp_path: Path) -> None:
    write_reviews(tmp_path / "places.jsonl", rows=ROWS, classes=3)
    names = iter(("run", "run-1", "run-2", "run-3"))

    def run() -> None:
        name = next(names)
        (tmp_path / f"{name}.toml").write_text(RUN_FILE.replace('out = "run"', f'out = "{name}"'))
        python(tmp_path, "-m", "sparseoco", "run", f"{name}.toml")
        assert (tmp_path / name / "report" / "report.html").exists()

    run()  # compiles
    works = {command: partial(python, tmp_path, *command, given="the tide\n", check=False) for command in LIMITS}
    found = in_turns(works, clock=children_seconds) | {RUN: least(run, clock=children_seconds)}
    for command, seconds in found.items():
        print(f"{' '.join(command)}: {seconds:.2f} s")
    assert all(seconds < (LIMITS | {RUN: RUN_LIMIT})[command] for command, seconds in found.items())


# ----------------------------------------------------------------------------------------------------------------------
# Opening a store of many shards in a process that has opened a small one.


SHARDS = 119_000
SECONDS, MEGABYTES = 0.1, 30
PROGRAM = """
import json, sys, time
import psutil
from sparseoco.store.shards import Store

def opened(folder):
    store = Store.open(folder)
    return store, store.shards.row_offsets, store.shards.nonzero_offsets, store.counts_dtype

opened(sys.argv[1])
memory, started = psutil.Process().memory_info().rss, time.process_time()
kept = opened(sys.argv[2])
seconds = time.process_time() - started
print(json.dumps([seconds, (psutil.Process().memory_info().rss - memory) / 1e6, len(kept[0].shards)]))
"""


@pytest.mark.benchmark
def test_opening(tmp_path: Path) -> None:
    small, large = Store.open(make_store(tmp_path / "small")), tmp_path / "large"
    random = np.random.default_rng(0)
    digests = [digest.tobytes().hex() for digest in random.integers(0, 256, (SHARDS, 32), np.uint8)]
    columns = {
        "file": [f"shard-{digest[:24]}.parquet" for digest in digests],
        "sha256": digests,
        "bytes": random.integers(1 << 20, 1 << 22, SHARDS),
        "rows": random.integers(1, 9000, SHARDS),
        "nonzeros": random.integers(1, 900_000, SHARDS),
        "counts": ["uint16"] * SHARDS,
        "source": np.arange(SHARDS) // 100,
        "labels": pa.nulls(SHARDS, pa.int64()),
    }
    shards = ShardTable(pa.table(columns, schema=ShardTable.schema))
    commit_manifest(large, small.manifest.model_copy(update=add_entries(large, None, shards)))
    found = [json.loads(python(tmp_path, "-c", PROGRAM, small.folder, large)) for _ in range(3)]
    seconds, megabytes, count = (min(values) for values in zip(*found, strict=True))
    head = (large / "manifest-00000001.json").stat().st_size
    print(f"{count:,} shards: {1000 * seconds:.0f} ms of processor, {megabytes:.0f} MB; manifest {head:,} bytes")
    assert count == SHARDS
    assert seconds <= SECONDS
    assert megabytes <= MEGABYTES
