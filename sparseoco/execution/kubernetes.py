"""A Dask cluster of pods, made for the run by the Dask operator and taken away after it."""

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
from sparseoco.execution.options import KubernetesOptions as KubernetesOptions
from sparseoco.execution.settings import ACROSS_HOSTS, worker_environment

IDLE_SECONDS = 600  # the operator takes away a cluster that nobody has used for so long: its run was killed
CLOSE_SECONDS = 5
SCHEDULER_MEMORY = "2Gi"


@contextmanager
def kubernetes_cluster(
    options: KubernetesOptions, wait: float, workers: int, threads: int, memory: str
) -> Iterator[Client]:
    """A client of a cluster of `workers` pods, which the operator replaces where they end.

    Raises `InputError` where dask-kubernetes is not there, `SparseocoError` where the cluster is not to be had within
    `wait` seconds.
    """
    try:
        from dask_kubernetes.operator import KubeCluster
    except ImportError as error:
        raise InputError("Pods need dask-kubernetes: pip install 'sparseoco[kubernetes]'.") from error
    logging.getLogger("distributed").setLevel(logging.WARNING)
    spec = cluster_spec(f"sparseoco-{secrets.token_hex(4)}", options, workers, threads, memory)
    with dask.config.set(ACROSS_HOSTS), signal_free_loop() as loop:
        # Asynchronous, it does not begin by itself, which has no end where the scheduler's pod never comes.
        cluster = KubeCluster(
            namespace=options.namespace, custom_cluster_spec=spec, quiet=True, asynchronous=True, loop=loop
        )
        try:
            _begin(cluster, wait)
            with Client(cluster, set_as_default=False) as client:
                yield client
        finally:
            with suppress(Exception):  # it was asked to go; the operator sees to the rest
                cluster.close(timeout=CLOSE_SECONDS)
            KubeCluster._instances.discard(cluster)


def _begin(cluster: Any, wait: float) -> None:
    try:
        cluster.sync(cluster._start, callback_timeout=wait)
    except TimeoutError as error:
        raise SparseocoError(
            f"Kubernetes gives no Dask cluster within {wait:g} s: is the Dask operator there, and the image to be had?"
        ) from error
    except Exception as error:  # of four libraries
        raise SparseocoError(f"Kubernetes gives no Dask cluster: {str(error).rstrip('.')}.") from error


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
    options: KubernetesOptions, name: str, command: list[str], cpu: str, memory: str, **more: Any
) -> dict[str, Any]:
    asked = {"cpu": cpu, "memory": str(parse_bytes(memory))}
    container: dict[str, Any] = {
        "name": name,
        "image": options.image,
        "args": command,
        "env": [{"name": k, "value": v} for k, v in (worker_environment() | options.environment).items()],
        "envFrom": [{"secretRef": {"name": secret}} for secret in options.secrets],
        "resources": {"requests": asked, "limits": {"memory": asked["memory"]}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **more,
    }
    pod: dict[str, Any] = {
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "automountServiceAccountToken": False,
    }
    if options.node_selector:
        pod["nodeSelector"] = dict(options.node_selector)
    if options.claim is not None:
        container["volumeMounts"] = [{"name": "data", "mountPath": options.mount}]
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": options.claim}}]
    return pod
