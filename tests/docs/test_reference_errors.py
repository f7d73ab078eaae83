"""Every code of an error is explained, and every explanation is of a code, with the exit codes it has."""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sparseoco.cli import console
from sparseoco.cli.console import LIMITS
from sparseoco.core import option_models
from sparseoco.core.error_codes import error_entries
from sparseoco.core.errors import FolderInUseError, InputError
from sparseoco.execution.pool import TaskError
from sparseoco.pipeline.run_file_schema import run_file_schema
from sparseoco.text.stored import CHANGED
from tests.core.test_error_codes import TREES, constructions, literal_codes
from tests.support.commands import call

PAGE = Path(__file__).parents[2] / "docs/reference/errors.md"
PASSED_ON = {"code", "error.code", "row.code", "failure.code", "found.code", "CHANGED", "_code(error)"}
"""Expressions of a code that was given elsewhere, or that `other_codes` names."""


def written_codes(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions of codes: arguments named code, their defaults, and what is assigned to the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "code")
            if isinstance(node.func, ast.Name) and node.func.id == "_exit":
                yield from node.args[1:2]
        elif isinstance(node, ast.FunctionDef):
            named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            yield from (value for argument, value in named if argument.arg == "code" and value is not None)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(names)
                pairs = zip(names, values, strict=False)
                yield from (value for name, value in pairs if isinstance(name, ast.Name) and name.id == "code")


def compared(code: ast.expr) -> set[str]:
    """Text that something is compared with to choose the code."""
    return {text for node in ast.walk(code) if isinstance(node, ast.Compare) for text in literal_codes(node)}


def other_codes() -> set[str]:
    """Codes in tables and constants."""
    return {CHANGED, *option_models._CODES.values(), *(code for _, code in LIMITS.values())}


def test_the_codes_are_those_with_an_entry() -> None:
    expressions = [code for path, tree in TREES.items() if "kernels" not in path for code in written_codes(tree)]
    assert len(expressions) > 300
    codes = {text for code in expressions for text in set(literal_codes(code)) - compared(code)}
    assert codes | other_codes() == error_entries().keys()


def test_no_code_is_computed_in_another_way() -> None:
    """Then it would not be among those that the test above compares."""
    computed = {ast.unparse(code) for _, _, code in constructions() if code is not None and not literal_codes(code)}
    assert computed <= PASSED_ON


def test_entries_name_the_exit_codes() -> None:
    statuses = defaultdict(set)
    for _, kind, code in constructions():
        for text in literal_codes(code) if code is not None else ():
            statuses[text].add(kind.exit_code)
    for code, kind in (("task-failed", TaskError), ("folder-in-use", FolderInUseError), (CHANGED, InputError)):
        statuses[code].add(kind.exit_code)
    for code in ("malformed-record", *option_models._CODES.values()):
        statuses[code].add(InputError.exit_code)
    for _, code in LIMITS.values():
        statuses[code].add(1)
    for code in ("disk-full", "permission-denied", "io-error", "missing-file"):
        statuses[code].add(1)  # of errors of the operating system that reach the command line, as of standard output
    assert {code: set(entry.exit) for code, entry in error_entries().items()} == statuses


def test_entries_are_sentences() -> None:
    for code, entry in error_entries().items():
        for text in (entry.meaning, entry.remedy):
            assert re.match(r"[A-Z`]", text), code
            assert text.endswith("."), code


def test_each_code_has_an_anchor_on_the_page() -> None:
    assert re.findall(r"^### .* \{ #(.*) \}$", PAGE.read_text(), re.M) == list(error_entries())


def test_the_command_explains_a_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    entry = error_entries()["missing-field"]
    assert call(monkeypatch, "errors", "[missing-field]") == 0
    assert capsys.readouterr().out == f"{entry.meaning}\n{entry.remedy}\nexit code 2\n"
    assert call(monkeypatch, "errors") == 0
    listed = capsys.readouterr().out
    assert all(re.search(rf"\b{code}\b", listed) for code in error_entries())


def test_an_unknown_code_is_an_error_with_a_suggestion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "errors", "missing-feild") == 2
    error = capsys.readouterr().err
    assert "did you mean missing-field?" in error
    assert error.endswith("[unknown-error-code]\n")


def test_a_terminal_shows_how_to_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = StringIO()
    terminal = Console(file=shown, force_terminal=True, highlight=False, soft_wrap=True)
    monkeypatch.setattr(console, "errors", terminal)
    assert call(monkeypatch, "errors", "missing-feild") == 2
    assert shown.getvalue().endswith("[unknown-error-code]\nWhat it means: sparseoco errors unknown-error-code\n")


def test_the_schema_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "schema") == 0
    assert json.loads(capsys.readouterr().out) == run_file_schema()
