"""Hard streams of sparse rows, and parameters, for the battery."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from sparseoco.learners.contract import Algorithm
from sparseoco.learners.parameters import Parameter

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
# Parameters whose hard values lie far from their grids. No round numbers: at a kink of a loss the last bit decides, and
# there two right answers differ.
HARD_VALUES = {
    "eta0": st.floats(0.0371, 2.93),
    "gamma": st.floats(0.271, 6.37),
    "lam": st.sampled_from([0.0, 1.03e-6, 1.37e-3, 0.0517, 0.319, 11.3]),
    "p": st.sampled_from([1, 2, 3, 1.5, "inf"]),
    "l1_ratio": st.sampled_from([0.0, 0.13, 0.5, 0.97]),
    "K": st.sampled_from([1, 2, 3, 7, 20]),
    "V": st.sampled_from([0.61, 500.0, 1e8]),
    "eta": st.floats(0.0371, 2.93),
    "delta": st.sampled_from([1.03e-6, 0.0217, 1.19]),
    "R": st.floats(0.0371, 5.93),
    "keep": st.sampled_from([0.173, 0.619, 1.0]),
    "average": st.just("none"),  # the mean of iterates is not what is learned with
    "seed": st.integers(0, 2**53 - 1),
}
SPREAD = (0.0371, 0.137, 0.619, 1.37, 5.93)


def is_valid(parameter: Parameter, value: object) -> bool:
    try:
        parameter.check(value)
    except ValueError:
        return False
    return True


def parameter_values(parameter: Parameter) -> st.SearchStrategy[Any]:
    """Hard values where they are listed, else all choices, else numbers around the default and the grid."""
    if parameter.name in HARD_VALUES:
        return HARD_VALUES[parameter.name]
    if parameter.choices:
        return st.sampled_from(parameter.choices)
    known = (parameter.default, *parameter.grid)
    numbers = [value for value in known if not isinstance(value, (bool, str))]
    spread = [value * factor for value in numbers for factor in SPREAD]
    valid = [value for value in spread if is_valid(parameter, value)]
    return st.sampled_from(valid or known)


@dataclass
class Stream:
    """Rows of one pass, repeated `epochs` times."""

    X: np.ndarray
    y: np.ndarray
    epochs: int
    row_weights: np.ndarray | None = None

    @property
    def dense(self) -> np.ndarray:
        return np.tile(self.X, (self.epochs, 1))

    @cached_property
    def csr(self) -> sp.csr_matrix:
        return sp.csr_matrix(self.dense)

    @cached_property
    def labels(self) -> np.ndarray:
        return np.concatenate([self.y] * self.epochs)

    @cached_property
    def weights(self) -> np.ndarray | None:
        return None if self.row_weights is None else np.tile(self.row_weights, self.epochs)


@st.composite
def streams(draw: st.DrawFn, classes: int = 2, *, weighted: bool = False, kind: str = "classes") -> Stream:
    """Rare and frequent features, empty rows, one feature in every row, several epochs; weights, some of them 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, features = draw(st.integers(1, 16)), draw(st.integers(1, 7))
    rates = rng.choice([0.02, 0.1, 0.5, 1.0], features)
    X = rng.normal(0, 1, (rows, features)) * (rng.random((rows, features)) < rates)
    if draw(st.booleans()):
        X = np.abs(X).round(1) * 1.0173  # counts, nearly
    X[rng.random(rows) < draw(st.sampled_from([0.0, 0.3, 0.9]))] = 0.0
    labels: np.ndarray = rng.integers(0, classes, rows)
    if kind in ("numbers", "label sets"):
        labels = rng.normal(0, 1, rows) if kind == "numbers" else rng.random((rows, classes)) < 0.4
    epochs = draw(st.integers(1, 3))
    weights = rng.choice([0.0, 0.371, 1.0, 2.93], rows) if weighted else None
    return Stream(X, labels, epochs, weights)


@st.composite
def configurations(draw: st.DrawFn, algorithm: Algorithm) -> dict[str, Any]:
    """A value for every parameter of the learner."""
    return {parameter.name: draw(parameter_values(parameter)) for parameter in algorithm.parameters}


@st.composite
def grids(draw: st.DrawFn, algorithm: Algorithm) -> list[dict[str, Any]]:
    """Two or three configurations that the same compiled code learns."""
    first = draw(configurations(algorithm))
    shared = {parameter.name: first[parameter.name] for parameter in algorithm.parameters if parameter.static}
    others = draw(st.lists(configurations(algorithm), min_size=1, max_size=2))
    return [first, *(other | shared for other in others)]


def at_a_jump(name: str, before: np.ndarray, after: np.ndarray) -> bool:
    """Whether rounding decides where the recursion goes: λ·sign(w) with a w that has come to 0, or to 1e-17."""
    return name == "subgradient" and bool(((before != 0) & (np.abs(after) < 1e-11)).any())
