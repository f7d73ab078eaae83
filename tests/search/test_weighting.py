"""Weightings as a dimension of a search: each gives what a store of its values gives, bit for bit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from sparseoco.core.logs import no_progress
from sparseoco.core.option_models import validate
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.offline.cluster.optimum import lambda_max
from sparseoco.pipeline import steps
from sparseoco.search.runner import search_configurations
from sparseoco.storage.commit import read_json
from sparseoco.storage.tables import read_metrics
from sparseoco.store.shards import Store
from sparseoco.store.weighting import FeatureOptions, Weighting
from sparseoco.training.options import MixtureOptions, SearchOptions
from tests.support.errors import raises_code
from tests.support.searches import plain_search
from tests.support.stores import make_store, with_values

TFIDF = Weighting(tf="log", idf=True, norm="l2")
BINARY = Weighting(tf="binary", norm="l2")
FEATURES = FeatureOptions(tf=("log", "binary"), idf=(True, False), norm=("l2",))
OPTIONS = plain_search(
    algorithms={"cl-fobos": {"lam": [1e-4, 1e-3], "eta0": [1.0]}, "adagrad": {"lam": [1e-4]}}, folds=2, epochs=2
)
KEYS = ("configuration", "tf", "idf", "norm")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(threads=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), rows=150, features=80, shard_rows=60)


def search(client: Client, store: Path, folder: Path, options: SearchOptions) -> dict[str, Any]:
    tables = search_configurations(client, options.configurations(), options, Store.open(store), folder, no_progress)
    del tables["timings"]
    return tables


def with_features(options: SearchOptions, features: FeatureOptions) -> SearchOptions:
    return options.model_copy(update={"features": features})


def rows_of(table: list[dict[str, Any]], configurations: range) -> list[dict[str, Any]]:
    """The rows of some configurations, without their keys."""
    rows = [row for row in table if row["configuration"] in configurations]
    return [{name: value for name, value in row.items() if name not in KEYS} for row in rows]


def test_each_weighting_is_a_search_of_its_own(
    client: Client, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = search(client, store, tmp_path / "all", with_features(OPTIONS, FEATURES))
    metrics = found["metrics"]
    assert [Weighting.of(row) for row in metrics[::4]] == [w for w in FEATURES.weightings for _ in range(3)]
    for number, weighting in ((0, TFIDF), (3, BINARY)):
        (tmp_path / str(number)).mkdir()
        values = with_values(store, tmp_path / str(number) / "store", weighting)
        alone = search(client, values, tmp_path / str(number), OPTIONS)
        own = range(3 * number, 3 * number + 3)
        for table, rows in alone.items():
            assert rows_of(found[table], own) == rows_of(rows, range(3)), table
    monkeypatch.setattr("sparseoco.search.packing.BLOCK_COLUMNS", 1)
    monkeypatch.setattr("sparseoco.training.stream.CHUNK_ROWS", 7)
    other = make_store(tmp_path / "other", rows=150, features=80, shard_rows=41)
    assert search(client, other, tmp_path / "narrow", with_features(OPTIONS, FEATURES)) == found


def test_epoch_methods_learn_weighted_counts(client: Client, store: Path, tmp_path: Path) -> None:
    grids = {"cao-rcd": {"alpha": [0.1], "R": [1.0]}, "caos-erm": {"alpha": [0.1], "R": [1.0]}}
    options = plain_search(algorithms=grids, folds=2, epochs=1)
    (tmp_path / "values").mkdir()
    values = with_values(store, tmp_path / "values", TFIDF)
    expected = search(client, values, tmp_path / "a", options)
    found = search(client, store, tmp_path / "b", with_features(options, FEATURES))
    assert {row["status"] for row in found["metrics"]} == {"ok"}
    assert rows_of(found["metrics"], range(2)) == rows_of(expected["metrics"], range(2))


def test_a_search_resumes_with_more_weightings(client: Client, store: Path, tmp_path: Path) -> None:
    few = with_features(OPTIONS, FeatureOptions(tf=("log",), idf=(True,), norm=("l2",)))
    search(client, store, tmp_path / "grown", few)
    before = {path.name for path in (tmp_path / "grown" / "cells").iterdir()}
    more = with_features(OPTIONS, FEATURES)
    grown = search(client, store, tmp_path / "grown", more)
    assert before < {path.name for path in (tmp_path / "grown" / "cells").iterdir()}
    assert grown == search(client, store, tmp_path / "once", more)


@pytest.mark.usefixtures("early_rungs")
def test_halving_compares_weightings(client: Client, store: Path, tmp_path: Path) -> None:
    halving = plain_search(algorithms=OPTIONS.algorithms, folds=2, halving={"factor": 3, "rungs": [0.4]})
    metrics = search(client, store, tmp_path, with_features(halving, FEATURES))["metrics"]
    kept = {row["configuration"] for row in metrics if row["status"] == "ok"}
    assert len(kept) == 4
    assert {row["reason"] for row in metrics if row["configuration"] not in kept} == {
        "dropped at row 60 by successive halving"
    }


@pytest.mark.usefixtures("here")
def test_the_best_weighting_is_trained(store: Path, tmp_path: Path) -> None:
    cluster = ClusterOptions()
    steps.search(store, tmp_path, with_features(OPTIONS, FEATURES), cluster)
    best = read_json(tmp_path / "search" / "best.json")
    row = next(r for r in read_metrics(tmp_path).to_pylist() if r["configuration"] == best["configuration"])
    assert best["weighting"] == Weighting.of(row).model_dump()
    model = steps.train_best(store, tmp_path, cluster)
    assert read_json(model / "model.json")["weighting"] == best["weighting"]
    assert read_json(tmp_path / "run.json")["search"]["features"] == FEATURES.model_dump(mode="json")
    from_model = OPTIONS.model_copy(update={"warm_start": str(model)})
    with raises_code("weighting-differs", model):
        steps.search(store, tmp_path / "counts", from_model, cluster)
    same = FeatureOptions.model_validate(best["weighting"])
    steps.search(store, tmp_path / "warm", with_features(from_model, same), cluster)


@pytest.mark.usefixtures("here")
def test_a_mixture_has_one_weighting(store: Path, tmp_path: Path) -> None:
    with raises_code("unsupported-combination"):
        steps.train_auto(
            store, tmp_path / "m", with_features(OPTIONS, FEATURES), MixtureOptions(), ClusterOptions(), epochs=1
        )


@pytest.mark.usefixtures("here")
def test_a_grid_relative_to_lambda_max(client: Client, store: Path, tmp_path: Path) -> None:
    features = FeatureOptions(tf=("count", "log"), norm=("l2",))
    grids = {
        "cl-fobos": {"lam": {"relative": [2.0, 0.01]}, "eta0": [1.0]},
        "caos-erm": {"alpha": {"relative": [0.5]}, "R": [1.0]},
    }
    options = with_features(plain_search(algorithms=grids, folds=2), features)
    assert options.relative_parameters == {"cl-fobos": "lam", "caos-erm": "alpha"}
    steps.search(store, tmp_path, options, ClusterOptions())
    opened, described = Store.open(store), read_json(tmp_path / "run.json")["search"]
    resolved = SearchOptions.model_validate(described)
    assert not resolved.relative_parameters
    for weighting, own in zip(features.weightings, range(0, 6, 3), strict=True):
        largest = lambda_max(client, opened, weighting, "logistic", intercept=True)
        assert described["lambda_max"][weighting.label] == {"cl-fobos": largest, "caos-erm": 150 * largest}
        chosen = [configuration.parameters for configuration in resolved.configurations()[own : own + 3]]
        assert [p["lam"] for p in chosen if "lam" in p] == [2 * largest, 0.01 * largest]
        assert [p["alpha"] for p in chosen if "alpha" in p] == [0.5 * 150 * largest]
    metrics = read_metrics(tmp_path).to_pylist()
    assert {row["parameters"] for row in metrics} == {c.parameters_json for c in resolved.configurations()}


@pytest.mark.parametrize(
    "changes",
    [{"penalty": "l2"}, {"algorithms": {"cl-fobos": {"eta0": {"relative": [0.1]}}}}],
    ids=["no sparsity", "not a penalty"],
)
def test_what_is_not_relative_to_lambda_max(changes: dict[str, Any]) -> None:
    grids = {"algorithms": {"cl-fobos": {"lam": {"relative": [0.1]}}}}
    with raises_code("unsupported-combination", "λ_max"):
        validate(SearchOptions, grids | changes)
