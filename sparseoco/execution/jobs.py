"""Clusters of batch jobs and of pods."""

import logging
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed import Client, LocalCluster, Nanny, Security
from distributed.core import Status
from distributed.utils import LoopRunner

from sparseoco.core.errors import FolderInUseError, InputError, SparseocoError
from sparseoco.execution.options import (
    ACROSS_HOSTS,
    NO_PAGES,
    ClusterOptions,
    JobOptions,
    KubernetesOptions,
    PbsOptions,
    as_environment,
    worker_environment,
)
from sparseoco.storage.locks import exclusive_lock

# ----------------------------------------------------------------------------------------------------------------------
# Signals and worker processes.
#
# A terminal sends Ctrl-C to all processes of a command. Workers ignore it: this process kills them, and a later run
# resumes from what they have committed.


@contextmanager
def signal_free_loop() -> Iterator[Any]:
    """A running event loop whose threads, and the processes that they start, block SIGINT."""
    resource_tracker.ensure_running()  # started later, with the first process, it would unblock the signal
    runner = LoopRunner()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()


@contextmanager
def kill_workers_when_stopped(cluster: LocalCluster) -> Iterator[None]:
    """Kill the workers of a cluster when a signal stops this process: closing waits for their kernels."""
    try:
        yield
    except Exception:
        raise
    except BaseException:  # `Stopped`, or the exception of an enclosing program (Prefect's is not an Exception)
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # only our own message about the stop
        for nanny in set(cluster._created):  # `cluster.workers` has only those that have started
            if isinstance(nanny, Nanny) and nanny.pid is not None:
                _kill(nanny, nanny.pid)
        raise


def _kill(nanny: Nanny, process: int) -> None:
    nanny.close_gracefully()  # otherwise it would start another worker, and closing would wait for it
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


# ----------------------------------------------------------------------------------------------------------------------
# Workers as jobs of a batch system, SLURM or PBS, through dask-jobqueue; the scheduler is in this process.
#
# All connections use TLS, with a certificate authority generated for the run.


RESTART_SECONDS = 60  # a worker that died is restarted within its job; Dask would end the job after 15
ADAPT_SECONDS = 10  # between checks whether jobs have ended and must be replaced
DEATH_SECONDS = 120  # without a scheduler, until a worker and its job end
LOCAL_DASHBOARD = "127.0.0.1:0"  # the HTTP server runs even without a dashboard, by default on all interfaces


CLUSTER_CLASSES = {
    "slurm": ("dask_jobqueue.slurm", "SLURMCluster"),
    "pbs": ("dask_jobqueue.pbs", "PBSCluster"),
    "kubernetes": ("dask_kubernetes.operator", "KubeCluster"),
}
"""Modules and classes of the clusters; the extra of this package with the module has the name of the kind."""
SUBMIT = {"slurm": "sbatch", "pbs": "qsub"}
"""The commands that submit a job."""


@contextmanager
def job_cluster(options: ClusterOptions, shared: Path) -> Iterator[Client]:
    """A client of a cluster of jobs with one worker each; jobs that end are replaced.

    The TLS keys are in `shared`, which the nodes must see, while the cluster lasts. Raises `InputError` without
    dask-jobqueue or the batch system's commands, `SparseocoError` if a job is refused.
    """
    cluster_class, workers = load_cluster_class(options.where), options.workers
    logging.getLogger("distributed").setLevel(logging.WARNING)
    with (
        dask.config.set(ACROSS_HOSTS | NO_PAGES | {"distributed.deploy.lost-worker-timeout": f"{RESTART_SECONDS} s"}),
        _private_folder(shared.absolute()) as folder,
        dask.config.set({"temporary-directory": str(folder)}),  # of the scheduler
        cluster_class(**arguments(options, folder), silence_logs=logging.CRITICAL) as cluster,
    ):
        _submit_jobs(cluster, workers or 0, SUBMIT[options.where])
        cluster.adapt(minimum=workers, maximum=workers, interval=f"{ADAPT_SECONDS} s")
        with Client(cluster, set_as_default=False) as client:
            yield client


def load_cluster_class(kind: str) -> Any:
    """The class of clusters of jobs or pods.

    Raises `InputError` if its package is not installed, or the command that submits jobs is missing.
    """
    module, name = CLUSTER_CLASSES[kind]
    set_handler = signal.signal
    # Importing dask-jobqueue installs a SIGINT handler, and fails to do so outside the main thread.
    signal.signal = lambda *_: None
    try:
        cluster_class = getattr(import_module(module), name)
    except ImportError as error:
        raise InputError(
            f"kind = \"{kind}\" needs {module.partition('.')[0].replace('_', '-')}: pip install 'sparseoco[{kind}]'.",
            code="missing-package",
        ) from error
    finally:
        signal.signal = set_handler
    if kind in SUBMIT and shutil.which(SUBMIT[kind]) is None:
        raise InputError(f"{SUBMIT[kind]} is not found: run this where jobs are submitted.", code="missing-command")
    return cluster_class


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


