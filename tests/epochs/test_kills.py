"""Workers killed while they play and pass change no bit of an epoch method's result."""

import random
import threading
import time
from pathlib import Path

import psutil
import pytest

from sparseoco.cluster.connect import ClusterOptions, connect, workers_of
from sparseoco.shards import Store
from tests.epochs.test_cluster import PARALLEL, block_of, grid_of, run, without_timings
from tests.stores import make_store


def processes() -> list[psutil.Process]:
    """The worker processes of this one."""
    return [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]


def check_kills(folder: Path, kills: int, seed: int) -> None:
    """Two worker processes; one of them, now this and now that, is killed after a random number of new files."""
    store = Store.open(make_store(folder / "store"))
    block = block_of(store, grid_of(PARALLEL), epochs=8 * kills)
    with connect(ClusterOptions(threads=2), folder / "scratch") as client:
        expected, _ = run(client, block, store, folder / "whole")
    with connect(ClusterOptions(workers=2, threads=1), folder / "processes") as client:
        killed, over = [0], threading.Event()

        def kill() -> None:
            choose = random.Random(seed)
            while killed[0] < kills and not over.is_set():
                before = set((folder / "run").rglob("*"))
                wanted = choose.randint(1, 20)
                while len(set((folder / "run").rglob("*")) ^ before) < wanted and not over.is_set():
                    time.sleep(0.001)
                while len(workers_of(client)) < 2 and not over.is_set():
                    time.sleep(0.01)
                if not over.is_set():
                    choose.choice(processes()).kill()
                    killed[0] += 1

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            weights, _ = run(client, block, store, folder / "run")
        finally:
            over.set()
            killer.join()
    assert weights.tobytes() == expected.tobytes()
    assert without_timings(folder / "run" / "cells") == without_timings(folder / "whole" / "cells")
    assert killed[0] == kills


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(1, 0), (20, 1)])
def test_killed_workers(tmp_path: Path, kills: int, seed: int) -> None:
    check_kills(tmp_path, kills, seed)
