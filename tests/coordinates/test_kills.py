"""Workers killed while the store is turned round and while they play change no bit of what cao-rcd leaves."""

import random
import threading
import time
from pathlib import Path

import pytest

from sparseoco.cluster import transpose as transpose_module
from sparseoco.cluster.connect import ClusterOptions, connect
from sparseoco.shards import Store
from tests.coordinates.test_cluster import GRID, block_of, run
from tests.epochs.test_kills import processes
from tests.stores import make_store


def check_kills(folder: Path, monkeypatch: pytest.MonkeyPatch, *, kills: int, seed: int) -> None:
    """Two worker processes, one of which, now this and now that, is killed after some more files have come or gone."""
    monkeypatch.setattr(transpose_module, "RANGE_NONZEROS", 400)
    store = Store.open(make_store(folder / "store", shard_rows=30))
    block = block_of(store, GRID, epochs=max(3, 2 * kills))
    with connect(ClusterOptions(threads=2), folder / "scratch") as client:
        expected, figures = run(client, block, store, folder / "whole")
    killed, over = 0, threading.Event()

    def kill() -> None:
        nonlocal killed
        choose = random.Random(seed)
        while killed < kills and not over.is_set():
            before = set((folder / "run").rglob("*"))
            wanted = choose.randint(1, 15)
            while len(set((folder / "run").rglob("*")) ^ before) < wanted and not over.is_set():
                time.sleep(0.001)
            while len(alive := processes()) < 2 and not over.is_set():
                time.sleep(0.01)
            if not over.is_set():
                choose.choice(alive).kill()
                killed += 1

    with connect(ClusterOptions(workers=2, threads=1), folder / "processes") as client:
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            weights, own = run(client, block, store, folder / "run")
        finally:
            over.set()
            killer.join()
    assert killed == kills
    assert weights.tobytes() == expected.tobytes()
    assert own == figures
    columns = [next((folder / name / "work").glob("columns-*")) for name in ("whole", "run")]
    assert [path.name for path in sorted(columns[0].glob("*"))] == [path.name for path in sorted(columns[1].glob("*"))]


def test_killed_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kills(tmp_path, monkeypatch, kills=2, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 3))
def test_workers_killed_twenty_times(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kills(tmp_path, monkeypatch, kills=20, seed=seed)
