"""The estimators keep scikit-learn's rules, and ours: the same bits for any cut of a stream."""

import copy
import itertools
import pickle
import subprocess
import sys
import warnings
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparseoco import Learner, SparseOnlineClassifier, SparseOnlineRegressor
from sparseoco.kernels.order import epoch_rows
from sparseoco.learners import ALGORITHMS, algorithm_names
from sparseoco.training.options import default_loss
from tests.support.errors import raises_code

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


# ----------------------------------------------------------------------------------------------------------------------
# The rules of scikit-learn; any cut of a stream; parameters, weights, pickles, pipelines.


TEXTS = ["cheap pills now", "meeting at noon", "cheap cheap watches", "lunch at noon today", "pills", "the meeting"] * 5
LABELS = ["spam", "ham", "spam", "ham", "spam", "ham"] * 5


ROUNDS = "a row of weight 2 is one round, and the same row twice is two, in which the steps shrink"
NOT_MET = {
    "check_sample_weight_equivalence_on_dense_data": ROUNDS,
    "check_sample_weight_equivalence_on_sparse_data": ROUNDS,
    "check_class_weight_classifiers": "a weight of 1000 makes steps a thousand times as long, and learning diverges",
}
LEARNERS_OWN = {"check_no_attributes_set_in_init": "parameters of the learner are not in the signature, but set"}


def not_met(estimator: Any) -> dict[str, str]:
    return NOT_MET | (LEARNERS_OWN if estimator._learner_parameters() else {})


@parametrize_with_checks([SparseOnlineClassifier(), SparseOnlineRegressor()], expected_failed_checks=not_met)
def test_rules_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


# Some of the checks learn unscaled features, of size 10: a regression diverges, which is said in a warning. So would
# rda with the squared hinge, whose slopes grow with the margin.
@pytest.mark.filterwarnings("ignore:.*fobos diverged:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
@parametrize_with_checks(
    [
        SparseOnlineClassifier("rda", loss="logistic", fit_intercept=False, epochs=2, dtype="float32"),
        SparseOnlineRegressor("cl-fobos", eta0=0.1, epochs=3, shuffle=True),
        SparseOnlineClassifier("ogd", G=1.0, epochs=3),
        SparseOnlineRegressor("ons", beta=0.01),
    ],
    expected_failed_checks=not_met,
)
def test_rules_of_scikit_learn_with_other_learners(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=() if name == "cl-fobos" else pytest.mark.slow)
        for name in (*algorithm_names("stream"), *algorithm_names("dense"))
    ],
)
@settings(deadline=None, max_examples=15)
@given(
    cuts=st.lists(st.integers(0, ROWS), max_size=6).map(sorted),
    n_classes=st.integers(2, 4),
    fit_intercept=st.sampled_from([None, False]),
)
def test_any_cut_gives_the_bits_of_a_fit(algorithm: str, cuts: list[int], n_classes: int, fit_intercept: bool) -> None:
    X, y = rows(), classes(n_classes)
    loss = ALGORITHMS[algorithm].default_loss
    whole = plain_classifier(algorithm, loss=loss, fit_intercept=fit_intercept)
    check_cuts(whole, X, y, cuts, classes=np.arange(n_classes))
    assert whole.coef_.any()


def check_cuts(whole: Any, X: sp.csr_matrix, y: np.ndarray, cuts: list[int], **known: Any) -> None:
    """A stream that is cut gives the bits of one fit."""
    pieces = clone(whole)
    for start, stop in itertools.pairwise([0, *cuts, ROWS]):
        if stop > start:
            pieces.partial_fit(X[start:stop], y[start:stop], **known)
    assert bits(pieces) == bits(whole.fit(X, y))


@settings(deadline=None, max_examples=15)
@given(cuts=st.lists(st.integers(0, ROWS), max_size=6).map(sorted), fit_intercept=st.booleans())
def test_any_cut_of_a_regression_gives_the_bits_of_one_fit(cuts: list[int], fit_intercept: bool) -> None:
    X, y = rows() * 0.1, np.random.default_rng(9).normal(size=ROWS)
    check_cuts(plain_regressor(eta0=0.1, lam=1e-3, fit_intercept=fit_intercept), X, y, cuts)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
