"""Random problems and configurations for the tests of cao-rcd."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from sparseoco.kernels.coordinate import PREDICTIONS
from sparseoco.learners import find_algorithm


def parameters(**given: Any) -> dict[str, Any]:
    """A configuration of cao-rcd, with defaults for what is not given."""
    return find_algorithm("cao-rcd").configuration(given)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Features in every row, in few and in none; rows without features; real values, and tenths or counts, with which
    gradients are often exactly 0 or equal, and margins, with R a power of two, exactly at the kink yz = 1."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, features = draw(st.integers(1, 30)), draw(st.integers(1, 11))
    A = rng.normal(0, 1, (rows, features)) * (rng.random((rows, features)) < rng.choice([0.0, 0.1, 0.5, 1.0], features))
    values = draw(st.sampled_from(["real", "tenths", "counts"]))
    if values != "real":
        A = np.abs(A).round(1) if values == "tenths" else np.ceil(np.abs(A))
        A *= rng.choice([-1.0, 1.0], A.shape) if draw(st.booleans()) else 1.0
    return A, rng.integers(0, 2, rows).astype(float)


CONFIGURATIONS = st.fixed_dictionaries(
    {
        "R": st.sampled_from([0.0371, 0.31, 1.03, 0.1, 0.25, 1.0]),
        "alpha": st.sampled_from([0.0, 1.37e-3, 0.119, 1.03, 11.3, 0.1, 0.5, 1.0]),
        "rounds": st.integers(1, 60),
        "batch": st.sampled_from([1, 1, 2, 3, 20]),
        "partition": st.sampled_from(["consecutive", "random"]),
        "predict_gradient": st.sampled_from(tuple(PREDICTIONS)),
        "sample": st.sampled_from(["uniform", "lipschitz"]),
        "scale": st.sampled_from(["none", "max_abs"]),
    }
)


def random_problem(rows: int, features: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    chance = rng.random((3, features)) ** 4
    y = rng.integers(0, 3, rows)
    return sp.csr_matrix((rng.random((rows, features)) < chance[y]) * rng.geometric(0.6, (rows, features))), y
