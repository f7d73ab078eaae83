"""Workers as jobs of a batch system, SLURM or PBS, through dask-jobqueue; the scheduler is in this process.

All connections use TLS, with a certificate authority generated for the run.
"""

import logging
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Security
from distributed.core import Status

from sparseoco.core.errors import FolderInUseError, InputError, SparseocoError
from sparseoco.execution.options import JobOptions
from sparseoco.execution.settings import ACROSS_HOSTS, NO_PAGES, as_environment, worker_environment
from sparseoco.storage.locks import exclusive_lock

RESTART_SECONDS = 60  # a worker that died is restarted within its job; Dask would end the job after 15
ADAPT_SECONDS = 10  # between checks whether jobs have ended and must be replaced
DEATH_SECONDS = 120  # without a scheduler, until a worker and its job end
LOCAL_DASHBOARD = "127.0.0.1:0"  # the HTTP server runs even without a dashboard, by default on all interfaces


@contextmanager
def job_cluster(options: JobOptions, shared: Path, workers: int, threads: int, memory: str) -> Iterator[Client]:
    """A client of a cluster of `workers` jobs with one worker each; jobs that end are replaced.

    The TLS keys are in `shared`, which the nodes must see, while the cluster lasts. Raises `InputError` without
    dask-jobqueue or the batch system's commands, `SparseocoError` if a job is refused.
    """
    cluster_class = load_cluster_class(options)
    check_commands(options)
    logging.getLogger("distributed").setLevel(logging.WARNING)
    with (
        dask.config.set(ACROSS_HOSTS | NO_PAGES | {"distributed.deploy.lost-worker-timeout": f"{RESTART_SECONDS} s"}),
        _private_folder(shared.absolute()) as folder,
        dask.config.set({"temporary-directory": str(folder)}),  # of the scheduler
        cluster_class(**arguments(options, folder, threads, memory), silence_logs=logging.CRITICAL) as cluster,
    ):
        _submit_jobs(cluster, workers, options)
        cluster.adapt(minimum=workers, maximum=workers, interval=f"{ADAPT_SECONDS} s")
        with Client(cluster, set_as_default=False) as client:
            yield client


def check_commands(options: JobOptions) -> None:
    """Raise `InputError` if the batch system's commands are missing."""
    if shutil.which(options.submit) is None:
        raise InputError(f"{options.submit} is not found: run this where jobs are submitted.", code="missing-command")


def load_cluster_class(options: JobOptions) -> Any:
    """dask-jobqueue's class for the batch system. Raises `InputError` if dask-jobqueue is not installed."""
    set_handler = signal.signal
    # Importing dask-jobqueue installs a SIGINT handler, and fails to do so outside the main thread.
    signal.signal = lambda *_: None
    try:
        return getattr(import_module(f"dask_jobqueue.{options.extra}"), options.cluster_class)
    except ImportError as error:
        raise InputError(
            f"Jobs of {options.extra} need dask-jobqueue: pip install 'sparseoco[{options.extra}]'.",
            code="missing-package",
        ) from error
    finally:
        signal.signal = set_handler


@contextmanager
def _private_folder(shared: Path) -> Iterator[Path]:
    """A temporary folder in `shared`; those of killed runs are removed first."""
    for leftover in shared.glob("jobs-*"):
        with suppress(FolderInUseError), exclusive_lock(leftover):
            shutil.rmtree(leftover, ignore_errors=True)
    shared.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="jobs-", dir=shared))
    try:
        with exclusive_lock(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            shared.rmdir()


def arguments(options: JobOptions, folder: Path, threads: int, memory: str) -> dict[str, Any]:
    """The arguments of dask-jobqueue's class; keys and the workers' files go to `folder`."""
    exports = [f"export {name}={value}" for name, value in (worker_environment() | as_environment(NO_PAGES)).items()]
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
        "local_directory": options.scratch or str(folder),
        "log_directory": options.logs,
        "death_timeout": DEATH_SECONDS,
        "worker_extra_args": ["--no-dashboard", "--dashboard-address", LOCAL_DASHBOARD],
        "security": _security(folder),
        "scheduler_options": {"dashboard": False, "dashboard_address": LOCAL_DASHBOARD},
        **options.extra_arguments(),
    }


def _security(folder: Path) -> Security:
    """A new certificate authority with one key for all roles, in files that only this user can read."""
    generated = Security.temporary().get_tls_config_for_role("worker")
    paths = {}
    for name in ("ca_file", "cert", "key"):
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(generated[name])
        paths[name] = str(path)
    roles = {
        f"tls_{role}_{part}": paths[part] for role in ("client", "scheduler", "worker") for part in ("cert", "key")
    }
    return Security(tls_ca_file=paths["ca_file"], require_encryption=True, **roles)


def _submit_jobs(cluster: Any, jobs: int, options: JobOptions) -> None:
    while len(cluster.worker_spec) < jobs:
        cluster.worker_spec.update(cluster.new_worker_spec())
    try:
        cluster.sync(cluster._correct_state)  # `scale` would only log the error of a refused job
    except (OSError, RuntimeError, ValueError) as error:
        for job in set(
            cluster._created
        ):  # otherwise closing the cluster would fail: a refused job is neither open nor closed
            if job.job_id is None:
                job.status = Status.failed
        # The output of the command in dask-jobqueue's message.
        message = str(error).partition("stderr:\n")[2].strip() or str(error)
        raise SparseocoError(
            f"{options.submit} refuses a job: {message.splitlines()[0].rstrip('.')}.", code="job-refused"
        ) from error
