"""Fixtures of the tests of learners."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.training.learner import Learner
from tests.learners.grids import FEATURES, ROWS


@pytest.fixture(scope="module")
def data() -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(11)
    frequent = rng.random((ROWS, FEATURES)) < 1.0 / np.arange(1, FEATURES + 1)
    X = sp.csr_matrix(rng.integers(1, 5, (ROWS, FEATURES)) * frequent)
    return X, rng.integers(0, 2, ROWS)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Learner], bytes]:
    """The file of a learner."""

    def write(learner: Learner) -> bytes:
        learner.save(tmp_path / "learner")
        return (tmp_path / "learner").read_bytes()

    return write
