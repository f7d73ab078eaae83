"""Settings of Dask's processes, on one machine and across hosts.

`deploy/dask.yaml` has those across hosts for processes that are started by hand.
"""

from collections.abc import Mapping
from typing import Any

# Kernels use one thread each: Dask runs tasks in parallel, not OpenMP or BLAS.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ACROSS_HOSTS: dict[str, Any] = {
    # The default is 30 s: a connection interrupted for that long would stop workers and lose the tasks of a client.
    "distributed.comm.timeouts.tcp": "120s",
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.retry.count": 3,
    "distributed.worker.memory.target": False,  # workers keep nothing that could be spilled
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.95,
}
# Dask's HTTP servers cannot be turned off. Without pages they show other users of a machine no logs and tracebacks.
NO_PAGES: dict[str, Any] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


def as_environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as the environment variables that Dask reads."""
    return {"DASK_" + key.upper().replace(".", "__").replace("-", "_"): str(value) for key, value in settings.items()}


def worker_environment() -> dict[str, str]:
    """The environment of a worker on another machine."""
    return ONE_THREAD | as_environment(ACROSS_HOSTS)
