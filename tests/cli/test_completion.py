"""Values and options that the shell completes, and how quickly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparseoco.datasets.corpora import list_cards
from sparseoco.learners import algorithm_names
from sparseoco.learners.losses import LOSSES
from sparseoco.learners.penalties import PENALTIES
from sparseoco.papers import PAPERS
from sparseoco.storage.metric_names import METRICS
from sparseoco.training.options import LOSS_NAMES, PENALTY_NAMES
from tests.cli.test_start import HEAVY

LOADED = """
import json, sys
from sparseoco.cli import main
try:
    main()
finally:
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def completed(words: str, shell: str = "bash") -> tuple[list[str], set[str]]:
    """The completions of the last of these words, and the top-level packages that were loaded."""
    environment = os.environ | {
        "_SPARSEOCO_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    command = [sys.executable, "-c", LOADED]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    *values, last = ended.stdout.splitlines()
    return [value for value in values if value], set(json.loads(last))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("sparseoco ev", ["evaluate"]),
        ("sparseoco search shards --algorithm cl", ["cl-fobos"]),
        ("sparseoco train shards --algorithm au", ["auto"]),
        ("sparseoco search shards --metric roc", ["roc_auc"]),
        ("sparseoco search shards --loss ", ["auto", *LOSS_NAMES]),
        ("sparseoco search shards --penalty ", list(PENALTY_NAMES)),
        ("sparseoco fetch ", [card.name for card in list_cards()]),
        ("sparseoco reproduce ", list(PAPERS)),
        ("sparseoco algorithms ", algorithm_names()),
        ("sparseoco search shards --shuf", ["--shuffle"]),
        ("sparseoco ingest reviews.jsonl --format c", ["csv"]),
        ("sparseoco ingest rev", []),  # the shell completes files
        ("sparseoco predict mod", []),
    ],
)
def test_values_are_completed_without_numerical_libraries(words: str, values: list[str]) -> None:
    found, loaded = completed(words)
    assert found == values
    assert not loaded & HEAVY


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell: str) -> None:
    found, _ = completed("sparseoco search shards --metric roc", shell)
    assert "roc_auc" in "\n".join(found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed(tmp_path: Path, shell: str) -> None:
    environment = os.environ | {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "sparseoco", "--install-completion", shell]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    scripts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_SPARSEOCO_COMPLETE" in script or "sparseoco" in script for script in scripts)


def test_names_are_those_of_the_registries() -> None:
    assert list(LOSS_NAMES) == list(LOSSES)
    assert list(PENALTY_NAMES) == list(PENALTIES)
    assert completed("sparseoco search shards --metric ")[0] == list(METRICS)
