"""What Dask's processes are told, on this machine and, the same for client, scheduler and workers, on several.

`deploy/dask.yaml` is the latter for processes that are started by hand.
"""

from collections.abc import Mapping
from typing import Any

# Kernels are one thread each: what runs at once is decided by the cluster, not by OpenMP or BLAS pools.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SHARED = "SPARSEOCO_SHARED"  # in the environment of our own workers: a folder all of them have
ACROSS_HOSTS: dict[str, Any] = {
    # A connection that says nothing for so long is dead. By default 30 s: a link that is cut for half a minute would
    # end its workers, and the work of a client that is cut off from its scheduler.
    "distributed.comm.timeouts.tcp": "120s",
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.retry.count": 3,
    "distributed.worker.memory.target": False,  # nothing is kept in a worker that could be spilled
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.95,
}


def as_environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as the environment variables that Dask reads."""
    return {"DASK_" + key.upper().replace(".", "__").replace("-", "_"): str(value) for key, value in settings.items()}


def worker_environment() -> dict[str, str]:
    """The environment of a worker on another machine."""
    return ONE_THREAD | as_environment(ACROSS_HOSTS)
