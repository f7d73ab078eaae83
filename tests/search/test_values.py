"""What is learned of a row: its weighting, its weight, that of its class, an intercept; and what is predicted of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client
from sklearn.utils.class_weight import compute_class_weight

from sparseoco.core.option_models import validate
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.kernels.order import epoch_rows, fold_rows
from sparseoco.learners.losses import logistic_value
from sparseoco.offline.cluster.passes import RowsSource, lambda_max
from sparseoco.pipeline import steps
from sparseoco.search.run import write_block
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Store, read_shards, store_reference
from sparseoco.store.weighting import FeatureOptions, Weighting
from sparseoco.training.block import Origin, take_weights
from sparseoco.training.decisions import Predictions, fit_calibration, read_predictions
from sparseoco.training.learner import Learner
from sparseoco.training.metrics import class_probabilities
from sparseoco.training.models import Model
from sparseoco.training.options import SearchOptions, ThresholdRule
from sparseoco.training.search_tables import read_metrics
from tests.support.errors import raises_code
from tests.support.models import dense_weights
from tests.support.searches import COUNTS, TablesOf, block_of, plain_search, site
from tests.support.stores import make_store, store_of, with_values

pytestmark = pytest.mark.usefixtures("here")

# ----------------------------------------------------------------------------------------------------------------------
# Weightings as a dimension of a search: each gives what a store of its values gives, bit for bit.


TFIDF = Weighting(tf="log", idf=True, norm="l2")
BINARY = Weighting(tf="binary", norm="l2")
FEATURES = FeatureOptions(tf=("log", "binary"), idf=(True, False), norm=("l2",))
OPTIONS = plain_search(
    algorithms={"cl-fobos": {"lam": [1e-4, 1e-3], "eta0": [1.0]}, "adagrad": {"lam": [1e-4]}}, folds=2, epochs=2
)
KEYS = ("configuration", "tf", "idf", "norm")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"), rows=150, features=80, shard_rows=60)


def with_features(options: SearchOptions, features: FeatureOptions) -> SearchOptions:
    return options.model_copy(update={"features": features})


def rows_of(table: list[dict[str, Any]], configurations: range) -> list[dict[str, Any]]:
    """The rows of some configurations, without their keys."""
    rows = [row for row in table if row["configuration"] in configurations]
    return [{name: value for name, value in row.items() if name not in KEYS} for row in rows]


def test_each_weighting_is_a_search_of_its_own(tables_of: TablesOf, narrow: Path, tmp_path: Path) -> None:
    found = tables_of(narrow, "all", with_features(OPTIONS, FEATURES))
    metrics = found["metrics"]
    assert [Weighting.of(row) for row in metrics[::4]] == [w for w in FEATURES.weightings for _ in range(3)]
    for number, weighting in ((0, TFIDF), (3, BINARY)):
        (tmp_path / str(number)).mkdir()
        values = with_values(narrow, tmp_path / str(number) / "store", weighting)
        alone = tables_of(values, str(number), OPTIONS)
        own = range(3 * number, 3 * number + 3)
        for table, rows in alone.items():
            assert rows_of(found[table], own) == rows_of(rows, range(3)), table


def test_epoch_methods_learn_weighted_counts(tables_of: TablesOf, narrow: Path, tmp_path: Path) -> None:
    grids = {"cao-rcd": {"alpha": [0.1], "R": [1.0]}, "caos-erm": {"alpha": [0.1], "R": [1.0]}}
    options = plain_search(algorithms=grids, folds=2, epochs=1)
    (tmp_path / "values").mkdir()
    values = with_values(narrow, tmp_path / "values", TFIDF)
    expected = tables_of(values, "a", options)
    found = tables_of(narrow, "b", with_features(options, FEATURES))
    assert {row["status"] for row in found["metrics"]} == {"ok"}
    assert rows_of(found["metrics"], range(2)) == rows_of(expected["metrics"], range(2))


def test_the_best_weighting_is_trained(narrow: Path, tmp_path: Path) -> None:
    cluster = ClusterOptions()
    steps.search(narrow, tmp_path, with_features(OPTIONS, FEATURES), cluster)
    best = read_json(tmp_path / "search" / "best.json")
    row = next(r for r in read_metrics(tmp_path).to_pylist() if r["configuration"] == best["configuration"])
    assert best["weighting"] == Weighting.of(row).model_dump()
    model = steps.train_best(narrow, tmp_path, cluster)
    assert read_json(model / "model.json")["weighting"] == best["weighting"]
    assert read_json(tmp_path / "run.json")["search"]["features"] == FEATURES.model_dump(mode="json")
    from_model = OPTIONS.model_copy(update={"warm_start": str(model), "algorithms": {"fobos": {"lam": [1e-4]}}})
    with raises_code("weighting-differs", model):
        steps.search(narrow, tmp_path / "counts", from_model, cluster)
    same = FeatureOptions.model_validate(best["weighting"])
    steps.search(narrow, tmp_path / "warm", with_features(from_model, same), cluster)


def test_a_grid_relative_to_lambda_max(client: Client, narrow: Path, tmp_path: Path) -> None:
    features = FeatureOptions(tf=("count", "log"), norm=("l2",))
    grids = {
        "cl-fobos": {"lam": {"relative": [2.0, 0.01]}, "eta0": [1.0]},
        "caos-erm": {"alpha": {"relative": [0.5]}, "R": [1.0]},
    }
    options = with_features(plain_search(algorithms=grids, folds=2), features)
    assert options.relative_parameters == {"cl-fobos": "lam", "caos-erm": "alpha"}
    steps.search(narrow, tmp_path, options, ClusterOptions())
    opened, described = Store.open(narrow), read_json(tmp_path / "run.json")["search"]
    resolved = SearchOptions.model_validate(described)
    assert not resolved.relative_parameters
    for weighting, own in zip(features.weightings, range(0, 6, 3), strict=True):
        source = RowsSource(store_reference(opened), weighting)
        largest = lambda_max(client, source, "logistic", grouped=False, intercept=True)
        assert described["lambda_max"][weighting.label] == {"cl-fobos": largest, "caos-erm": 150 * largest}
        chosen = [configuration.parameters for configuration in resolved.configurations()[own : own + 3]]
        assert [p["lam"] for p in chosen if "lam" in p] == [2 * largest, 0.01 * largest]
        assert [p["alpha"] for p in chosen if "alpha" in p] == [0.5 * 150 * largest]
    metrics = read_metrics(tmp_path).to_pylist()
    assert {row["parameters"] for row in metrics} == {c.parameters_json for c in resolved.configurations()}


# ----------------------------------------------------------------------------------------------------------------------
# Sample weights, label sets and numbers of a store reach the learners, with equal bits however the work is cut.


GRID: dict[str, Any] = {"adagrad": {"eta": [0.1, 1.0], "lam": [1e-4]}, "fobos": {"eta0": [0.01], "lam": [1e-4]}}
ROWS = 120


@pytest.mark.parametrize("kind", ["classes", "numbers", "multi"])
def test_searches(tables_of: TablesOf, tmp_path: Path, kind: str) -> None:
    """The metrics of a learner that is given the weights by hand."""
    store = store_of(tmp_path, kind, rows=ROWS, features=60, classes=3)
    loss = {"loss": "squared" if kind == "numbers" else "logistic"}
    metrics = tables_of(store, "search", plain_search(algorithms=GRID, folds=2, epochs=2, seed=3, **loss))["metrics"]
    opened, (X, _) = Store.open(store), read_shards(store)
    labels, weights = opened.labels(), opened.column("weight")
    shape = {"n_features": opened.n_features, "n_classes": opened.n_classes, "multilabel": opened.is_multilabel}
    learner = Learner("adagrad", grid=[{"eta": 1.0, "lam": 1e-4}], dtype="float64", intercept=True, **shape, **loss)
    for epoch in (1, 2):
        before = learner.progress
        rows = epoch_rows(3, epoch, True, ROWS, 0, ROWS, 0, 2)
        learner.partial_fit(X[rows], labels[rows], weights[rows])
    row = next(r for r in metrics if r["configuration"] == 1 and r["fold"] == 0 and r["epoch"] == 2)
    losses = learner.progress.loss_sum - before.loss_sum
    assert row["progressive_loss"] == float(losses[0] / (learner.progress.rows - before.rows))
    held_out = fold_rows(3, 0, ROWS, 0, 2)
    margins = learner.decision_function(X[held_out])[:, 0]
    if kind == "numbers":
        residuals = margins[:, 0].astype(float) - labels[held_out]
        assert row["held_out_rmse"] == pytest.approx(np.sqrt(np.mean(residuals**2)))
        assert row["held_out_error"] is None
    elif kind == "multi":
        wrong = ((margins > 0) != labels[held_out].toarray()).any(axis=1)
        assert row["held_out_error"] == np.mean(wrong)
    else:
        assert row["held_out_error"] == np.mean(margins.argmax(axis=1) != labels[held_out])


# ----------------------------------------------------------------------------------------------------------------------
# The intercept and the weights of classes reach the learner, the model and what starts from it.


LAM = {"lam": 1e-3}


def options(**changes: Any) -> SearchOptions:
    plain = {"loss": "logistic", "epochs": 1, "features": COUNTS, "algorithms": {"adagrad": LAM}, "shuffle": False}
    return validate(SearchOptions, plain | changes)


def train(shared: Path, folder: Path, **changes: Any) -> Model:
    opened, chosen = Store.open(shared), options(**changes)
    write_block(site(opened, folder), block_of(chosen, opened), folder / "model", {}, None)
    return Model(folder / "model")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "store", classes=3)


@pytest.mark.parametrize("intercept", [None, False])
@pytest.mark.parametrize("class_weight", [None, "balanced", {"c1": 2.5}])
def test_a_model_is_that_of_a_learner(shared: Path, tmp_path: Path, intercept: bool | None, class_weight: Any) -> None:
    model = train(shared, tmp_path, intercept=intercept, class_weight=class_weight)
    X, labels = read_shards(shared)[0], Store.open(shared).labels()
    names = model.classes
    arguments: dict[str, Any] = {"n_features": X.shape[1], "n_classes": 3, "dtype": "float32"}
    learner = Learner("adagrad", grid=[model.description["parameters"]], intercept=intercept is None, **arguments)
    expected = None
    if class_weight == "balanced":
        expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    elif class_weight:
        expected = np.array([class_weight.get(name, 1.0) for name in names])
    learner.partial_fit(X, labels, None if expected is None else expected[labels])
    recorded = model.description["class_weights"]
    assert recorded is None if expected is None else recorded == pytest.approx(expected)
    assert model.has_intercept == (intercept is None)
    assert np.array_equal(dense_weights(model, learner.n_features), learner.weights())
    assert np.array_equal(model.intercepts, learner.intercepts()[0])


def test_a_warm_start_takes_the_intercepts(shared: Path, tmp_path: Path) -> None:
    model = train(shared, tmp_path)
    arguments: dict[str, Any] = {"n_features": Store.open(shared).n_features, "n_classes": 3}
    started = Learner("fobos", intercept=True, **arguments)
    take_weights(Origin.of(model.folder), started, Store.open(shared))
    np.testing.assert_allclose(started.intercepts()[0], model.intercepts, rtol=1e-12)
    without = Learner("fobos", **arguments)
    take_weights(Origin.of(model.folder), without, Store.open(shared))
    assert not without.intercepts().any()


def test_what_has_no_meaning(shared: Path) -> None:
    boxed = options(algorithms={"fobos": {"R": 1.0}}, penalty="box")
    assert not block_of(boxed, Store.open(shared)).intercept
    assert options(class_weight="c0=0.5,a=b=2").class_weight == {"c0": 0.5, "a=b": 2.0}


# ----------------------------------------------------------------------------------------------------------------------
# Held-out predictions of the chosen configuration have the metrics of the search, and the same bytes each time.


HERE = ClusterOptions(threads=2)
GRIDS = plain_search(algorithms={"cl-fobos": {"lam": [1e-3], "eta0": [0.1, 1.0]}}, folds=3, epochs=2)


def search(store: Path, run: Path, options: SearchOptions = GRIDS) -> Predictions:
    steps.search(store, run, options, HERE)
    return read_predictions(run / "search" / "held_out.parquet", Store.open(store).classes)


@pytest.mark.parametrize(("algorithm", "classes"), [("cl-fobos", 2), ("cl-fobos", 4), ("cao-rcd", 2), ("caos-erm", 3)])
def test_predictions_have_the_metrics_of_the_search(algorithm: str, classes: int, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", classes=classes)
    options = GRIDS.model_copy(update={"algorithms": {algorithm: {}}})
    found = search(store, tmp_path / "run", options)
    assert sorted(found.ids.to_pylist()) == sorted(f"d{i}" for i in range(300))
    best = read_json(tmp_path / "run" / "search" / "best.json")
    metrics = pq.read_table(tmp_path / "run" / "search" / "metrics.parquet").to_pylist()
    labels = dict(zip([f"d{i}" for i in range(300)], Store.open(store).labels().tolist(), strict=True))
    assert [labels[document] for document in found.ids.to_pylist()] == found.labels.tolist()
    for row in metrics:
        if (row["configuration"], row["epoch"]) != (best["configuration"], best["epochs"]):
            continue
        own = found.folds == row["fold"]
        assert own.sum() == row["held_out_rows"]
        margins, truth = found.margins[own], found.labels[own]
        signs = np.where(truth[:, None] == ([1] if classes == 2 else np.arange(classes)), 1.0, -1.0)
        losses = [logistic_value(z, y) for z, y in zip(margins.ravel(), signs.ravel(), strict=True)]
        assert sum(losses) / own.sum() == pytest.approx(row["held_out_loss"], rel=1e-6)
        predicted = margins[:, 0] > 0 if classes == 2 else margins.argmax(axis=1)
        assert (predicted != truth).mean() == pytest.approx(row["held_out_error"])


def test_the_same_bytes_for_any_shards_chunks_and_reruns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(make_store(tmp_path / "a"), tmp_path / "first")
    path = tmp_path / "first" / "search" / "held_out.parquet"
    written, when = path.read_bytes(), path.stat().st_mtime_ns
    assert pq.ParquetFile(path).num_row_groups == 3
    search(tmp_path / "a", tmp_path / "first")
    assert path.stat().st_mtime_ns == when
    assert not (path.parent / "held_out").exists()
    monkeypatch.setattr("sparseoco.training.stream.CHUNK_ROWS", 7)
    first = read_predictions(path, ["c0", "c1"])
    other = search(make_store(tmp_path / "b", shard_rows=41), tmp_path / "second")
    assert first.ids.equals(other.ids)
    assert first.margins.tobytes() == other.margins.tobytes()
    path.unlink()
    search(tmp_path / "a", tmp_path / "first")
    assert path.read_bytes() == written


def test_a_large_corpus_is_sampled_evenly(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = search(store, tmp_path / "all")
    monkeypatch.setattr("sparseoco.search.run.ROWS", 100)
    some = search(store, tmp_path / "some")
    assert 70 < len(some.ids) < 130
    assert np.bincount(some.folds, minlength=3).min() > 15
    margins = dict(zip(every.ids.to_pylist(), every.margins[:, 0].tolist(), strict=True))
    assert [margins[document] for document in some.ids.to_pylist()] == some.margins[:, 0].tolist()


def test_predictions_of_another_choice_are_removed(store: Path, tmp_path: Path) -> None:
    before = search(store, tmp_path / "run")
    after = search(store, tmp_path / "run", GRIDS.model_copy(update={"seed": 1}))
    assert before.margins.tobytes() != after.margins.tobytes()
    steps.search(store, tmp_path / "run", GRIDS.model_copy(update={"folds": 1}), HERE)
    assert not (tmp_path / "run" / "search" / "held_out.parquet").exists()


def test_ids_of_a_feature_subset_are_those_of_its_source(store: Path, tmp_path: Path) -> None:
    chosen = GRIDS.configurations()[0]
    steps.train(store, tmp_path / "model", chosen, GRIDS, HERE, epochs=1)
    subset = GRIDS.model_copy(update={"features_from": str(tmp_path / "model")})
    found = search(store, tmp_path / "run", subset)
    assert sorted(found.ids.to_pylist()) == sorted(f"d{i}" for i in range(300))


def test_the_model_is_calibrated_on_them_and_decides_by_a_rule(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = search(store, run)
    steps.train_best(store, run, HERE)
    model, written = Model(run), (run / "model" / "weights.parquet").stat().st_mtime_ns
    fitted = fit_calibration(found.margins, found.labels)
    assert model.calibration == fitted
    assert model.thresholds is None
    rows = np.arange(len(found.labels))
    probabilities = model.probabilities(found.margins)
    np.testing.assert_array_equal(probabilities[:, 1], fitted.probabilities(found.margins)[:, 0])
    uncalibrated = class_probabilities(found.margins, joint=False)
    losses = [-np.log(p[rows, found.labels]).mean() for p in (probabilities, uncalibrated)]
    assert losses[0] < losses[1]
    assert read_json(run / "model" / "model.json")["calibration"]["rows"] == 300
    rule = ThresholdRule(rule="recall", value=1.0)
    search(store, run, GRIDS.model_copy(update={"threshold": rule}))
    steps.train_best(store, run, HERE)
    assert (run / "model" / "weights.parquet").stat().st_mtime_ns == written  # only the description is new
    counts = np.bincount(found.labels)
    positive = int(counts[1] <= counts[0])
    model = Model(run)
    assert model.thresholds.outputs[0].recall == 1.0
    predicted = np.array([model.classes.index(name) for name in model.decide(found.margins)])
    assert (predicted[found.labels == positive] == positive).all()
    assert read_json(run / "model" / "model.json")["threshold"]["rule"] == rule.model_dump()
