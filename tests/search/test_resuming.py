"""What a search resumes from: checkpoints, cells and the results of increments, loaded as saved or ignored."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparseoco.search.increments import EMPTY, FILE, IncrementResults, read_increment_results
from sparseoco.search.worker import BlockRun, has_checkpoint, load_checkpoint, save_checkpoint
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store
from sparseoco.training.block import Block
from sparseoco.training.stream import StreamPosition
from tests.support.searches import block_of, learn_up_to, plain_search
from tests.support.stores import make_store

# ----------------------------------------------------------------------------------------------------------------------
# Checkpoints of blocks within a stream: loaded as saved, or ignored.


GRID = {"lam": [1e-4, 1e-2], "eta0": [0.1, 1.0]}


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Block, BlockRun]:
    """A folder with the state of a block in the middle of its stream."""
    store = Store.open(make_store(tmp_path / "store"))
    options = plain_search(algorithms={"cl-fobos": GRID}, folds=1)
    block = block_of(options, store)
    run = BlockRun.new(block, store)
    learn_up_to(run, open_corpus(store, tmp_path), StreamPosition(1, 100))
    save_checkpoint(tmp_path / "states", run)
    return tmp_path / "states", block, run


def test_a_state_is_loaded_as_saved(kept: tuple[Path, Block, BlockRun]) -> None:
    folder, block, run = kept
    found = load_checkpoint(folder, block, StreamPosition(1, 200))
    assert found is not None
    assert found.position == (1, 100)
    assert found.epoch_start.rows == run.epoch_start.rows
    assert found.curves == run.curves
    assert np.array_equal(found.learner.weights(), run.learner.weights())
    assert load_checkpoint(folder, block, StreamPosition(1, 99)) is None


@pytest.mark.fault(52)
def test_the_state_of_another_fold_is_not_believed(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    options = plain_search(algorithms={"cl-fobos": GRID}, folds=2)
    blocks = [block_of(options, store, fold) for fold in (0, 1)]
    for block in blocks:
        run = BlockRun.new(block, store)
        learn_up_to(run, open_corpus(store, tmp_path), StreamPosition(1, 100))
        save_checkpoint(tmp_path / "states", run)
    first, second = (tmp_path / "states").glob("*.learner")
    first.write_bytes(second.read_bytes())
    found = [load_checkpoint(tmp_path / "states", block, StreamPosition(1, 200)) for block in blocks]
    assert [state is None for state in found].count(True) == 1


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        (r'"rows": 0', '"rows": 1'),
        (r'"error_count": \[\n *0', '"error_count": [5'),
        (r'"position": \[\n *1,\n *100', '"position": [1, 90'),
        (r'"lam": 0.0001', '"lam": 0.0002'),
        (r'"rows": 0', '"row": 0'),
    ],
)
def test_a_description_that_was_not_written_so_is_not_believed(
    kept: tuple[Path, Block, BlockRun], said: str, instead: str
) -> None:
    folder, block, _ = kept
    (path,) = folder.glob("*.json")
    text = path.read_text()
    changed = re.sub(said, instead, text, count=1)
    assert changed != text
    path.write_text(changed)
    assert load_checkpoint(folder, block, StreamPosition(1, 200)) is None
    assert not has_checkpoint(folder, block, StreamPosition(1, 100))


# ----------------------------------------------------------------------------------------------------------------------
# The results of increments in one file: what the cells said, whatever was added first.


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
    every = {(version, name): expected(version, name) for version in range(1, last + 1) for name in NAMES}
    assert results.rows == {key: row for key, row in every.items() if row is not None}


def test_rows_are_those_of_the_cells(tmp_path: Path) -> None:
    results = EMPTY
    for last, names in [(1, ["a"]), (3, ["a", "c"]), (3, ["c", "b", "a"]), (6, NAMES)]:
        results = results.extended(f"plan {last}", digests(last), names, cell)
        results.write(tmp_path)
        results = read_increment_results(tmp_path)
    check(results, 6)
    assert (results.plan, list(results.settings)) == ("plan 6", digests(6))
    check(EMPTY.extended("plan 6", digests(6), NAMES, cell), 6)


def test_only_what_is_missing_is_asked_for() -> None:
    results, asked = EMPTY.extended("", digests(5), NAMES, cell), []

    def find(version: int, name: str) -> dict[str, Any] | None:
        asked.append((version, name))
        return cell(version, name)

    results.extended("", digests(6), NAMES, find)
    assert sorted(asked) == [(2, "b"), (6, "a"), (6, "b"), (6, "c")]


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    EMPTY.extended("", digests(2), ["b"], lambda *_: None).write(tmp_path)
    assert read_increment_results(tmp_path).rows == {}
    EMPTY.extended("", digests(2), NAMES, cell).write(tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    for damaged in (b"", whole[:-1], bytes([whole[0]]) + bytes([whole[1] ^ 1]) + whole[2:]):
        (tmp_path / FILE).write_bytes(damaged)
        assert read_increment_results(tmp_path) is EMPTY
