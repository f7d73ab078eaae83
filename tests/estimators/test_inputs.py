"""Inputs of estimators."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sparseoco import SparseOnlineClassifier, SparseOnlineRegressor
from sparseoco.training.learner import Learner
from tests.support.errors import raises_code

# ----------------------------------------------------------------------------------------------------------------------
# Matrices of any type and form give the same bits; what cannot be learned is refused by its row.


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint16, np.int64, np.uint64, np.float32, np.float64, bool])
def test_counts_of_any_type(dtype: Any) -> None:
    X, y = rows().astype(dtype), classes(2)
    expected = plain_classifier().fit(X.astype(np.float64), y)
    assert bits(plain_classifier().fit(X, y)) == bits(expected)
    assert bits(plain_classifier().fit(X.toarray(), y)) == bits(expected)


@pytest.mark.fault(30)
def test_any_form_of_the_same_matrix() -> None:
    X, y = rows(dtype=np.uint8), classes(2)
    expected = plain_classifier().fit(X, y)
    wide = X.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert wide.indices.dtype == np.int64
    backwards = X.copy()
    for row in range(ROWS):
        run = slice(X.indptr[row], X.indptr[row + 1])
        backwards.indices[run], backwards.data[run] = X.indices[run][::-1], X.data[run][::-1]
    backwards = sp.csr_matrix((backwards.data, backwards.indices, backwards.indptr), X.shape)
    assert not backwards.has_sorted_indices
    with_zeros = sp.csr_matrix((np.r_[0, X.data], np.r_[0, X.indices], np.r_[0, X.indptr[1:] + 1]), X.shape)
    for form in (wide, backwards, with_zeros, X.tocoo(), X.tocsc(), X.tolil(), sp.csr_array(X), X.toarray()):
        before = form.copy()
        assert bits(plain_classifier().fit(form, y)) == bits(expected)
        assert bits(plain_classifier(shuffle=True, random_state=1).fit(form, y)) == bits(
            plain_classifier(shuffle=True, random_state=1).fit(X, y)
        )
        assert (form != before).sum() == 0
        assert np.array_equal(expected.predict(form), expected.predict(X))


@pytest.mark.fault(30)
@pytest.mark.parametrize(("dtype", "count"), [(np.uint8, 200), (np.int8, 100), (np.float32, 3e38)])
def test_duplicates_are_summed_without_wrapping_around(dtype: Any, count: float) -> None:
    twice = sp.csr_matrix((np.array([count, count, 1], dtype), [1, 1, 0], [0, 2, 3]), (2, 2))
    once = sp.csr_matrix(np.array([[0.0, 2.0 * float(dtype(count))], [1.0, 0.0]]))
    model = plain_classifier(eta0=1e-40 if count > 1e9 else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert bits(model.fit(twice, [0, 1])) == bits(clone(model).fit(once, [0, 1]))
    if count > 1e9:  # within float64, but not within float32
        with raises_code("invalid-rows", "float32", "row 0"):
            model.set_params(dtype="float32").fit(twice, [0, 1])


@pytest.mark.fault(23)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, np.asarray])
def test_nan_and_infinity_are_refused_by_row(bad: float, form: Any) -> None:
    dense, y = rows().toarray().astype(float), classes(2)
    good = plain_classifier().fit(rows(), y)
    before = bits(good)
    dense[17, 4] = bad
    with raises_code("invalid-rows", "row 17."):
        plain_classifier().fit(form(dense), y)
    for method in (lambda X: good.partial_fit(X, y), good.predict, good.predict_proba, good.decision_function):
        with raises_code("invalid-rows", "row 17."):
            method(form(dense))
    assert bits(good) == before  # nothing of it was learned
    numbers = y.astype(float)
    numbers[11] = bad
    with raises_code("invalid-labels", "row 11"):
        plain_regressor().fit(rows(), numbers)
    with raises_code("invalid-labels", "row 11"):
        plain_classifier().fit(rows(), numbers)


def test_partial_fit_keeps_to_its_classes_and_parameters() -> None:
    X, y = rows(), classes(3)
    with raises_code("missing-classes"):
        plain_classifier().partial_fit(X, y)
    model = plain_classifier().partial_fit(X, y, classes=[2, 1, 0])
    assert model.classes_.tolist() == [0, 1, 2]
    with raises_code("parameters-changed", "classes"):
        model.partial_fit(X, y, classes=[0, 1])
    other = y.copy()
    other[6] = 9
    with raises_code("invalid-labels", "row 6"):
        model.partial_fit(X, other)
    with raises_code("invalid-labels", "row 0"):
        model.partial_fit(X, y.astype(str))
    with pytest.raises(ValueError, match="expecting 30 features"):
        model.partial_fit(X[:, :5], y)
    with raises_code("parameters-changed", "partial_fit"):
        model.set_params(lam=0.5).partial_fit(X, y)
    with raises_code("parameters-changed", "partial_fit"):
        model.set_params(lam=None, fit_intercept=False).partial_fit(X, y)
    fresh = plain_classifier(fit_intercept=False).fit(X, y)
    assert bits(model.fit(X, y)) == bits(fresh)  # fit starts again
    with raises_code("one-class"):
        plain_classifier().fit(X, np.zeros(ROWS))


def broken(form: str, name: str, values: list[int]) -> Any:
    """A sparse matrix one of whose arrays was changed after SciPy checked it."""
    matrix = sp.csr_matrix(np.eye(4)).asformat(form)
    setattr(matrix, name, np.array(values, np.int32))
    return matrix


BROKEN = [
    ("csr", "indptr", [0, 1, 9, 3, 4]),
    ("csr", "indptr", [0, 1, -1, 3, 4]),
    ("csr", "indptr", [0, 1, 2, 3, 2**30]),
    ("csr", "indptr", [0, 1, 2]),
    ("csr", "indices", [0, 1, 2, 2**30]),
    ("csr", "indices", [0, 1, 2, -1]),
    ("csc", "indptr", [0, 1, 9, 3, 4]),
    ("csc", "indices", [0, 1, 2, 2**30]),
    ("coo", "row", [0, 1, 2, 2**30]),
    ("coo", "col", [0, 1, 2, -1]),
]


@pytest.mark.parametrize(("form", "name", "values"), BROKEN)
@pytest.mark.fault(51)
def test_a_matrix_whose_arrays_are_no_positions(form: str, name: str, values: list[int]) -> None:
    learner = Learner("fobos", n_features=4)
    for call in (lambda X: learner.partial_fit(X, np.zeros(4)), learner.decision_function):
        with raises_code("invalid-rows", "X"):
            call(broken(form, name, values))
    sets = Learner("fobos", n_features=4, n_classes=4, multilabel=True)
    with raises_code("invalid-labels", "y"):
        sets.partial_fit(sp.csr_matrix(np.eye(4)), broken(form, name, values))
    assert learner.rounds == sets.rounds == 0


# ----------------------------------------------------------------------------------------------------------------------
# Small streams, and estimators that learn them in one pass in document order.


ROWS, FEATURES = 200, 30


def rows(seed: int = 3, dtype: Any = np.int64) -> sp.csr_matrix:
    rng = np.random.default_rng(seed)
    frequent = rng.random((ROWS, FEATURES)) < 1.0 / np.arange(1, FEATURES + 1)
    return sp.csr_matrix((rng.integers(1, 5, (ROWS, FEATURES)) * frequent).astype(dtype))


def classes(number: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, number, ROWS)


def bits(estimator: Any) -> tuple[bytes, bytes]:
    return estimator.coef_.tobytes(), estimator.intercept_.tobytes()


def plain_classifier(algorithm: str = "fobos", **parameters: Any) -> SparseOnlineClassifier:
    """One pass in document order with logistic loss, unless the parameters say otherwise."""
    return SparseOnlineClassifier(algorithm, **({"loss": "logistic", "epochs": 1, "shuffle": False} | parameters))


def plain_regressor(algorithm: str = "fobos", **parameters: Any) -> SparseOnlineRegressor:
    """One pass in document order, unless the parameters say otherwise."""
    return SparseOnlineRegressor(algorithm, **({"epochs": 1, "shuffle": False} | parameters))