def test_the_learner_underneath(loss: str) -> None:
    X, y = rows() * 0.1, classes(2)
    learner = Learner("fobos", loss=loss, grid={"lam": [1e-3]}, n_features=FEATURES).partial_fit(X, y)
    model = plain_classifier(loss=loss, lam=1e-3, fit_intercept=False).fit(X, y)
    assert bits(model)[0] == learner.weights().tobytes()
    assert np.array_equal(model.decision_function(X), learner.decision_function(X)[:, 0, 0])
    assert hasattr(model, "predict_proba") == (loss == "logistic")


def test_parameters_reach_the_learner_and_unknown_ones_are_refused() -> None:
    X, y = rows(), classes(2)
    model = plain_classifier("stda", gamma=2.0, p="inf", by="feature").fit(X, y)
    (configuration,) = model.learner_.configurations
    assert (configuration["gamma"], configuration["p"], configuration["by"]) == (2.0, "inf", "feature")
    assert configuration["lam"] == ALGORITHMS["stda"].configuration({})["lam"]  # its own default
    with raises_code("unknown-parameter", "fobos", "'gamma'", "eta0"):
        plain_classifier("fobos", gamma=1.0).fit(X, y)
    with raises_code("invalid-parameter", "fobos", "eta0=-1"):
        plain_classifier("fobos", eta0=-1).fit(X, y)
    with raises_code("unknown-algorithm", "'adam'"):
        plain_classifier("adam").fit(X, y)
    for epochs in (0, 1.5, True, None):
        with raises_code("invalid-parameter", f"epochs={epochs!r}"):
            plain_classifier(epochs=epochs).fit(X, y)
    with raises_code("unsupported-combination", "'hinge'"):
        plain_regressor(loss="hinge").fit(X, y)


def test_a_shuffled_fit_goes_in_the_order_of_the_drivers() -> None:
    """Epochs in the order of documents are the stream repeated."""
    X, y = rows(), classes(3)
    repeated = plain_classifier().fit(sp.vstack([X, X], format="csr"), np.tile(y, 2))
    assert bits(plain_classifier(epochs=2).fit(X, y)) == bits(repeated)
    fitted = plain_classifier(lam=1e-3, epochs=3, shuffle=True, random_state=8).fit(X, y)
    order = np.concatenate([epoch_rows(8, epoch, True, ROWS, 0, ROWS, -1, 1) for epoch in (1, 2, 3)])
    assert bits(fitted) == bits(plain_classifier(lam=1e-3).fit(X[order], y[order]))
    other = clone(fitted).set_params(random_state=9).fit(X, y)
    assert bits(other) != bits(fitted)
    drawn = [
        clone(fitted).set_params(random_state=np.random.RandomState(s)).fit(X, y).coef_.tobytes() for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    with raises_code("invalid-parameter", "random_state=-1"):
        clone(fitted).set_params(random_state=-1).fit(X, y)


def test_no_penalty_shrinks_the_intercept() -> None:
    X, y = rows(), classes(3)
    learner = Learner("fobos", grid={"lam": 1e-2}, n_features=FEATURES, n_classes=3, intercept=True).partial_fit(X, y)
    model = plain_classifier(lam=1e-2).fit(X, y)
    assert bits(model) == (learner.weights().T.tobytes(), learner.intercepts()[0].tobytes())
    np.testing.assert_allclose(model.decision_function(X), X @ model.coef_.T + model.intercept_)
    shrunk = plain_classifier(lam=100.0).fit(X, y)
    assert not shrunk.coef_.any()
    assert shrunk.intercept_.all()
    assert np.array_equal(plain_classifier(fit_intercept=False).fit(X, y).intercept_, np.zeros(3))
    assert plain_regressor(eta0=0.01).fit(X, y).intercept_.shape == (1,)
    assert not plain_classifier("ogd").fit(X, y).intercept_.any()
    with raises_code("unsupported-combination"):
        plain_classifier("ogd", fit_intercept=True).fit(X, y)


def test_weights_of_rows_and_classes() -> None:
    X, y = rows(), np.where(classes(4) == 0, "rare", "frequent")
    weights = np.random.default_rng(2).uniform(0, 3, ROWS)
    weighted = plain_classifier().fit(X, y, weights)
    learner = Learner("fobos", n_features=FEATURES, intercept=True).partial_fit(X, y == "rare", weights)
    assert bits(weighted) == (learner.weights().T.tobytes(), learner.intercepts()[0].tobytes())
    pieces = plain_classifier()
    for part in (slice(0, 70), slice(70, ROWS)):
        pieces.partial_fit(X[part], y[part], ["frequent", "rare"], sample_weight=weights[part])
    assert bits(pieces) == bits(weighted)
    assert bits(plain_classifier().fit(X, y, 1.0)) == bits(plain_classifier().fit(X, y))
    own = compute_class_weight("balanced", classes=np.unique(y), y=y)[(y == "rare").astype(int)]
    balanced = plain_classifier(class_weight="balanced").fit(X, y, weights)
    np.testing.assert_allclose(balanced.coef_, plain_classifier().fit(X, y, weights * own).coef_, rtol=1e-12)
    named = plain_classifier(class_weight={"rare": 2.5})
    assert bits(named.fit(X, y)) == bits(plain_classifier().fit(X, y, np.where(y == "rare", 2.5, 1.0)))
    with raises_code("unknown-class", "'other'"):
        plain_classifier(class_weight={"other": 2.0}).fit(X, y)
    with raises_code("unsupported-combination"):
        plain_classifier(class_weight="balanced").partial_fit(X, y, np.unique(y))
    with raises_code("invalid-parameter", "'even'"):
        plain_classifier(class_weight="even").fit(X, y)
    with raises_code("invalid-parameter", "class_weight"):
        plain_regressor(class_weight={0: 2.0}).fit(X, y == "rare")
    with raises_code("invalid-sample-weights", "row 3"):
        plain_regressor().fit(X, np.arange(ROWS), np.where(np.arange(ROWS) == 3, -1.0, 1.0))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_fitted_estimator_travels(n_classes: int, tmp_path: Any) -> None:
    X, y = rows(), classes(n_classes)
    model = plain_classifier("rda").fit(X[:100], y[:100])
    joblib.dump(model, tmp_path / "model")
    travelled = [
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
        joblib.load(tmp_path / "model"),
        joblib.load(tmp_path / "model", mmap_mode="r"),
    ]
    model.partial_fit(X[100:], y[100:])
    for other in travelled:
        assert bits(other.partial_fit(X[100:], y[100:])) == bits(model)
        assert np.array_equal(other.predict(X), model.predict(X))
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


def test_pickle_is_the_same_in_another_process(tmp_path: Any) -> None:
    """The package loads scikit-learn only for estimators."""
    X, y = rows(), classes(2)
    model = plain_classifier().fit(X, y)
    (tmp_path / "model").write_bytes(pickle.dumps(model))
    code = "import pickle, sys, sparseoco; assert 'sklearn' not in sys.modules; sparseoco.SparseOnlineClassifier();"
    code += "print(pickle.load(open(sys.argv[1], 'rb')).coef_.tobytes().hex())"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True, check=True)
    assert bytes.fromhex(done.stdout) == model.coef_.tobytes()


