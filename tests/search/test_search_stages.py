"""Successive halving, patience, a time limit, a culprit among others, memory: who is left, and with which bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.kernels.order import epoch_rows
from sparseoco.search import results as block_run
from sparseoco.search import worker
from sparseoco.search.selection import choose
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Store, read_shards
from sparseoco.training.learner import Learner
from sparseoco.training.options import Halving, SearchOptions
from tests.support.commands import Cli
from tests.support.errors import raises_code
from tests.support.searches import plain_search, search_tables
from tests.support.stores import make_store

pytestmark = pytest.mark.usefixtures("early_rungs")
LAM, ETA = [1e-4, 1e-3, 1e-2, 1e-1], [0.01, 0.1, 1.0]
OPTIONS = plain_search(algorithms={"cl-fobos": {"lam": LAM, "eta0": ETA}}, folds=3, epochs=2)
HALVING = OPTIONS.model_copy(update={"halving": Halving(factor=2)})
RUNGS = (75, 150)  # of 300 rows; 38 is before the first 40
PATIENCE = OPTIONS.model_copy(update={"epochs": 6, "patience": 1})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), features=40)  # few enough for errors that fall slowly


def rows_of(metrics: list[dict[str, Any]], configuration: int) -> list[dict[str, Any]]:
    return [row for row in metrics if row["configuration"] == configuration]


def figures_at(store: Path, options: SearchOptions, position: int, fold: int) -> list[tuple[float, float]]:
    """Each configuration's progressive error and loss so far, by a learner of all of them that is stopped there."""
    X, _ = read_shards(store)
    rows = epoch_rows(options.seed, 1, True, X.shape[0], 0, position, fold, options.folds)
    grid = [configuration.parameters for configuration in options.configurations()]
    learner = Learner("cl-fobos", grid=grid, n_features=X.shape[1], dtype=options.dtype, intercept=True)
    learner.partial_fit(X[rows], Store.open(store).labels()[rows])
    n, losses, errors = learner.progress
    return [(float(error / n), float(loss / n)) for loss, error in zip(losses, errors, strict=True)]


