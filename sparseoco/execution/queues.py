"""Workers as jobs of a batch system, SLURM or PBS, through dask-jobqueue; the scheduler is in this process.

All links are TLS, under an authority made for the run, whose key nobody else has.
"""

import logging
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Security
from distributed.core import Status

from sparseoco.core.errors import FolderInUseError, InputError, SparseocoError
from sparseoco.execution.options import JobOptions as JobOptions
from sparseoco.execution.options import PbsOptions as PbsOptions
from sparseoco.execution.options import SlurmOptions as SlurmOptions
from sparseoco.execution.settings import ACROSS_HOSTS, worker_environment
from sparseoco.storage.commit import exclusive_lock

AWAY_SECONDS = 60  # a worker that died is started anew within its job; by default of Dask the job is ended after 15
LOOK_SECONDS = 10  # between two looks at whether jobs have ended and others must be asked for
DEATH_SECONDS = 120  # a worker that finds no scheduler for so long ends, and its job with it
LOCAL_DASHBOARD = "127.0.0.1:0"  # pages are served without a dashboard, too, and by default to whoever asks


@contextmanager
def job_cluster(options: JobOptions, shared: Path, workers: int, threads: int, memory: str) -> Iterator[Client]:
    """A client of a cluster of `workers` jobs, a worker each; jobs that end are replaced until it is left.

    The jobs' keys lie in `shared`, which the nodes must see, while it lasts. Raises `InputError` where dask-jobqueue or
    the batch system is not there, `SparseocoError` where a job is refused.
    """
    with (
        dask.config.set(ACROSS_HOSTS | {"distributed.deploy.lost-worker-timeout": f"{AWAY_SECONDS} s"}),
        started(options, shared, workers, threads, memory) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def started(options: JobOptions, shared: Path, workers: int, threads: int, memory: str) -> Iterator[Any]:
    """The cluster behind `job_cluster`."""
    kind = loaded(options)
    check_commands(options)
    # A job that comes or goes is no news.
    logging.getLogger("distributed").setLevel(logging.WARNING)
    with (
        _place(shared.absolute()) as place,
        kind(**arguments(options, place, threads, memory), silence_logs=logging.CRITICAL) as cluster,
    ):
        _ask_for(cluster, workers, options)
        cluster.adapt(minimum=workers, maximum=workers, interval=f"{LOOK_SECONDS} s")
        yield cluster


def check_commands(options: JobOptions) -> None:
    """Raise `InputError` where the commands of the batch system are not."""
    if shutil.which(options.submit) is None:
        raise InputError(f"{options.submit} is not found: run this on a machine that submits jobs.")


def loaded(options: JobOptions) -> Any:
    """dask-jobqueue's class of the batch system. Raises `InputError` where dask-jobqueue is not installed."""
    keep = signal.signal
    # dask-jobqueue, imported, would end this process at SIGINT in its own way, and is refused that in other threads.
    signal.signal = lambda *_: None
    try:
        return options.load()
    except ImportError as error:
        raise InputError(
            f"Jobs of {options.extra} need dask-jobqueue: pip install 'sparseoco[{options.extra}]'."
        ) from error
    finally:
        signal.signal = keep


@contextmanager
def _place(shared: Path) -> Iterator[Path]:
    """A folder of our own in `shared`, removed afterwards; those that killed runs left there are removed first."""
    for left in shared.glob("jobs-*"):
        with suppress(FolderInUseError), exclusive_lock(left):
            shutil.rmtree(left, ignore_errors=True)
    shared.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="jobs-", dir=shared))
    try:
        with exclusive_lock(place):
            yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):
            shared.rmdir()


def arguments(options: JobOptions, place: Path, threads: int, memory: str) -> dict[str, Any]:
    """What dask-jobqueue is called with; keys, and what workers keep, go to `place`."""
    exports = [f"export {name}={value}" for name, value in worker_environment().items()]
    return {
        "cores": threads,
        "memory": memory,
        "processes": 1,
        "job_name": "sparseoco",
        "walltime": options.walltime,
        "queue": options.queue,
        "account": options.account,
        "job_extra_directives": list(options.directives),
        "job_script_prologue": [*exports, *options.prologue],
        "python": options.python,
        "interface": options.interface,
        "local_directory": options.scratch or str(place),
        "log_directory": options.logs,
        "death_timeout": DEATH_SECONDS,
        "worker_extra_args": ["--no-dashboard", "--dashboard-address", LOCAL_DASHBOARD],
        "security": _security(place),
        "scheduler_options": {"dashboard_address": LOCAL_DASHBOARD},
        **options.own(),
    }


def _security(folder: Path) -> Security:
    """An authority of our own, a key under it for all roles, in files that only this user reads."""
    made = Security.temporary().get_tls_config_for_role("worker")
    paths = {}
    for name in ("ca_file", "cert", "key"):
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(made[name])
        paths[name] = str(path)
    roles = {
        f"tls_{role}_{part}": paths[part] for role in ("client", "scheduler", "worker") for part in ("cert", "key")
    }
    return Security(tls_ca_file=paths["ca_file"], require_encryption=True, **roles)


def _ask_for(cluster: Any, jobs: int, options: JobOptions) -> None:
    while len(cluster.worker_spec) < jobs:
        cluster.worker_spec.update(cluster.new_worker_spec())
    try:
        cluster.sync(cluster._correct_state)  # `scale` would do all this, and only log what a refused job raises
    except (OSError, RuntimeError, ValueError) as error:
        for job in set(cluster._created):  # or closing the cluster fails: a job that is none is neither open nor closed
            if job.job_id is None:
                job.status = Status.failed
        # Of dask-jobqueue's account of it, what the command said.
        said = str(error).partition("stderr:\n")[2].strip() or str(error)
        raise SparseocoError(f"{options.submit} refuses a job: {said.splitlines()[0].rstrip('.')}.") from error