def test_text_in_a_pipeline_under_a_grid_search() -> None:
    pipeline = make_pipeline(CountVectorizer(), plain_classifier(shuffle=True, random_state=0, epochs=3))
    grid = {
        "sparseonlineclassifier__lam": [1e-5, 10.0],
        "sparseonlineclassifier__algorithm": ["fobos", "rda"],
        "countvectorizer__ngram_range": [(1, 1), (1, 2)],
    }
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(TEXTS, LABELS)
    assert search.best_params_["sparseonlineclassifier__lam"] == 1e-5
    assert search.best_score_ > 0.9
    assert search.predict(["cheap pills"]).tolist() == ["spam"]
    best = search.best_estimator_
    assert best.classes_.tolist() == ["ham", "spam"]
    assert best.predict_proba(["noon meeting"])[0, 0] > 0.5
    assert best[0].get_feature_names_out().size == best[1].coef_.shape[1] == best[1].n_features_in_


def test_a_dense_learner_on_the_features_that_a_sparse_one_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(), (rows() @ np.random.default_rng(1).normal(size=FEATURES) > 0).astype(int)
    monkeypatch.setattr("sparseoco.training.validation.DENSE_BYTES", 8 * 20**2)
    newton = plain_classifier("ons", beta=0.05)
    with raises_code("too-many-features", "ons", "d²", "30 features"):
        newton.fit(X, y)
    both = make_pipeline(SelectFromModel(plain_classifier("rda", lam=0.05), threshold=1e-12), newton).fit(X, y)
    kept = both[0].get_support()
    assert 0 < kept.sum() == np.count_nonzero(both[0].estimator_.coef_) < 20
    assert both[0].transform(X).shape == (ROWS, kept.sum())
    assert np.array_equal(both[1].coef_, clone(newton).fit(X[:, kept], y).coef_)
    assert both.score(X, y) > 0.8


