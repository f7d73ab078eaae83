"""The same bytes on `dask scheduler` and `dask worker` processes started by hand, in the open and under TLS."""

from pathlib import Path
from typing import Any

import dask
import pytest

from sparseoco import steps
from sparseoco.cluster.connect import ClusterOptions, connect
from sparseoco.config import load_run_file
from sparseoco.errors import InputError
from tests.cluster.by_hand import certificates, cluster_by_hand
from tests.texts import write_run_file

FILES = ("search/metrics.parquet", "search/curves.parquet", "search/best.json", "model/weights.parquet")


@pytest.mark.parametrize("secured", [False, True])
def test_a_cluster_started_by_hand_gives_the_same_bytes(tmp_path: Path, secured: bool) -> None:
    tls: dict[str, Any] = certificates(tmp_path / "certificates") if secured else {}
    run = load_run_file(write_run_file(tmp_path))
    here = run.model_copy(update={"out": tmp_path / "here"})
    steps.run_all(here)
    with cluster_by_hand(tmp_path, tls=tls or None) as cluster, dask.config.set(tls):
        assert cluster.address.startswith("tls://" if secured else "tcp://")
        there = run.model_copy(update={"out": tmp_path / "there", "cluster": ClusterOptions(scheduler=cluster.address)})
        steps.run_all(there)
    for file in FILES:
        assert (here.out / file).read_bytes() == (there.out / file).read_bytes(), file


def test_a_wrong_certificate_and_none_are_refused_with_a_sentence(tmp_path: Path) -> None:
    ours, theirs = (certificates(tmp_path / name) for name in ("ours", "theirs"))
    with cluster_by_hand(tmp_path, workers=0, tls=ours) as cluster:
        options = ClusterOptions(scheduler=cluster.address)
        for settings, said in ((theirs, "do not accept each other's certificates"), ({}, "wants certificates")):
            with (
                dask.config.set(settings),
                pytest.raises(InputError, match=said),
                connect(options, tmp_path / "scratch"),
            ):
                pass
        with pytest.raises(InputError, match="No Dask scheduler answers"):
            plain = ClusterOptions(scheduler=cluster.address.replace("tls", "tcp"))
            with connect(plain, tmp_path / "scratch"):
                pass
