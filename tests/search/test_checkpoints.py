"""Checkpoints of blocks within a stream: loaded as saved, or ignored."""

import re
from pathlib import Path

import numpy as np
import pytest

from sparseoco.search.results import BlockRun, has_checkpoint, load_checkpoint, save_checkpoint
from sparseoco.store.corpus import open_corpus
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, search_setting
from sparseoco.training.stream import NO_FOLD, StreamPosition
from tests.support.searches import learn_up_to, plain_search
from tests.support.stores import make_store

GRID = {"lam": [1e-4, 1e-2], "eta0": [0.1, 1.0]}


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Block, BlockRun]:
    """A folder with the state of a block in the middle of its stream."""
    store = Store.open(make_store(tmp_path / "store"))
    options = plain_search(algorithms={"cl-fobos": GRID}, folds=1)
    grid = tuple(configuration.parameters for configuration in options.configurations())
    block = Block(setting=search_setting(options, store, NO_FOLD), algorithm="cl-fobos", configurations=grid)
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
    blocks = [Block.of(search_setting(options, store, fold), options.configurations()) for fold in (0, 1)]
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
