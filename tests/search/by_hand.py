"""A Dask cluster started by hand: `dask scheduler` and `dask worker` as processes, with TLS or without."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from distributed import Security

from sparseoco.execution.options import ONE_THREAD

LOCAL = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
ROLES = ("client", "scheduler", "worker")


class Cluster(NamedTuple):
    """A running cluster; `workers` restart by themselves (a nanny each) when their processes are killed."""

    address: str
    processes: list[subprocess.Popen[bytes]]


@contextmanager
def cluster_by_hand(
    folder: Path,
    *,
    workers: int = 2,
    tls: dict[str, Any] | None = None,
    nannies: bool = True,
    memory: str = "auto",
    **variables: str,
) -> Iterator[Cluster]:
    """A scheduler and workers of one thread each; `tls` is a Dask setting as `certificates` gives it.

    Without `nannies`, a worker is a process of the cluster and is not restarted. They have further environment
    `variables`.
    """
    file = folder / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    environment = {**os.environ, **ONE_THREAD, **variables, **({} if tls is None else as_environment(tls))}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    protocol = [] if tls is None else ["--protocol", "tls"]
    started = [
        subprocess.Popen([*dask, "scheduler", *LOCAL, *protocol, "--port", "0", "--scheduler-file", str(file)], **quiet)
    ]
    try:
        while not file.exists() or not file.read_text():  # Dask creates the file before it writes it
            assert started[0].poll() is None, "the scheduler has ended"
            time.sleep(0.05)
        for _ in range(workers):
            scratch = ["--local-directory", str(folder / "scratch"), "--nthreads", "1", "--memory-limit", memory]
            scratch += [] if nannies else ["--no-nanny"]
            command = [*dask, "worker", *LOCAL, *protocol, "--scheduler-file", str(file), *scratch]
            started.append(subprocess.Popen(command, **quiet))
        yield Cluster(json.loads(file.read_text())["address"], started)
    finally:
        for process in reversed(started):  # a worker that loses its scheduler waits for it
            process.terminate()
            process.wait(20)


def as_environment(settings: dict[str, Any]) -> dict[str, str]:
    """Settings as the environment variables that Dask reads."""
    return {"DASK_" + key.upper().replace(".", "__").replace("-", "_"): str(value) for key, value in settings.items()}


def certificates(folder: Path) -> dict[str, Any]:
    """A certificate that is its own authority, for each role, as settings for `dask.config.set`."""
    folder.mkdir()
    made = Security.temporary()
    (folder / "ca.pem").write_text(made.tls_ca_file)
    settings: dict[str, Any] = {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": str(folder / "ca.pem"),
    }
    for role in ROLES:
        path = folder / f"{role}.pem"
        path.write_text("\n".join(getattr(made, f"tls_{role}_{part}") for part in ("key", "cert")))
        settings |= {f"distributed.comm.tls.{role}.{part}": str(path) for part in ("key", "cert")}
    return settings
