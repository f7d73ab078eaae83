"""Deployments on this machine: flows with their server and workers, and hosts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.report.page import plain
from tests.support.prefect_server import ROOT, artifacts, environment, running
from tests.support.texts import write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# Deployments of the example in deploy/prefect.yaml, and runs long enough to be stopped.


EXAMPLE = ROOT / "deploy" / "prefect.yaml"


PREFECT = [sys.executable, "-m", "prefect"]


def copy_with_three_lines_changed(folder: Path, run_file: Path, cron: str = "* * * * *") -> None:
    """The example in a folder, as its comments say it is to be changed."""
    changed = {
        "folder:": f"folder: &folder {folder}",
        "run_file:": f"run_file: {run_file.name}",
        "cron:": f'cron: "{cron}"',
    }
    lines = EXAMPLE.read_text().splitlines()
    for i, line in enumerate(lines):
        if "# change" in line:
            key = line.split()[0]
            lines[i] = line[: line.index(key)] + changed.pop(key)
    assert not changed
    (folder / "prefect.yaml").write_text("\n".join(lines))


def prefect(*arguments: str, env: dict[str, str], folder: Path) -> None:
    ran = subprocess.run([*PREFECT, *arguments], env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextmanager
def deployed(folder: Path, server: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """What prefect.yaml of the folder says deployed, and a process worker that waits for its runs."""
    env = environment(folder / "home", PREFECT_API_URL=server, PREFECT_WORKER_QUERY_SECONDS="1", **settings)
    prefect("work-pool", "create", "sparseoco", "--type", "process", env=env, folder=folder)
    prefect("--no-prompt", "deploy", "--all", env=env, folder=folder)
    with running([*PREFECT, "worker", "start", "--pool", "sparseoco"], folder / "worker.log", env, folder) as worker:
        yield worker


def check_results(server: str, out: Path) -> None:
    """The artifacts of a finished run name its files, which are those of a run without Prefect."""
    found = artifacts(server)
    assert len(json.loads(found["places-leaderboard"]["data"])) == 4
    assert "| rank |" in found["places-summary"]["data"]
    assert f"Files: {plain(out.as_uri())}" in found["places-summary"]["data"]
    assert (out / "report" / "report.html").exists()
    here = load_run_file(out.parent / "places.toml").model_copy(update={"out": out.parent / "here"})
    run_steps.run_all(here)
    for file in ("search/metrics.parquet", "model/weights.parquet"):
        assert (out / file).read_bytes() == (here.out / file).read_bytes()


def write_long_run_file(folder: Path) -> Path:
    """A run whose search takes minutes."""
    run_file = write_run_file(folder)
    run_file.write_text(run_file.read_text().replace("epochs = 1", "epochs = 5000"))
    return run_file


def search_begun(folder: Path) -> bool:
    return (folder / "run" / "run.json").exists()


# ----------------------------------------------------------------------------------------------------------------------
# Two hosts on one machine: network namespaces with addresses of their own, and a switch between them.


ADDRESSES = ("10.77.0.1", "10.77.0.2")


class Hosts(NamedTuple):
    """Two hosts, 0 and 1, that reach each other through a switch and nothing else; both have this machine's disk."""

    names: tuple[str, str]
    switch: str

    def on(self, host: int, *command: str) -> list[str]:
        """The command as it is started on a host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def cut(self) -> None:
        """The switch forwards nothing from now on, and neither host is notified."""
        _ip("-n", self.switch, "link", "set", "port1", "nomaster")

    def mend(self) -> None:
        """The switch forwards again."""
        _ip("-n", self.switch, "link", "set", "port1", "master", "bridge0")


@contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Hosts of `ADDRESSES`. Raises `OSError` or `CalledProcessError` where this machine does not let us make them."""
    names = [f"sparseoco-{os.getpid()}-{role}" for role in ("a", "b", "switch")]
    made = []
    try:
        for name in names:
            _ip("netns", "add", name)
            made.append(name)
        *hosts, switch = names
        _ip("-n", switch, "link", "add", "name", "bridge0", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge0", "up")
        for i, (host, address) in enumerate(zip(hosts, ADDRESSES, strict=True)):
            port = f"port{i}"
            _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", switch, "link", "set", port, "master", "bridge0", "up")
            _ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", host, "link", "set", device, "up")
        yield Hosts((hosts[0], hosts[1]), switch)
    finally:
        for name in made:
            _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
