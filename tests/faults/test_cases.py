"""docs/operations/faults.md lists every case with the files that test it: tests marked `@pytest.mark.fault(number)`."""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.text.vocabulary import index as tokens
from sparseoco.text.vocabulary import merge
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes, jsonl

# ----------------------------------------------------------------------------------------------------------------------
# docs/operations/faults.md lists every case with the files that test it: tests marked `@pytest.mark.fault(number)`.


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


# ----------------------------------------------------------------------------------------------------------------------
# One more than a limit is one sentence with the figure.


@pytest.mark.fault(34, 61)
@pytest.mark.parametrize(("module", "limit"), [(tokens, "MAX_TOKENS"), (merge, "MAX_NGRAMS")])
def test_more_distinct_words_than_can_be_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, limit: str
) -> None:
    data = jsonl(["ab cd ef", "gh ij", "ab kl"])
    monkeypatch.setattr(module, limit, 6)
    assert ingest_bytes(tmp_path, "a.jsonl", data, out="fits").features.count == 6
    monkeypatch.setattr(module, limit, 5)
    with raises_code("too-many-terms", "More than 5 distinct", "hash_bits"):
        ingest_bytes(tmp_path, "a.jsonl", data)
    assert ingest_bytes(tmp_path, "a.jsonl", data, out="hashed", hash_bits=10).rows == 3


# ----------------------------------------------------------------------------------------------------------------------
# Workers on this machine.


@pytest.mark.fault(16)
def test_workers_spill_nothing_to_disk(tmp_path: Path) -> None:
    def shape(dask_worker: Any) -> tuple[type, Any]:
        return type(dask_worker.data), dask_worker.memory_manager.memory_spill_fraction

    with connect(ClusterOptions(threads=1, memory="1GiB"), tmp_path / "scratch") as client:
        assert set(client.run(shape).values()) == {(dict, False)}
