"""The worked example of CONTRIBUTING.md."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import sparseoco
from sparseoco.learners import ALGORITHMS
from tests.support.commands import Cli

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def trained(name: str) -> bytes:
    """The weights of a grid."""
    random = np.random.default_rng(3)
    X, y = sp.random(80, 30, 0.2, "csr", random_state=random), random.integers(0, 2, 80)
    grid = {"C": [0.05, 1.0], "variant": ["PA", "PA-I", "PA-II"]}
    learner = sparseoco.Learner(name, loss="hinge", grid=grid, n_features=30)
    return learner.partial_fit(X, y).weights().tobytes()


def test_the_learner_of_the_page_has_the_bits_of_the_one_that_is_there(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a learner outside the package, whose names are its own."""
    monkeypatch.setattr(ALGORITHMS, "data", dict(ALGORITHMS.data))
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "Algorithm(" in block)
    (tmp_path / "mine.py").write_text(code.replace('name="passive-aggressive"', 'name="mine"'))
    mine = f"{tmp_path}/mine.py:PASSIVE_AGGRESSIVE"
    assert trained(mine) == trained("passive-aggressive")
    (command,) = re.findall(r"^ +sparseoco (algorithms .*)$", PAGE, flags=re.MULTILINE)
    assert all("one of PA, PA-I, PA-II" in cli(*words).out for words in (("algorithms", mine), command.split()))


def test_make_runs_the_formulas_of_all_folders() -> None:
    (folders,) = re.findall(r"^FORMULAS := (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "mark.formulas" in path.read_text() and path != Path(__file__):
            assert any(path.is_relative_to(ROOT / folder) for folder in folders.split()), path


def test_the_page_names_files_and_tests_that_are_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in re.findall(r"`((?:sparseoco|tests|deploy)/[\w./]+)`", PAGE):
        assert (ROOT / name).exists(), name
    packages = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert {p.name for p in (ROOT / "sparseoco").iterdir() if (p / "__init__.py").exists()} == set(packages)
    (oracle,) = re.findall(r"pytest (-m formulas tests/learners -k [\w-]+)", PAGE)
    monkeypatch.chdir(ROOT)
    left_out = [f"-pno:{plugin}" for plugin in ("cacheprovider", "xdist", "benchmark", "unraisableexception")]
    assert pytest.main(["--collect-only", *left_out, *oracle.split()]) == 0
    assert "::test_lazy_equals_dense_after_every_row[" in capsys.readouterr().out
