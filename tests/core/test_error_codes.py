"""Every error has a stable code in kebab-case, and a code has one exit status."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import sparseoco
from sparseoco.core.errors import InputError, SparseocoError, StorageError

PACKAGE = Path(sparseoco.__file__).parent
PATHS = {*PACKAGE.rglob("*.py"), *(PACKAGE / "flows").glob("*.py")}  # flows may be a link, which rglob does not follow
TREES = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PATHS)}
KINDS = {kind.__name__: kind for kind in (SparseocoError, InputError, StorageError)}
KEBAB_CASE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
TWO_EXIT_STATUSES = {
    "corrupt-file": "an input or archive of the user, or a file of a store or run",
    "folder-not-empty": "the output of a command, or the folder of a corpus being fetched",
    "missing-file": "a file that the user names, or one of a store or run",
    "missing-model": "a folder that never had a model, or an increment whose model was removed",
    "model-replaced": "found before a run starts, or by one that resumes",
    "no-candidate": "the configurations that were named, or all of a search, diverged or failed",
    "store-changed": "found before a run starts, or by one that resumes",
}


class Construction(NamedTuple):
    """A call of one of our error classes: where, its kind, and the expression of its code."""

    where: str
    kind: type[SparseocoError]
    code: ast.expr | None


def kinds() -> dict[str, type[SparseocoError]]:
    """Names of our error classes, and the nearest of the three with an exit status of its own that they derive from."""
    found = dict(KINDS)
    classes = [node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while new := {
        node.name: found[base.id]
        for node in classes
        for base in node.bases
        if isinstance(base, ast.Name) and base.id in found and node.name not in found
    }:
        found |= new
    return found


def defaults() -> set[str]:
    """Names of the classes that have a default code of their own."""
    return {
        node.name
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and path != "core/errors.py"
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        and method.name == "__init__"
        and "code" in [argument.arg for argument in method.args.kwonlyargs]
    }


@cache
def constructions() -> list[Construction]:
    known, optional = kinds(), defaults()
    return [
        Construction(f"{path}:{node.lineno}", known[node.func.id], codes[0] if codes else None)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known
        for codes in [[keyword.value for keyword in node.keywords if keyword.arg == "code"]]
        if codes or node.func.id not in optional
    ]


def literal_codes(code: ast.expr) -> list[str]:
    """The codes written in an expression; none where it passes on that of another error."""
    return [node.value for node in ast.walk(code) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_every_error_is_constructed_with_a_code_in_kebab_case() -> None:
    found = constructions()
    assert len(found) > 100
    assert [where for where, _, code in found if code is None] == []
    literal = [(where, text) for where, _, code in found if code is not None for text in literal_codes(code)]
    assert [(where, text) for where, text in literal if not KEBAB_CASE.fullmatch(text)] == []


def test_a_code_has_one_exit_status() -> None:
    """But for codes of problems that occur both in what the user names and in what an earlier step wrote."""
    statuses = defaultdict(set)
    for _, kind, code in constructions():
        for text in literal_codes(code) if code is not None else ():
            statuses[text].add(kind.exit_code)
    assert {code for code, found in statuses.items() if len(found) > 1} == set(TWO_EXIT_STATUSES)
