"""Learners that are dense, or have several parts: sized, refused, stopped; by hand and with the bits of one in hand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.cli import options as command_line
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.kernels.order import epoch_rows, fold_rows
from sparseoco.learners import algorithm_names
from sparseoco.offline.regret.run import Regret
from sparseoco.pipeline import comparators, steps
from sparseoco.search import worker
from sparseoco.search.increments import IncrementChain
from sparseoco.search.packing import Capacity, Job, configurations_at_once, state_bytes
from sparseoco.search.run import train_model, write_held_out
from sparseoco.search.worker import Folders, average_epoch, learn_part, load_checkpoint
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Session, Store, read_shards
from sparseoco.training import validation as sizes
from sparseoco.training.block import Block, search_setting, search_settings
from sparseoco.training.decisions import read_predictions
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from sparseoco.training.options import SearchOptions
from sparseoco.training.stream import NO_FOLD, StreamPosition
from tests.oracles.losses import SLOPES
from tests.oracles.proximal import soft
from tests.support.errors import raises_code
from tests.support.models import dense_weights
from tests.support.searches import TablesOf, block_of, configuration, plain_search, search_tables, site
from tests.support.stores import make_store

pytestmark = pytest.mark.usefixtures("here")

# ----------------------------------------------------------------------------------------------------------------------
# Dense learners in the pipeline: sized, refused where they are too large, and with the bits of a learner in hand.


FEW = 24
HERE = ClusterOptions(threads=2)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), features=FEW, classes=3)


@pytest.mark.parametrize("algorithm", algorithm_names("dense"))
def test_training_gives_the_bits_of_a_learner(few: Path, tmp_path: Path, algorithm: str) -> None:
    options = plain_search(algorithms={algorithm: {}}, seed=3)
    chosen = configuration(algorithm)
    steps.train(few, tmp_path / "model", chosen, options, HERE, epochs=2)
    X, _ = read_shards(few)
    y = Store.open(few).labels()
    learner = Learner(algorithm, grid=[chosen.parameters], n_features=FEW, n_classes=3, dtype="float64")
    for epoch in (1, 2):
        order = epoch_rows(3, epoch, True, X.shape[0], 0, X.shape[0], NO_FOLD, 1)
        learner.partial_fit(X[order], y[order])
    learner.save(tmp_path / "learner")
    assert (tmp_path / "model" / "learner.npz").read_bytes() == (tmp_path / "learner").read_bytes()
    model = Model(tmp_path / "model")
    assert model.description["nonzeros"] == np.count_nonzero(learner.weights())
    again = options.model_copy(update={"warm_start": str(model.folder)})
    steps.train(few, tmp_path / "more", chosen, again, HERE, epochs=1)
    assert Model(tmp_path / "more").description["warm_start"]["state"]


@pytest.mark.parametrize("algorithm", algorithm_names("dense"))
def test_a_stopped_block_resumes(few: Path, tmp_path: Path, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It resumes from its checkpoint, not from the first row."""
    monkeypatch.setattr("sparseoco.training.stream.CHUNK_ROWS", 16)
    monkeypatch.setattr("sparseoco.search.worker.POLL_SECONDS", 0.0)
    monkeypatch.setattr("sparseoco.search.worker._pays", lambda *_, **__: True)
    opened, options = Store.open(few), plain_search(algorithms={algorithm: {}}, folds=2)
    block = block_of(options, opened, 0)
    job, seen = Job(block, (StreamPosition(1, 300),), resumable=False), []
    cells = []
    for name in ("stopped", "whole"):
        folders, looks = Folders.of(tmp_path / name), iter([False, False, False, True])

        def stopped(name: str = name, looks: Iterator[bool] = looks) -> bool:
            return name == "stopped" and next(looks, False)

        here = site(opened, tmp_path, seen.append, stopped)
        assert worker.run_block(here, job, folders) == (name == "whole")
        if name == "stopped":
            assert len(list(folders.checkpoints.glob("*.learner"))) == 1
            left = seen[-1]
            seen.clear()
            assert worker.run_block(site(opened, tmp_path, seen.append), job, folders)
            assert seen[0] > left
        (cell,) = folders.cells.iterdir()
        (result,) = read_json(cell)["results"]
        cells.append({name: rows for name, rows in result["tables"].items() if name != "timings"})
    assert cells[0] == cells[1]


