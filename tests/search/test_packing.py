"""Blocks of a search: nothing lost or twice, even between tasks; rungs, survivors and patience as rules."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.search import packing
from sparseoco.search.packing import BlockKey, Capacity, Job, pack
from sparseoco.search.selection import (
    MIN_RUNG_ROWS,
    epochs_without_improvement,
    plan_stages,
    rung_positions,
    survivors,
)
from sparseoco.store.shards import Store
from sparseoco.training.block import search_setting
from sparseoco.training.options import Halving
from sparseoco.training.stream import NO_FOLD, StreamPosition
from tests.support.searches import plain_search
from tests.support.stores import make_store

LEGS = (StreamPosition(1, 60),)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder: Path = make_store(tmp_path_factory.mktemp("store"), rows=60, features=20)
    return Store.open(folder)


def packed(store: Store, configurations: int, folds: int, tasks: int, column_bytes: float = 1e9) -> list[Job]:
    lam = [float(k) for k in range(1, configurations + 1)]
    options = plain_search(algorithms={"cl-fobos": {"lam": lam}}, folds=folds)
    packs: dict[BlockKey, list[Any]] = {}
    for fold in range(folds) if folds > 1 else [NO_FOLD]:
        for configuration in options.configurations():
            key = BlockKey.of(search_setting(options, store, fold), LEGS, None, configuration)
            packs.setdefault(key, []).append(configuration)
    return pack(packs, options, store, Capacity(tasks, column_bytes), resumable=False)


def end(jobs: list[Job], tasks: int, store: Store) -> float:
    return packing.schedule([(packing.job_cost(job, store), 1) for job in jobs], tasks)[0]


def total(jobs: list[Job], store: Store) -> float:
    return sum(packing.job_cost(job, store) for job in jobs)


@given(
    configurations=st.integers(1, 150),
    folds=st.integers(1, 7),
    tasks=st.integers(1, 40),
)
def test_every_configuration_once_and_no_task_much_longer(
    store: Store, configurations: int, folds: int, tasks: int
) -> None:
    jobs = packed(store, configurations, folds, tasks)
    keys = [key for job in jobs for key in job.block.keys]
    assert len(keys) == len(set(keys)) == configurations * folds
    assert max(len(job.block.configurations) for job in jobs) <= packing.BLOCK_COLUMNS
    costs = [packing.job_cost(job, store) for job in jobs]
    assert costs == sorted(costs, reverse=True)
    assert end(jobs, tasks, store) <= end(packed(store, configurations, folds, 1), tasks, store)


@given(
    configurations=st.integers(1, 100),
    folds=st.integers(1, 4),
    tasks=st.integers(1, 20),
    columns=st.integers(1, 128),
)
def test_the_end_is_not_later_than_that_of_the_widest_blocks_and_memory_suffices(
    store: Store, configurations: int, folds: int, tasks: int, columns: int
) -> None:
    bytes_free = 8.0 * store.n_features * (1 + 2 * columns)
    jobs = packed(store, configurations, folds, tasks, bytes_free)
    assert all(packing.state_bytes(job.block, store) <= bytes_free for job in jobs)
    keys = [key for job in jobs for key in job.block.keys]
    assert len(keys) == len(set(keys)) == configurations * folds
    widest = sorted(packed(store, configurations, folds, 1, bytes_free), key=lambda job: -packing.job_cost(job, store))
    assert 0.99 * end(jobs, tasks, store) <= end(widest, tasks, store)


def test_few_configurations_keep_many_tasks_busy(store: Store) -> None:
    (wide,) = packed(store, 16, 1, 1)
    one = packing.job_cost(wide, store)
    two, eight = packed(store, 16, 1, 2), packed(store, 16, 1, 8)
    assert end(two, 2, store) <= 0.8 * one
    assert end(eight, 8, store) <= 0.6 * one
    assert total(eight, store) <= 2.5 * one


@pytest.mark.parametrize(
    ("configurations", "folds", "least"), [(64, 5, 1.8), (32, 5, 1.7), (64, 2, 2.0), (512, 5, 1.95)]
)
def test_two_tasks_end_together(store: Store, configurations: int, folds: int, least: float) -> None:
    one, two = packed(store, configurations, folds, 1), packed(store, configurations, folds, 2)
    assert end(one, 1, store) / end(two, 2, store) >= least


def test_rungs_are_a_function_of_size_and_options() -> None:
    assert rung_positions(Halving(factor=2), 100_000, 8) == [12_500, 25_000, 50_000]
    assert rung_positions(Halving(factor=2), 5000, 8) == [1250, 2500]
    assert rung_positions(Halving(factor=3), 100_000, 9) == [11_111, 33_333]
    assert rung_positions(Halving(factor=3), 100_000, 10) == [3704, 11_111, 33_333]
    assert rung_positions(Halving(factor=4, rungs=(0.5, 0.1, 0.1)), 10_000, 2) == [1000, 5000]
    assert rung_positions(Halving(factor=2), 1, 100) == []


@given(
    factor=st.floats(1.01, 10),
    n_rows=st.integers(1, 10**6),
    epochs=st.integers(1, 6),
    patience=st.none() | st.integers(1, 6),
    configurations=st.integers(1, 1000),
)
def test_stages_lead_to_the_end(
    factor: float, n_rows: int, epochs: int, patience: int | None, configurations: int
) -> None:
    options = plain_search(algorithms={"fobos": {}}, epochs=epochs, patience=patience, halving=Halving(factor=factor))
    stages = plan_stages(options, n_rows, configurations)
    assert all(before.goal < after.goal for before, after in pairwise(stages))
    assert [stage.rule == "end" for stage in stages] == [False] * (len(stages) - 1) + [True]
    assert stages[-1].goal == StreamPosition(epochs, n_rows)
    for stage in stages:
        assert stage.milestones[-1] == stage.goal
        if stage.rule == "halving":
            assert stage.goal.epoch == 1
            assert MIN_RUNG_ROWS <= stage.goal.position < n_rows


def row(error: float, loss: float = 0.0, status: str = "ok") -> dict[str, Any]:
    return {"progressive_error": error, "progressive_loss": loss, "held_out_error": error, "status": status}


@given(
    table=st.lists(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=2), max_size=20),
    factor=st.floats(1.01, 8),
)
def test_survivors_are_the_best_and_never_none_of_the_well(table: list[list[tuple[int, bool]]], factor: float) -> None:
    figures = {
        str(i): [row(error / 4, status="ok" if well else "diverged") for error, well in folds]
        for i, folds in enumerate(table)
    }
    well = {name: sum(r["progressive_error"] for r in rows) for name, rows in figures.items()}
    well = {name: error for name, error in well.items() if all(r["status"] == "ok" for r in figures[name])}
    best = survivors(figures, factor)
    assert best <= set(well)
    assert bool(best) == bool(well)
    assert len(best) <= max(1, len(figures) / factor + 1)
    for kept in best:
        for dropped in set(well) - best:
            assert (well[kept], int(kept)) < (well[dropped], int(dropped))


def test_ties_are_settled_by_loss_then_by_number() -> None:
    figures = {"a": [row(0.1, 0.5)], "b": [row(0.1, 0.4)], "c": [row(0.1, 0.4)], "d": [row(0.2, 0.1)]}
    assert survivors(figures, 4) == {"b"}
    assert survivors(figures, 2) == {"b", "c"}
    assert survivors(figures, 1.4) == {"a", "b", "c"}


def test_epochs_without_improvement() -> None:
    def since(*errors: float, by: float = 0.0) -> int:
        return epochs_without_improvement([[row(error) | {"held_out_rows": 5}] for error in errors], by)

    assert since(0.3) == 0
    assert since(0.3, 0.2) == 0
    assert since(0.3, 0.3) == 1
    assert since(0.3, 0.2, 0.25, 0.2) == 2
    assert since(0.3, 0.2, 0.25, 0.19) == 0
    assert since(0.30, 0.29, 0.28, 0.27, by=0.02) == 0  # small steps add up: 0.27 is 0.03 below 0.30
    assert since(0.30, 0.29, 0.285, by=0.02) == 2
    assert epochs_without_improvement([[row(0.2) | {"held_out_rows": 0}], [row(0.2) | {"held_out_rows": 0}]], 0) == 1
