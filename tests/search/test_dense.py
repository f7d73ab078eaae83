"""Dense learners in the pipeline: sized, refused where they are too large, and with the bits of a learner in hand."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.kernels.order import epoch_rows
from sparseoco.learners import algorithm_names
from sparseoco.pipeline import comparators, steps
from sparseoco.search.packing import Capacity, configurations_at_once, state_bytes
from sparseoco.search.worker import Folders, run_block
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Store, read_shards
from sparseoco.training import validation as sizes
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from sparseoco.training.stream import NO_FOLD, StreamPosition
from tests.support.errors import raises_code
from tests.support.searches import block_of, configuration, plain_search, site
from tests.support.stores import make_store

FEATURES = 24
HERE = ClusterOptions(threads=2)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), features=FEATURES, classes=3)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("algorithm", algorithm_names("dense"))
def test_training_gives_the_bits_of_a_learner(store: Path, tmp_path: Path, algorithm: str) -> None:
    options = plain_search(algorithms={algorithm: {}}, seed=3)
    chosen = configuration(algorithm)
    steps.train(store, tmp_path / "model", chosen, options, HERE, epochs=2)
    X, _ = read_shards(store)
    y = Store.open(store).labels()
    learner = Learner(algorithm, grid=[chosen.parameters], n_features=FEATURES, n_classes=3, dtype="float64")
    for epoch in (1, 2):
        order = epoch_rows(3, epoch, True, X.shape[0], 0, X.shape[0], NO_FOLD, 1)
        learner.partial_fit(X[order], y[order])
    learner.save(tmp_path / "learner")
    assert (tmp_path / "model" / "learner.npz").read_bytes() == (tmp_path / "learner").read_bytes()
    model = Model(tmp_path / "model")
    assert model.description["nonzeros"] == np.count_nonzero(learner.weights())
    again = options.model_copy(update={"warm_start": str(model.folder)})
    steps.train(store, tmp_path / "more", chosen, again, HERE, epochs=1)
    assert Model(tmp_path / "more").description["warm_start"]["state"]


@pytest.mark.parametrize("algorithm", algorithm_names("dense"))
def test_a_stopped_block_resumes(store: Path, tmp_path: Path, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It resumes from its checkpoint, not from the first row."""
    monkeypatch.setattr("sparseoco.training.stream.CHUNK_ROWS", 16)
    monkeypatch.setattr("sparseoco.search.worker.POLL_SECONDS", 0.0)
    monkeypatch.setattr("sparseoco.search.worker._pays", lambda *_, **__: True)
    opened, options = Store.open(store), plain_search(algorithms={algorithm: {}}, folds=2)
    block = block_of(options, opened, 0)
    milestones, seen = [StreamPosition(1, 300)], []
    cells = []
    for name in ("stopped", "whole"):
        folders, looks = Folders.of(tmp_path / name), iter([False, False, False, True])

        def stopped(name: str = name, looks: Iterator[bool] = looks) -> bool:
            return name == "stopped" and next(looks, False)

        here = site(opened, tmp_path, seen.append, stopped)
        assert run_block(here, block, milestones, folders) == (name == "whole")
        if name == "stopped":
            assert len(list(folders.checkpoints.glob("*.learner"))) == 1
            left = seen[-1]
            seen.clear()
            assert run_block(site(opened, tmp_path, seen.append), block, milestones, folders)
            assert seen[0] > left
        (cell,) = folders.cells.iterdir()
        (result,) = read_json(cell)["results"]
        cells.append({name: rows for name, rows in result["tables"].items() if name != "timings"})
    assert cells[0] == cells[1]


def test_the_bytes_of_a_column_are_counted(store: Path) -> None:
    opened = Store.open(store)
    for algorithm, numbers in (("ogd", FEATURES), ("ons", FEATURES + FEATURES**2), ("onseg", FEATURES + FEATURES**2)):
        options = plain_search(algorithms={algorithm: {}}, folds=1)
        block = block_of(options, opened)
        assert state_bytes(block.select(2 * block.configurations), opened) == 2 * 3 * 8 * numbers
        assert configurations_at_once(block, options, opened, Capacity(1, 5 * 3 * 8 * numbers)) == 5
        with raises_code("out-of-memory", algorithm, "--features-from"):
            configurations_at_once(block, options, opened, Capacity(1, 3 * 8 * numbers - 1))


@pytest.mark.usefixtures("here")
def test_too_many_features_are_refused_at_once(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And let through where a model kept few enough of them."""
    monkeypatch.setattr(sizes, "DENSE_BYTES", 8 * 20**2)
    options = plain_search(algorithms={"cl-fobos": {}, "ons": {}}, folds=2)
    for run in (
        lambda: steps.search(store, tmp_path / "run", options, HERE),
        lambda: steps.train(store, tmp_path / "run", configuration("ons"), options, HERE, epochs=1),
    ):
        with raises_code("too-many-features", "ons", "d²", "24 features", "--features-from"):
            run()
        assert not (tmp_path / "run").exists()
    first = plain_search(algorithms={"rda": {}})
    steps.train(store, tmp_path / "first", configuration("rda", lam=0.05), first, HERE, epochs=1)
    few = options.model_copy(update={"features_from": str(tmp_path / "first")})
    steps.train(store, tmp_path / "model", configuration("ons"), few, HERE, epochs=1)
    assert 0 < Model(tmp_path / "model").description["features_from"]["features"] < 20


@pytest.mark.usefixtures("here")
def test_regret_that_is_undefined_has_a_reason(store: Path, tmp_path: Path) -> None:
    options = plain_search(algorithms={"ogd": {}, "fobos": {"lam": [1e-3]}}, folds=1)
    steps.search(store, tmp_path, options, HERE)
    with raises_code("no-comparator", "ogd"):
        comparators.regret(tmp_path, HERE, marks=3, numbers=[0])
    folder = comparators.regret(tmp_path, HERE, marks=3)
    assert folder.exists()
