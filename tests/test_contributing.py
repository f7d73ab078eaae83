"""The worked example of CONTRIBUTING.md, followed step by step in a copy of the package."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import sparseoco

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def trained() -> str:
    """The weights of a grid, in hexadecimal digits."""
    random = np.random.default_rng(3)
    X, y = sp.random(80, 30, 0.2, "csr", random_state=random), random.integers(0, 2, 80)
    grid = {"C": [0.05, 1.0], "variant": ["PA", "PA-I", "PA-II"]}
    learner = sparseoco.Learner("passive-aggressive", loss="hinge", grid=grid, n_features=30, objective=True)
    return learner.partial_fit(X, y).weights().tobytes().hex()


def run(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": f"{package.parent}:{ROOT}", "PATH": "/usr/bin", "HOME": str(package.parent)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=package.parent)


def test_adding_the_learner_of_the_page(tmp_path: Path) -> None:
    package = tmp_path / "sparseoco"
    ignored = shutil.ignore_patterns("passive_aggressive.*", "*.nbc")
    shutil.copytree(Path(sparseoco.__file__).parent, package, ignore=ignored)
    (command,) = re.findall(r"^ +sparseoco (algorithms .*)$", PAGE, flags=re.MULTILINE)
    show = ("-m", "sparseoco", *command.split())
    assert run(package, *show).returncode == 2

    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "Algorithm(" in block)
    (package / "learners" / "passive_aggressive.py").write_text(code)
    shown = run(package, *show)
    assert shown.returncode == 0, shown.stderr
    assert "PA-II" in shown.stdout

    learned = run(package, "-c", f"from {__name__} import *; print(sparseoco.__file__, trained())")
    assert learned.returncode == 0, learned.stderr
    assert learned.stdout == f"{package / '__init__.py'} {trained()}\n"  # the bits of the learner that is there


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
