"""Workers killed while the store is turned round and while they play change no bit of what cao-rcd leaves."""

import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sparseoco.cluster import transpose as transpose_module
from sparseoco.cluster.connect import ClusterOptions, connect
from sparseoco.shards import Store
from tests.coordinates.test_cluster import GRID, block_of, run
from tests.stores import make_store


def worker_processes() -> list[psutil.Process]:
    """The workers that nannies of this process keep alive."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has just died
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


def check_kills(folder: Path, monkeypatch: pytest.MonkeyPatch, *, kills: int, seed: int) -> None:
    """Two worker processes, one of which, now this and now that, is killed after some more files have come or gone.

    Runs follow each other until so many have been killed.
    """
    monkeypatch.setattr(transpose_module, "RANGE_NONZEROS", 400)
    store = Store.open(make_store(folder / "store", shard_rows=30))
    block = block_of(store, GRID, epochs=8)
    with connect(ClusterOptions(threads=2), folder / "scratch") as client:
        expected, figures = run(client, block, store, folder / "whole")
    killed, over = 0, threading.Event()

    def kill() -> None:
        nonlocal killed
        choose = random.Random(seed)
        while killed < kills and not over.is_set():
            before = set((folder / "runs").rglob("*"))
            wanted = choose.randint(1, 12)
            while len(set((folder / "runs").rglob("*")) ^ before) < wanted and not over.is_set():
                time.sleep(0.001)
            while len(alive := worker_processes()) < 2 and not over.is_set():
                time.sleep(0.01)
            if not over.is_set():
                choose.choice(alive).kill()
                killed += 1

    with connect(ClusterOptions(workers=2, threads=1), folder / "processes") as client:
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            runs = 0
            while killed < kills or runs == 0:
                own = folder / "runs" / f"{runs}"
                weights, found = run(client, block, store, own)
                assert weights.tobytes() == expected.tobytes()
                assert found == figures
                columns = [next((path / "work").glob("columns-*")) for path in (folder / "whole", own)]
                names = [sorted(path.name for path in column.iterdir()) for column in columns]
                assert names[0] == names[1]
                runs += 1
        finally:
            over.set()
            killer.join()


@pytest.mark.slow
def test_killed_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kills(tmp_path, monkeypatch, kills=2, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 3))
def test_workers_killed_twenty_times(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kills(tmp_path, monkeypatch, kills=20, seed=seed)
