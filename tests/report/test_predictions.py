"""Curves, thresholds, costs and mistakes of predictions, compared with scikit-learn and brute force."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics
from sklearn.calibration import calibration_curve

from sparseoco.core.errors import StorageError
from sparseoco.core.formatting import percent_with_error
from sparseoco.report import predictions
from sparseoco.report.page import at_threshold, write_report
from sparseoco.report.results import read_results
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.storage.locations import location
from sparseoco.storage.tables import write_result_table
from sparseoco.training.decisions import Predictions, fit_calibration
from sparseoco.training.search_tables import METRICS_SCHEMA
from tests.report.synthetic import write_predictions, write_run
from tests.support.errors import raises_code
from tests.support.pages import figures

TWO = (("ham", 900), ("spam", 100))
THREE = (("a", 30), ("b", 20), ("c", 10))


def prediction_set(rows: int = 400, classes: int = 2, *, seed: int = 3, ties: bool = True) -> predictions.PredictionSet:
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, rows)
    margins = random.normal(0, 1, (rows, 1 if classes == 2 else classes))
    if classes == 2:
        margins[:, 0] += 2.0 * labels - 1
    else:
        margins[np.arange(rows), labels] += 1.5
    if ties:
        margins = margins.round(1)
    found = Predictions(pa.array([str(k) for k in range(rows)]), None, labels, margins)
    return predictions.PredictionSet("held-out", found, tuple("abcdef"[:classes]), 1, np.zeros(margins.shape[1]), None)


@pytest.mark.parametrize(("classes", "positive"), [(2, 1), (2, 0), (3, 2)])
def test_curves_are_those_of_scikit_learn(classes: int, positive: int) -> None:
    found = prediction_set(rows=60, classes=classes)
    truth, score = found.truth(positive), found.score(positive)
    drawn = predictions.roc(found, positive, "x")
    x, y, _ = metrics.roc_curve(truth, score, drop_intermediate=False)
    assert drawn.area == pytest.approx(metrics.roc_auc_score(truth, score))
    known = {(round(a, 6), round(b, 6)) for a, b in zip(100 * x, 100 * y, strict=True)}
    assert {(round(a, 6), round(b, 6)) for a, b in zip(drawn.x, drawn.y, strict=True)} <= known
    precision, recall, _ = metrics.precision_recall_curve(truth, score)
    ours = predictions.precision_recall(found, positive, "x")
    known = {(round(a, 6), round(b, 6)) for a, b in zip(100 * recall, 100 * precision, strict=True)}
    assert {(round(a, 6), round(b, 6)) for a, b in zip(ours.x, ours.y, strict=True)} <= known
    assert ours.x[-1] == 100.0


def test_reliability_is_that_of_scikit_learn() -> None:
    found = prediction_set(ties=False)
    found = replace(found, calibration=fit_calibration(found.found.margins, found.found.labels))
    bins = predictions.reliability(found)
    share, mean = calibration_curve(found.truth(1), found.probabilities[:, 1], n_bins=10)
    assert [of.share for of in bins] == pytest.approx(share.tolist())
    assert [of.probability for of in bins] == pytest.approx(mean.tolist())
    assert sum(of.rows for of in bins) == found.rows


@pytest.mark.parametrize("positive", [0, 1])
def test_thresholds(positive: int) -> None:
    found = replace(prediction_set(), positive=positive)
    other = replace(prediction_set(seed=9), positive=positive)
    own, f1, precise, *_ = predictions.threshold_rows([found, other])
    assert own.margin == 0.0
    assert own.probability == pytest.approx(0.5)
    sign = 1 if positive else -1
    scores, truth = sign * found.found.margins[:, 0], found.truth(positive)
    every = [-9.0, *np.unique(scores)]

    def missed(cut: float) -> int:
        return int((truth & ~(scores > cut)).sum())

    def alarms(cut: float) -> int:
        return int((~truth & (scores > cut)).sum())

    best = max(2 * (truth.sum() - missed(c)) / (2 * truth.sum() - missed(c) + alarms(c)) for c in every)
    assert f1.qualities[0].f1 == pytest.approx(best)
    assert precise.qualities[0].precision >= 0.9
    hits = (scores > precise.margin) if positive else (scores >= precise.margin)
    assert precise.qualities[0].share == pytest.approx(hits.mean())  # the margin is that of the positive class
    probabilities, curve = predictions.threshold_curve(found)
    assert (np.diff(probabilities) < 0).all()
    assert len(probabilities) == len(curve.tps)


def test_no_thresholds_without_a_positive_document() -> None:
    found = prediction_set()
    found = replace(found, found=found.found._replace(labels=np.zeros(found.rows, np.int64)))
    assert predictions.threshold_rows([found]) == []
    assert predictions.roc(found, 1, "x").area is None


def test_confusion_and_its_largest_classes() -> None:
    found = prediction_set(classes=3)
    expected = metrics.confusion_matrix(found.found.labels, found.found.margins.argmax(axis=1))
    assert (predictions.confusion(found) == expected).all()
    random = np.random.default_rng(0)
    counts = random.integers(0, 5, (300, 300))
    names, merged = predictions.merged_confusion([str(k) for k in range(300)], counts)
    assert len(names) == len(merged) == predictions.MAX_CONFUSION
    assert merged.sum() == counts.sum()
    kept = [int(name) for name in names[:-1]]
    assert (merged[:-1, :-1] == counts[np.ix_(kept, kept)]).all()
    assert counts.sum(axis=1)[kept].min() >= np.delete(counts.sum(axis=1), kept).max()


def test_mistakes_are_ordered_by_confidence() -> None:
    found = prediction_set(ties=False)
    wrong = predictions.mistakes(found)
    margins, labels = found.found.margins[:, 0], found.found.labels
    rows = [int(own.id) for own in wrong]
    assert all((margins[row] > 0) != (labels[row] == 1) for row in rows)
    sizes = [abs(margins[row]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == max(abs(margins[(margins > 0) != (labels == 1)]))
    assert all(own.probability > 0.5 for own in wrong)
    cut = replace(found, cut=np.array([10.0]))
    assert {own.answer for own in predictions.mistakes(cut)} == {"a"}


@pytest.mark.parametrize(
    ("classes", "kind", "drawn"),
    [
        (TWO, "single", {"roc", "precision", "reliability", "threshold"}),
        (THREE, "single", {"roc", "precision", "reliability"}),
        (THREE, "several", {"roc", "precision", "reliability"}),
    ],
)
def test_page_of_predictions(tmp_path: Path, classes: tuple[tuple[str, int], ...], kind: str, drawn: set[str]) -> None:
    run = write_run(tmp_path, classes=classes)
    write_predictions(run, classes, rows=300, kind=kind)
    page = write_report(run).read_text()
    assert set(figures(page)) == {"curves", "sparsity", "density"} | drawn
    assert "The most confident mistakes" in page
    assert (">Thresholds</h2>" in page) == ("threshold" in drawn)
    assert ("Confusion of the test documents" in page) == (kind == "single")


def test_calibration_and_threshold_of_the_model_are_used(tmp_path: Path) -> None:
    run = write_run(tmp_path, classes=TWO)
    write_predictions(run, TWO, rows=300)
    path = run / "model/model.json"
    model = read_json(path)
    calibration = {"method": "sigmoid", "slopes": [2.0], "offsets": [0.5]}
    chosen = {"margin": 1.25, "precision": 0.9, "recall": 0.5, "f1": 0.6, "share": 0.1}
    threshold = {"rule": "precision=0.9", "outputs": [chosen], "rows": 300}
    commit_json(path, model | {"calibration": calibration, "threshold": threshold})
    results = read_results(location(str(run)))
    results.run.search["positive_class"] = "ham"
    held_out, test = predictions.prediction_sets(location(str(run)), results)
    assert (held_out.positive, held_out.cut.tolist()) == (0, [1.25])
    expected = 1 / (1 + np.exp(-(2.0 * test.found.margins[:, 0] + 0.5)))
    assert test.probabilities[:, 1] == pytest.approx(expected)
    assert (test.predicted == (test.found.margins[:, 0] > 1.25)).all()
    commit_json(path, model | {"calibration": {"method": "magic"}})
    with raises_code("corrupt-file", "calibration", kind=StorageError):
        write_report(run)


@pytest.mark.parametrize("several", [False, True])
def test_held_out_metrics_are_those_at_the_threshold_of_the_model(several: bool) -> None:
    found = prediction_set()
    folds = np.arange(found.rows, dtype=np.int32) % 3
    labels, margins, cut = found.found.labels, found.found.margins, np.array([-0.7])
    if several:
        labels, margins = np.stack([labels == 1, labels == 0], axis=1), np.hstack([margins, -margins])
        cut = np.array([-0.7, 0.4])
    found = replace(found, found=found.found._replace(labels=labels, margins=margins, folds=folds), cut=cut)
    measured = at_threshold([found])
    for name, score in (
        ("error", lambda y, z: 1 - metrics.accuracy_score(y, z)),
        ("f1_macro", lambda y, z: metrics.f1_score(y, z, average="macro")),
        ("f1", None if several else metrics.f1_score),
        ("recall", None if several else metrics.recall_score),
    ):
        if score is not None:
            values = [score(labels[folds == k], found.predicted[folds == k]) for k in range(3)]
            expected = np.mean(values), np.std(values, ddof=1) / np.sqrt(3)
            assert measured[name] == pytest.approx(expected)
    assert at_threshold([replace(found, cut=np.zeros(len(cut)))]) == at_threshold([]) == {}


def test_the_page_has_metrics_at_the_threshold_chosen_by_default(tmp_path: Path) -> None:
    run = write_run(tmp_path, classes=TWO, tested=True)
    write_predictions(run, TWO, rows=300)
    before = " ".join(write_report(run).read_text().split())
    model = read_json(run / "model/model.json")
    chosen = {"margin": 1.25, "precision": 0.9, "recall": 0.5, "f1": 0.6, "share": 0.1}
    rule = {"rule": "f1", "since": "spam has 10.0% of the documents"}
    commit_json(run / "model/model.json", model | {"threshold": {"rule": rule, "outputs": [chosen], "rows": 300}})
    evaluation = read_json(run / "evaluation.json")
    commit_json(run / "evaluation.json", evaluation | {"never_predicted": ["spam"], "trained_on": ["a.jsonl"]})
    after = " ".join(write_report(run).read_text().split())
    sentence = "spam above a margin of 1.25, chosen by F1 on 300 held-out documents (by default, since spam has 10.0%"
    assert (sentence in before, sentence in after) == (False, True)
    (found, *_) = predictions.prediction_sets(location(str(run)), read_results(location(str(run))))
    error = " ".join(percent_with_error(*at_threshold([found])["error"]).split())
    assert (f"held-out error {error}" in before, f"held-out error {error}" in after) == (False, True)
    assert f'<td class="number">{error}</td>' in after
    lead = "Class spam is never predicted for the test documents. The model was trained on documents of a.jsonl: "
    assert (f">{lead}" in before, f">{lead}" in after) == (False, True)


def test_the_page_of_numbers(tmp_path: Path) -> None:
    run = write_run(tmp_path, classes=(("only", 1000),))
    described = read_json(run / "run.json")
    described["corpus"]["classes"] = []
    commit_json(run / "run.json", described)
    best = read_json(run / "search/best.json")
    commit_json(run / "search/best.json", best | {"metric": "rmse", "rule": "best"})
    path = run / "search/metrics.parquet"
    rows = [
        row
        | {
            "held_out_error": None,
            "progressive_error": None,
            "held_out_rmse": 1.0 + row["configuration"],
            "held_out_r2": 0.5,
        }
        for row in pq.read_table(path).to_pylist()
    ]
    write_result_table(path, rows, METRICS_SCHEMA)
    commit_json(run / "evaluation.json", {"rows": 300, "rmse": 1.25, "mae": 1.0, "r2": 0.8, "loss": 0.7})
    write_predictions(run, (), rows=300, kind="numbers")
    page = write_report(run).read_text()
    assert {"numbers", "sparsity"} < set(figures(page))
    text = " ".join(page.split())
    assert "1.2500" in text
    assert "RMSE" in text
    assert "raise the prediction" in text
    assert "classifier" not in text
