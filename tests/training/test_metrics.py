"""Metrics: those of scikit-learn, of classes, of scores and of pairs of models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, roc_auc_score
from sklearn.preprocessing import label_binarize

from sparseoco.search.results import BlockRun
from sparseoco.storage.metric_names import COMPUTED, LEVELS, METRICS, defined_for
from sparseoco.store.corpus import open_corpus
from sparseoco.store.manifest import ClassEntry
from sparseoco.store.shards import Store
from sparseoco.training import metrics as scores
from sparseoco.training.block import Block, positive_class, search_setting
from sparseoco.training.metrics import (
    PairedRows,
    Scores,
    baseline,
    class_probabilities,
    classification_metrics,
    label_kind,
    paired_difference,
    score_bytes,
)
from sparseoco.training.stream import StreamPosition
from tests.support.errors import raises_code
from tests.support.searches import learn_up_to, plain_search
from tests.support.stores import make_store

# ----------------------------------------------------------------------------------------------------------------------
# The metrics of an evaluation are scikit-learn's.


def test_metrics_equal_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    for n_classes in (2, 3, 7):
        truth, predicted = random.integers(0, n_classes, (2, 200))
        predicted[predicted == n_classes - 1] = 0  # a class that is never predicted
        truth[truth == 1] = 0  # and one without documents
        labels = list(range(n_classes))
        confusion = confusion_matrix(truth, predicted, labels=labels)
        found = classification_metrics([f"c{k}" for k in labels], confusion)
        expected = precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0.0)
        for name, values in zip(("precision", "recall", "f1", "rows"), expected, strict=True):
            assert [row[name] for row in found["classes"]] == values.tolist()
        assert found["error"] == np.mean(truth != predicted)
        assert found["majority_error"] == 1 - np.bincount(truth).max() / 200
        assert found["confusion"] == confusion.tolist()


# ----------------------------------------------------------------------------------------------------------------------
# Intervals of the difference between two models on the same rows.


def pair(random: np.random.Generator, gain: float, rows: int = 400) -> PairedRows:
    """Two models whose margins share their noise; the first sees `gain` more of the truth."""
    y = random.integers(0, 2, rows)
    noise = random.normal(0, 1, (rows, 1))
    b = noise + (y - 0.5)[:, None]
    a = b + gain * (y - 0.5)[:, None] + random.normal(0, 0.3, (rows, 1))
    return PairedRows("two classes", y, a, b)


def test_one_document_in_many_is_no_reason() -> None:
    y = np.arange(5000) % 2
    b = np.where(y == 1, 1.0, -1.0)[:, None]
    b[7] *= -1
    a = b.copy()
    a[7] *= -1
    found = paired_difference(PairedRows("two classes", y, a, b), "error", 0.95)
    assert found is not None
    assert found.value == pytest.approx(-1 / 5000)
    assert found.low < found.value < 0 < found.high


@pytest.mark.parametrize("metric", ["error", "roc_auc"])
def test_intervals_cover_the_difference_as_often_as_they_say(metric: str) -> None:
    """The difference over very many rows lies in the 90 % interval of 400 rows about nine times of ten."""
    random = np.random.default_rng(0)
    whole = paired_difference(pair(random, 0.3, 20_000), metric, 0.9)
    found = [paired_difference(pair(random, 0.3), metric, 0.9) for _ in range(40)]
    assert whole is not None
    covered = [one is not None and one.low <= whole.value <= one.high for one in found]
    assert 0.75 < np.mean(covered) <= 1


def test_the_difference_is_that_of_the_metrics() -> None:
    rows = pair(np.random.default_rng(1), 1.0)
    found: Any = paired_difference(rows, "roc_auc", 0.95)
    expected = roc_auc_score(rows.labels, rows.a[:, 0]) - roc_auc_score(rows.labels, rows.b[:, 0])
    assert found.value == pytest.approx(expected)
    assert 0 < found.low < found.high
    swapped = paired_difference(rows._replace(a=rows.b, b=rows.a), "roc_auc", 0.95)
    assert swapped == pytest.approx((-found.value, -found.high, -found.low))


def test_no_interval_where_the_metric_is_not_defined() -> None:
    rows = PairedRows("two classes", np.zeros(50), np.ones((50, 1)), np.ones((50, 1)))
    assert paired_difference(rows, "roc_auc", 0.95) is None
    one = PairedRows("two classes", np.zeros(1), np.ones((1, 1)), np.ones((1, 1)))
    assert paired_difference(one, "error", 0.95) is None


# ----------------------------------------------------------------------------------------------------------------------
# Every metric equals scikit-learn's, ties included; histograms stay within their bound.


SEEDS = st.integers(0, 2**32 - 1)
TOLERANCE = 1e-12


def draw(seed: int, rows: int, outputs: int, configurations: int = 2) -> tuple[np.random.Generator, NDArray[Any]]:
    """Margins with many ties, some of them 0."""
    random = np.random.default_rng(seed)
    return random, np.round(random.normal(0, 3, (rows, configurations, outputs)) * 2) / 2


def scored(kind: Any, margins: NDArray[Any], labels: NDArray[Any], **options: Any) -> Scores:
    """Scores of rows that were added in three chunks."""
    result = Scores(kind, len(margins), margins.shape[2], margins.shape[1], dtype=margins.dtype, **options)
    for part in np.array_split(np.arange(len(margins)), 3):
        result.add(margins[part], labels[part])
    return result


def check(found: dict[str, Any], expected: dict[str, float]) -> None:
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=TOLERANCE, rel=TOLERANCE), name


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, rows=st.integers(2, 60), positive=st.sampled_from([0, 1]))
def test_two_classes(seed: int, rows: int, positive: int) -> None:
    random, margins = draw(seed, rows, 1)
    y = random.integers(0, 2, rows)
    assume(0 < y.sum() < rows)
    found = scored("two classes", margins, y, positive=positive).rows()
    assert set(found[0]) == {"error", "rank_bound", "majority_error", *COMPUTED}
    for q in range(2):
        z = margins[:, q, 0]
        predicted, truth, score = (z > 0).astype(int), y == positive, z if positive else -z
        probabilities = class_probabilities(margins[:, q], joint=False)
        assert probabilities.sum(axis=1) == pytest.approx(1)
        precision, recall, _ = sk.precision_recall_curve(truth, score)
        precision, recall = precision[:-1], recall[:-1]  # without the point (1, 0) that no threshold has
        single = {"pos_label": positive, "zero_division": 0.0}
        check(
            found[q],
            {
                "error": sk.zero_one_loss(y, predicted),
                "log_loss": sk.log_loss(y, probabilities, labels=[0, 1]),
                "roc_auc": sk.roc_auc_score(truth, score),
                "average_precision": sk.average_precision_score(truth, score),
                "f1": sk.f1_score(y, predicted, **single),
                "precision": sk.precision_score(y, predicted, **single),
                "recall": sk.recall_score(y, predicted, **single),
                "f1_macro": sk.f1_score(y, predicted, average="macro"),
                "f1_micro": sk.f1_score(y, predicted, average="micro"),
                "f1_weighted": sk.f1_score(y, predicted, average="weighted"),
                "balanced_accuracy": sk.recall_score(y, predicted, average="macro"),
                "rank_bound": 0.0,
            }
            | {"majority_error": min(truth.mean(), 1 - truth.mean())}
            | {f"precision_at_recall_{k}": precision[recall >= k / 100].max() for k in LEVELS}
            | {f"recall_at_precision_{k}": recall[precision >= k / 100].max(initial=0) for k in LEVELS},
        )


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, classes=st.integers(3, 5), joint=st.booleans())
def test_more_classes(seed: int, classes: int, joint: bool) -> None:
    random, margins = draw(seed, 50, classes)
    if joint:  # rounding decides between equal probabilities of different margins
        margins = random.normal(0, 3, margins.shape)
    y = random.integers(0, classes, 50)
    y[y == classes - 1] = 0  # a class that does not occur, but may be predicted
    found = scored("classes", margins, y, joint=joint).rows()
    for q in range(2):
        predicted = margins[:, q].argmax(axis=1)
        probabilities = class_probabilities(margins[:, q], joint=joint)
        occurring = np.unique(y)
        truth = label_binarize(y, classes=np.arange(classes))[:, occurring]
        ranked = (probabilities if joint else margins[:, q])[:, occurring]
        check(
            found[q],
            {
                "error": sk.zero_one_loss(y, predicted),
                "log_loss": sk.log_loss(y, probabilities, labels=np.arange(classes)),
                "roc_auc": sk.roc_auc_score(truth, ranked, average="macro"),
                "average_precision": sk.average_precision_score(truth, ranked, average="macro"),
                "f1_macro": sk.f1_score(y, predicted, average="macro"),
                "f1_micro": sk.f1_score(y, predicted, average="micro"),
                "f1_weighted": sk.f1_score(y, predicted, average="weighted"),
                "balanced_accuracy": np.mean(sk.recall_score(y, predicted, average=None, labels=occurring)),
            },
        )
        assert found[q]["f1"] is None


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, classes=st.integers(2, 4))
def test_label_sets(seed: int, classes: int) -> None:
    random, margins = draw(seed, 40, classes)
    y = random.random((40, classes)) < 0.3
    occurring = y.any(axis=0)
    assume(occurring.any() and not y.all(axis=0).any())
    found = scored("label sets", margins, y).rows()
    for q in range(2):
        predicted = margins[:, q] > 0
        sigmoid = 1 / (1 + np.exp(-margins[:, q]))
        averages = {
            f"f1_{kind}": sk.f1_score(y, predicted, average=kind, zero_division=0.0)
            for kind in ("macro", "micro", "weighted")
        }
        ranked = (y[:, occurring], margins[:, q][:, occurring])
        check(
            found[q],
            averages
            | {
                "error": sk.zero_one_loss(y, predicted),
                "majority_error": sk.zero_one_loss(y, np.zeros_like(y)),
                "log_loss": np.mean([sk.log_loss(y[:, k], sigmoid[:, k], labels=[0, 1]) for k in range(classes)]),
                "roc_auc": sk.roc_auc_score(*ranked, average="macro"),
                "average_precision": sk.average_precision_score(*ranked, average="macro"),
            },
        )
        assert found[q]["balanced_accuracy"] is None


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, offset=st.sampled_from([0.0, 1e6]))
def test_numbers(seed: int, offset: float) -> None:
    random, margins = draw(seed, 30, 1)
    y, margins = random.normal(0, 2, 30) + offset, margins + offset
    found = scored("numbers", margins, y).rows()
    for q in range(2):
        z = margins[:, q, 0]
        assert found[q]["rmse"] == pytest.approx(sk.root_mean_squared_error(y, z), rel=TOLERANCE)
        assert found[q]["mae"] == pytest.approx(sk.mean_absolute_error(y, z), rel=TOLERANCE)
        assert found[q]["r2"] == pytest.approx(sk.r2_score(y, z), rel=1e-8)
        assert found[q]["error"] is None


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, scale=st.sampled_from([0.01, 1.0, 100.0]), bins=st.sampled_from([16, 256]))
def test_histograms_stay_within_the_bound(seed: int, scale: float, bins: int) -> None:
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, 300)
    margins = (scale * (random.normal(0, 1, 300) + y))[:, None, None]
    exact = scored("two classes", margins, y).rows()[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "EXACT_VALUES", 299)
        patch.setattr(scores, "BINS", bins)
        rough = scored("two classes", margins, y).rows()[0]
        assert score_bytes(1, 300, 8) == 2 * bins * 8
    assert 0 < rough["rank_bound"] <= 1
    for name in ("roc_auc", "average_precision"):
        assert abs(rough[name] - exact[name]) <= rough["rank_bound"] + TOLERANCE
    for name, metric in METRICS.items():
        if "_at_" in name:
            assert rough[name] <= exact[name] + TOLERANCE
        elif not metric.from_ranking and name in exact:
            assert rough[name] == exact[name]


def test_many_fine_bins_are_nearly_exact() -> None:
    random, n_rows = np.random.default_rng(0), 20_000
    y = random.integers(0, 2, n_rows)
    margins = (random.normal(0, 2, n_rows) + 2 * y)[:, None, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scores, "EXACT_VALUES", 1)
        rough = scored("two classes", margins, y).rows()[0]
    assert rough["rank_bound"] < 5e-3
    assert rough["roc_auc"] == pytest.approx(sk.roc_auc_score(y, margins[:, 0, 0]), abs=1e-5)


@pytest.mark.parametrize("kind", ["two classes", "classes", "label sets"])
def test_configurations_scored_together_have_the_same_bits(kind: Any) -> None:
    random, margins = draw(1, 200, 1 if kind == "two classes" else 3, 5)
    margins = margins.astype(np.float32)
    y = random.random((200, 3)) < 0.5 if kind == "label sets" else random.integers(0, min(margins.shape[2] + 1, 3), 200)
    together = scored(kind, margins, y).rows()
    assert [scored(kind, margins[:, [q]], y).rows()[0] for q in range(5)] == together


def test_one_class_and_no_rows_leave_metrics_undefined() -> None:
    margins = np.array([[[1.0]], [[-2.0]]])
    only = scored("two classes", margins, np.array([0, 0])).rows()[0]
    assert (only["roc_auc"], only["average_precision"]) == (None, None)
    assert (only["error"], only["f1"], only["f1_macro"]) == (0.5, 0.0, pytest.approx(1 / 3))
    empty = Scores("two classes", 0, 1, 1).rows()[0]
    assert set(empty.values()) == {None}


def test_a_margin_that_is_not_finite_leaves_no_metrics() -> None:
    margins = np.array([[[1.0], [1.0]], [[np.nan], [-1.0]]])
    broken, fine = scored("two classes", margins, np.array([1, 0])).rows()
    assert set(broken.values()) == {None}
    assert fine["error"] == 0.0


def test_the_baseline_is_that_of_a_constant_model() -> None:
    y = np.repeat([0, 1], [97, 3])
    constant = np.full((100, 1, 1), np.log(0.03 / 0.97))
    found = scored("two classes", constant, y).rows()[0]
    for name in defined_for("two classes"):
        expected = None if name == "loss" else pytest.approx(found[name])
        assert baseline(name, [97, 3]) == expected, name
    assert baseline("rmse", [97, 3]) is None


def test_the_kind_of_labels() -> None:
    kinds = [label_kind(None), label_kind(2), label_kind(3), label_kind(2, label_sets=True)]
    assert kinds == ["numbers", "two classes", "classes", "label sets"]


# ----------------------------------------------------------------------------------------------------------------------
# Held-out metrics of a search: those of scikit-learn, whatever the memory for scores.


GRID: dict[str, Any] = {"cl-fobos": {"lam": [1e-4, 1e-2], "eta0": [0.3]}}


def trained(folder: Path, classes: int, loss: str, **options: Any) -> tuple[BlockRun, Any, list[dict[str, Any]]]:
    """A block after an epoch without fold 1, the store's corpus, and the metrics of its configurations."""
    store = Store.open(make_store(folder / "store", rows=200, features=60, classes=classes))
    search = plain_search(algorithms=GRID, folds=4, loss=loss, dtype="float64", **options)
    parameters = tuple(configuration.parameters for configuration in search.configurations())
    block = Block(setting=search_setting(search, store, 1), algorithm="cl-fobos", configurations=parameters)
    run, corpus = BlockRun.new(block, store), open_corpus(store, folder)
    learn_up_to(run, corpus, StreamPosition(1, 200))
    return run, corpus, [tables["metrics"][0] for tables in run.tables(corpus, store)]


