"""Workers killed while they play and pass change no bit of an epoch method's result."""

from pathlib import Path

import pytest

from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.store.shards import Store
from tests.offline.epochs.test_cluster import PARALLEL, block_of, grid_of, run, without_timings
from tests.support.kills import check_under_kills
from tests.support.stores import make_store


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(1, 0), (20, 1)])
def test_killed_workers(tmp_path: Path, kills: int, seed: int) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = block_of(store, grid_of(PARALLEL), epochs=8)
    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        expected, _ = run(client, block, store, tmp_path / "whole")
    cells = without_timings(tmp_path / "whole" / "cells")
    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:

        def run_once(folder: Path) -> None:
            weights, _ = run(client, block, store, folder)
            assert weights.tobytes() == expected.tobytes()
            assert without_timings(folder / "cells") == cells

        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)
