"""Commands stopped at many moments: each ends within ten seconds, in one sentence, and leaves nobody behind; the same
command again ends with the bytes of one that was never stopped."""

import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from sparseoco.core.signals import MESSAGE
from tests.storage.buckets.contents import contents
from tests.support.stops import COMMAND, after, stop
from tests.support.texts import write_reviews, write_run_file

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _commands(folder: Path) -> dict[str, list[str]]:
    """By what they are, commands that work in `folder`/out; those before them have made what they need."""
    run, out = str(folder / "places.toml"), str(folder / "out")
    store = str(folder / "run" / "shards")
    return {
        "run": ["run", run],
        "workers": ["ingest", str(folder / "places.jsonl"), "--out", out, "--workers", "2"],
        "search-workers": ["search", store, "--out", out, "--workers", "2", "--algorithm", "rda", "--epochs", "5"],
        "epochs": ["train", store, "--out", out, "--algorithm", "caos-erm", "--epochs", "50"],
        "optimum": ["optimum", store, "--out", out, "--alpha", "0.01,0.1,1"],
        "auto": ["train", store, "--out", out, "--algorithm", "auto", "--epochs", "20"],
        "regret": ["regret", str(folder / "run"), "--tol", "1e-8"],
    }


@pytest.mark.fault(6)
@pytest.mark.slow
@pytest.mark.parametrize("what", list(_commands(Path())))
def test_a_stop_at_any_moment_ends_a_command_and_costs_nothing(what: str, tmp_path: Path) -> None:
    write_run_file(tmp_path)
    write_reviews(tmp_path / "places.jsonl", rows=2000, classes=3)
    command = _commands(tmp_path)[what]
    if what != "run":
        subprocess.run([*COMMAND, "run", str(tmp_path / "places.toml")], check=True, stdout=subprocess.DEVNULL)
    result = tmp_path / ("run" if what in ("run", "regret") else "out")
    before = shutil.copytree(result, tmp_path / "before") if result.exists() else None
    subprocess.run([*COMMAND, *command], check=True, stdout=subprocess.DEVNULL)
    undisturbed = contents(result)
    choose, seconds, ends = random.Random(what), 0.5, 0
    _as_before(result, before)
    while True:
        number = choose.choice(SIGNALS)
        end = stop(command, number, after(seconds), group=choose.random() < 0.5)
        if end is None:
            break
        ends += 1
        assert end.said == f"sparseoco: {MESSAGE}\n", (seconds, number)
        assert end.code == 128 + number
        assert end.seconds < 10
        assert not end.alive
        seconds += choose.uniform(0.05, 0.3) + seconds / 10
        if choose.random() < 0.3:
            _as_before(result, before)
    assert ends > 3
    assert contents(result) == undisturbed


def _as_before(result: Path, before: Path | None) -> None:
    shutil.rmtree(result, ignore_errors=True)
    if before is not None:
        shutil.copytree(before, result)
