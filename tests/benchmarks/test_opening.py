"""Opening a store of many shards in a process that has opened a small one."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparseoco.store.entries import ShardTable
from sparseoco.store.manifest import commit_manifest
from sparseoco.store.segments import add_entries
from sparseoco.store.shards import Store
from tests.support.stores import make_store

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
    columns = {
        "sha256": pa.array([digest.tobytes() for digest in random.integers(0, 256, (SHARDS, 32), np.uint8)]),
        "bytes": random.integers(1 << 20, 1 << 22, SHARDS),
        "rows": random.integers(1, 9000, SHARDS),
        "nonzeros": random.integers(1, 900_000, SHARDS),
        "counts": ["uint16"] * SHARDS,
        "source": np.arange(SHARDS) // 100,
        "labels": pa.nulls(SHARDS, pa.int64()),
    }
    columns["sha256"] = columns["sha256"].cast(pa.binary(32))
    shards = ShardTable(pa.table(columns, schema=ShardTable.schema))
    commit_manifest(large, small.manifest.model_copy(update=add_entries(large, None, shards)))
    found = []
    for _ in range(3):
        command = [sys.executable, "-c", PROGRAM, str(small.folder), str(large)]
        found.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    seconds, megabytes, count = (min(values) for values in zip(*found, strict=True))
    head = (large / "manifest-00000001.json").stat().st_size
    print(f"{count:,} shards: {1000 * seconds:.0f} ms of processor, {megabytes:.0f} MB; manifest {head:,} bytes")
    assert count == SHARDS
    assert seconds <= SECONDS
    assert megabytes <= MEGABYTES
