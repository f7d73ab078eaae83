"""Workers on this machine."""

from pathlib import Path
from typing import Any

import pytest

from sparseoco.execution.clusters import ClusterOptions, connect


@pytest.mark.fault(16)
def test_workers_spill_nothing_to_disk(tmp_path: Path) -> None:
    def shape(dask_worker: Any) -> tuple[type, Any]:
        return type(dask_worker.data), dask_worker.memory_manager.memory_spill_fraction

    with connect(ClusterOptions(threads=1, memory="1GiB"), tmp_path / "scratch") as client:
        assert set(client.run(shape).values()) == {(dict, False)}
