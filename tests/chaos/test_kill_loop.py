"""Commands killed at random moments, all processes or one worker, and run again: the bytes of an undisturbed run.

SPARSEOCO_CHAOS_KILLS is the number of kills of each command, SPARSEOCO_CHAOS_SEED the seed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.storage.buckets.contents import contents
from tests.support.nightly_runs import arrive, prepare
from tests.support.nightly_runs import contents as nightly_contents
from tests.support.stops import COMMAND
from tests.support.texts import write_reviews, write_run_file

KILLS = int(os.environ.get("SPARSEOCO_CHAOS_KILLS", "4"))
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")
RUN_FILE = """
out = "out"
[ingest]
inputs = ["rich.parquet"]
min_df = 1
shard_bytes = 32768
weight_field = "w"
ngram_range = [1, 2]
[ingest.fields.title]
type = "text"
[ingest.fields.text]
type = "text"
[ingest.fields.price]
type = "number"
transform = "bins"
bins = 3
[search]
folds = 2
epochs = 2
algorithms.rda = { lam = [1e-3, 1e-2] }
algorithms.adagrad = { lam = [1e-3] }
[evaluate]
where = { split = "test" }
[cluster]
workers = 2
"""
INGEST = ["--min-df", "1", "--shard-bytes", "8192", "--weight-field", "w"]
SCORE = ["--keep-top", "10%", "--keep-class", "town", "--shard-bytes", "8192"]
COMMANDS = {
    "ingest": ["ingest", "rich.parquet", "--out", "out", *INGEST],
    "ingest-workers": ["ingest", "rich.jsonl", "--out", "out", "--workers", "2", "--ngram-range", "1,2", *INGEST],
    "search": ["search", "store", "--out", "out", "--workers", "2", "--algorithm", "rda", "--epochs", "3"],
    "train": ["train", "store", "--out", "out", "--algorithm", "caos-erm", "--epochs", "20"],
    "auto": ["train", "store", "--out", "out", "--algorithm", "auto", "--epochs", "5"],
    "run": ["run", "rich.toml"],
    "nightly": ["nightly", "nightly/places.toml"],
    "optimum": ["optimum", "store", "--out", "out", "--alpha", "0.1,1,10", "--workers", "2"],
    "regret": ["regret", "run", "--tol", "1e-6", "--workers", "2"],
    "evaluate": ["evaluate", "run", "places.jsonl", "--predictions", "out/test.parquet"],
    "score": ["score", "run", "rich.parquet", "--out", "out", *SCORE],
    "score-workers": ["score", "run", "rich.jsonl", "--out", "out", "--workers", "2", "--column", "title", *SCORE],
    "report": ["report", "run"],
}
CONTENTS = {"nightly": nightly_contents}
RESULTS = {"nightly": "nightly/run", "regret": "run", "report": "run"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of all commands, a store and a run."""
    folder = tmp_path_factory.mktemp("inputs") / "work"
    folder.mkdir()
    write_run_file(folder)
    write_reviews(folder / "places.jsonl", rows=1000, classes=3)
    rows = [json.loads(line) for line in (folder / "places.jsonl").read_text().splitlines()]
    for k, row in enumerate(rows):
        row |= {"w": k % 4 / 2, "title": row["text"][:9], "price": k * 1.5}
    (folder / "rich.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), folder / "rich.parquet", row_group_size=100)
    (folder / "rich.toml").write_text(RUN_FILE)
    prepare(folder / "nightly")
    for increment in (1, 2):
        arrive(folder / "nightly", increment)
    (folder / "tmp").mkdir()
    for command in (["ingest", "rich.jsonl", "--out", "store", *INGEST], ["run", "places.toml"]):
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
@pytest.mark.parametrize("name", list(COMMANDS))
def test_killed_at_random_moments(name: str, inputs: Path, tmp_path: Path) -> None:
    folder, command = inputs, COMMANDS[name]
    result = folder / RESULTS.get(name, "out")
    before = shutil.copytree(result, tmp_path / "before") if result.exists() else None
    started = time.monotonic()
    assert _start(command, folder).wait() == 0
    seconds = time.monotonic() - started
    read = CONTENTS.get(name, contents)
    undisturbed = read(result)
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
            left = read(result)
            different = [file for file in undisturbed if left.get(file) != undisturbed[file]]
            assert not different, (SEED, kills, different)
            assert not list((folder / "tmp").iterdir()), (SEED, kills)
            _as_before(result, before)
        else:
            assert process.returncode == -signal.SIGKILL, (SEED, kills)


def _as_before(result: Path, before: Path | None) -> None:
    shutil.rmtree(result, ignore_errors=True)
    if before is not None:
        shutil.copytree(before, result)