def arguments(options: ClusterOptions, folder: Path) -> dict[str, Any]:
    """The arguments of dask-jobqueue's class; keys and the workers' files go to `folder`."""
    queue: JobOptions = getattr(options, options.where)
    exports = [f"export {name}={value}" for name, value in (worker_environment() | as_environment(NO_PAGES)).items()]
    return {
        "cores": options.threads or 1,
        "memory": options.memory,
        "processes": 1,
        "job_name": "sparseoco",
        "walltime": queue.walltime,
        "queue": queue.queue,
        "account": queue.account,
        "job_extra_directives": list(queue.directives),
        "job_script_prologue": [*exports, *queue.prologue],
        "python": queue.python,
        "interface": queue.interface,
        "local_directory": queue.scratch or str(folder),
        "log_directory": queue.logs,
        "death_timeout": DEATH_SECONDS,
        "worker_extra_args": ["--no-dashboard", "--dashboard-address", LOCAL_DASHBOARD],
        "security": _security(folder),
        "scheduler_options": {"dashboard": False, "dashboard_address": LOCAL_DASHBOARD},
        **({"resource_spec": queue.resources} if isinstance(queue, PbsOptions) else {}),
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


def _submit_jobs(cluster: Any, jobs: int, command: str) -> None:
    while len(cluster.worker_spec) < jobs:
        cluster.worker_spec.update(cluster.new_worker_spec())
    try:
        cluster.sync(cluster._correct_state)  # `scale` would only log the error of a refused job
    except (OSError, RuntimeError, ValueError) as error:
        for job in set(cluster._created):  # closing the cluster would fail: a refused job is neither open nor closed
            if job.job_id is None:
                job.status = Status.failed
        # The output of the command in dask-jobqueue's message.
        message = str(error).partition("stderr:\n")[2].strip() or str(error)
        raise SparseocoError(
            f"{command} refuses a job: {message.splitlines()[0].rstrip('.')}.", code="job-refused"
        ) from error


# ----------------------------------------------------------------------------------------------------------------------
# A Dask cluster of pods, created for the run by the Dask operator and deleted after it.


IDLE_SECONDS = 600  # until the operator deletes the idle cluster of a run that was killed
CLOSE_SECONDS = 5
SCHEDULER_MEMORY = "2Gi"
HOME = {"HOME": "/tmp"}  # the only folder of a container that can be written, apart from the volume


@contextmanager
def kubernetes_cluster(options: ClusterOptions) -> Iterator[Client]:
    """A client of a cluster of pods, which the operator replaces when they end.

    Raises `InputError` if dask-kubernetes is not installed, `SparseocoError` if the cluster does not start in time.
    """
    assert options.kubernetes is not None
    cluster_class = load_cluster_class("kubernetes")
    logging.getLogger("distributed").setLevel(logging.WARNING)
    spec = cluster_spec(f"sparseoco-{secrets.token_hex(4)}", options)
    with dask.config.set(ACROSS_HOSTS), signal_free_loop() as loop:
        # Asynchronous, or its constructor would wait forever for a scheduler pod that never starts.
        cluster = cluster_class(
            namespace=options.kubernetes.namespace, custom_cluster_spec=spec, quiet=True, asynchronous=True, loop=loop
        )
        try:
            _start(cluster, options.wait)
            with Client(cluster, set_as_default=False) as client:
                yield client
        finally:
            with suppress(Exception):  # the operator deletes the cluster
                cluster.close(timeout=CLOSE_SECONDS)
            cluster_class._instances.discard(cluster)


def _start(cluster: Any, wait: float) -> None:
    try:
        cluster.sync(cluster._start, callback_timeout=wait)
    except TimeoutError as error:
        raise SparseocoError(
            f"Kubernetes has not started the Dask cluster within {wait:g} s: is the Dask operator installed, and can "
            "the image be pulled?",
            code="no-workers",
        ) from error
    except Exception as error:  # of four libraries
        raise SparseocoError(
            f"Kubernetes has not started the Dask cluster: {str(error).rstrip('.')}.", code="kubernetes-failed"
        ) from error


def cluster_spec(name: str, options: ClusterOptions) -> dict[str, Any]:
    """The DaskCluster resource."""
    threads, memory, pods = str(options.threads or 1), str(options.memory), options.kubernetes
    assert pods is not None
    worker = ["dask", "worker", "--name", "$(DASK_WORKER_NAME)", "--nthreads", threads, "--no-dashboard"]
    labels = {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    probe = {"httpGet": {"port": "http-dashboard", "path": "/health"}, "periodSeconds": 10}
    ports = {"tcp-comm": 8786, "http-dashboard": 8787}
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": {"name": name},
        "spec": {
            "idleTimeout": IDLE_SECONDS,
            "worker": {
                "replicas": options.workers,
                "spec": _pod(pods, "worker", [*worker, "--memory-limit", memory], threads, memory),
            },
            "scheduler": {
                "spec": _pod(
                    pods,
                    "scheduler",
                    ["dask", "scheduler", "--host", "0.0.0.0"],
                    "500m",
                    SCHEDULER_MEMORY,
                    ports=[{"name": key, "containerPort": port} for key, port in ports.items()],
                    readinessProbe=probe,
                    livenessProbe=probe | {"initialDelaySeconds": 15},
                ),
                "service": {
                    "type": "ClusterIP",
                    "selector": labels,
                    "ports": [{"name": key, "port": port, "targetPort": key} for key, port in ports.items()],
                },
            },
        },
    }


def _pod(
    options: KubernetesOptions, name: str, command: list[str], cpu: str, memory: str, **extra: Any
) -> dict[str, Any]:
    resources = {"cpu": cpu, "memory": str(parse_bytes(memory))}
    container: dict[str, Any] = {
        "name": name,
        "image": options.image,
        "args": command,
        "env": [{"name": k, "value": v} for k, v in (HOME | worker_environment() | options.environment).items()],
        "envFrom": [{"secretRef": {"name": secret}} for secret in options.secrets],
        "resources": {"requests": resources, "limits": {"memory": resources["memory"]}},
        "volumeMounts": [{"name": "tmp", "mountPath": HOME["HOME"]}],
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        **extra,
    }
    pod: dict[str, Any] = {
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "automountServiceAccountToken": False,
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if options.node_selector:
        pod["nodeSelector"] = dict(options.node_selector)
    if options.claim is not None:
        container["volumeMounts"].append({"name": "data", "mountPath": options.mount})
        pod["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": options.claim}})
    return pod