@pytest.mark.parametrize("kept", [True, False])
def test_halving_is_ranking_by_hand_at_each_rung(
    client: Client, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr(
        worker, "_pays", lambda *_, **__: kept
    )  # checkpoints are loaded, or the stream is learned again
    got = search_tables(client, store, tmp_path / "halving", HALVING)
    whole = search_tables(client, store, tmp_path / "whole", OPTIONS)
    alive = list(range(len(LAM) * len(ETA)))
    for rung in RUNGS:
        folds = [figures_at(store, OPTIONS, rung, fold) for fold in range(3)]
        by_hand = sorted(alive, key=lambda c: (*np.mean([fold[c] for fold in folds], axis=0), c))
        for dropped in by_hand[len(alive) // 2 :]:
            rows = rows_of(got["metrics"], dropped)
            assert [row["status"] for row in rows] == ["dropped"] * 3
            assert {row["reason"] for row in rows} == {f"dropped at row {rung} by successive halving"}
            had = [(row["progressive_error"], row["progressive_loss"]) for row in rows]
            assert had == [fold[dropped] for fold in folds]
            assert all(row["nonzeros"] is not None and row["held_out_error"] is None for row in rows)
        alive = sorted(by_hand[: len(alive) // 2])
    assert len(alive) == 3
    for table in ("metrics", "curves", "feature_survival"):
        for survivor in alive:
            assert rows_of(got[table], survivor) == rows_of(whole[table], survivor)
    assert choose(got["metrics"], "best").configuration in alive
    assert not (tmp_path / "halving" / "checkpoints").exists()


def test_patience_stops_where_the_held_out_error_stands_still(client: Client, store: Path, tmp_path: Path) -> None:
    got = search_tables(client, store, tmp_path / "patient", PATIENCE)
    whole = search_tables(client, store, tmp_path / "whole", PATIENCE.model_copy(update={"patience": None}))["metrics"]
    ends = set()
    for configuration in range(len(LAM) * len(ETA)):
        rows = rows_of(whole, configuration)
        errors = [np.mean([row["held_out_error"] for row in rows if row["epoch"] == e]) for e in range(1, 7)]
        end = next((e for e in range(2, 6) if errors[e - 1] >= min(errors[: e - 1]) - 1e-15), 6)
        ends.add(end)
        mine = rows_of(got["metrics"], configuration)
        assert max(row["epoch"] for row in mine) == end
        last = [row for row in mine if row["epoch"] == end]
        if end < 6:
            assert {row["status"] for row in last} == {"stopped"}
            assert last[0]["reason"] == f"stopped after epoch {end}: none since epoch {end - 1} improved it"
        unmarked = [row | ({"status": "ok", "reason": ""} if row["status"] == "stopped" else {}) for row in mine]
        assert unmarked == [row for row in rows if row["epoch"] <= end]
    assert len(ends) > 1


def test_small_gains_are_none_where_an_improvement_has_a_size(client: Client, store: Path, tmp_path: Path) -> None:
    options = PATIENCE.model_copy(update={"patience": 2, "min_improvement": 0.9})
    metrics = search_tables(client, store, tmp_path / "s", options)["metrics"]
    assert {row["epoch"] for row in metrics if row["status"] == "stopped"} == {3}


def test_out_of_time_and_run_again_it_ends_with_the_same_tables(
    client: Client, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = PATIENCE.model_copy(update={"halving": HALVING.halving})
    expected = search_tables(client, store, tmp_path / "whole", options)
    monkeypatch.setattr(worker, "_pays", lambda *_, **__: True)
    monkeypatch.setattr(worker, "POLL_SECONDS", 0)
    monkeypatch.setattr("sparseoco.training.stream.CHUNK_ROWS", 50)
    runs, limit, unfinished = 0, 0.05, True
    while unfinished:
        limited = options.model_copy(update={"time_limit": limit})
        got = search_tables(client, store, tmp_path / "limited", limited)
        left = [row for row in got["metrics"] if row["status"] == "unfinished"]
        unfinished = bool(left)
        assert {row["reason"] for row in left} <= {f"not finished within the time limit of {limit:g} s"}
        runs, limit = runs + 1, limit * 1.3
    assert runs > 2
    assert got == expected
    assert not (tmp_path / "limited" / "stop").exists()


def test_a_failing_task_is_isolated_from_its_batch(
    client: Client, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, bad = block_run.Learner, OPTIONS.configurations()[5]

    def learner(algorithm: str, *, grid: Any, **settings: Any) -> Any:
        if any(parameters == bad.parameters for parameters in grid):
            raise MemoryError
        return whole(algorithm, grid=grid, **settings)

    expected = search_tables(client, store, tmp_path / "whole", OPTIONS)["metrics"]
    monkeypatch.setattr(block_run, "Learner", learner)
    got = search_tables(client, store, tmp_path / "culprit", OPTIONS)["metrics"]
    assert {(row["status"], row["reason"]) for row in rows_of(got, bad.number)} == {("failed", "out of memory")}
    assert [row for row in got if row["configuration"] != bad.number] == [
        row for row in expected if row["configuration"] != bad.number
    ]
    halved = search_tables(client, store, tmp_path / "halved", HALVING)["metrics"]
    assert {row["status"] for row in rows_of(halved, bad.number)} == {"failed"}
    assert sum(row["status"] == "ok" for row in halved) >= 2 * 3 * 2
    monkeypatch.undo()
    assert search_tables(client, store, tmp_path / "culprit", OPTIONS)["metrics"] == expected


def test_blocks_are_as_wide_as_the_memory_given(
    client: Client, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("PROCESS_BYTES", "CHUNK_BYTES", "FEATURE_BYTES", "MAPPED_BYTES"):
        monkeypatch.setattr(f"sparseoco.search.packing.{part}", 0)
    grid = {"cl-fobos": {"lam": [10.0**-k for k in range(1, 7)], "eta0": [0.1 * k for k in range(1, 9)]}}
    wide = OPTIONS.model_copy(update={"algorithms": grid, "folds": 2, "epochs": 1})
    expected = search_tables(client, store, tmp_path / "search", wide)
    cells = set((tmp_path / "search" / "cells").iterdir())
    column = 40 * (8 + 1 + 8)  # for each feature a state, a share of a stamp, and the weight of an evaluation
    held_out = 8 * (Store.open(store).n_rows // 2)
    small = wide.model_copy(update={"max_memory": 2 * (16 * (column + held_out) + 8 * 40)})  # for two tasks
    assert search_tables(client, store, tmp_path / "search", small) == expected
    assert set((tmp_path / "search" / "cells").iterdir()) == cells  # memory is no part of what a result is
    assert search_tables(client, store, tmp_path / "small", small) == expected
    widths = [len(read_json(path)["results"]) for path in (tmp_path / "small" / "cells").iterdir()]
    assert widths == [16] * 6
    with raises_code("out-of-memory", "--max-memory"):
        search_tables(client, store, tmp_path / "none", wide.model_copy(update={"max_memory": 2 * column}))


def test_sizes_and_times_have_units() -> None:
    options = plain_search(algorithms=OPTIONS.algorithms, halving=3, time_limit="1h 30min", max_memory="2GB")
    assert (options.halving, options.time_limit, options.max_memory) == (Halving(factor=3), 5400, 2_000_000_000)
    assert SearchOptions.model_validate(options.model_dump(mode="json")) == options


def test_an_epoch_method_runs_in_full_while_learners_are_halved(client: Client, store: Path, tmp_path: Path) -> None:
    both = {**HALVING.algorithms, "caos-erm": {"alpha": [0.1, 1.0], "R": [1.0]}}
    options = HALVING.model_copy(update={"algorithms": both, "folds": 2})
    metrics = search_tables(client, store, tmp_path / "both", options)["metrics"]
    alone = search_tables(client, store, tmp_path / "alone", HALVING.model_copy(update={"folds": 2}))["metrics"]
    assert [row for row in metrics if row["algorithm"] == "cl-fobos"] == alone
    rows = [row for row in metrics if row["algorithm"] == "caos-erm"]
    assert [(row["epoch"], row["status"]) for row in rows] == [(1, "ok"), (2, "ok")] * 4
    assert search_tables(client, store, tmp_path / "both", options)["metrics"] == metrics
    assert not (tmp_path / "both" / "checkpoints").exists()


def test_the_command_lists_unfinished_configurations(store: Path, tmp_path: Path, cli: Cli) -> None:
    run = tmp_path / "run"
    grid = "--algorithm cl-fobos --grid lam=1e-4,1e-3,1e-2,1e-1 --grid eta0=0.1,1 --folds 2 --halving 2 --epochs 4"
    limits = ("--patience", 1, "--max-memory", "1GB", "--threads", 1)
    command = ("search", store, "--out", run, *grid.split(), *limits)
    assert "unfinished" not in cli(*command).out
    page = (run / "report" / "report.html").read_text()
    assert "Of 8 configurations, 6 were dropped early" in page
    assert "by successive halving" in page
    # A cell is lost, and the time is over at once.
    min((run / "search" / "cells").glob("*-2-300.json")).unlink()
    assert "configurations unfinished" in cli(*command, "--time-limit", "0.000001").out
    assert "unfinished at the time limit" in (run / "report" / "report.html").read_text()
