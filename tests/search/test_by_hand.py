"""The same bytes on `dask scheduler` and `dask worker` processes started by hand, in the open and under TLS.

The workers work in another folder than the command, whose paths are relative to its own.
"""

from pathlib import Path
from typing import Any

import dask
import pytest

from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.pipeline import comparators, steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.training.options import OptimumOptions
from tests.search.by_hand import certificates, cluster_by_hand
from tests.support.errors import raises_code
from tests.support.folders import assert_same_results
from tests.support.searches import configuration, plain_search
from tests.support.stores import make_store
from tests.support.texts import write_run_file


@pytest.mark.slow
@pytest.mark.parametrize("secured", [False, True])
def test_a_cluster_by_hand_gives_the_same_bytes(tmp_path: Path, secured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tls: dict[str, Any] = certificates(tmp_path / "certificates") if secured else {}
    run = load_run_file(write_run_file(tmp_path))
    steps.run_all(run.model_copy(update={"out": tmp_path / "here"}))
    with cluster_by_hand(tmp_path, tls=tls or None, nannies=not secured) as cluster, dask.config.set(tls):
        assert cluster.address.startswith("tls://" if secured else "tcp://")
        monkeypatch.chdir(tmp_path)
        there = load_run_file(Path("places.toml"))
        cluster_options = ClusterOptions(scheduler=cluster.address)
        there = there.model_copy(update={"out": Path("there"), "cluster": cluster_options})
        steps.run_all(there)
    assert_same_results(tmp_path / "there", tmp_path / "here")


EPOCHS = {
    "caos-erm": [{}, {"estimate": "sampled", "placement": "dealt", "parts": 3}],
    "optimistic-averaging": [{}],
    "cao-rcd": [{"R": 0.3, "batch": 4}],
}
STREAMS = plain_search(algorithms={"cl-fobos": {"lam": [1e-2], "eta0": [0.3]}}, folds=1)


def by_passes(store: Path, out: Path, cluster: ClusterOptions) -> dict[str, bytes]:
    """Models of epoch methods, optima and regret of a store: the files they leave, by name."""
    for algorithm, ways in EPOCHS.items():
        for i, way in enumerate(ways):
            chosen, options = configuration(algorithm, alpha=2.0, **way), plain_search(algorithms={algorithm: {}})
            steps.train(store, out / f"{algorithm}-{i}", chosen, options, cluster, epochs=2)
    comparators.optimum(store, out / "optimum", OptimumOptions(alphas=(2.0, 8.0), tol=1e-2), cluster)
    steps.search(store, out / "run", STREAMS, cluster)
    comparators.regret(out / "run", cluster, marks=3)
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.parquet")}
    return {name: content for name, content in files.items() if "timings" not in name}


@pytest.mark.slow
@pytest.mark.parametrize("secured", [False, True])
def test_full_passes_give_the_same_bytes(tmp_path: Path, secured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path / "store", rows=120, features=40, shard_rows=50)
    expected = by_passes(store, tmp_path / "here", ClusterOptions(threads=2))
    tls: dict[str, Any] = certificates(tmp_path / "certificates") if secured else {}
    with cluster_by_hand(tmp_path, tls=tls or None) as cluster, dask.config.set(tls):
        monkeypatch.chdir(tmp_path)
        found = by_passes(Path("store"), Path("there"), ClusterOptions(scheduler=cluster.address))
    for name in ("caos-erm-1/weights.parquet", "optimum/optimum.parquet", "run/regret/regret.parquet"):
        assert name in expected
    assert found == expected


@pytest.mark.fault(44)
def test_a_wrong_or_missing_certificate_is_refused(tmp_path: Path) -> None:
    ours, theirs = (certificates(tmp_path / name) for name in ("ours", "theirs"))
    with cluster_by_hand(tmp_path, workers=0, tls=ours) as cluster:
        options = ClusterOptions(scheduler=cluster.address)
        for settings in (theirs, {}):
            refused = raises_code("scheduler-certificates")
            with dask.config.set(settings), refused, connect(options, tmp_path / "scratch"):
                pass
        with raises_code("no-scheduler"):
            plain = ClusterOptions(scheduler=cluster.address.replace("tls", "tcp"))
            with connect(plain, tmp_path / "scratch"):
                pass
