"""Workers as jobs of a queue and as pods."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest
import yaml

from sparseoco.core.errors import SparseocoError
from sparseoco.execution.clusters import ClusterOptions, connect, scheduler_workers
from sparseoco.execution.jobs import job_cluster
from sparseoco.execution.options import JobOptions, PbsOptions, SlurmOptions
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from tests.support.errors import raises_code
from tests.support.folders import assert_same_results
from tests.support.prefect_server import free_port
from tests.support.texts import write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# Workers as jobs of a fake batch system, whose commands start a job's script as a process.


SUBMIT = """#!{python}
import os, subprocess, sys
from pathlib import Path

script = Path(sys.argv[-1]).read_text()
jobs = Path({jobs!r})
number = len(list(jobs.iterdir())) + 1
log = open(jobs / f"{{number}}.log", "w")
job = subprocess.Popen(["bash", "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
(jobs / f"{{number}}.script").write_text(script)
(jobs / f"{{number}}.pid").write_text(str(job.pid))
print({answer})
"""
CANCEL = """#!{python}
import os, signal, sys
from pathlib import Path

number = sys.argv[-1].partition(".")[0]
os.killpg(int((Path({jobs!r}) / f"{{number}}.pid").read_text()), signal.SIGTERM)
"""
SYSTEMS = {
    "slurm": ("sbatch", "scancel", 'f"Submitted batch job {number}"'),
    "pbs": ("qsub", "qdel", 'f"{number}.server.example.org"'),
}


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the jobs; the commands of both batch systems are on the PATH."""
    commands, jobs = tmp_path / "bin", tmp_path / "jobs"
    commands.mkdir()
    jobs.mkdir()
    for submit, cancel, answer in SYSTEMS.values():
        write_command(commands / submit, SUBMIT.format(python=sys.executable, jobs=str(jobs), answer=answer))
        write_command(commands / cancel, CANCEL.format(python=sys.executable, jobs=str(jobs)))
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    return jobs


def write_command(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def options(kind: str, workers: int = 1, **table: object) -> ClusterOptions:
    asked = {"walltime": "00:10:00", "interface": "lo", **table}
    return ClusterOptions.model_validate({"kind": kind, "workers": workers, "memory": "1GB", kind: asked})


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        (
            SlurmOptions(walltime="08:00:00", queue="long", account="nlp", directives=("--constraint=ib",)),
            (
                "#SBATCH -p long",
                "#SBATCH -A nlp",
                "#SBATCH --constraint=ib",
                "#SBATCH -t 08:00:00",
                "#SBATCH --mem=16G",
            ),
        ),
        (
            PbsOptions(walltime="08:00:00", queue="long", account="nlp", directives=("-V",)),
            (
                "#PBS -q long",
                "#PBS -A nlp",
                "#PBS -V",
                "#PBS -l walltime=08:00:00",
                "#PBS -l select=1:ncpus=4:mem=16GB",
            ),
        ),
        (
            PbsOptions(walltime="08:00:00", resources="nodes=1:ppn=4", python="/opt/bin/python", scratch="$TMPDIR"),
            ("#PBS -l nodes=1:ppn=4",),
        ),
    ],
)
def test_a_job_script_has_the_options(jobs: Path, tmp_path: Path, asked: JobOptions, lines: tuple[str, ...]) -> None:
    asked = asked.model_copy(update={"interface": "lo", "prologue": ("module load python",)})
    kind = "pbs" if isinstance(asked, PbsOptions) else "slurm"
    cluster = ClusterOptions.model_construct(kind=kind, workers=0, threads=4, memory="16GiB", **{kind: asked})
    with job_cluster(cluster, tmp_path / "scratch") as client:
        script = client.cluster.job_script().splitlines()
        assert set(lines) <= set(script)
        *before, command = script[script.index("export OMP_NUM_THREADS=1") :]
        pages = f"http://127.0.0.1:{client.cluster.scheduler.http_server.port}"
        with pytest.raises(HTTPError, match="404") as raised:
            urlopen(f"{pages}/info/main/logs.html")
        raised.value.close()
    assert before[-1] == "module load python"
    assert "export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP=120s" in before
    assert "export DASK_DISTRIBUTED__WORKER__HTTP__ROUTES=[]" in before
    for words in ("--nthreads 4", "--memory-limit 16.00GiB", "--interface lo", "--protocol tls://"):
        assert words in command
    assert "--no-dashboard --dashboard-address 127.0.0.1:0" in command
    assert command.startswith(f"{asked.python or sys.executable} -m distributed.cli.dask_worker tls://127.0.0.1:")
    assert f"--local-directory {asked.scratch or tmp_path / 'scratch' / 'jobs-'}" in command
    assert "BEGIN" not in "\n".join(script)  # keys are in files
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize(
    ("kind", "workers"), [("slurm", 1), *(pytest.param(kind, 2, marks=pytest.mark.slow) for kind in SYSTEMS)]
)
def test_a_run_on_jobs_gives_the_same_bytes_queues_once_and_leaves_no_job(
    jobs: Path, tmp_path: Path, kind: str, workers: int
) -> None:
    run = load_run_file(write_run_file(tmp_path))
    left = tmp_path / "there" / ".scratch" / "jobs-of-a-killed-run"
    left.mkdir(parents=True)
    for out, cluster in (("here", ClusterOptions(threads=1)), ("there", options(kind, workers))):
        run_steps.run_all(run.model_copy(update={"out": tmp_path / out, "cluster": cluster}))
    assert_same_results(tmp_path / "there", tmp_path / "here")
    pids = [int(path.read_text()) for path in jobs.glob("*.pid")]
    assert len(pids) == workers
    while any(alive(pid) for pid in pids):  # they are terminated
        time.sleep(0.1)
    assert not (tmp_path / "there" / ".scratch").exists()


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_a_job_that_ends_is_replaced(jobs: Path, tmp_path: Path) -> None:
    with connect(options("slurm"), tmp_path / "scratch") as client:
        first = set(scheduler_workers(client))
        os.killpg(int((jobs / "1.pid").read_text()), signal.SIGKILL)
        while not set(scheduler_workers(client)) - first:
            time.sleep(0.5)
        assert client.submit(sum, [1, 2]).result() == 3


def test_a_refusing_or_missing_queue_is_reported(jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = jobs.parent / "bin"
    write_command(commands / "sbatch", "#!/bin/sh\necho 'error: invalid account or partition' >&2\nexit 1\n")
    write_command(commands / "qsub", "#!/bin/sh\necho 7.server\n")
    with raises_code("job-refused", "sbatch", "error: invalid account or partition", kind=SparseocoError):
        open_and_close(options("slurm"), tmp_path / "scratch")
    with raises_code("no-workers", "1 s", kind=SparseocoError):
        open_and_close(options("pbs").model_copy(update={"wait": 1.0}), tmp_path / "scratch")
    (commands / "sbatch").unlink()
    monkeypatch.setenv("PATH", str(commands))  # this machine may have a batch system
    with raises_code("missing-command", "sbatch"):
        open_and_close(options("slurm"), tmp_path / "scratch")
    monkeypatch.setitem(sys.modules, "dask_jobqueue.pbs", None)
    with raises_code("missing-package", "pip install 'sparseoco[pbs]'"):
        open_and_close(options("pbs"), tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists()


LOAD = """
import signal
from threading import Thread

from sparseoco.execution.jobs import load_cluster_class

before, found = signal.getsignal(signal.SIGINT), []
thread = Thread(target=lambda: found.append(load_cluster_class("slurm")))
thread.start()
thread.join()
assert found
assert signal.getsignal(signal.SIGINT) is before
"""


def test_dask_jobqueue_is_imported_in_any_thread_without_its_signal_handler(jobs: Path) -> None:
    subprocess.run([sys.executable, "-c", LOAD], check=True)


def open_and_close(asked: ClusterOptions, scratch: Path) -> None:
    with connect(asked, scratch):
        pass


# ----------------------------------------------------------------------------------------------------------------------
# A fake Kubernetes with the Dask operator: clusters become processes of this machine.


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
        version = {"apiVersion": "kubernetes.dask.org/v1" if kind.startswith("dask") else "v1", "kind": KINDS[kind]}
        self.resources[kind][name] = version | {"metadata": metadata, "spec": spec, "status": status}

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


# ----------------------------------------------------------------------------------------------------------------------
# Workers as pods of a fake Kubernetes, which starts them as processes.


def pod_options(workers: int = 1, wait: float = 60) -> ClusterOptions:
    asked = {"image": "registry.example.org/sparseoco:0.1.0", "claim": "sparseoco"}
    shape = {"workers": workers, "memory": "1GB", "wait": wait}
    return ClusterOptions.model_validate({"kind": "kubernetes", "kubernetes": asked} | shape)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", None)
    with raises_code("missing-package", "pip install 'sparseoco[kubernetes]'"), connect(pod_options(), tmp_path):
        pass


@pytest.mark.slow
def test_a_run_on_pods_gives_the_same_bytes_and_leaves_no_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_kubernetes", reason="comes with sparseoco[kubernetes]")
    run = load_run_file(write_run_file(tmp_path))
    run_steps.run_all(run.model_copy(update={"out": tmp_path / "here"}))
    with kubernetes(tmp_path) as (api, config):
        monkeypatch.setenv("KUBECONFIG", str(config))
        run_steps.run_all(run.model_copy(update={"out": tmp_path / "there", "cluster": pod_options(workers=2)}))
        assert len(api.created) == 1
        assert not api.resources["daskclusters"]
        assert [process.poll() is None for process in api.processes] == [False, False, False]
    assert_same_results(tmp_path / "there", tmp_path / "here")


@pytest.mark.slow
def test_missing_kubernetes_or_pods_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_kubernetes", reason="comes with sparseoco[kubernetes]")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with raises_code("kubernetes-failed", kind=SparseocoError), connect(pod_options(), tmp_path):
        pass
    with kubernetes(tmp_path, image=False) as (api, config):
        monkeypatch.setenv("KUBECONFIG", str(config))
        with raises_code("no-workers", "5 s", kind=SparseocoError), connect(pod_options(wait=5), tmp_path):
            pass
        assert api.created
        assert not api.resources["daskclusters"]
