"""Metrics: those of scikit-learn, of classes, of scores and of pairs of models."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk
from sklearn.preprocessing import label_binarize

from sparseoco.search.worker import BlockRun
from sparseoco.store.corpus import open_corpus
from sparseoco.store.manifest import ClassEntry
from sparseoco.store.shards import Store
from sparseoco.training import metrics as scores
from sparseoco.training.block import positive_class
from sparseoco.training.options import COMPUTED, LEVELS, METRICS
from sparseoco.training.stream import StreamPosition
from tests.support.errors import raises_code
from tests.support.searches import block_of, learn_up_to, plain_search
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
        confusion = sk.confusion_matrix(truth, predicted, labels=labels)
        found = scores.classification_metrics([f"c{k}" for k in labels], confusion)
        expected = sk.precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0.0)
        for name, values in zip(("precision", "recall", "f1", "rows"), expected, strict=True):
            assert [row[name] for row in found["classes"]] == values.tolist()
        assert found["error"] == np.mean(truth != predicted)
        assert found["majority_error"] == 1 - np.bincount(truth).max() / 200
        assert found["confusion"] == confusion.tolist()


# ----------------------------------------------------------------------------------------------------------------------
# Intervals of the difference between two models on the same rows.


def pair(random: np.random.Generator, gain: float, rows: int = 400) -> scores.PairedRows:
    """Two models whose margins share their noise; the first sees `gain` more of the truth."""
    y = random.integers(0, 2, rows)
    b = random.normal(0, 1, (rows, 1)) + (y - 0.5)[:, None]
    a = b + gain * (y - 0.5)[:, None] + random.normal(0, 0.3, (rows, 1))
    return scores.PairedRows("two classes", y, a, b)


def test_one_document_in_many_is_no_reason() -> None:
    y = np.arange(5000) % 2
    b = np.where(y == 1, 1.0, -1.0)[:, None]
    b[7] *= -1
    a = b.copy()
    a[7] *= -1
    found: Any = scores.paired_difference(scores.PairedRows("two classes", y, a, b), "error", 0.95)
    assert found.value == pytest.approx(-1 / 5000)
    assert found.low < found.value < 0 < found.high


@pytest.mark.parametrize("metric", ["error", "roc_auc"])
def test_intervals_cover_the_difference_as_often_as_they_say(metric: str) -> None:
    """The difference over very many rows lies in the 90 % interval of 400 rows about nine times of ten."""
    random = np.random.default_rng(0)
    whole: Any = scores.paired_difference(pair(random, 0.3, 20_000), metric, 0.9)
    found = [scores.paired_difference(pair(random, 0.3), metric, 0.9) for _ in range(24)]
    covered = [one is not None and one.low <= whole.value <= one.high for one in found]
    assert 0.75 < np.mean(covered) <= 1


def test_the_difference_is_that_of_the_metrics() -> None:
    rows = pair(np.random.default_rng(1), 1.0)
    found: Any = scores.paired_difference(rows, "roc_auc", 0.95)
    expected = sk.roc_auc_score(rows.labels, rows.a[:, 0]) - sk.roc_auc_score(rows.labels, rows.b[:, 0])
    assert found.value == pytest.approx(expected)
    assert 0 < found.low < found.high
    swapped = scores.paired_difference(rows._replace(a=rows.b, b=rows.a), "roc_auc", 0.95)
    assert swapped == pytest.approx((-found.value, -found.high, -found.low))


def test_no_interval_where_the_metric_is_not_defined() -> None:
    rows = scores.PairedRows("two classes", np.zeros(50), np.ones((50, 1)), np.ones((50, 1)))
    assert scores.paired_difference(rows, "roc_auc", 0.95) is None
    one = scores.PairedRows("two classes", np.zeros(1), np.ones((1, 1)), np.ones((1, 1)))
    assert scores.paired_difference(one, "error", 0.95) is None


# ----------------------------------------------------------------------------------------------------------------------
# Every metric equals scikit-learn's, ties included; histograms stay within their bound.


SEEDS = st.integers(0, 2**32 - 1)
TOLERANCE = 1e-12


def draw(seed: int, rows: int, outputs: int, configurations: int) -> tuple[np.random.Generator, NDArray[Any]]:
    """Margins with many ties, some of them 0."""
    random = np.random.default_rng(seed)
    return random, np.round(random.normal(0, 3, (rows, configurations, outputs)) * 2) / 2


def scored(kind: Any, margins: NDArray[Any], labels: NDArray[Any], **options: Any) -> scores.Scores:
    """Scores of rows that were added in three chunks."""
    result = scores.Scores(kind, len(margins), margins.shape[2], margins.shape[1], dtype=margins.dtype, **options)
    for part in np.array_split(np.arange(len(margins)), 3):
        result.add(margins[part], labels[part])
    return result


def by_scikit_learn(kind: str, y: Any, z: NDArray[Any], *, joint: bool = False, positive: int = 1) -> dict[str, Any]:
    """The metrics of margins z (rows, outputs)."""
    if kind == "numbers":
        own = {"rmse": sk.root_mean_squared_error, "mae": sk.mean_absolute_error, "r2": sk.r2_score}
        return {name: metric(y, z[:, 0]) for name, metric in own.items()}
    classes = range(max(z.shape[1], 2))
    if kind == "two classes":
        predicted, truth, ranked = (z[:, 0] > 0).astype(int), y == positive, z[:, 0] if positive else -z[:, 0]
    elif kind == "classes":
        occurring = np.unique(y)
        predicted, truth = z.argmax(axis=1), label_binarize(y, classes=classes)[:, occurring]
        ranked = (scores.class_probabilities(z, joint=True) if joint else z)[:, occurring]
    else:
        predicted, truth, ranked = z > 0, y[:, y.any(axis=0)], z[:, y.any(axis=0)]
    found = {
        f"f1_{average}": sk.f1_score(y, predicted, average=average, zero_division=0.0)
        for average in ("macro", "micro", "weighted")
    }
    found |= {
        "error": sk.zero_one_loss(y, predicted),
        "roc_auc": sk.roc_auc_score(truth, ranked, average="macro"),
        "average_precision": sk.average_precision_score(truth, ranked, average="macro"),
    }
    if kind == "label sets":
        losses = [sk.log_loss(y[:, k], 1 / (1 + np.exp(-z[:, k])), labels=[0, 1]) for k in classes]
        return found | {"majority_error": sk.zero_one_loss(y, np.zeros_like(y)), "log_loss": np.mean(losses)}
    recalls = sk.recall_score(y, predicted, average=None, labels=np.unique(y))
    found |= {
        "log_loss": sk.log_loss(y, scores.class_probabilities(z, joint=joint), labels=classes),
        "balanced_accuracy": np.mean(recalls),
    }
    if kind == "classes":
        return found
    precision, recall, _ = sk.precision_recall_curve(truth, ranked)
    precision, recall = precision[:-1], recall[:-1]  # without the point (1, 0) that no threshold has
    single = {"pos_label": positive, "zero_division": 0.0}
    found |= {f"precision_at_recall_{k}": precision[recall >= k / 100].max() for k in LEVELS}
    found |= {f"recall_at_precision_{k}": recall[precision >= k / 100].max(initial=0) for k in LEVELS}
    return found | {
        "f1": sk.f1_score(y, predicted, **single),
        "precision": sk.precision_score(y, predicted, **single),
        "recall": sk.recall_score(y, predicted, **single),
        "rank_bound": 0.0,
        "majority_error": min(truth.mean(), 1 - truth.mean()),
    }


KINDS = {"two classes": 1, "classes": 4, "label sets": 3, "numbers": 1}
"""Outputs."""
UNDEFINED = {"classes": "f1", "label sets": "balanced_accuracy", "numbers": "error"}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, rows=st.integers(2, 60), choice=st.booleans())
def test_metrics_are_those_of_scikit_learn(kind: Any, seed: int, rows: int, choice: bool) -> None:
    """Of either class, of joint losses or not, of numbers near 0 or not."""
    outputs, joint, rows = KINDS[kind], choice and kind == "classes", 30 if kind == "numbers" else rows
    random, margins = draw(seed, rows, outputs, 2 if choice or kind == "numbers" else 1)
    if joint:  # rounding decides between equal probabilities of different margins
        margins = random.normal(0, 3, margins.shape)
    if kind == "numbers":
        margins, y = margins + 1e6 * choice, random.normal(0, 2, rows) + 1e6 * choice
    elif kind == "label sets":
        y = random.random((rows, outputs)) < 0.3
        assume(y.any() and not y.all(axis=0).any())
    else:
        y = random.integers(0, max(outputs - 1, 2), rows)  # a class may be predicted that does not occur
        assume(len(np.unique(y)) > 1)
    positive = int(not choice)
    found = scored(kind, margins, y, joint=joint, positive=positive).rows()
    for q, own in enumerate(found):
        for name, value in by_scikit_learn(kind, y, margins[:, q], joint=joint, positive=positive).items():
            near = 1e-8 if name == "r2" else TOLERANCE
            assert own[name] == pytest.approx(value, abs=near, rel=near), name
        assert kind not in UNDEFINED or own[UNDEFINED[kind]] is None
        assert kind != "two classes" or set(own) == {"error", "rank_bound", "majority_error", *COMPUTED}
    probabilities = scores.class_probabilities(margins[:, 0], joint=joint)
    assert kind not in ("two classes", "classes") or probabilities.sum(axis=1) == pytest.approx(1)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, scale=st.sampled_from([0.01, 1.0, 100.0]), bins=st.sampled_from([16, 256]))
def test_histograms_stay_within_the_bound(seed: int, scale: float, bins: int) -> None:
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, 300)
    margins = (scale * (random.normal(0, 1, 300) + y))[:, None, None]
    exact = scored("two classes", margins, y).rows()[0]
    with patch.multiple(scores, EXACT_VALUES=299, BINS=bins):
        rough = scored("two classes", margins, y).rows()[0]
        assert scores.score_bytes(1, 300, 8) == 2 * bins * 8
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
    with patch.object(scores, "EXACT_VALUES", 1):
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
    assert set(scores.Scores("two classes", 0, 1, 1).rows()[0].values()) == {None}


def test_a_margin_that_is_not_finite_leaves_no_metrics() -> None:
    margins = np.array([[[1.0], [1.0]], [[np.nan], [-1.0]]])
    broken, fine = scored("two classes", margins, np.array([1, 0])).rows()
    assert set(broken.values()) == {None}
    assert fine["error"] == 0.0


def test_the_baseline_is_that_of_a_constant_model() -> None:
    y = np.repeat([0, 1], [97, 3])
    constant = np.full((100, 1, 1), np.log(0.03 / 0.97))
    found = scored("two classes", constant, y).rows()[0]
    for name in (name for name, metric in METRICS.items() if "two classes" in metric.kinds):
        expected = None if name == "loss" else pytest.approx(found[name])
        assert scores.baseline(name, [97, 3]) == expected, name
    assert scores.baseline("rmse", [97, 3]) is None


def test_the_kind_of_labels() -> None:
    kinds = [scores.label_kind(None), scores.label_kind(2), scores.label_kind(3), scores.label_kind(2, label_sets=True)]
    assert kinds == ["numbers", "two classes", "classes", "label sets"]


# ----------------------------------------------------------------------------------------------------------------------
# Held-out metrics of a search: those of scikit-learn, whatever the memory for scores.


GRID: dict[str, Any] = {"cl-fobos": {"lam": [1e-4, 1e-2], "eta0": [0.3]}}


@pytest.mark.parametrize(("classes", "loss"), [(2, "logistic"), (3, "logistic"), (3, "softmax")])
def test_metrics_of_a_search_are_those_of_scikit_learn(tmp_path: Path, classes: int, loss: str) -> None:
    """Of a block after an epoch without fold 1."""
    store = Store.open(make_store(tmp_path / "store", rows=200, features=60, classes=classes))
    named = {"positive_class": "c0"} if classes == 2 else {}
    search = plain_search(algorithms=GRID, folds=4, loss=loss, dtype="float64", **named)
    run, corpus = BlockRun.new(block_of(search, store, 1), store), open_corpus(store, tmp_path)
    learn_up_to(run, corpus, StreamPosition(1, 200))
    found = [tables["metrics"][0] for tables in run.tables(corpus, store)]
    rows = corpus.gather(run.block.setting.order.held_out(0, 200))
    margins = run.learner.margins(rows.indptr, rows.indices, rows.values)
    for q, row in enumerate(found):
        kind, joint, weights = scores.label_kind(classes), loss == "softmax", run.learner.weights_of(q)
        expected = by_scikit_learn(kind, rows.labels, margins[:, q], joint=joint, positive=0)
        assert {name: row[f"held_out_{name}"] for name in expected} == pytest.approx(expected)
        assert row["held_out_rows"] == len(margins)
        assert row["held_out_rmse"] is None
        assert row["features"] == np.count_nonzero(weights.any(axis=1))
        assert row["nonzeros"] == np.count_nonzero(weights)
        assert classes > 2 or row["held_out_log_loss"] == pytest.approx(row["held_out_loss"], rel=1e-12)


def test_the_positive_class_is_the_rarer_or_the_one_named() -> None:
    classes = [ClassEntry(name="ham", rows=9), ClassEntry(name="spam", rows=10)]
    assert [positive_class(classes, name) for name in (None, "ham", "spam")] == [0, 0, 1]
    assert positive_class(classes[::-1], None) == 1
    assert positive_class([ClassEntry(name=name, rows=5) for name in "ab"], None) == 1
    assert positive_class([], None) == 1
    for several in ([*classes, ClassEntry(name="news", rows=1)], classes, []):
        with raises_code("invalid-positive-class"):
            positive_class(several, "eggs")
