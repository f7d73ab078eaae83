"""A grid of four values for every streaming learner, and values that make a learner diverge."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparseoco.learners import ALGORITHMS, streaming
from sparseoco.training.learner import Learner

ROWS, FEATURES = 120, 40
CASES = [
    (name, loss, dtype, classes)
    for name in streaming()
    for loss in dict.fromkeys((ALGORITHMS[name].default_loss, "logistic", "hinge"))
    for dtype, classes in (("float32", 3), ("float64", 2))
    if loss in ALGORITHMS[name].loss_names
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


def labels(classes: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, classes, ROWS)


def bits(learner: Learner) -> bytes:
    """Weights and progress."""
    return learner.weights().tobytes() + b"".join(np.asarray(part).tobytes() for part in learner.progress)
