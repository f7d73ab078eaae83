"""docs/papers has a table per paper: every algorithm, theorem and claim, where it is here, its test and its verdict."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "docs" / "papers").glob("*.md") if page.stem != "index")
COLUMNS = ["in the paper", "here", "test", "verdict"]
NOT_HERE, NO_TEST = "not here", "none"


def rows(page: Path) -> Iterator[list[str]]:
    for line in page.read_text().splitlines():
        if line.startswith("|") and not set(line) <= set("|-: "):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if cells != COLUMNS:
                yield cells


def test_every_paper_has_a_table() -> None:
    assert [page.stem for page in PAGES] == ["caos-ftrl", "cl-fobos", "onseg", "sgft", "stda"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_cell_is_empty_and_what_is_named_exists(page: Path) -> None:
    listed = list(rows(page))
    assert len(listed) > 10
    for row in listed:
        assert len(row) == len(COLUMNS), row
        assert all(len(cell) > 1 for cell in row), row
        _, here, test, _ = row
        assert "`" in here or here.startswith(NOT_HERE), row
        assert "`tests/" in test or test.startswith(NO_TEST), row
        for name in re.findall(r"`([^`]+/[^`]*)`", here):
            assert (ROOT / name.partition("::")[0]).exists(), name
