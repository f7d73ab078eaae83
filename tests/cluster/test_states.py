"""States of blocks in mid-stream: taken up as they were left, or not at all."""

import re
from pathlib import Path

import numpy as np
import pytest

from sparseoco.cluster.block import NO_FOLD, Block, Place
from sparseoco.cluster.corpus import open_corpus
from sparseoco.cluster.course import Course
from sparseoco.cluster.search import setting_of
from sparseoco.cluster.states import is_held, keep_state, take_up
from sparseoco.config import SearchOptions
from sparseoco.shards import Store
from tests.stores import make_store

GRID = {"lam": [1e-4, 1e-2], "eta0": [0.1, 1.0]}


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Block, Course]:
    """A folder with the state of a block in the middle of its stream."""
    store = Store.open(make_store(tmp_path / "store"))
    options = SearchOptions(algorithms={"cl-fobos": GRID}, folds=1)
    grid = tuple(configuration.parameters for configuration in options.configurations())
    block = Block(setting=setting_of(options, store, NO_FOLD), algorithm="cl-fobos", configurations=grid)
    course = Course.begin(block, store)
    for _ in course.advance(open_corpus(store, tmp_path), Place(1, 100)):
        pass
    keep_state(tmp_path / "states", course)
    return tmp_path / "states", block, course


def test_a_state_is_taken_up_as_it_was_left(kept: tuple[Path, Block, Course]) -> None:
    folder, block, course = kept
    found = take_up(folder, block, Place(1, 200))
    assert found is not None
    assert found.place == (1, 100)
    assert found.before.rows == course.before.rows
    assert found.curves == course.curves
    assert np.array_equal(found.learner.weights(), course.learner.weights())
    assert take_up(folder, block, Place(1, 99)) is None


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        (r'"rows": 0', '"rows": 1'),
        (r'"error_count": \[\n *0', '"error_count": [5'),
        (r'"place": \[\n *1,\n *100', '"place": [1, 90'),
        (r'"lam": 0.0001', '"lam": 0.0002'),
        (r'"rows": 0', '"row": 0'),
    ],
)
def test_a_description_that_was_not_written_so_is_not_believed(
    kept: tuple[Path, Block, Course], said: str, instead: str
) -> None:
    folder, block, _ = kept
    (path,) = folder.glob("*.json")
    text = path.read_text()
    changed = re.sub(said, instead, text, count=1)
    assert changed != text
    path.write_text(changed)
    assert take_up(folder, block, Place(1, 200)) is None
    assert not is_held(folder, block, Place(1, 100))
