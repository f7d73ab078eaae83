"""Commands killed at random moments and run again, many runs with faults: the bytes of an undisturbed run."""

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.pipeline import steps
from sparseoco.store.shards import Store
from tests.faults.commands import BEFORE, COMMANDS, RESULTS, quick_run, write_inputs
from tests.support.damage import failing_commit
from tests.support.errors import raises_code
from tests.support.folders import assert_same_folder, folder_bytes
from tests.support.stops import COMMAND

# ----------------------------------------------------------------------------------------------------------------------
# Commands killed at random moments, all processes or one worker, and run again: the bytes of an undisturbed run.
#
# SPARSEOCO_CHAOS_KILLS is the number of kills of each command, SPARSEOCO_CHAOS_SEED the seed.


KILLS = int(os.environ.get("SPARSEOCO_CHAOS_KILLS", "4"))
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")
ALSO = {
    "evaluate": ["evaluate", "run", "places.jsonl", "--predictions", "out/test.parquet"],
    "report": ["report", "run"],
}
WORKERS = {
    f"{name}, workers": " ".join(COMMANDS[name])
    .replace("--threads 1", "--workers 2")
    .replace("rich.toml", "workers.toml")
    .replace("nightly/places.toml", "nightly/workers.toml")
    .split()
    for name in ("ingest", "search", "auto", "run", "nightly", "optimum", "regret", "score ids")
}
EVERY = {**COMMANDS, **ALSO, **WORKERS}


def result_of(name: str) -> str:
    """The folder that a command changes."""
    return RESULTS.get(name.partition(",")[0], "run" if name == "report" else "out")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of all commands, a store and a run."""
    folder = tmp_path_factory.mktemp("inputs") / "work"
    folder.mkdir()
    write_inputs(folder, rows=1000)
    (folder / "tmp").mkdir()
    for command in BEFORE:
        assert _start(command, folder).wait() == 0, command
    return folder


def _start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder.parent / "output").open("ab") as output:
        return subprocess.Popen(
            [*COMMAND, *command],
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(Path(__file__).parents[2])},
        )


def _kill(process: subprocess.Popen[bytes], choose: random.Random) -> None:
    """Kill a command with all its processes, or a worker."""
    workers = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                workers += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    if workers and choose.random() < 0.5:
        with suppress(psutil.NoSuchProcess):
            choose.choice(workers).kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    psutil.wait_procs(workers, timeout=10)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(1, 5, 62)
@pytest.mark.parametrize("name", list(EVERY))
def test_killed_at_random_moments(name: str, inputs: Path, tmp_path: Path) -> None:
    folder, command = inputs, EVERY[name]
    result = folder / result_of(name)
    before = shutil.copytree(result, tmp_path / "before") if result.exists() else None
    started = time.monotonic()
    assert _start(command, folder).wait() == 0
    seconds = time.monotonic() - started
    undisturbed = folder_bytes(result)
    _as_before(result, before)
    choose, kills = random.Random(f"{SEED} {name}"), 0
    while kills < KILLS:
        process = _start(command, folder)
        with suppress(subprocess.TimeoutExpired):
            process.wait(choose.uniform(0.3, 1.1) * seconds)
        _kill(process, choose)
        kills += 1
        if process.wait() == 0 or choose.random() < 0.3 or kills == KILLS:
            assert _start(command, folder).wait() == 0, (SEED, kills)
            assert_same_folder(result, undisturbed, more=True, what=(SEED, kills))
            assert not list((folder / "tmp").iterdir()), (SEED, kills)
            _as_before(result, before)
        else:
            assert process.returncode == -signal.SIGKILL, (SEED, kills)


def _as_before(result: Path, before: Path | None) -> None:
    shutil.rmtree(result, ignore_errors=True)
    if before is not None:
        shutil.copytree(before, result)


# ----------------------------------------------------------------------------------------------------------------------
# Many small runs in one process, every other one disturbed: the same bytes, and no open file or memory more.


RUNS = int(os.environ.get("SPARSEOCO_CHAOS_RUNS", "60"))
WARM = 10  # runs, after which everything is loaded
GROWTH = 30 << 20  # bytes of memory, of all further runs


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(39)
def test_many_runs_with_faults(tmp_path: Path) -> None:
    """A full disk at one commit after the other, a repeated run, and a shard cut short."""
    whole = quick_run(tmp_path / "whole")
    steps.run_all(whole)
    process, files, memory = psutil.Process(), 0, 0
    for number in range(RUNS):
        run = quick_run(tmp_path / f"{number}")
        with failing_commit(number % 15 + 1), pytest.raises(SparseocoError):
            steps.run_all(run)
        steps.run_all(run)
        assert_same_folder(Path(str(run.out)), Path(str(whole.out)), more=True, what=number)
        shard = next(Path(str(run.store)).glob("shard-*.parquet"))
        data = shard.read_bytes()
        shard.write_bytes(data[: len(data) * number // RUNS])
        with raises_code("corrupt-file", shard, kind=StorageError):
            Store.open(run.store).read(0)
        if number == WARM:
            files, memory = process.num_fds(), process.memory_info().rss
    assert process.num_fds() <= files
    assert process.memory_info().rss <= memory + GROWTH
