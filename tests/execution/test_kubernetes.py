"""Workers as pods of a fake Kubernetes, which starts them as processes."""

import sys
from pathlib import Path

import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from tests.support.errors import raises_code
from tests.support.texts import write_run_file


def options(workers: int = 1, wait: float = 60) -> ClusterOptions:
    return ClusterOptions.model_validate(
        {
            "kind": "kubernetes",
            "workers": workers,
            "memory": "1GB",
            "wait": wait,
            "kubernetes": {"image": "registry.example.org/sparseoco:0.1.0", "claim": "sparseoco"},
        }
    )


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", None)
    with raises_code("missing-package", "pip install 'sparseoco[kubernetes]'"), connect(options(), tmp_path):
        pass


@pytest.mark.slow
def test_a_run_on_pods_gives_the_same_bytes_and_leaves_no_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_kubernetes", reason="comes with sparseoco[kubernetes]")
    from tests.execution.kubernetes_api import kubernetes

    run = load_run_file(write_run_file(tmp_path))
    run_steps.run_all(run.model_copy(update={"out": tmp_path / "here"}))
    with kubernetes(tmp_path) as (api, config):
        monkeypatch.setenv("KUBECONFIG", str(config))
        run_steps.run_all(run.model_copy(update={"out": tmp_path / "there", "cluster": options(workers=2)}))
        assert len(api.created) == 1
        assert not api.resources["daskclusters"]
        assert [process.poll() is None for process in api.processes] == [False, False, False]
    for file in ("search/metrics.parquet", "search/curves.parquet", "search/best.json", "model/weights.parquet"):
        assert (tmp_path / "here" / file).read_bytes() == (tmp_path / "there" / file).read_bytes()


@pytest.mark.slow
def test_missing_kubernetes_or_pods_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_kubernetes", reason="comes with sparseoco[kubernetes]")
    from tests.execution.kubernetes_api import kubernetes

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with raises_code("kubernetes-failed", kind=SparseocoError), connect(options(), tmp_path):
        pass
    with kubernetes(tmp_path, image=False) as (api, config):
        monkeypatch.setenv("KUBECONFIG", str(config))
        with raises_code("no-workers", "5 s", kind=SparseocoError), connect(options(wait=5), tmp_path):
            pass
        assert api.created
        assert not api.resources["daskclusters"]
