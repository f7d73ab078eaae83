"""A search that is halved and stopped early, killed or short of disk at any moment, ends with the same bytes."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.search import worker
from sparseoco.storage import commit
from sparseoco.training.options import SearchOptions
from tests.faults import searches
from tests.faults.searches import DIVIDED, OPTIONS, tables
from tests.support.stores import make_store

pytestmark = pytest.mark.usefixtures("early_rungs")
ONE = ClusterOptions(threads=1)
SCRIPT = """
import sys
from pathlib import Path
from sparseoco.pipeline import steps
from sparseoco.search import selection, worker
from sparseoco.training import stream
from sparseoco.execution.clusters import ClusterOptions
from tests.faults import searches
OPTIONS = getattr(searches, sys.argv[2])
worker.POLL_SECONDS, worker._pays, stream.CHUNK_ROWS = 0, lambda *_, **__: True, 41
selection.MIN_RUNG_ROWS = 40
folder = Path(sys.argv[1])
steps.search(folder / "store", folder / "run", OPTIONS, ClusterOptions(threads=2))
"""


POISONED = """
import dask
if __name__ == "__main__":
    options = OPTIONS.model_copy(update={"halving": None, "patience": None, "epochs": 1, "folds": 2})
    folder = Path(sys.argv[1])
    poison = {"distributed.worker.preload": ["tests.faults.poison"], "distributed.scheduler.allowed-failures": 0}
    with dask.config.set(poison):
        steps.search(folder / "store", folder / "run", options, ClusterOptions(workers=2))
"""


def check_kills(folder: Path, moments: int, seed: int, options: str = "OPTIONS") -> None:
    """Kill the process after a random number of changes in the run's folder, resume, and so on; then run to the end."""
    store = make_store(folder / "store", features=40)
    steps.search(store, folder / "whole", getattr(searches, options), ONE)
    watched = folder / "run" / "search"
    choose = random.Random(seed)
    for _ in range(moments):
        before, wanted = listing(watched), choose.randint(1, 12)
        with subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), options], stderr=subprocess.PIPE) as process:
            while process.poll() is None and len(listing(watched) ^ before) < wanted:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        if process.returncode == 0:
            break
        assert not (watched / "metrics.parquet").exists()
    subprocess.run([sys.executable, "-c", SCRIPT, str(folder), options], check=True)
    assert tables(folder / "run") == tables(folder / "whole")
    assert not (watched / "checkpoints").exists()


def listing(folder: Path) -> set[tuple[str, int]]:
    found = set()
    for path in folder.rglob("*"):
        try:
            found.add((path.name, path.stat().st_mtime_ns))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.chaos
@pytest.mark.fault(5)
def test_killed_at_random_moments(tmp_path: Path) -> None:
    check_kills(tmp_path, moments=2, seed=0)


@pytest.mark.fault(5)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_killed_at_many_random_moments(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, moments=20, seed=seed)


@pytest.mark.fault(5)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_learners_with_parts_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, moments=12, seed=seed, options="DIVIDED")


def check_failures(
    folder: Path, monkeypatch: pytest.MonkeyPatch, first: int, stride: int, options: SearchOptions = OPTIONS
) -> int:
    """Fail at the first, first + stride, … commit of a search; run it again each time."""
    store = make_store(folder / "store", features=40)
    steps.search(store, folder / "whole", options, ONE)
    monkeypatch.setattr(worker, "_pays", lambda *_, **__: True)
    sync, n = commit._sync, first
    while True:
        calls = 0

        def fail(path: Path, at: int = n) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(path)

        monkeypatch.setattr(commit, "_sync", fail)
        run = folder / f"at-{n}"
        try:
            steps.search(store, run, options, ONE)
        except StorageError as error:
            assert error.code == "disk-full"  # noqa: PT017 - a checkpoint that cannot be written stops nothing
        monkeypatch.setattr(commit, "_sync", sync)
        steps.search(store, run, options, ONE)
        assert tables(run) == tables(folder / "whole"), n
        if calls < n:
            return n
        n += stride


@pytest.mark.slow
@pytest.mark.fault(15)
def test_a_full_disk_at_any_commit_of_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_failures(tmp_path, monkeypatch, 3, 23) > 60


def test_a_full_disk_at_any_commit_of_learners_with_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_failures(tmp_path, monkeypatch, 4, 13, DIVIDED) > 40


@pytest.mark.fault(15)
@pytest.mark.slow
def test_a_full_disk_at_every_commit_of_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_failures(tmp_path, monkeypatch, 1, 1) > 60


@pytest.mark.fault(2)
@pytest.mark.slow
def test_a_configuration_that_kills_its_worker_is_isolated(tmp_path: Path) -> None:
    """One configuration ends its worker's process each time; the others succeed."""
    store = make_store(tmp_path / "store", features=40)
    options = OPTIONS.model_copy(update={"halving": None, "patience": None, "epochs": 1, "folds": 2})
    steps.search(store, tmp_path / "whole", options, ONE)
    script = SCRIPT[: SCRIPT.index("worker.POLL")] + POISONED
    subprocess.run([sys.executable, "-c", script, str(tmp_path), "OPTIONS"], check=True)
    expected, got = (pq.read_table(tmp_path / n / "search" / "metrics.parquet").to_pylist() for n in ("whole", "run"))
    bad = [row for row in got if row["configuration"] == 5]
    assert {row["status"] for row in bad} == {"failed"}
    assert all("its worker was killed" in row["reason"] for row in bad)
    assert [r for r in got if r["configuration"] != 5] == [r for r in expected if r["configuration"] != 5]
