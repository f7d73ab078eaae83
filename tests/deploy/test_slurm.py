"""Jobs of a real SLURM, by the file of deploy/."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.slurm import Queue, slurm
from tests.storage.buckets.contents import contents
from tests.support.prefect_server import wait_for
from tests.support.texts import write_run_file

COMMAND = [sys.executable, "-m", "sparseoco", "run"]
DEPLOY = Path(__file__).parents[2] / "deploy"
CHANGED = {
    "workers = 8 ": "workers = 2 ",
    "threads = 4 ": "threads = 1 ",
    '"16GB"': '"1GB"',
    '"nlp"': '"anybody"',
    '"2h"': '"2min"',
}


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    pytest.importorskip("dask_jobqueue", reason="comes with sparseoco[slurm]")
    with slurm(tmp_path / "slurm") as found:
        yield found


def cluster_file(folder: Path, **changed: str) -> Path:
    """deploy/slurm.toml for the node of the test, and these words of it changed too."""
    text = (DEPLOY / "slurm.toml").read_text()
    for before, after in {**CHANGED, **changed}.items():
        assert before in text
        text = text.replace(before, after)
    path = folder / "slurm.toml"
    path.write_text(text)
    return path


def undisturbed(folder: Path) -> tuple[Path, dict[str, bytes | None]]:
    """A run file, and what a run of it in one process leaves; nothing of it is there any more."""
    file = write_run_file(folder)
    subprocess.run([*COMMAND, str(file)], check=True, stdout=subprocess.DEVNULL)
    left = results(folder)
    shutil.rmtree(folder / "run")
    return file, left


def results(folder: Path) -> dict[str, bytes | None]:
    """What a run left, but for what jobs that ended were just writing."""
    return {name: data for name, data in contents(folder / "run").items() if not name.endswith(".tmp")}


def begin(queue: Queue, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=queue.environment,
        cwd=queue.file.parent,  # where jobs leave what they print
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def some_cells(run: Path) -> bool:
    return any((run / "search" / "cells").glob("*.json"))


@pytest.mark.slow
def test_a_run_whose_jobs_end_gives_the_same_bytes_and_leaves_no_job(tmp_path: Path, queue: Queue) -> None:
    file, left = undisturbed(tmp_path)
    with begin(queue, file, "--cluster", cluster_file(tmp_path)) as process:
        wait_for(lambda: len(queue.jobs("running")) == 2, "both jobs to begin")
        first = queue.jobs()
        wait_for(lambda: some_cells(tmp_path / "run"), "the search to begin")
        for job in first:
            queue.cancel(job)
        assert process.wait(300) == 0, process.communicate()[1]
    assert results(tmp_path) == left
    wait_for(lambda: not queue.jobs(), "the jobs to be taken back")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_jobs_of_a_stopped_command_are_cancelled(tmp_path: Path, queue: Queue, number: signal.Signals) -> None:
    file, left = undisturbed(tmp_path)
    cluster = cluster_file(tmp_path)
    with begin(queue, file, "--cluster", cluster) as process:
        wait_for(lambda: some_cells(tmp_path / "run"), "the search to begin")
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert said.startswith("sparseoco: Stopped.")
    wait_for(lambda: not queue.jobs(), "the jobs to be taken back")
    with begin(queue, file, "--cluster", cluster) as process:
        assert process.wait(300) == 0, process.communicate()[1]
    assert results(tmp_path) == left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({'"batch"': '"nowhere"'}, "sbatch refuses a job: sbatch: error: invalid partition specified: nowhere"),
        ({'"1GB"': '"900GB"'}, "sbatch refuses a job: sbatch: error: Memory specification can not be satisfied"),
        ({'"2min"': '"20s"', "workers = 2 ": "workers = 1 "}, "No worker has begun within 20 s"),
    ],
)
def test_errors_of_slurm_are_reported(tmp_path: Path, queue: Queue, changed: dict[str, str], said: str) -> None:
    if "workers = 2 " in changed:  # somebody else has the node
        queue.ask("sbatch", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600")
        wait_for(lambda: bool(queue.jobs("running")), "the other job to begin")
    with begin(queue, write_run_file(tmp_path), "--cluster", cluster_file(tmp_path, **changed)) as process:
        assert said in process.communicate(timeout=120)[1]
    assert process.returncode == 1
    wait_for(lambda: len(queue.jobs()) == len(queue.jobs("running")), "the jobs to be taken back")
