"""A grid of four values for every streaming learner, and values that make a learner diverge."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sparseoco.learners import ALGORITHMS, streaming
from sparseoco.learners.contract import Algorithm
from sparseoco.training.learner import Learner

ROWS, FEATURES = 300, 40


IN_FLOAT32 = ("cl-fobos", "stda")


def gated(algorithm: Algorithm, loss: str, dtype: str) -> bool:
    """Whether the default run tests this: a loss with a kink in float64, and some learners in float32."""
    kinked = "hinge" if "hinge" in algorithm.loss_names else algorithm.default_loss
    return (loss, dtype) == (kinked, "float64") or (
        algorithm.name in IN_FLOAT32 and (loss, dtype) == (algorithm.default_loss, "float32")
    )


CASES = [
    pytest.param(name, loss, dtype, marks=() if gated(ALGORITHMS[name], loss, dtype) else pytest.mark.slow)
    for name in streaming()
    for loss in dict.fromkeys((ALGORITHMS[name].default_loss, "logistic", "hinge"))
    for dtype in ("float32", "float64")
    if loss in ALGORITHMS[name].loss_names
]
KINDS = frozenset({"adagrad", "cl-fobos", "stda"})
"""Learners of the default run where a test is of what all learners share, and compiles kernels of its own for each."""
SHARED = [
    pytest.param(*case.values, marks=() if case.values[0] in KINDS else pytest.mark.slow) if not case.marks else case
    for case in CASES
]
LAMS = [0.0, 1e-4, 1e-2, 0.1]
SCALES = [0.01, 0.1, 0.3, 1.0]
WILD = {"eta0": 1e9, "gamma": 1e-9, "eta": 1e9, "R": 1e9}  # values that make a learner diverge

Configuration = dict[str, Any]


def configurations(name: str) -> list[Configuration]:
    """Four that differ in λ, or where there is none in a number that scales the steps; equal ones without any."""
    own = ALGORITHMS[name].parameters
    if any(parameter.name == "lam" for parameter in own):
        return [{"lam": lam} for lam in LAMS]
    scale = next((p.name for p in own if not p.static and isinstance(p.default, float)), None)
    return [{scale: value} if scale else {} for value in SCALES]


def new(name: str, loss: str, dtype: str, among: Sequence[Configuration] | None = None, classes: int = 2) -> Learner:
    """A learner of these configurations, by default the four."""
    grid = among or configurations(name)
    return Learner(name, loss=loss, grid=grid, n_features=FEATURES, n_classes=classes, dtype=dtype)


def bits(learner: Learner) -> bytes:
    """Weights and progress."""
    return learner.weights().tobytes() + b"".join(np.asarray(part).tobytes() for part in learner.progress)
