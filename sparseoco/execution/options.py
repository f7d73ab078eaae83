"""Options of a cluster."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, field_validator, model_validator

from sparseoco.core.formatting import parse_bytes, parse_duration
from sparseoco.core.option_models import OptionModel, matching

# ----------------------------------------------------------------------------------------------------------------------
# Settings of Dask's processes, on one machine and across hosts.
#
# `deploy/dask.yaml` has those across hosts for processes that are started by hand.


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


# ----------------------------------------------------------------------------------------------------------------------
# The `[cluster]` table. Importing this module imports neither Dask nor the libraries of batch systems.


Word = Annotated[str, matching(r"\S+", "one word")]
Line = Annotated[str, matching(r"[^\r\n]+", "one line")]
Time = Annotated[str, matching(r"(\d+-)?\d+:\d\d(:\d\d)?", "a time such as 08:00:00")]
Name = Annotated[str, matching(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", "a name of small letters, digits and hyphens")]
AbsolutePath = Annotated[str, matching(r"/\S+", "an absolute path")]
Address = Annotated[
    str,
    matching(
        r"[^@]*", "an address without user name and password: Dask has no passwords, but certificates under tls://"
    ),
]
Kind = Literal["local", "address", "slurm", "pbs", "kubernetes"]
MIN_MEMORY = 512 << 20  # with less a worker is killed before it has started


class JobOptions(OptionModel):
    """Options of every batch system; workers, threads and memory of a job are those of `[cluster]`."""

    walltime: Time = Field(description="Time limit of a job: HH:MM:SS.", examples=["08:00:00"])
    queue: Word | None = Field(None, description="Queue (SLURM: partition) of the jobs.", examples=["batch"])
    account: Word | None = Field(None, description="Account to charge.", examples=["nlp"])
    directives: tuple[str, ...] = Field(
        (), description="Further #SBATCH or #PBS directives, such as --constraint=ib.", examples=[["--constraint=ib"]]
    )
    prologue: tuple[str, ...] = Field(
        (),
        description="Shell commands to run before the worker starts: module load …",
        examples=[["module load python"]],
    )
    python: Line | None = Field(
        None,
        description="Python on the nodes; by default the path of this one's interpreter.",
        examples=["/opt/venv/bin/python"],
    )
    interface: Word | None = Field(
        None, description="Network interface of this machine and of the nodes, such as ib0.", examples=["ib0"]
    )
    scratch: Line | None = Field(
        None,
        description="Fast local disk of a node, such as $TMPDIR; by default in the run's folder.",
        examples=["$TMPDIR"],
    )
    logs: Line | None = Field(
        None,
        description="Folder of the jobs' output; by default where the batch system puts it.",
        examples=["/shared/logs"],
    )


class SlurmOptions(JobOptions):
    """`[cluster.slurm]`."""


class PbsOptions(JobOptions):
    """`[cluster.pbs]`."""

    resources: Word | None = Field(
        None,
        description="Resources to select, such as select=1:ncpus=4:mem=16gb; by default those that threads and memory "
        "imply.",
        examples=["select=1:ncpus=4:mem=16gb"],
    )


class KubernetesOptions(OptionModel):
    """`[cluster.kubernetes]`; workers, threads and memory of a pod are those of `[cluster]`."""

    image: Word = Field(
        description="Container image with the same version of sparseoco.", examples=["example/sparseoco:0.1"]
    )
    namespace: Name | None = Field(
        None, description="Namespace; by default that of the current context, or of this pod.", examples=["training"]
    )
    claim: Name | None = Field(
        None, description="Persistent volume claim with the data and the runs.", examples=["runs"]
    )
    mount: AbsolutePath = Field(
        "/srv/sparseoco", description="Mount path of the volume; the same as on this machine.", examples=["/data"]
    )
    secrets: tuple[str, ...] = Field(
        (), description="Secrets to expose as environment variables: AWS_ACCESS_KEY_ID …", examples=[["s3-credentials"]]
    )
    environment: dict[str, str] = Field(
        {}, description="Further environment variables; no secrets.", examples=[{"TZ": "UTC"}]
    )
    node_selector: dict[str, str] = Field({}, description="Labels of the nodes to run on.", examples=[{"disk": "ssd"}])


class ClusterOptions(OptionModel):
    """The `[cluster]` table of a run file; by default Dask runs in this process, with one thread per core."""

    kind: Kind | None = Field(
        None, description="Where Dask runs; by default local, or address if a scheduler is given."
    )
    scheduler: Address | None = Field(
        None,
        description="Address of a running Dask scheduler: tcp://HOST:PORT or tls://HOST:PORT.",
        examples=["tcp://HOST:8786"],
    )
    workers: int | None = Field(
        None,
        ge=1,
        description="Worker processes (local), jobs or pods; by default the threads of this process.",
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
    wait: float = Field(
        3600.0,
        gt=0,
        description="Seconds, or a duration such as 2h, to wait for the first job or pod.",
        examples=["2h"],
    )
    slurm: SlurmOptions | None = Field(None, description="Options of SLURM jobs.")
    pbs: PbsOptions | None = Field(None, description="Options of PBS jobs.")
    kubernetes: KubernetesOptions | None = Field(None, description="Options of Kubernetes pods.")

    @field_validator("memory")
    @classmethod
    def _sufficient(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if parse_bytes(value) < MIN_MEMORY:
            raise ValueError(f"a worker needs at least {MIN_MEMORY // 2**20} MiB")
        return value

    @field_validator("wait", mode="before", json_schema_input_type=PositiveFloat | str)
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        return parse_duration(value)

    @model_validator(mode="after")
    def _consistent(self) -> "ClusterOptions":
        if (self.scheduler is not None) != (self.where == "address"):
            raise ValueError('scheduler and kind = "address" go together')
        for key in ("workers", "threads", "memory") if self.where == "address" else ():
            if getattr(self, key) is not None:
                raise ValueError(f"{key}: the workers of a scheduler are those that it has")
        for key in ("slurm", "pbs", "kubernetes") if self.kind is None else ():
            if getattr(self, key) is not None:
                raise ValueError(f'{key} is used with kind = "{key}" only: set kind')
        if self.where in ("slurm", "pbs", "kubernetes"):
            if getattr(self, self.where) is None:
                raise ValueError(f'kind = "{self.where}" needs a table {self.where}')
            for key in ("workers", "memory"):
                if getattr(self, key) is None:
                    raise ValueError(f'kind = "{self.where}" needs {key}')
        return self

    @property
    def where(self) -> Kind:
        """The kind, stated or by default."""
        return self.kind or ("local" if self.scheduler is None else "address")
