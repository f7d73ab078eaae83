"""Commands start without loading numerical libraries that they do not need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import call
from tests.support.texts import write_reviews

HEAVY = {"dask", "distributed", "numba", "numpy", "pandas", "prefect", "pyarrow", "scipy", "sklearn"}
LOADED = """
import json, sys
from sparseoco.cli import main
sys.argv = ["sparseoco", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code or 0, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def loaded(*arguments: object, lines: str = "") -> tuple[int, set[str], list[str]]:
    """The exit code of a command, the top-level packages it has loaded at its end, and its lines of output."""
    command = [sys.executable, "-c", LOADED, *map(str, arguments)]
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    *output, last = ended.stdout.splitlines()
    code, names = json.loads(last)
    return code, set(names), output


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
    found, names, _ = loaded(*arguments.split())
    assert found == code
    assert not names & HEAVY


def test_predict_loads_only_what_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reviews, store, model = write_reviews(tmp_path / "reviews.jsonl"), tmp_path / "store", tmp_path / "model"
    assert call(monkeypatch, "ingest", reviews, "--out", store) == 0
    assert call(monkeypatch, "train", store, "--out", model) == 0
    code, names, output = loaded("predict", model, lines="the tide, the boat\nmoss; leaf\n")
    assert (code, output) == (0, ["sea", "wood"])
    assert {"numba", "pyarrow"} <= names
    assert not names & {"dask", "distributed", "jinja2", "prefect", "sklearn"}
