"""Many small runs in one process, every other one disturbed: the same bytes, and no open file or memory more."""

import errno
import os
from pathlib import Path

import psutil
import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.pipeline import steps as run_steps
from sparseoco.storage import commit
from sparseoco.store.shards import Store
from tests.faults.test_every_commit import contents, prepare
from tests.support.errors import raises_code

RUNS = int(os.environ.get("SPARSEOCO_CHAOS_RUNS", "60"))
WARM = 10  # runs, after which everything is loaded
GROWTH = 30 << 20  # bytes of memory, of all further runs


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(39)
def test_many_runs_with_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at one commit after the other, a repeated run, and a shard cut short."""
    whole = prepare(tmp_path / "whole")
    run_steps.run_all(whole)
    expected, sync, process = contents(whole), commit._sync, psutil.Process()
    files, memory = 0, 0
    for number in range(RUNS):
        run, calls = prepare(tmp_path / f"{number}"), 0

        def fail(path: Path, at: int = number % 15 + 1) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(path)

        monkeypatch.setattr(commit, "_sync", fail)
        with pytest.raises(SparseocoError):
            run_steps.run_all(run)
        monkeypatch.setattr(commit, "_sync", sync)
        run_steps.run_all(run)
        got = contents(run)
        assert {name: got.get(name) for name in expected} == expected, number
        shard = next(Path(str(run.store)).glob("shard-*.parquet"))
        data = shard.read_bytes()
        shard.write_bytes(data[: len(data) * number // RUNS])
        with raises_code("corrupt-file", shard, kind=StorageError):
            Store.open(run.store).read(0)
        if number == WARM:
            files, memory = process.num_fds(), process.memory_info().rss
    assert process.num_fds() <= files
    assert process.memory_info().rss <= memory + GROWTH
