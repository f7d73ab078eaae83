"""The worked example of CONTRIBUTING.md, followed step by step in a copy of the package."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import sparseoco

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TRAIN = """
import numpy as np, scipy.sparse as sp
from sparseoco import Learner
random = np.random.default_rng(3)
X, y = sp.random(80, 30, 0.2, "csr", random_state=random), random.integers(0, 2, 80)
grid = {"C": [0.05, 1.0], "variant": ["PA", "PA-I", "PA-II"]}
learner = Learner("passive-aggressive", loss="hinge", grid=grid, n_features=30).partial_fit(X, y)
print(learner.weights().tobytes().hex())
"""


def run(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(package.parent), "PATH": "/usr/bin", "HOME": str(package.parent)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=package.parent)


def test_adding_the_learner_of_the_page(tmp_path: Path) -> None:
    package = tmp_path / "sparseoco"
    ignored = shutil.ignore_patterns("__pycache__", "passive_aggressive.py")
    shutil.copytree(Path(sparseoco.__file__).parent, package, ignore=ignored)
    (command,) = re.findall(r"^ +sparseoco (algorithms .*)$", PAGE, flags=re.MULTILINE)
    show = ("-m", "sparseoco", *command.split())
    assert run(package, *show).returncode == 2

    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "Algorithm(" in block)
    (package / "learners" / "passive_aggressive.py").write_text(code)
    shown = run(package, *show)
    assert shown.returncode == 0, shown.stderr
    assert "PA-II" in shown.stdout

    trained = run(package, "-c", TRAIN)
    assert trained.returncode == 0, trained.stderr
    ours = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True)
    assert trained.stdout == ours.stdout  # the bits of the learner that is there


def test_make_runs_the_formulas_of_all_folders() -> None:
    (folders,) = re.findall(r"^FORMULAS := (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for path in (ROOT / "tests").rglob("test_*.py"):
        if "mark.formulas" in path.read_text() and path != Path(__file__):
            assert any(path.is_relative_to(ROOT / folder) for folder in folders.split()), path


def test_the_page_names_files_and_tests_that_are_there() -> None:
    for name in re.findall(r"`((?:sparseoco|tests|deploy)/[\w./]+)`", PAGE):
        assert (ROOT / name).exists(), name
    packages = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert {p.name for p in (ROOT / "sparseoco").iterdir() if (p / "__init__.py").exists()} == set(packages)
    (oracle,) = re.findall(r"pytest (-m formulas tests/learners -k [\w-]+)", PAGE)
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *oracle.split()],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert "test_lazy_equals_dense_after_every_row" in listed.stdout