def test_probabilities_of_extreme_margins() -> None:
    X = sp.csr_matrix(np.eye(3))
    model = plain_classifier(lam=0.0, eta0=1e5, epochs=20).fit(X, ["a", "b", "c"])
    far = sp.csr_matrix(np.array([[0.0, 0.0, 0.0], [1e3, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    probabilities = model.predict_proba(far)
    assert np.isfinite(probabilities).all()
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    assert probabilities[0] == pytest.approx(1 / 3)
    with pytest.raises(AttributeError):
        plain_classifier(loss="hinge").fit(X, ["a", "b", "b"]).predict_proba(X)


def test_a_fit_that_diverges_says_so_once() -> None:
    X, y = rows() * 100.0, np.arange(ROWS, dtype=float)
    model = plain_regressor()
    with pytest.warns(ConvergenceWarning, match="fobos diverged: at row [0-9]+"):
        model.partial_fit(X, y)
    model.partial_fit(X, y)  # a second warning would be an error here
    assert np.isfinite(model.coef_).all()
    with pytest.warns(ConvergenceWarning, match="fobos diverged"):
        model.fit(X, y)


def test_extra_parameters_and_probabilities_of_softmax() -> None:
    X, y = sp.csr_matrix(np.eye(6)), np.arange(6) % 3
    model = plain_classifier("fobos", loss="softmax", penalty="elastic_net", l1_ratio=0.5).fit(X, y)
    assert model.learner_.configurations[0]["l1_ratio"] == 0.5
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert (model.predict_proba(X).argmax(axis=1) == y).all()


def test_parameters_of_the_learner_are_parameters_of_the_estimator() -> None:
    X, y = rows(), classes(2)
    model = SparseOnlineClassifier("adagrad", eta=0.3)
    assert model.get_params()["eta"] == 0.3
    assert repr(model) == "SparseOnlineClassifier(eta=0.3)"
    assert clone(model).set_params(eta=0.1).fit(X, y).learner_.configurations[0]["eta"] == 0.1
    search = GridSearchCV(SparseOnlineClassifier(), {"eta": [0.1, 1.0], "lam": [1e-4]}, cv=2).fit(X, y)
    assert search.best_estimator_.get_params()["eta"] in (0.1, 1.0)
    with raises_code("unknown-parameter", "'etaa'"):
        SparseOnlineClassifier("adagrad", etaa=0.3).fit(X, y)
    with pytest.raises(ValueError, match="Invalid parameter 'etaa'"):
        model.set_params(etaa=0.3)


@pytest.mark.parametrize("algorithm", ["adagrad", "fobos", "passive-aggressive"])
def test_the_default_loss_is_that_of_a_search(algorithm: str) -> None:
    X, y = rows() * 0.01, classes(2)
    assert SparseOnlineClassifier(algorithm).fit(X, y).learner_.loss == default_loss([algorithm], numbers=False)
    assert SparseOnlineRegressor().fit(X, y).learner_.loss == default_loss(["adagrad"], numbers=True)


# ----------------------------------------------------------------------------------------------------------------------
# Matrices of any type and form give the same bits; what cannot be learned is refused by its row.


@pytest.mark.fault(30)
def test_any_form_of_the_same_matrix() -> None:
    X, y = rows(dtype=np.uint8), classes(2)
    ones = plain_classifier().fit(X.astype(bool), y)
    assert bits(ones) == bits(plain_classifier().fit(X.astype(bool).astype(float), y))
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
    halves = sp.csr_matrix((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), X.shape)
    types = (np.int8, np.uint16, np.int64, np.uint64, np.float32, np.float64)
    typed = [matrix.astype(dtype) for dtype in types for matrix in (X, X.toarray())]
    others = X.tocoo(), X.tocsc(), X.tolil(), sp.csr_array(X), X.toarray()
    for form in (wide, backwards, with_zeros, halves, *typed, *others):
        before = form.copy()
        assert bits(plain_classifier().fit(form, y)) == bits(expected)
        own = Learner("fobos", n_features=FEATURES, intercept=True).partial_fit(sp.csr_array(form), y)
        assert own.weights().T.tobytes() == bits(expected)[0]
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
