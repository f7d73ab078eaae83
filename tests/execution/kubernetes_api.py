"""A fake Kubernetes with the Dask operator: clusters become processes of this machine."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support.prefect_server import free_port

KINDS = {"daskclusters": "DaskCluster", "daskworkergroups": "DaskWorkerGroup", "pods": "Pod", "services": "Service"}

POD = {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": True, "verbs": ["get"]}
ABOUT: dict[str, dict[str, Any]] = {
    "version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
    "api": {"versions": ["v1"]},
    "api/v1": {"groupVersion": "v1", "resources": [POD]},
    "apis": {"groups": []},
}


class Api:
    """Resources by kind and name, and the processes behind them."""

    def __init__(self, *, image: bool) -> None:
        self.image = image
        self.resources: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        self.created: list[dict[str, Any]] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def create(self, cluster: dict[str, Any]) -> None:
        """What the operator does with a DaskCluster: a scheduler, its service, workers."""
        self.created.append(cluster)
        name, spec = cluster["metadata"]["name"], cluster["spec"]
        self._put("daskclusters", name, {}, spec, {"phase": "Running"})
        if self.image:
            self._start_pods(name, spec)

    def _start_pods(self, name: str, spec: dict[str, Any]) -> None:
        ports = {port["name"]: free_port() for port in spec["scheduler"]["service"]["ports"]}
        [scheduler], [worker] = (spec[role]["spec"]["containers"] for role in ("scheduler", "worker"))
        address = f"tcp://127.0.0.1:{ports['tcp-comm']}"
        local = ["--host", address, "--dashboard-address", f"127.0.0.1:{ports['http-dashboard']}"]
        command = scheduler["args"][: scheduler["args"].index("--host")]
        self._start(scheduler, [*command, *local], {})
        for i in range(spec["worker"]["replicas"]):
            words = [word.replace("$(DASK_WORKER_NAME)", f"{name}-worker-{i}") for word in worker["args"]]
            self._start(worker, [*words, "--host", "127.0.0.1"], {"DASK_SCHEDULER_ADDRESS": address})
        labels = {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
        conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        ready = {"phase": "Running", "conditions": conditions}
        listed = [{"name": key, "port": port} for key, port in ports.items()]
        self._put("pods", f"{name}-scheduler", labels, {}, ready)
        reached = {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}
        service = {"type": "LoadBalancer", "selector": labels, "ports": listed}
        self._put("services", f"{name}-scheduler", labels, service, reached)

    def delete(self, kind: str, name: str) -> None:
        """Delete a resource, and a cluster's processes."""
        del self.resources[kind][name]
        if kind == "daskclusters":
            self.end()

    def end(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(30)

    def _put(self, kind: str, name: str, labels: dict[str, str], spec: dict[str, Any], status: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": "here", "labels": labels, "uid": name, "resourceVersion": "1"}
        version = "kubernetes.dask.org/v1" if kind.startswith("dask") else "v1"
        self.resources[kind][name] = {
            "apiVersion": version,
            "kind": KINDS[kind],
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }

    def _start(self, container: dict[str, Any], command: list[str], environment: dict[str, str]) -> None:
        own = {entry["name"]: entry["value"] for entry in container["env"]}
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(
            subprocess.Popen([sys.executable, "-m", *command], env={**os.environ, **own, **environment}, **quiet)
        )


@contextmanager
def kubernetes(folder: Path, *, image: bool = True) -> Iterator[tuple[Api, Path]]:
    """A running fake and its kubeconfig; without the image no pod ever runs."""
    api = Api(image=image)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            kind, name, query = self._parts()
            if (about := ABOUT.get(self.path.strip("/"))) is not None:
                return self._answer(200, about)
            if kind not in KINDS:
                return self._answer(404, {"message": f"there is no {self.path}"})
            if name:
                found = api.resources[kind].get(name)
                return self._answer(200, found) if found else self._answer(404, {"message": f"no {name}"})
            wanted = dict(part.split("=", 1) for part in query.get("labelSelector", [""])[0].split(",") if part)
            fields = dict(part.split("=", 1) for part in query.get("fieldSelector", [""])[0].split(",") if part)
            items = [
                item
                for item in api.resources[kind].values()
                if wanted.items() <= item["metadata"]["labels"].items()
                and fields.get("metadata.name", item["metadata"]["name"]) == item["metadata"]["name"]
            ]
            return self._answer(200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})

        def do_POST(self) -> None:
            kind, _, _ = self._parts()
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert kind == "daskclusters"
            api.create(asked)
            self._answer(201, api.resources[kind][asked["metadata"]["name"]])

        def do_DELETE(self) -> None:
            kind, name, _ = self._parts()
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            api.delete(kind, name)
            self._answer(200, {"kind": "Status", "status": "Success"})

        def _parts(self) -> tuple[str, str, dict[str, list[str]]]:
            url = urlsplit(self.path)
            words = url.path.partition("/namespaces/here/")[2].split("/")
            return words[0], words[1] if len(words) > 1 else "", parse_qs(url.query)

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = folder / "kubeconfig"
    config.write_text(yaml.safe_dump(kubeconfig(f"http://127.0.0.1:{server.server_port}")))
    try:
        yield api, config
    finally:
        server.shutdown()
        server.server_close()
        api.end()


def kubeconfig(server: str) -> dict[str, Any]:
    """The configuration of a cluster's user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "none"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "here"}}],
    }
