"""A Dask cluster of pods, created for the run by the Dask operator and deleted after it."""

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed import Client

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.execution.interrupts import signal_free_loop
from sparseoco.execution.options import KubernetesOptions
from sparseoco.execution.settings import ACROSS_HOSTS, worker_environment

IDLE_SECONDS = 600  # until the operator deletes the idle cluster of a run that was killed
CLOSE_SECONDS = 5
SCHEDULER_MEMORY = "2Gi"
HOME = {"HOME": "/tmp"}  # the only folder of a container that can be written, apart from the volume


@contextmanager
def kubernetes_cluster(
    options: KubernetesOptions, wait: float, workers: int, threads: int, memory: str
) -> Iterator[Client]:
    """A client of a cluster of `workers` pods, which the operator replaces when they end.

    Raises `InputError` if dask-kubernetes is not installed, `SparseocoError` if the cluster does not start within
    `wait` seconds.
    """
    try:
        from dask_kubernetes.operator import KubeCluster
    except ImportError as error:
        raise InputError(
            "Pods need dask-kubernetes: pip install 'sparseoco[kubernetes]'.", code="missing-package"
        ) from error
    logging.getLogger("distributed").setLevel(logging.WARNING)
    spec = cluster_spec(f"sparseoco-{secrets.token_hex(4)}", options, workers, threads, memory)
    with dask.config.set(ACROSS_HOSTS), signal_free_loop() as loop:
        # Asynchronous, or its constructor would wait forever for a scheduler pod that never starts.
        cluster = KubeCluster(
            namespace=options.namespace, custom_cluster_spec=spec, quiet=True, asynchronous=True, loop=loop
        )
        try:
            _start(cluster, wait)
            with Client(cluster, set_as_default=False) as client:
                yield client
        finally:
            with suppress(Exception):  # the operator deletes the cluster
                cluster.close(timeout=CLOSE_SECONDS)
            KubeCluster._instances.discard(cluster)


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


def cluster_spec(name: str, options: KubernetesOptions, workers: int, threads: int, memory: str) -> dict[str, Any]:
    """The DaskCluster resource."""
    worker = ["dask", "worker", "--name", "$(DASK_WORKER_NAME)", "--nthreads", str(threads), "--no-dashboard"]
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
                "replicas": workers,
                "spec": _pod(options, "worker", [*worker, "--memory-limit", memory], str(threads), memory),
            },
            "scheduler": {
                "spec": _pod(
                    options,
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
