"""Workers killed at random moments change no bit of an epoch method's result."""

from pathlib import Path

import pytest

from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.store import transpose as transpose_module
from sparseoco.store.shards import Store
from tests.offline.epoch_blocks import (
    CAO_RCD_GRID,
    DEALT,
    caos_erm_grid,
    epoch_block,
    metrics,
    run_block,
    without_timings,
)
from tests.support.kills import check_under_kills
from tests.support.stores import make_store


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(1, 0), (20, 1)])
def test_caos_erm_with_killed_workers(tmp_path: Path, kills: int, seed: int) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    block = epoch_block(store, "caos-erm", caos_erm_grid(DEALT), epochs=8)
    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        expected, _ = run_block(client, block, store, tmp_path / "whole")
    cells = without_timings(tmp_path / "whole" / "cells")
    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:

        def run_once(folder: Path) -> None:
            weights, _ = run_block(client, block, store, folder)
            assert weights.tobytes() == expected.tobytes()
            assert without_timings(folder / "cells") == cells

        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(2, 0), (20, 1)])
def test_cao_rcd_with_workers_killed_also_during_the_transpose(
    tmp_path: Path, kills: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transpose_module, "RANGE_NONZEROS", 400)
    store = Store.open(make_store(tmp_path / "store", shard_rows=30))
    block = epoch_block(store, "cao-rcd", CAO_RCD_GRID, epochs=8)
    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        expected, tables = run_block(client, block, store, tmp_path / "whole")

    def transposed_files(folder: Path) -> list[str]:
        return sorted(path.name for path in next((folder / "work").glob("columns-*")).iterdir())

    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:

        def run_once(folder: Path) -> None:
            weights, found = run_block(client, block, store, folder)
            assert weights.tobytes() == expected.tobytes()
            assert metrics(found) == metrics(tables)
            assert transposed_files(folder) == transposed_files(tmp_path / "whole")

        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)
