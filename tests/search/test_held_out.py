"""Held-out predictions of the chosen configuration have the metrics of the search, and the same bytes each time."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.learners.losses import logistic_value
from sparseoco.pipeline import steps
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Store
from sparseoco.training.decisions import Predictions, fit_calibration, read_predictions
from sparseoco.training.metrics import class_probabilities
from sparseoco.training.models import Model
from sparseoco.training.options import SearchOptions, ThresholdRule
from tests.support.errors import raises_code
from tests.support.searches import plain_search
from tests.support.stores import make_store

HERE = ClusterOptions(threads=2)
OPTIONS = plain_search(algorithms={"cl-fobos": {"lam": [1e-3], "eta0": [0.1, 1.0]}}, folds=3, epochs=2)
pytestmark = pytest.mark.usefixtures("here")


def search(store: Path, run: Path, options: SearchOptions = OPTIONS) -> Predictions:
    steps.search(store, run, options, HERE)
    return read_predictions(run / "search" / "held_out.parquet", Store.open(store).classes)


@pytest.mark.parametrize(("algorithm", "classes"), [("cl-fobos", 2), ("cl-fobos", 4), ("cao-rcd", 2), ("caos-erm", 3)])
def test_predictions_have_the_metrics_of_the_search(algorithm: str, classes: int, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", classes=classes)
    options = OPTIONS.model_copy(update={"algorithms": {algorithm: {}}})
    found = search(store, tmp_path / "run", options)
    assert sorted(found.ids.to_pylist()) == sorted(f"d{i}" for i in range(300))
    best = read_json(tmp_path / "run" / "search" / "best.json")
    metrics = pq.read_table(tmp_path / "run" / "search" / "metrics.parquet").to_pylist()
    labels = dict(zip([f"d{i}" for i in range(300)], Store.open(store).labels().tolist(), strict=True))
    assert [labels[document] for document in found.ids.to_pylist()] == found.labels.tolist()
    assert found.folds is not None
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
    assert some.folds is not None
    assert np.bincount(some.folds, minlength=3).min() > 15
    margins = dict(zip(every.ids.to_pylist(), every.margins[:, 0].tolist(), strict=True))
    assert [margins[document] for document in some.ids.to_pylist()] == some.margins[:, 0].tolist()


def test_predictions_of_another_choice_are_removed(store: Path, tmp_path: Path) -> None:
    before = search(store, tmp_path / "run")
    after = search(store, tmp_path / "run", OPTIONS.model_copy(update={"seed": 1}))
    assert before.margins.tobytes() != after.margins.tobytes()
    steps.search(store, tmp_path / "run", OPTIONS.model_copy(update={"folds": 1}), HERE)
    assert not (tmp_path / "run" / "search" / "held_out.parquet").exists()


def test_ids_of_a_feature_subset_are_those_of_its_source(store: Path, tmp_path: Path) -> None:
    chosen = OPTIONS.configurations()[0]
    steps.train(store, tmp_path / "model", chosen, OPTIONS, HERE, epochs=1)
    subset = OPTIONS.model_copy(update={"features_from": str(tmp_path / "model")})
    found = search(store, tmp_path / "run", subset)
    assert sorted(found.ids.to_pylist()) == sorted(f"d{i}" for i in range(300))


def test_the_model_is_calibrated_on_them_and_decides_by_a_rule(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = search(store, run)
    steps.train_best(store, run, HERE)
    model, written = Model(run), (run / "model" / "weights.parquet").stat().st_mtime_ns
    fitted = fit_calibration(found.margins, found.labels)
    assert model.calibration == fitted
    assert fitted is not None
    assert model.thresholds is None
    rows = np.arange(len(found.labels))
    probabilities = model.probabilities(found.margins)
    np.testing.assert_array_equal(probabilities[:, 1], fitted.probabilities(found.margins)[:, 0])
    uncalibrated = class_probabilities(found.margins, joint=False)
    losses = [-np.log(p[rows, found.labels]).mean() for p in (probabilities, uncalibrated)]
    assert losses[0] < losses[1]
    assert read_json(run / "model" / "model.json")["calibration"]["rows"] == 300
    rule = ThresholdRule(rule="recall", value=1.0)
    search(store, run, OPTIONS.model_copy(update={"threshold": rule}))
    steps.train_best(store, run, HERE)
    assert (run / "model" / "weights.parquet").stat().st_mtime_ns == written  # only the description is new
    counts = np.bincount(found.labels)
    positive = int(counts[1] <= counts[0])
    model = Model(run)
    assert model.thresholds is not None
    assert model.thresholds.outputs[0].recall == 1.0
    predicted = np.array([model.classes.index(name) for name in model.decide(found.margins)])
    assert (predicted[found.labels == positive] == positive).all()
    assert read_json(run / "model" / "model.json")["threshold"]["rule"] == rule.model_dump()


def test_a_threshold_of_many_classes_is_refused(tmp_path: Path) -> None:
    options = OPTIONS.model_copy(update={"threshold": ThresholdRule(rule="f1")})
    with raises_code("unsupported-combination", "f1"):
        steps.search(make_store(tmp_path / "store", classes=3), tmp_path / "run", options, HERE)
