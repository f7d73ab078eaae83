"""Sparse and dense sums of gradients are the same bits, added in any tree."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparseoco.offline.passes import FeatureSums, GradientBuffer

# Both zeros, subnormal and huge numbers; sums start from +0.0.
VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, -0.3, 1e-320, -1e-320, 1e300, -1e300, np.inf])


@st.composite
def leaves(draw: Any) -> list[np.ndarray]:
    n_features, columns = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    count = draw(st.integers(1, 6))
    return [
        np.where(
            draw(arrays(np.bool_, (n_features, 1))),  # features that occur
            draw(arrays(np.float64, (n_features, columns), elements=VALUES)),
            0.0,
        )
        for _ in range(count)
    ]


def sums(values: np.ndarray, *, sparse: bool) -> FeatureSums:
    buffer = GradientBuffer(*values.shape, sparse=sparse)
    for feature in np.flatnonzero(values.any(axis=1)):
        buffer.occur(np.array([feature]))
        buffer.values[feature] += values[feature]
    found = buffer.take()
    assert not buffer.values.any()
    assert not buffer.take().dense().any()
    return found


@given(leaves(), st.data())
def test_sparse_and_dense_sums_have_the_same_bits(each: list[np.ndarray], data: Any) -> None:
    with np.errstate(invalid="ignore", over="ignore"):
        expected = each[0] + 0.0
        total = sums(each[0], sparse=data.draw(st.booleans()))
        for values in each[1:]:
            other = sums(values, sparse=data.draw(st.booleans()))
            expected, total = expected + (values + 0.0), total + other if data.draw(st.booleans()) else other + total
    assert total.dense().tobytes() == expected.tobytes()
    if total.features is not None:
        assert (np.diff(total.features) > 0).all()


def test_sums_are_sparse_while_few_features_occur() -> None:
    few, others, many = (np.zeros((10, 2)) for _ in range(3))
    few[[1, 8]], others[[2, 8]], many[3:] = 1.0, 2.0, 3.0
    first, second, third = (sums(values, sparse=True) for values in (few, others, many))
    assert (first + second).values.shape == (3, 2)
    assert (first + second + third).features is None
