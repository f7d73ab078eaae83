"""The results of increments in one file: what the cells said, whatever was added first."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparseoco.search.results import EMPTY, FILE, IncrementResults, read_increment_results

NAMES = ["a", "b", "c"]


def cell(version: int, name: str) -> dict[str, Any] | None:
    """The metrics of a configuration in an increment; one has none in the second, one has diverged."""
    if (version, name) == (2, "b"):
        return None
    diverged = name == "c" and version > 2
    return {
        "epoch": 1,
        "progressive_loss": None if diverged else version / 3 + ord(name) / 7,
        "progressive_error": None if name == "a" else 1 / (version + 1),
        "nonzeros": 10**15 + version,
        "features": version,
        "status": "diverged" if diverged else "ok",
        "reason": f"diverged at row {7}" if diverged else "",
    }


def digests(last: int) -> list[str]:
    return [f"setting {version}" for version in range(1, last + 1)]


def expected(version: int, name: str) -> dict[str, Any] | None:
    row = cell(version, name)
    return row and {key: value for key, value in row.items() if key != "epoch"}


def check(results: IncrementResults, last: int) -> None:
    for name in NAMES:
        assert results.known(name).tolist() == [cell(v, name) is not None for v in range(1, last + 1)]
        for version in range(1, last + 1):
            assert results.row(version, name) == expected(version, name)
    assert results.row(last + 1, "a") is None
    assert not results.known("unknown").any()


def test_rows_are_those_of_the_cells(tmp_path: Path) -> None:
    results = EMPTY
    for last, names in [(1, ["a"]), (3, ["a", "c"]), (3, ["c", "b", "a"]), (6, NAMES)]:
        results = results.extended(f"plan {last}", digests(last), names, cell)
        results.write(tmp_path)
        results = read_increment_results(tmp_path)
    check(results, 6)
    assert (results.plan, list(results.settings)) == ("plan 6", digests(6))
    once = EMPTY.extended("plan 6", digests(6), NAMES, cell)
    check(once, 6)


def test_only_what_is_missing_is_asked_for() -> None:
    results, asked = EMPTY.extended("", digests(5), NAMES, cell), []

    def find(version: int, name: str) -> dict[str, Any] | None:
        asked.append((version, name))
        return cell(version, name)

    results.extended("", digests(6), NAMES, find)
    assert sorted(asked) == [(2, "b"), (6, "a"), (6, "b"), (6, "c")]


@pytest.mark.parametrize("change", [{"outcome": np.zeros((1, 1), np.int32)}, {"outcomes": []}])
def test_a_file_of_another_shape_is_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    EMPTY.extended("", digests(2), NAMES, cell)._replace(**change).write(tmp_path)
    assert read_increment_results(tmp_path) is EMPTY
    (tmp_path / FILE).write_bytes(b"")
    assert read_increment_results(tmp_path) is EMPTY
