"""Hard streams of sparse rows, and parameters, for the battery."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

from sparseoco.learners import ALGORITHMS, streaming
from sparseoco.learners.contract import Algorithm

LOSSES = ("logistic", "hinge", "squared_hinge", "squared")
# Every learner with one loss always, with the rest when asked: making the machine code is what takes time.
WITH_LOSSES = [
    pytest.param(name, loss, marks=() if loss == "hinge" or name == "cl-fobos" else pytest.mark.slow)
    for name in streaming()
    for loss in LOSSES
    if loss in ALGORITHMS[name].loss_names
]

# Values without round numbers: at a kink of a loss the last bit decides, and there two right answers differ.
PARAMETERS = {
    "eta0": st.floats(0.0371, 2.93),
    "gamma": st.floats(0.271, 6.37),
    "lam": st.sampled_from([0.0, 1.03e-6, 1.37e-3, 0.0517, 0.319, 11.3]),
    "p": st.sampled_from([1, 2, 3, 1.5, "inf"]),
    "by": st.sampled_from(["subgradient", "feature"]),
    "l1_ratio": st.sampled_from([0.0, 0.13, 0.5, 0.97]),
    "K": st.sampled_from([1, 2, 3, 7, 50]),
    "step": st.sampled_from(["sqrt", "constant"]),
    "second": st.sampled_from(["same", "next"]),
    "V": st.sampled_from([0.61, 500.0, 1e8]),
    "eta": st.floats(0.0371, 2.93),
    "delta": st.sampled_from([1.03e-6, 0.0217, 1.19]),
    "R": st.floats(0.0371, 5.93),
    "predict": st.sampled_from(["none", "last", "mean"]),
    "keep": st.sampled_from([0.173, 0.619, 1.0]),
    "sample": st.sampled_from(["uniform", "lipschitz"]),
    "seed": st.integers(0, 2**53 - 1),
    "C": st.sampled_from([0.0137, 0.319, 7.31]),
    "variant": st.sampled_from(["PA", "PA-I", "PA-II"]),
    "r": st.floats(0.0371, 5.93),
}


@dataclass
class Stream:
    """Rows of one pass, repeated `epochs` times."""

    X: np.ndarray
    y: np.ndarray
    epochs: int

    @property
    def csr(self) -> sp.csr_matrix:
        return sp.csr_matrix(np.tile(self.X, (self.epochs, 1)))

    @property
    def dense(self) -> np.ndarray:
        return np.tile(self.X, (self.epochs, 1))

    @property
    def labels(self) -> np.ndarray:
        return np.tile(self.y, self.epochs)


@st.composite
def streams(draw: st.DrawFn, classes: int = 2) -> Stream:
    """Features asleep for long, woken again and again, empty rows, one feature in every row, several epochs."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, features = draw(st.integers(1, 40)), draw(st.integers(1, 7))
    rates = rng.choice([0.02, 0.1, 0.5, 1.0], features)
    X = rng.normal(0, 1, (rows, features)) * (rng.random((rows, features)) < rates)
    if draw(st.booleans()):
        X = np.abs(X).round(1) * 1.0173  # counts, nearly
    X[rng.random(rows) < draw(st.sampled_from([0.0, 0.3, 0.9]))] = 0.0
    return Stream(X, rng.integers(0, classes, rows), draw(st.integers(1, 3)))


@st.composite
def configurations(draw: st.DrawFn, algorithm: Algorithm) -> dict[str, object]:
    """A value for every parameter the learner has; one that is not named above fails here."""
    return {parameter.name: draw(PARAMETERS[parameter.name]) for parameter in algorithm.parameters}
