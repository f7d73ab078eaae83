"""Many small runs in one process, every other one disturbed: the same bytes, and no open file or memory more."""

import os
from pathlib import Path

import psutil
import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.pipeline import steps
from sparseoco.store.shards import Store
from tests.faults.commands import quick_run
from tests.support.damage import failing_commit
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder

RUNS = int(os.environ.get("SPARSEOCO_CHAOS_RUNS", "60"))
WARM = 10  # runs, after which everything is loaded
GROWTH = 30 << 20  # bytes of memory, of all further runs


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(39)
def test_many_runs_with_faults(tmp_path: Path) -> None:
    """A full disk at one commit after the other, a repeated run, and a shard cut short."""
    whole = quick_run(tmp_path / "whole")
    steps.run_all(whole)
    process, files, memory = psutil.Process(), 0, 0
    for number in range(RUNS):
        run = quick_run(tmp_path / f"{number}")
        with failing_commit(number % 15 + 1), pytest.raises(SparseocoError):
            steps.run_all(run)
        steps.run_all(run)
        assert_same_folder(Path(str(run.out)), Path(str(whole.out)), more=True, what=number)
        shard = next(Path(str(run.store)).glob("shard-*.parquet"))
        data = shard.read_bytes()
        shard.write_bytes(data[: len(data) * number // RUNS])
        with raises_code("corrupt-file", shard, kind=StorageError):
            Store.open(run.store).read(0)
        if number == WARM:
            files, memory = process.num_fds(), process.memory_info().rss
    assert process.num_fds() <= files
    assert process.memory_info().rss <= memory + GROWTH
