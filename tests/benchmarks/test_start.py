"""Processor time of whole commands, with `python -c "import numba, pyarrow"` for comparison."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.texts import RUN_FILE, write_reviews

ROWS = 8000  # 1 MB
LIMITS = {
    ("-c", "import numba, pyarrow"): 1.0,
    ("-m", "sparseoco", "--version"): 0.4,
    ("-m", "sparseoco", "--help"): 0.4,
    ("-m", "sparseoco", "search", "--help"): 0.4,
    ("-m", "sparseoco", "search", "shards", "--fold", "3"): 0.4,
    ("-m", "sparseoco", "predict", "run/model"): 1.0,
}
"""Seconds of processor by arguments of Python."""
RUN_LIMIT = 3.5  # all steps of a corpus of 1 MB


def processor_seconds(command: tuple[str, ...], folder: Path) -> float:
    """User and system time of a Python process and its children."""
    before = os.times()
    subprocess.run([sys.executable, *command], cwd=folder, input=b"the tide\n", capture_output=True, check=False)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@pytest.mark.benchmark
def test_start(tmp_path: Path) -> None:
    write_reviews(tmp_path / "places.jsonl", rows=ROWS, classes=3)
    runs = []
    for name in ("run", "run-1", "run-2", "run-3"):
        (tmp_path / f"{name}.toml").write_text(RUN_FILE.replace('out = "run"', f'out = "{name}"'))
        runs.append(processor_seconds(("-m", "sparseoco", "run", f"{name}.toml"), tmp_path))
        assert (tmp_path / name / "report" / "report.html").exists()
    found = {command: min(processor_seconds(command, tmp_path) for _ in range(3)) for command in LIMITS}
    for command, seconds in found.items():
        print(f"{' '.join(command)}: {seconds:.2f} s")
    print(f"-m sparseoco run: {min(runs[1:]):.2f} s")  # the first may compile
    assert all(seconds < LIMITS[command] for command, seconds in found.items())
    assert min(runs[1:]) < RUN_LIMIT
