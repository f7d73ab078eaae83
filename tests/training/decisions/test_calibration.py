"""Calibrations are scikit-learn's, and never contradict the order of the margins."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.special import expit, softmax
from sklearn.calibration import _sigmoid_calibration, _TemperatureScaling

from sparseoco.training.decisions import Calibration, fit_calibration

SEEDS = st.integers(0, 2**32 - 1)


def _two_classes(seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    margins = random.normal(0, 2, 60)
    labels = (random.random(60) < expit(0.7 * margins - 0.5)).astype(np.int32)
    return scale * margins, labels


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([1e-3, 1.0, 1e4]))
def test_a_sigmoid_is_that_of_scikit_learn(seed: int, scale: float) -> None:
    margins, labels = _two_classes(seed, scale)
    a, b = _sigmoid_calibration(margins, labels)
    assume(a < 0)
    found = fit_calibration(margins[:, None], labels)
    assert found is not None
    np.testing.assert_allclose(found.probabilities(margins[:, None])[:, 0], expit(-(a * margins + b)), atol=2e-4)
    # scikit-learn stops earlier: ours has no greater loss.
    assert _platt_loss(-np.array(found.slopes[0]), -found.offsets[0], margins, labels) <= 1e-9 + _platt_loss(
        a, b, margins, labels
    )


def _platt_loss(a: float, b: float, margins: np.ndarray, labels: np.ndarray) -> float:
    positive, negative = (labels == 1).sum(), (labels == 0).sum()
    targets = np.where(labels == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))
    p = expit(-(a * margins + b))
    return float(-(targets * np.log(p) + (1 - targets) * np.log(1 - p)).sum())


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from([1e-2, 1.0, 1e3]))
def test_a_temperature_is_that_of_scikit_learn_for_smoothed_labels(seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    margins = scale * random.normal(0, 2, (40, 4))
    labels = np.array([random.choice(4, p=row) for row in softmax(margins / scale, axis=1)])
    missed = 1 / (40 + 2)
    targets = np.full((40, 4), missed / 3)
    targets[np.arange(40), labels] = 1 - missed
    every = np.repeat(margins, 4, axis=0), np.tile(np.arange(4), 40), targets.ravel()
    expected = _TemperatureScaling().fit(every[0], every[1], sample_weight=every[2]).beta_
    found = fit_calibration(margins, labels)
    assert found is not None
    assert found.slopes == (pytest.approx(expected, rel=1e-5, abs=5e-5 / scale),)
    np.testing.assert_allclose(found.probabilities(margins), softmax(found.slopes[0] * margins, axis=1), atol=1e-12)


def test_labels_of_several_classes_have_a_sigmoid_each() -> None:
    parts = [_two_classes(seed) for seed in (1, 2)]
    margins, labels = (np.stack(columns, axis=1) for columns in zip(*parts, strict=True))
    both = fit_calibration(margins, labels)
    alone = [fit_calibration(own[:, None], truth) for own, truth in parts]
    assert both is not None
    assert both.method == "sigmoid"
    assert both.slopes == tuple(found.slopes[0] for found in alone if found is not None)
    assert both.offsets == tuple(found.offsets[0] for found in alone if found is not None)


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 1]])
@pytest.mark.parametrize("margins", [[2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [9.0, 4.0, -3.0, -900.0]])
def test_a_sigmoid_of_few_rows_is_finite_and_increasing(labels: list[int], margins: list[float]) -> None:
    found = fit_calibration(np.array(margins)[:, None], np.array(labels))
    assert found is not None
    p = found.probabilities(np.array(margins)[:, None])
    assert ((p > 0) & (p < 1)).all()
    assert (np.diff(p[np.argsort(margins), 0]) >= 0).all()


@pytest.mark.parametrize("right", [True, False])
def test_a_temperature_of_rows_that_are_all_right_or_wrong_is_finite(right: bool) -> None:
    margins = np.eye(3)[[0, 1, 2, 0]] * 5
    labels = np.array([0, 1, 2, 0] if right else [1, 2, 0, 1])
    found = fit_calibration(margins, labels)
    assert found is not None
    p = found.probabilities(margins)[np.arange(4), labels]
    assert (p > 0.8).all() if right else (p == 1 / 3).all()


def test_there_is_no_calibration_without_rows() -> None:
    assert fit_calibration(np.empty((0, 1)), np.empty(0, np.int32)) is None


@pytest.mark.parametrize(
    "values",
    [
        {"method": "sigmoid", "slopes": [1.0], "offsets": []},
        {"method": "sigmoid", "slopes": [-1.0], "offsets": [0.0]},
        {"method": "sigmoid", "slopes": [float("nan")], "offsets": [0.0]},
        {"method": "temperature", "slopes": [1.0, 2.0]},
        {"method": "temperature", "slopes": []},
    ],
)
def test_a_calibration_that_is_read_is_checked(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Calibration.model_validate(values)