def test_the_bytes_of_a_column_are_counted(few: Path) -> None:
    opened = Store.open(few)
    for algorithm, numbers in (("ogd", FEW), ("ons", FEW + FEW**2), ("onseg", FEW + FEW**2)):
        options = plain_search(algorithms={algorithm: {}}, folds=1)
        block = block_of(options, opened)
        assert state_bytes(block.select(2 * block.configurations), opened) == 2 * 3 * 8 * numbers
        assert configurations_at_once(block, options, opened, Capacity(1, 5 * 3 * 8 * numbers)) == 5
        with raises_code("out-of-memory", algorithm, "--features-from"):
            configurations_at_once(block, options, opened, Capacity(1, 3 * 8 * numbers - 1))


def test_too_many_features_are_refused_at_once(few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And let through where a model kept few enough of them."""
    monkeypatch.setattr(sizes, "DENSE_BYTES", 8 * 20**2)
    options = plain_search(algorithms={"cl-fobos": {}, "ons": {}}, folds=2)
    for run in (
        lambda: steps.search(few, tmp_path / "run", options, HERE),
        lambda: steps.train(few, tmp_path / "run", configuration("ons"), options, HERE, epochs=1),
    ):
        with raises_code("too-many-features", "ons", "d²", "24 features", "--features-from"):
            run()
        assert not (tmp_path / "run").exists()
    first = plain_search(algorithms={"rda": {}})
    steps.train(few, tmp_path / "first", configuration("rda", lam=0.05), first, HERE, epochs=1)
    narrowed = options.model_copy(update={"features_from": str(tmp_path / "first")})
    steps.train(few, tmp_path / "model", configuration("ons"), narrowed, HERE, epochs=1)
    assert 0 < Model(tmp_path / "model").description["features_from"]["features"] < 20


def test_regret_that_is_undefined_has_a_reason(few: Path, tmp_path: Path) -> None:
    options = plain_search(algorithms={"ogd": {}, "fobos": {"lam": [1e-3]}}, folds=1)
    steps.search(few, tmp_path, options, HERE)
    with raises_code("no-comparator", "ogd"):
        comparators.regret(tmp_path, HERE, marks=3, numbers=[0])
    assert comparators.regret(tmp_path, HERE, marks=3).exists()


# ----------------------------------------------------------------------------------------------------------------------
# Learners with several parts: iterative parameter mixing, by hand in dense NumPy, and the same bits however it ran.


ROWS, FEATURES, FOLD, FOLDS, EPOCHS, PARTS = 300, 60, 1, 3, 3, 4
ETA, LAM = 0.3, 1e-3
GRID = {"fobos": {"lam": [LAM], "eta0": [ETA, 0.5], "parts": [1, PARTS]}}


def options(**values: Any) -> SearchOptions:
    defaults = {"algorithms": GRID, "folds": FOLDS, "epochs": EPOCHS, "dtype": "float64"}
    return plain_search(**defaults | values)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(make_store(tmp_path_factory.mktemp("store"), rows=ROWS, features=FEATURES))


def dense(store: Store) -> tuple[np.ndarray, np.ndarray]:
    """(rows, features + 1), the last column the intercept, and labels ±1."""
    X, y = read_shards(store.folder)[0].toarray().astype(np.float64), store.labels()
    return np.hstack([X, np.ones((len(y), 1))]), 2.0 * y - 1


def mixed(X: np.ndarray, y: np.ndarray, parts: int, fold: int) -> list[tuple[np.ndarray, float]]:
    """McDonald et al. 2010, Figure 3, with the mixture weights of each feature by its rows; after every epoch.

    Of FOBOS with the logistic loss; (w, Σ loss).
    """
    w, t, found, lam = np.zeros(FEATURES + 1), 0, [], np.append(np.full(FEATURES, LAM), 0.0)
    for epoch in range(1, EPOCHS + 1):
        ends, counts, rounds, losses = [], [], 0, 0.0
        for part in range(parts):
            bounds = ROWS * part // parts, ROWS * (part + 1) // parts
            rows = epoch_rows(0, epoch, True, ROWS, *bounds, fold, FOLDS)
            own = w
            for s, (a, b) in enumerate(zip(X[rows], y[rows], strict=True), t + 1):
                losses += np.logaddexp(0.0, -b * (a @ own))
                own = soft(own - ETA / np.sqrt(s) * SLOPES["logistic"](a @ own, b) * a, lam * ETA / np.sqrt(s))
            ends.append(own)
            counts.append((X[rows] != 0).sum(axis=0))
            rounds += t + len(rows)
        total = np.sum(counts, axis=0)
        weighted = sum(n * own for n, own in zip(counts, ends, strict=True))
        w, t = np.where(total > 0, weighted / np.maximum(total, 1), w), rounds // parts
        found.append((w, losses))
    return found


@pytest.fixture(scope="module")
def searched(client: Client, store: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    given, folder = options(), tmp_path_factory.mktemp("search")
    return search_tables(client, store.folder, folder, given)


def test_the_metrics_are_those_of_mixing_by_hand(searched: dict[str, Any], store: Store) -> None:
    X, y = dense(store)
    found = [row for row in searched["metrics"] if (row["configuration"], row["fold"]) == (1, FOLD)]
    held_out = fold_rows(0, 0, ROWS, FOLD, FOLDS)
    learned = ROWS - held_out.size
    for row, (w, loss) in zip(found, mixed(X, y, PARTS, FOLD), strict=True):
        margins = y[held_out] * (X[held_out] @ w)
        assert row["progressive_loss"] == pytest.approx(loss / learned, rel=1e-9)
        assert row["held_out_loss"] == pytest.approx(np.logaddexp(0.0, -margins).mean(), rel=1e-9)
        assert row["held_out_error"] == np.mean(margins <= 0)
        assert (row["rows"], row["nonzeros"]) == (row["epoch"] * learned, np.count_nonzero(w[:-1]))
        assert (row["status"], row["held_out_rows"]) == ("ok", held_out.size)
    points = [row for row in searched["curves"] if (row["configuration"], row["fold"]) == (1, FOLD)]
    assert [point["rows"] for point in points] == [epoch * learned for epoch in range(1, EPOCHS + 1)]


def test_one_part_is_a_plain_learner(tables_of: TablesOf, searched: dict[str, Any], store: Store) -> None:
    plain = options(algorithms={"fobos": {"lam": [LAM], "eta0": [ETA, 0.5]}})
    tables = tables_of(store.folder, ".", plain)
    assert [c.parameters for c in plain.configurations()] == [
        c.parameters for c in options().configurations() if c.parts == 1
    ]
    for name in ("metrics", "curves", "feature_survival"):
        expected = [
            row | {"configuration": row["configuration"] // 2}
            for row in searched[name]
            if row["configuration"] % 2 == 0
        ]
        assert tables[name] == expected


@pytest.mark.usefixtures("early_rungs")
def test_parts_run_to_the_end_beside_halving(tables_of: TablesOf, searched: dict[str, Any], store: Store) -> None:
    given = options(halving=2)
    tables = tables_of(store.folder, ".", given)
    divided = [row for row in tables["metrics"] if row["configuration"] % 2]
    assert divided == [row for row in searched["metrics"] if row["configuration"] % 2]
    assert "dropped" in {row["status"] for row in tables["metrics"] if row["configuration"] % 2 == 0}


def a_block(store: Store, numbers: tuple[int, ...] = (1, 3)) -> Block:
    given = options()
    chosen = [configuration for configuration in given.configurations() if configuration.number in numbers]
    return Block.of(search_setting(given, store, FOLD), chosen)


def learner_bytes(folder: Path, block: Block) -> bytes:
    run = load_checkpoint(Folders.of(folder).checkpoints, block, StreamPosition(EPOCHS, ROWS))
    run.learner.save(folder / "learner.npz")
    return (folder / "learner.npz").read_bytes()


def run_block(block: Block, store: Store, folder: Path, order: tuple[int, ...] = tuple(range(PARTS))) -> bytes:
    """Learn the parts here, in this order, every task twice."""
    here, folders = site(store, folder / "scratch"), Folders.of(folder)
    for epoch in range(1, EPOCHS + 1):
        for part in order:
            for _ in range(2):
                learn_part(here, block, epoch, part, folders)
        for _ in range(2):
            average_epoch(here, block, epoch, folders)
        learn_part(here, block, epoch, order[0], folders)  # Dask may run a task again: its epoch is averaged
    assert not list((folder / "checkpoints").glob("*-part-*"))
    return learner_bytes(folder, block)


def test_bits_depend_neither_on_the_order_of_tasks_nor_on_the_grouping(store: Store, tmp_path: Path) -> None:
    both, alone = a_block(store), a_block(store, (1,))
    expected = run_block(alone, store, tmp_path / "alone")
    assert run_block(alone, store, tmp_path / "reversed", (3, 2, 1, 0)) == expected
    run_block(both, store, tmp_path / "both")
    assert learner_bytes(tmp_path / "both", alone) == expected


def test_a_stopped_search_continues_from_its_parts(
    tables_of: TablesOf, searched: dict[str, Any], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill: a part, an average or a cell may be all that was committed."""
    given = options(algorithms={"fobos": {"lam": [LAM], "eta0": [ETA, 0.5], "parts": [PARTS]}})
    block = Block.of(search_setting(given, store, 0), given.configurations())
    folders, here = Folders.of(tmp_path), site(store, tmp_path / "scratch")
    for part in (2, 0, 1, 3):
        learn_part(here, block, 1, part, folders)
    monkeypatch.setattr("sparseoco.search.worker.save_checkpoint", lambda *_: None)  # killed after the cell
    average_epoch(here, block, 1, folders)
    monkeypatch.undo()
    tables = tables_of(store.folder, ".", given)
    for row, expected in zip(
        tables["metrics"], [row for row in searched["metrics"] if row["configuration"] % 2], strict=True
    ):
        assert row | {"configuration": 0} == expected | {"configuration": 0}
    assert not (tmp_path / "checkpoints").exists()


def test_a_model_of_parts(client: Client, store: Store, tmp_path: Path) -> None:
    given = options(folds=1)
    wanted = {"lam": LAM, "eta0": ETA, "step": "sqrt", "model": "linear", "parts": PARTS}
    (chosen,) = [c for c in given.configurations() if c.parameters == wanted]
    train_model(Session(client, store), chosen, given, tmp_path / "model", {})
    model, (X, y) = Model(tmp_path / "model"), dense(store)
    w = mixed(X, y, PARTS, NO_FOLD)[-1][0]
    np.testing.assert_allclose(dense_weights(model, FEATURES)[:, 0], w[:-1], rtol=1e-9, atol=1e-12)
    assert model.intercepts[0] == pytest.approx(w[-1], rel=1e-9)
    assert model.description["parameters"]["parts"] == PARTS
    assert model.description["rounds"] == EPOCHS * ROWS // PARTS
    assert not (tmp_path / "model" / ".work").exists()
    before = (tmp_path / "model" / "weights.parquet").stat().st_mtime_ns
    train_model(Session(client, store), chosen, given, tmp_path / "model", {})
    assert (tmp_path / "model" / "weights.parquet").stat().st_mtime_ns == before


def test_held_out_predictions_are_of_the_averaged_weights(client: Client, store: Store, tmp_path: Path) -> None:
    given = options()
    blocks = [Block.of(setting, [given.configurations()[1]]) for setting in search_settings(given, store)]
    write_held_out(Session(client, store), blocks, tmp_path)
    found, (X, y) = read_predictions(tmp_path / "held_out.parquet", store.classes), dense(store)
    own = found.folds == FOLD
    w = mixed(X, y, PARTS, FOLD)[-1][0]
    margins = X[fold_rows(0, 0, ROWS, FOLD, FOLDS)] @ w
    np.testing.assert_allclose(np.sort(found.margins[own, 0]), np.sort(margins), rtol=1e-9)


def test_divergence_in_a_part_is_reported_by_the_row_of_the_stream(tables_of: TablesOf, store: Store) -> None:
    given = options(
        algorithms={"fobos": {"lam": [0.0], "eta0": [1e200], "parts": [2]}}, folds=1, loss="squared_hinge", epochs=2
    )
    tables = tables_of(store.folder, ".", given)
    assert {row["status"] for row in tables["metrics"]} == {"diverged"}
    assert tables["metrics"][0]["reason"].startswith("diverged at row ")
    assert all(np.isfinite(row["progressive_loss"]) for row in tables["metrics"])


def test_parts_of_other_learners() -> None:
    assert options(algorithms={"ogd": {}}).configurations()[0].parts == 1
    (of_a_pass,) = options(algorithms={"caos-erm": {"parts": 2}}).configurations()  # its own parameter
    assert (of_a_pass.parts, of_a_pass.parameters["parts"]) == (1, 2)


def test_what_continues_a_single_learner_refuses_parts(client: Client, store: Store, tmp_path: Path) -> None:
    given = options(folds=1, algorithms={"fobos": {"lam": [LAM], "parts": [2]}})
    with raises_code("unsupported-combination"):
        IncrementChain(given, store.folder, 1, 0, tmp_path)
    with raises_code("no-comparator"):
        Regret(Session(client, store), given, tmp_path, 3, 1e-3).measure(given.configurations())


def test_a_grid_of_the_command_line_takes_parts_for_the_learners_that_do() -> None:
    tables = command_line.search_tables(["rda", "ogd", "caos-erm"], ["parts=1,4"], "l1")
    assert [tables[name].get("parts") for name in ("rda", "ogd", "caos-erm")] == [[1, 4], None, [1, 4]]
    assert {c.parts for c in options(algorithms={"rda": tables["rda"]}).configurations()} == {1, 4}
