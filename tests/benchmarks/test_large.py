"""Text larger than what a worker may hold: made, ingested, searched and trained by two workers of 2 GB each.

SPARSEOCO_LARGE says how much text (500MB); NOTES.md has the figures of a run with 5GB. Prints, for every step, seconds,
MB/s of text and the peak memory of each process.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dask.utils import parse_bytes

pytestmark = pytest.mark.benchmark
SIZE = os.environ.get("SPARSEOCO_LARGE", "500MB")
LIMIT = "2GB"
WORKERS = 2
CLUSTER = ("--workers", str(WORKERS), "--memory", LIMIT)
SAMPLE_SECONDS = 0.25


class Peaks:
    """Peak resident and proportional memory, in bytes, of the processes of a command, by process."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.resident: dict[int, int] = {}
        self.proportional: dict[int, int] = {}
        self.commands: dict[int, str] = {}

    def sample(self) -> None:
        for pid in self._tree(self.root):
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
                self.commands[pid] = Path(f"/proc/{pid}/cmdline").read_text()
            except OSError:  # it has ended
                continue
            sizes = {name: int(size.split()[0]) << 10 for name, _, size in (line.partition(":") for line in lines)}
            self.resident[pid] = max(self.resident.get(pid, 0), sizes["Rss"])
            self.proportional[pid] = max(self.proportional.get(pid, 0), sizes["Pss"])

    def _tree(self, pid: int) -> Iterator[int]:
        yield pid
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                for child in (task / "children").read_text().split():
                    yield from self._tree(int(child))
        except OSError:
            return

    @property
    def workers(self) -> list[int]:
        """Worker processes, those that were killed and started again counted each time."""
        return [pid for pid, command in self.commands.items() if "spawn_main" in command]


def run(step: str, *arguments: str | Path) -> Peaks:
    """Run a command of sparseoco to its end; print and give the memory of its processes."""
    started = time.monotonic()
    command = [sys.executable, "-c", "from sparseoco.cli import main; main()", step, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peaks = Peaks(process.pid)
    while process.poll() is None:
        peaks.sample()
        time.sleep(SAMPLE_SECONDS)
    seconds = time.monotonic() - started
    assert process.returncode == 0
    client = peaks.resident[process.pid] / 1e9
    workers = ", ".join(
        f"{peaks.resident[pid] / 1e9:.2f} GB ({peaks.proportional[pid] / 1e9:.2f} GB)" for pid in peaks.workers
    )
    print(
        f"{step:9} {seconds:7.0f} s {parse_bytes(SIZE) / seconds / 1e6:7.1f} MB/s   client {client:.2f} GB"
        + (f"   workers, resident (proportional) {workers}" if workers else "")
    )
    return peaks


def test_every_worker_stays_below_its_limit(tmp_path: Path) -> None:
    """No process holds 2 GB at any time, and no worker is killed and started again."""
    text, store = tmp_path / "made" / "text", tmp_path / "store"
    grid = ("--folds", "1", "--algorithm", "cl-fobos", "--grid", "lam=1e-6,1e-5,1e-4", "--grid", "eta0=0.1,0.3,1")
    print(f"\n{SIZE} of text, workers of {LIMIT}, load {os.getloadavg()[0]:.1f}")
    commands: list[tuple[str | Path, ...]] = [
        ("generate", tmp_path / "made", "--bytes", SIZE),
        ("ingest", text, "--out", store, *CLUSTER),
        ("train", store, "--out", tmp_path / "model", *CLUSTER),
        ("search", store, "--out", tmp_path / "run", *grid, *CLUSTER),
    ]
    for step, *arguments in commands:
        peaks = run(str(step), *arguments)
        assert max(peaks.resident.values()) < parse_bytes(LIMIT)
        clusters = {"generate": 0, "ingest": 1, "train": 1, "search": 2}[str(step)]  # a search trains its best
        assert len(peaks.workers) == clusters * WORKERS