def test_two_classes_of_a_search(tmp_path: Path) -> None:
    run, corpus, found = trained(tmp_path, 2, "logistic", positive_class="c0")
    rows = corpus.gather(run.block.setting.order.held_out(0, 200))
    margins = run.learner.margins(rows.indptr, rows.indices, rows.values)
    for q, row in enumerate(found):
        z, truth = margins[:, q, 0], rows.labels == 0
        assert row["held_out_rows"] == len(z)
        assert row["held_out_log_loss"] == pytest.approx(row["held_out_loss"], rel=1e-12)
        assert row["held_out_roc_auc"] == pytest.approx(sk.roc_auc_score(truth, -z))
        assert row["held_out_average_precision"] == pytest.approx(sk.average_precision_score(truth, -z))
        assert row["held_out_f1"] == pytest.approx(sk.f1_score(truth, z <= 0))
        assert (row["held_out_rank_bound"], row["held_out_rmse"]) == (0.0, None)
        assert row["features"] == row["nonzeros"] == np.count_nonzero(run.learner.weights_of(q))


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_more_classes_of_a_search(tmp_path: Path, loss: str) -> None:
    run, corpus, found = trained(tmp_path, 3, loss)
    rows = corpus.gather(run.block.setting.order.held_out(0, 200))
    margins = run.learner.margins(rows.indptr, rows.indices, rows.values)
    truth = label_binarize(rows.labels, classes=range(3))
    for q, row in enumerate(found):
        probabilities = scores.class_probabilities(margins[:, q], joint=loss == "softmax")
        ranked = probabilities if loss == "softmax" else margins[:, q]
        predicted = margins[:, q].argmax(axis=1)
        assert row["held_out_log_loss"] == pytest.approx(sk.log_loss(rows.labels, probabilities))
        assert row["held_out_roc_auc"] == pytest.approx(sk.roc_auc_score(truth, ranked))
        assert row["held_out_f1_macro"] == pytest.approx(sk.f1_score(rows.labels, predicted, average="macro"))
        assert row["held_out_error"] == pytest.approx(np.mean(predicted != rows.labels))
        assert row["features"] == np.count_nonzero(run.learner.weights_of(q).any(axis=1)) < row["nonzeros"]


