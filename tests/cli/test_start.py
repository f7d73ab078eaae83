"""Commands start without loading numerical libraries that they do not need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"dask", "distributed", "numba", "numpy", "pandas", "plotly", "prefect", "pyarrow", "scipy", "sklearn"}
LOADED = """
import json, sys
from sparseoco.cli import main
sys.argv = ["sparseoco", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code or 0, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def loaded(*arguments: object) -> tuple[int, set[str]]:
    """The exit code of a command, and which top-level packages it has loaded at its end."""
    command = [sys.executable, "-c", LOADED, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    code, names = json.loads(ended.stdout.splitlines()[-1])
    return code, set(names)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("search --help", 0),
        ("train --help", 0),
        ("reproduce --help", 0),
        ("serach", 2),
        ("search", 2),
        ("search STORE --out RUN --fold 3", 2),
        ("search STORE --out RUN --algorithm cl-fobo", 2),
        ("train STORE --out MODEL --algorithm cl-fobo", 2),
        ("ingest text --out STORE --min-df few", 2),
        ("run none.toml", 2),
    ],
)
def test_help_and_usage_errors_load_no_numerical_library(tmp_path: Path, arguments: str, code: int) -> None:
    found, names = loaded(*arguments.split())
    assert found == code
    assert not names & HEAVY
