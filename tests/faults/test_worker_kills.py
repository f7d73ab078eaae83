"""Workers killed with SIGKILL at random moments change no bit of a search, an optimum or regret."""

from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.offline.cluster import optimum as cluster_optimum
from sparseoco.offline.cluster.optimum import run_optimum
from sparseoco.offline.cluster.passes import NEWTON_NONZEROS
from sparseoco.offline.options import OptimumOptions
from sparseoco.offline.regret import run as cluster_regret
from sparseoco.offline.regret.run import run_regret
from sparseoco.pipeline import steps
from sparseoco.store.shards import Store
from tests.faults.searches import DIVIDED, OPTIONS, tables
from tests.support.kills import check_under_kills
from tests.support.searches import plain_search
from tests.support.stores import make_store

OPTIMUM = OptimumOptions(alphas=(1.0, 4.0, 12.0), tol=1e-4)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.fault(1)
@pytest.mark.slow
@pytest.mark.parametrize("near", [0, NEWTON_NONZEROS])
@pytest.mark.parametrize(("kills", "seed"), [(2, 0), (20, 1)])
def test_an_optimum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, seed: int, near: int) -> None:
    """By passes, and by a task a column."""
    monkeypatch.setattr(cluster_optimum, "NEWTON_NONZEROS", near)
    store = Store.open(make_store(tmp_path / "store"))

    def run_once(folder: Path) -> None:
        folder.mkdir(parents=True)
        run_optimum(client, store, folder, OPTIMUM, lambda step, done, total: None)
        if folder != tmp_path / "whole":
            assert files(folder) == files(tmp_path / "whole")

    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        run_once(tmp_path / "whole")
    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:
        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)


@pytest.mark.fault(1)
@pytest.mark.slow
@pytest.mark.usefixtures("early_rungs")
@pytest.mark.parametrize(("kills", "seed"), [(2, 0), (20, 1)])
def test_a_search(tmp_path: Path, kills: int, seed: int) -> None:
    """With halving, early stopping, learners with parts, and epoch methods in the same search."""
    store = make_store(tmp_path / "store", features=40)
    epochs = {"caos-erm": {"alpha": [1.0, 5.0]}, "cao-rcd": {"alpha": [1.0, 5.0], "R": [0.3]}}
    every = {**OPTIONS.algorithms, **DIVIDED.algorithms, **epochs}
    options = OPTIONS.model_copy(update={"algorithms": every, "epochs": 3})
    steps.search(store, tmp_path / "whole", options, ClusterOptions(threads=2))

    def run_once(folder: Path) -> None:
        steps.search(store, folder, options, ClusterOptions(workers=2))
        assert tables(folder) == tables(tmp_path / "whole")

    check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)


@pytest.mark.fault(1)
@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(2, 0), (20, 1)])
def test_regret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, seed: int) -> None:
    """Of streams with and without a box and with thresholds of their own, epoch methods; optima by passes, too."""
    store = Store.open(make_store(tmp_path / "store", features=40))
    monkeypatch.setattr(cluster_regret, "NEWTON_NONZEROS", store.manifest.nonzeros // 3)
    streams = {"cl-fobos": {"lam": [1e-3]}, "stda": {"lam": [1e-3]}, "cao-ftrl": {"lam": [1e-3]}}
    epochs = {"caos-erm": {"alpha": [1.0]}, "cao-rcd": {"alpha": [1.0], "R": [0.3]}}
    options = plain_search(algorithms={**streams, **epochs}, epochs=2, folds=1)
    first = {c.algorithm: c for c in options.configurations()}.values()

    def kept(folder: Path) -> dict[str, bytes]:
        return {name: data for name, data in files(folder).items() if name.startswith(("curve", "optimum", "bound"))}

    def measure(client: Client, folder: Path) -> Any:
        return run_regret(client, list(first), options, store, folder, 6, 1e-3, lambda step, done, total: None)

    with connect(ClusterOptions(threads=2), tmp_path / "scratch") as client:
        rows = measure(client, tmp_path / "whole")

    def run_once(folder: Path) -> None:
        assert measure(client, folder) == rows
        assert kept(folder) == kept(tmp_path / "whole")

    with connect(ClusterOptions(workers=2, threads=1), tmp_path / "processes") as client:
        check_under_kills(tmp_path / "runs", run_once, kills=kills, seed=seed)
