"""caos-erm against the paper's dense pseudo-code; the same bits however the work is cut; towards the optimum."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.epochs import fit_epochs
from tests.epochs.oracle import caos_erm
from tests.learners.streams import Stream, streams
from tests.oracles import SLOPES

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "R": st.floats(0.0371, 5.93),
    "alpha": st.sampled_from([0.0, 0.0517, 0.319, 1.13, 11.3]),
}
SHARED: dict[str, st.SearchStrategy[Any]] = {
    "rounds": st.sampled_from(["pass", 1, 7, 23]),
    "batch": st.integers(1, 5),
    "parts": st.integers(1, 5),
}
WAYS = [("sampled", "serial"), ("corrected", "serial"), ("corrected", "parallel"), ("sampled", "dealt")]


def problem(rows: int = 300, features: int = 40, classes: int = 2) -> tuple[sp.csr_matrix, np.ndarray]:
    """Sparse rows with something to learn in them, sorted by their class."""
    rng = np.random.default_rng(11)
    frequent = rng.random((rows, features)) < 1.5 / np.arange(1, features + 1)
    X = rng.integers(1, 5, (rows, features)) * frequent
    margins = (X > 0) @ rng.normal(0, 1, (features, classes)) + rng.normal(0, 0.5, (rows, classes))
    y = margins.argmax(axis=1)
    order = np.argsort(y, kind="stable")
    return sp.csr_matrix(X[order]), y[order]


@pytest.mark.parametrize(("estimate", "placement"), WAYS)
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
@settings(max_examples=15, deadline=None)
@given(data=st.data(), stream=streams(), seed=st.integers(0, 2**63 - 1))
def test_lazy_equals_dense(
    estimate: str, placement: str, loss: str, data: st.DataObject, stream: Stream, seed: int
) -> None:
    shared = {name: data.draw(values) for name, values in SHARED.items()}
    shared |= {"estimate": estimate, "placement": placement}
    penalty, ratio = data.draw(st.sampled_from([("l1", None), ("l2", None), ("elastic_net", 0.37)]))
    own = {} if ratio is None else {"l1_ratio": ratio}
    grid = [
        {name: data.draw(values) for name, values in VALUES.items()} | shared | own
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    epochs = stream.epochs
    fit = fit_epochs(sp.csr_matrix(stream.X), stream.y, loss=loss, penalty=penalty, grid=grid, epochs=epochs, seed=seed)
    signs = 2.0 * stream.y - 1
    for i, entry in enumerate(grid):
        expected = caos_erm(stream.X, signs, SLOPES[loss], epochs=epochs, seed=seed, penalty=penalty, **entry)
        np.testing.assert_allclose(fit.weights[:, i], expected[-1], **TOLERANCE)
