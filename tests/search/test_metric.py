"""Searches that compare configurations by another metric than the error."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from sparseoco.core.logs import no_progress
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.pipeline.steps import describe_choice
from sparseoco.search.runner import search_configurations
from sparseoco.store.shards import Store
from sparseoco.training.metrics import majority_error
from sparseoco.training.options import AtMost, SearchOptions
from tests.support.searches import COUNTS, plain_search
from tests.support.stores import make_store

LAM = [1e-5, 1e-3, 1e-2, 0.5]
GRID: dict[str, Any] = {"cl-fobos": {"lam": LAM, "eta0": [0.5]}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(threads=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(make_store(tmp_path_factory.mktemp("store"), rows=240, features=80))


def run(client: Client, store: Store, folder: Path, options: SearchOptions) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = search_configurations(
        client, options.configurations(), options, store, folder, no_progress
    )["metrics"]
    return rows


@pytest.mark.usefixtures("early_rungs")
def test_halving_keeps_the_best_held_out_metric(client: Client, store: Store, tmp_path: Path) -> None:
    halving = {"factor": 2, "rungs": [0.5]}
    options = plain_search(algorithms=GRID, folds=2, metric="log_loss", halving=halving)
    metrics = run(client, store, tmp_path / "search", options)
    at_rung = [[row for row in metrics if row["configuration"] == c and row["status"] == "dropped"] for c in range(4)]
    dropped = [rows for rows in at_rung if rows]
    assert len(dropped) == 2
    assert all(row["held_out_rows"] > 0 and row["held_out_log_loss"] is not None for rows in dropped for row in rows)
    plain = plain_search(algorithms=GRID, folds=2, metric="error", halving=halving)
    by_error = run(client, store, tmp_path / "search", plain)
    assert all(row["held_out_rows"] == 0 for row in by_error if row["status"] == "dropped")


def test_another_metric_needs_no_new_training(client: Client, store: Store, tmp_path: Path) -> None:
    options = plain_search(algorithms=GRID, folds=2, epochs=3, patience=1)
    run(client, store, tmp_path / "search", options)
    cells = sorted((tmp_path / "search" / "cells").iterdir())
    by_auc = options.model_copy(update={"metric": "roc_auc", "patience": None, "epochs": 1})
    assert len(run(client, store, tmp_path / "search", by_auc)) == 8
    assert sorted((tmp_path / "search" / "cells").iterdir()) == cells


def test_the_choice_is_described(client: Client, store: Store, tmp_path: Path) -> None:
    options = plain_search(algorithms=GRID, folds=2, metric="log_loss")
    metrics = run(client, store, tmp_path / "search", options)
    best = describe_choice(metrics, options, store)
    values = [np.mean([row["held_out_log_loss"] for row in metrics if row["configuration"] == c]) for c in range(4)]
    assert (best["configuration"], best["value"]) == (int(np.argmin(values)), pytest.approx(min(values)))
    assert (best["metric"], best["baseline"], best["beats_baseline"]) == (
        "log_loss",
        pytest.approx(0.69, abs=0.01),
        True,
    )
    features = [max(row["features"] for row in metrics if row["configuration"] == c) for c in range(4)]
    small = describe_choice(metrics, options.model_copy(update={"select": AtMost(at_most=features[2])}), store)
    assert small["features"] <= features[2] < max(features)
    assert small["rule"] == "at-most"


def test_a_model_that_never_says_yes_does_not_beat_the_largest_class(store: Store) -> None:
    options = plain_search(algorithms={"cl-fobos": {"lam": [1e-3], "eta0": [0.5]}}, folds=3)
    rows = [
        {
            "configuration": 0,
            "algorithm": "cl-fobos",
            "parameters": json.dumps(options.configurations()[0].parameters),
            "fold": fold,
            "epoch": 1,
            "rows": 2 * n,
            "held_out_rows": n,
            "held_out_error": positives / n,
            "held_out_majority_error": majority_error([n - positives, positives]),
            "nonzeros": 4,
            "features": 4,
            "status": "ok",
            "reason": "",
        }
        for fold, (positives, n) in enumerate([(33, 992), (34, 1044), (35, 964)])
    ]
    best = describe_choice([row | COUNTS for row in rows], options, store)
    assert best["value"] == best["baseline"]
    assert not best["beats_baseline"]


def test_nothing_beats_the_largest_class(client: Client, store: Store, tmp_path: Path) -> None:
    options = plain_search(algorithms={"cl-fobos": {"lam": [100.0, 200.0], "eta0": [0.5]}}, folds=2, intercept=False)
    best = describe_choice(run(client, store, tmp_path / "search", options), options, store)
    assert not best["beats_baseline"]
    assert "no configuration beats always predicting the largest class" in best["notes"][0]
    assert "lam = 100 is the smallest value of its grid" in best["notes"][1]
