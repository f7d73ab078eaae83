"""docs/operations/faults.md lists every case with the files that test it: tests marked `@pytest.mark.fault(number)`."""

import ast
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "operations" / "faults.md"


def marked() -> dict[int, set[str]]:
    """The files with tests of each case."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                for number in node.args:
                    found[ast.literal_eval(number)].add(str(path.relative_to(TESTS)))
    return found


def test_every_case_names_the_files_that_test_it() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    page = {int(number): set(re.findall(r"`([^`]+)`", files)) for number, _, _, files in rows}
    assert len(page) == len(rows)
    assert list(page) == sorted(page)
    wanted = marked()
    assert page == wanted, "\n".join(
        f"{number}: {', '.join(f'`{name}`' for name in sorted(wanted[number]))}"
        for number in sorted(wanted)
        if page.get(number) != wanted[number]
    )
