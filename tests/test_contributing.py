"""The worked example of CONTRIBUTING.md."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.commands import Cli

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def statements(source: str) -> str:
    """A module without its docstrings and comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.unparse(tree)


def test_the_learner_of_the_page_is_the_one_that_is_there(cli: Cli) -> None:
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "Algorithm(" in block)
    assert statements(code) == statements((ROOT / "sparseoco/learners/passive_aggressive.py").read_text())
    (command,) = re.findall(r"^ +sparseoco (algorithms .*)$", PAGE, flags=re.MULTILINE)
    assert "one of PA, PA-I, PA-II" in cli(*command.split()).out


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
