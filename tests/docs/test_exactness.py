"""docs/exactness.md names tests that are there, for every promise."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "exactness.md").read_text()


def test_every_promise_names_tests_that_are_there() -> None:
    (table,) = re.findall(r"\| promise \| tests \|\n\|---\|---\|\n((?:\|.*\|\n)+)", PAGE)
    for row in table.splitlines():
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, function in named:
            functions = {node.name for node in ast.parse((ROOT / path).read_text()).body if hasattr(node, "name")}
            assert function in functions, f"{path}::{function}"