def test_rankings_of_many_rows_come_from_histograms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, exact = trained(tmp_path / "exact", 2, "logistic")
    monkeypatch.setattr(scores, "EXACT_VALUES", 10)
    monkeypatch.setattr(scores, "BINS", 1)
    _, _, rough = trained(tmp_path / "rough", 2, "logistic")
    for one, other in zip(exact, rough, strict=True):
        assert one["held_out_rank_bound"] == 0 < other["held_out_rank_bound"] <= 1
        assert abs(one["held_out_roc_auc"] - other["held_out_roc_auc"]) <= other["held_out_rank_bound"]
        assert one["held_out_f1"] == other["held_out_f1"]


def test_the_positive_class_is_the_rarer_or_the_one_named() -> None:
    classes = [ClassEntry(name="ham", rows=9), ClassEntry(name="spam", rows=10)]
    assert [positive_class(classes, name) for name in (None, "ham", "spam")] == [0, 0, 1]
    assert positive_class(classes[::-1], None) == 1
    assert positive_class([ClassEntry(name=name, rows=5) for name in "ab"], None) == 1
    assert positive_class([], None) == 1
    for several in ([*classes, ClassEntry(name="news", rows=1)], classes, []):
        with raises_code("invalid-positive-class"):
            positive_class(several, "eggs")
