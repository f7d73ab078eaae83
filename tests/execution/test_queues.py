"""Workers as jobs of a fake batch system, whose commands start a job's script as a process."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.execution.clusters import ClusterOptions, connect, scheduler_workers
from sparseoco.execution.jobs import job_cluster
from sparseoco.execution.options import JobOptions, PbsOptions, SlurmOptions
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from tests.support.errors import raises_code
from tests.support.texts import write_run_file

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
    with job_cluster(asked, tmp_path / "scratch", 0, 4, "16GiB") as client:
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
    for file in ("search/metrics.parquet", "search/curves.parquet", "search/best.json", "model/weights.parquet"):
        assert (tmp_path / "here" / file).read_bytes() == (tmp_path / "there" / file).read_bytes()
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

from sparseoco.execution.options import SlurmOptions
from sparseoco.execution.jobs import load_cluster_class

before, found = signal.getsignal(signal.SIGINT), []
thread = Thread(target=lambda: found.append(load_cluster_class(SlurmOptions(walltime="00:10:00"))))
thread.start()
thread.join()
assert found
assert signal.getsignal(signal.SIGINT) is before
"""


def test_dask_jobqueue_is_imported_in_any_thread_without_its_signal_handler() -> None:
    subprocess.run([sys.executable, "-c", LOAD], check=True)


def open_and_close(asked: ClusterOptions, scratch: Path) -> None:
    with connect(asked, scratch):
        pass
