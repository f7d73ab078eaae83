"""Every metric equals scikit-learn's, ties included; histograms stay within their bound."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk
from sklearn.preprocessing import label_binarize

from sparseoco.storage.metric_names import COMPUTED, LEVELS, METRICS, defined_for
from sparseoco.training import metrics as scores
from sparseoco.training.metrics import Scores, baseline, class_probabilities, label_kind, score_bytes

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
