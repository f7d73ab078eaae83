"""The code blocks of README and the documentation: they are right, and those of README and the tutorials run."""

import ast
import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from sparseoco.cli import app
from tests.support.blocks import PAGES, ROOT, blocks, run_page, simple_commands
from tests.support.texts import write_reviews

COMMANDS: Any = get_command(app)
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(block.text, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page))
        if block.kind == "python"
    ],
)
def test_python_compiles(text: str) -> None:
    ast.parse(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_their_options_exist(page: Path) -> None:
    """Commands of console blocks, and code in the text that begins like one of ours."""
    saved = {block.file for block in blocks(page)}
    lines = [line for block in blocks(page) if block.kind == "console" for line, _ in block.commands]
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for line in lines + re.findall(r"(?<!`)`(sparseoco [a-z-][^`]*)`(?!`)", prose):
        for program, *arguments in simple_commands(line):
            if program == "sparseoco":
                rest = parse(COMMANDS, arguments)
                if rest and not rest[0].isupper():
                    assert rest[0] in COMMANDS.commands, line
                    assert not parse(COMMANDS.commands[rest[0]], rest[1:]), line
            elif program == "make":
                assert set(arguments) <= TARGETS, line
            elif program in ("pip", "python") and "install" in arguments:
                extras = re.findall(r"\[([\w,-]+)\]", line)
                assert all(set(extra.split(",")) <= set(PROJECT["optional-dependencies"]) for extra in extras), line
            elif program == "python" and arguments[0] == "-m":
                assert importlib.util.find_spec(arguments[1]), line
            elif program == "python" and arguments[0].endswith(".py"):
                assert arguments[0] in saved or (ROOT / arguments[0]).exists(), line


def parse(command: Any, arguments: list[str]) -> list[str]:
    """What a command leaves of its arguments."""
    rest: list[str] = command.make_parser(command.context_class(command)).parse_args(list(arguments))[1]
    return rest


def test_readme_and_the_python_guide_run(tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.jsonl", rows=150)
    assert run_page(ROOT / "README.md", tmp_path, skip=("make ", "pip ")) >= 4
    assert run_page(ROOT / "docs/guide/python.md", tmp_path, skip=("sparseoco run",)) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorials_run(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path) >= 5
