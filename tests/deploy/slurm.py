"""A SLURM of the test's own, from the packages of the system: a controller and a node, on loopback."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.prefect_server import free_port, wait_for

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/node.log
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000
PartitionName=batch Nodes={host} Default=YES State=UP
"""
OTHERS_SECONDS = 30


class Queue(NamedTuple):
    """Jobs of a SLURM whose configuration is at `file`."""

    file: Path

    def jobs(self, state: str | None = None) -> list[str]:
        """Numbers of its jobs that are in a state, or have not ended."""
        states = [] if state is None else ["--states", state]
        return self.ask("squeue", "--noheader", "--format=%i", *states).split()

    def cancel(self, job: str) -> None:
        """End a job as its walltime does."""
        self.ask("scancel", job)

    def ask(self, *command: str) -> str:
        """What a command of SLURM prints."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands that are to ask this SLURM."""
        return {**os.environ, "SLURM_CONF": str(self.file)}


@contextmanager
def slurm(folder: Path) -> Iterator[Queue]:
    """A SLURM whose one node has two cores and 4 GB; skips the test where there is none."""
    programs = [shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("slurmctld", "slurmd")]
    if None in programs:
        pytest.skip("no SLURM here (Debian: apt-get install slurm-wlm)")
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    ports = {"controller": free_port(), "node": free_port()}
    queue = Queue(folder / "slurm.conf")
    queue.file.write_text(CONFIGURATION.format(host=host, user=getpass.getuser(), folder=folder, **ports))
    processes = [
        subprocess.Popen(
            [str(program), "-D"], env=queue.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for program in programs
    ]
    try:
        wait_for(lambda: _is_idle(queue), "SLURM's node to be there")
        yield queue
    finally:
        with suppress(subprocess.CalledProcessError):
            queue.ask("scancel", "--user", getpass.getuser())
            deadline = time.monotonic() + OTHERS_SECONDS
            while queue.jobs() and time.monotonic() < deadline:
                time.sleep(0.2)
        for process in processes:
            process.terminate()
            process.wait(OTHERS_SECONDS)


def _is_idle(queue: Queue) -> bool:
    try:
        return "idle" in queue.ask("sinfo", "--noheader", "--format=%T")
    except subprocess.CalledProcessError:
        return False
