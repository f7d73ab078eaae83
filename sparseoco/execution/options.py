"""Options of a cluster, and settings of Dask's processes. Importing this module does not import Dask."""

from typing import Any

from pydantic import Field, field_validator, model_validator

from sparseoco.core.formatting import parse_bytes
from sparseoco.core.option_models import OptionModel

# Kernels use one thread each: Dask runs tasks in parallel, not OpenMP or BLAS.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# `deploy/dask.yaml` has the same settings for schedulers and workers that are started outside.
ACROSS_HOSTS: dict[str, Any] = {
    # The default is 30 s: a connection interrupted for that long would stop workers and lose the tasks of a client.
    "distributed.comm.timeouts.tcp": "120s",
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.retry.count": 3,
    "distributed.worker.memory.target": False,  # workers keep nothing that could be spilled
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.95,
}
MIN_MEMORY = 512 << 20  # with less a worker is killed before it has started


class ClusterOptions(OptionModel):
    """The `[cluster]` table of a run file; by default Dask runs in this process, with one thread per core."""

    scheduler: str | None = Field(
        None,
        description="Address of a running Dask scheduler: tcp://HOST:PORT or tls://HOST:PORT.",
        examples=["tcp://HOST:8786"],
    )
    workers: int | None = Field(
        None,
        ge=1,
        description="Worker processes on this machine; by default the threads of this process.",
        examples=[4],
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="Threads per worker, by default 1; without workers, threads of this process, by default one per "
        "core.",
        examples=[2],
    )
    memory: str | None = Field(
        None,
        description="Memory limit of a worker, such as 4GB; by default its share of the machine's.",
        examples=["4GB"],
    )

    @field_validator("scheduler")
    @classmethod
    def _without_password(cls, value: str | None) -> str | None:
        if value is not None and "@" in value:
            raise ValueError(
                "must be an address without user name and password: Dask has no passwords, but certificates under "
                "tls://"
            )
        return value

    @field_validator("memory")
    @classmethod
    def _sufficient(cls, value: str | None) -> str | None:
        if value is not None and parse_bytes(value) < MIN_MEMORY:
            raise ValueError(f"a worker needs at least {MIN_MEMORY // 2**20} MiB")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "ClusterOptions":
        for key in ("workers", "threads", "memory") if self.scheduler is not None else ():
            if getattr(self, key) is not None:
                raise ValueError(f"{key}: the workers of a scheduler are those that it has")
        return self
