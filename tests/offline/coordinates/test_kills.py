"""Workers killed while the store is turned round and while they play change no bit of what cao-rcd leaves."""

from pathlib import Path

import pytest

from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.store import transpose as transpose_module
from sparseoco.store.shards import Store
from tests.offline.coordinates.test_cluster import GRID, block_of, run
from tests.support.kills import check_under_kills
from tests.support.stores import make_store


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(2, 0), (20, 1)])
def test_killed_workers(tmp_path: Path, kills: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transpose_module, "RANGE_NONZEROS", 400)
    store = Store.open(make_store(tmp_path / "store", shard_rows=30))
    block = block_of(store, GRID, epochs=8)
    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        expected, figures = run(client, block, store, tmp_path / "whole")

    def names_of_columns(folder: Path) -> list[str]:
        return sorted(path.name for path in next((folder / "work").glob("columns-*")).iterdir())

    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:

        def run_once(folder: Path) -> None:
            weights, found = run(client, block, store, folder)
            assert weights.tobytes() == expected.tobytes()
            assert found == figures
            assert names_of_columns(folder) == names_of_columns(tmp_path / "whole")

        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)
