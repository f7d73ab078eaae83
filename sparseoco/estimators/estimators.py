"""The scikit-learn estimators."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from sparseoco.core.errors import InputError, unsupported
from sparseoco.learners import learner_parameter_names, name_learner, takes_intercept
from sparseoco.storage.temporary import temporary_folder
from sparseoco.training import stream
from sparseoco.training.decisions import predicted_labels
from sparseoco.training.learner import Learner
from sparseoco.training.options import default_loss
from sparseoco.training.validation import checked_labels, checked_rows, checked_sample_weights

# ----------------------------------------------------------------------------------------------------------------------
# The common base of the estimators: parameters, rows, epochs, weights.


_INTEGER = (int, np.integer)


class SparseOnline(BaseEstimator):  # type: ignore[misc]
    """See `SparseOnlineClassifier` for the parameters."""

    learner_: Learner
    n_features_in_: int

    def __init__(
        self,
        algorithm: str = "adagrad",
        *,
        loss: str | None = None,
        penalty: str = "l1",
        epochs: int = 5,
        shuffle: bool = True,
        random_state: Any = None,
        fit_intercept: bool | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        dtype: Any = "float64",
        **parameters: Any,
    ) -> None:
        self.algorithm, self.loss, self.penalty = algorithm, loss, penalty
        self.epochs, self.shuffle, self.random_state = epochs, shuffle, random_state
        self.fit_intercept, self.class_weight, self.dtype = fit_intercept, class_weight, dtype
        for name, value in parameters.items():  # unknown ones raise in `fit`, as scikit-learn requires
            setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name: those of the estimator, and those of the learner that have been set."""
        return dict(super().get_params(deep)) | self._learner_parameters()

    def set_params(self, **params: Any) -> "SparseOnline":
        """Set parameters, of the estimator or of the learner."""
        name_learner(params.get("algorithm", self.algorithm))  # whose parameters are known from here on
        known = learner_parameter_names()
        others = {name: value for name, value in params.items() if name not in known}
        super().set_params(**others)
        for name in params.keys() - others.keys():
            setattr(self, name, params[name])
        return self

    def _learner_parameters(self) -> dict[str, Any]:
        own = set(self._get_param_names())
        return {name: value for name, value in vars(self).items() if name not in own and name.strip("_") == name}

    @property
    def _loss(self) -> str:
        """The loss, by default that of a search."""
        numbers = isinstance(self, RegressorMixin)
        return self.loss or default_loss([name_learner(self.algorithm)], numbers=numbers)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The fitted learner is pickled as the bytes of its file, since compiled kernels cannot be pickled."""
        state = dict(super().__getstate__())
        if "learner_" in state:
            with temporary_folder() as folder:
                file = folder / "learner"
                self.learner_.save(file)
                state["learner_"] = file.read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "learner_" in state:
            with temporary_folder() as folder:
                file = folder / "learner"
                file.write_bytes(state["learner_"])
                state["learner_"] = Learner.load(file)
        super().__setstate__(state)

    def _new_learner(self, n_classes: int | None) -> Learner:
        """A new learner with the current parameters, which are checked."""
        if n_classes is None and self.class_weight is not None:
            raise InputError("A regression has no classes: class_weight must be None.", code="invalid-parameter")
        given = {name: value for name, value in self._learner_parameters().items() if value is not None}
        intercept = self.fit_intercept
        if intercept is None:
            intercept = takes_intercept(name_learner(self.algorithm), self.penalty)
        return Learner(
            self.algorithm,
            loss=self._loss,
            penalty=self.penalty,
            grid=[given],
            n_features=self.n_features_in_,
            n_classes=n_classes,
            dtype=self.dtype,
            intercept=intercept,
        )

    def _sparse(self, X: Any, *, reset: bool) -> Any:
        """X as CSR; its features are recorded (`reset`) or compared with those of `fit`."""
        X = validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite=False)
        return X if sp.issparse(X) else sp.csr_matrix(X)

    def _fit(self, matrix: Any, labels: np.ndarray, weights: np.ndarray | None, n_classes: int | None) -> None:
        """Learn rows, `epochs` times, with a new learner."""
        learner = self._new_learner(n_classes)
        rows = checked_rows(matrix, self.n_features_in_, learner.dtype)
        if isinstance(self.epochs, bool) or not isinstance(self.epochs, _INTEGER) or self.epochs < 1:
            raise InputError(f"epochs={self.epochs!r} must be an integer of at least 1.", code="invalid-parameter")
        order, seed = stream.Order(), self.random_state
        if self.shuffle:
            if not isinstance(seed, _INTEGER):
                seed = check_random_state(seed).randint(2**31 - 1)
            elif not 0 <= seed < 2**63:
                raise InputError(f"random_state={seed!r} must be from 0 to 2**63 − 1.", code="invalid-parameter")
            order = stream.Order(int(seed), stream.range_rows_of(self.shuffle, len(labels), rows.nnz))
        if weights is not None and not weights.any():
            raise InputError("All sample weights are zero: there is nothing to learn.", code="invalid-sample-weights")
        source, goal = stream.MatrixRows(rows, labels, weights), stream.StreamPosition(int(self.epochs), len(labels))
        for _ in stream.train(learner.learn_rows, source, stream.Passes(order, goal)):
            pass
        self._finish(learner, 0)

    def _partial_fit(self, matrix: Any, labels: np.ndarray, weights: np.ndarray | None, n_classes: int | None) -> None:
        """Learn rows once, with the learner of earlier calls if there were any, whose parameters must not change."""
        learner = self._new_learner(n_classes)
        if hasattr(self, "learner_"):
            if learner.description != self.learner_.description:
                raise InputError(
                    "The parameters are not those of the first partial_fit: set them back, or call fit to start again.",
                    code="parameters-changed",
                )
            learner = self.learner_
        rows, before = checked_rows(matrix, self.n_features_in_, learner.dtype), int(learner.diverged[0])
        learner.learn_rows(rows.indptr, rows.indices, rows.data, labels, weights)
        self._finish(learner, before)

    def _finish(self, learner: Learner, diverged_before: int) -> None:
        self.learner_ = learner
        row = int(learner.diverged[0])
        if row and not diverged_before:
            warnings.warn(
                f"{self.algorithm} diverged: at row {row} of its stream a margin exceeded all bounds, and nothing was "
                "learned after it; smaller steps (eta, eta0, 1/gamma) or scaled features prevent this.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _margins(self, X: Any) -> np.ndarray:
        """(rows, outputs)."""
        check_is_fitted(self)
        rows = checked_rows(self._sparse(X, reset=False), self.n_features_in_, self.learner_.dtype)
        return np.asarray(self.learner_.margins(rows.indptr, rows.indices, rows.data)[:, 0])

    @property
    def coef_(self) -> np.ndarray:
        """(1, n_features) for two classes, else (n_classes, n_features)."""
        check_is_fitted(self)
        return np.ascontiguousarray(self.learner_.weights_of(0).T)

    @property
    def intercept_(self) -> np.ndarray:
        """(outputs,): zeros without an intercept."""
        check_is_fitted(self)
        return np.asarray(self.learner_.intercepts()[0])


def sample_weights(given: Any, rows: int) -> np.ndarray | None:
    """Weights of rows, of which one number is that of all. Raises `InputError` for negative and other bad ones."""
    if given is not None:
        given = np.asarray(given)
        given = np.broadcast_to(given, rows) if given.ndim == 0 else given
    return checked_sample_weights(given, rows)


# ----------------------------------------------------------------------------------------------------------------------
# The learners as a scikit-learn classifier.


class SparseOnlineClassifier(ClassifierMixin, SparseOnline):  # type: ignore[misc]
    """A linear classifier trained online on sparse rows.

    Parameters
    ----------
    algorithm : str
        Name of a learner; ``sparseoco algorithms`` lists them. Or ``PATH.py:NAME``, one of a file of yours.
    loss : str, optional
        Name of a loss, as `sparseoco.Learner` takes it; by default that of a search, ``"squared_hinge"`` where the
        learner takes it.
    penalty : str
        Name of a penalty, as `sparseoco.Learner` takes it.
    **parameters
        Parameters of the learner and the penalty, which ``sparseoco algorithms NAME`` lists: ``lam=1e-4``, ``eta=0.3``.
        None is the learner's default. One that the learner does not have raises in `fit`.
    epochs : int
        Passes of `fit` over the rows. The step sizes continue from epoch to epoch.
    shuffle : bool
        Whether `fit` shuffles the rows anew in each epoch. The order is a function of the seed, the epoch and the size
        of the data, as in a search.
    random_state : int, RandomState or None
        The seed of the order; None and a `RandomState` draw one.
    fit_intercept : bool or None
        Learn an intercept, which no penalty shrinks. None: with all learners that have room for one, not in a ball, a
        simplex or a box.
    class_weight : dict, "balanced" or None
        Factors of the sample weights of the rows of some classes. Balanced weights are n/(K·n_k) for n_k of the n rows
        of a fit, and not known to `partial_fit`.
    dtype : {"float64", "float32"}
        Type of the weights.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    coef_ : ndarray, (1, n_features) for two classes, (n_classes, n_features) for more
        The weights, computed on each access; for two classes positive weights are for ``classes_[1]``.
    intercept_ : ndarray, (1,) or (n_classes,)
        The intercepts.
    n_features_in_ : int
        The number of features of `fit`.
    feature_names_in_ : ndarray
        The names of the features, if `fit` was given a data frame.
    learner_ : sparseoco.Learner
        The learner; its `progress` has the progressive loss and errors.

    Raises
    ------
    InputError
        A `ValueError` that names the first row that has NaN, an infinity or an unknown label.

    Warns
    -----
    ConvergenceWarning
        If a fit diverges; names the row, from which on nothing is learned.

    Notes
    -----
    Dense learners (``sparseoco algorithms`` lists them) are for few features: put scikit-learn's `SelectFromModel` with
    a sparse learner before them in a pipeline.

    `partial_fit` learns its rows once, in order, whatever `epochs` and `shuffle`: the result does not depend, in any
    bit, on how a stream is cut into calls, and is that of `fit` with ``epochs=1, shuffle=False``. More than two classes
    are trained with a joint loss or one-vs-rest, depending on the loss. Dense input is converted to sparse.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> X = sp.csr_matrix([[1, 0, 2], [0, 3, 0], [2, 0, 1], [0, 1, 0]])
    >>> model = SparseOnlineClassifier("fobos", lam=0.01).fit(X, ["spam", "ham", "spam", "ham"])
    >>> model.predict(X).tolist()
    ['spam', 'ham', 'spam', 'ham']

    Rows are learned as they are; counts of terms are best weighted first.

    >>> from sklearn.feature_extraction.text import TfidfTransformer
    >>> from sklearn.pipeline import make_pipeline
    >>> weighted = make_pipeline(TfidfTransformer(sublinear_tf=True), SparseOnlineClassifier("fobos", lam=0.01))
    >>> weighted.fit(X, ["spam", "ham", "spam", "ham"]).predict(X).tolist()
    ['spam', 'ham', 'spam', 'ham']
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SparseOnlineClassifier":
        """Start anew and learn the rows, `epochs` times.

        Parameters
        ----------
        X : (rows, features), sparse or dense
        y : (rows,)
            Labels of any type.
        sample_weight : (rows,), optional
            Factors ≥ 0 of the losses of the rows.
        """
        matrix = self._sparse(X, reset=True)
        y = _class_labels(y, matrix)
        classes = np.unique(y)
        indices = _class_indices(y, classes)
        weights = self._weights_of_rows(sample_weight, indices, classes, balanced=True)
        self._fit(matrix, indices, weights, len(classes))
        self.classes_ = classes
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "SparseOnlineClassifier":
        """Learn the rows once, in order, after those of earlier calls.

        Parameters
        ----------
        X : (rows, features), sparse or dense
        y : (rows,)
            Labels of any type.
        classes : array_like
            All labels; needed in the first call.
        sample_weight : (rows,), optional
            Factors ≥ 0 of the losses of the rows.
        """
        first = not hasattr(self, "learner_")
        if first and classes is None:
            raise InputError(
                "classes must be passed in the first call of partial_fit: all labels that may come.",
                code="missing-classes",
            )
        known = np.unique(column_or_1d(classes)) if first else self.classes_
        if classes is not None and not np.array_equal(np.unique(column_or_1d(classes)), known):
            raise InputError(
                "classes are not those of the first partial_fit: leave them out, or call fit instead.",
                code="parameters-changed",
            )
        matrix = self._sparse(X, reset=first)
        labels = _class_indices(_class_labels(y, matrix), known)
        weights = self._weights_of_rows(sample_weight, labels, known, balanced=False)
        self._partial_fit(matrix, labels, weights, len(known))
        self.classes_ = known
        return self

    def _weights_of_rows(
        self, sample_weight: Any, indices: np.ndarray, classes: np.ndarray, *, balanced: bool
    ) -> np.ndarray | None:
        """The weights of rows of these classes; `balanced` says whether the number of all rows of a class is known."""
        weights, given = sample_weights(sample_weight, len(indices)), self.class_weight
        if given is None:
            return weights
        if isinstance(given, Mapping):
            factors = stream.named_class_weights(given, classes.tolist())
        elif given != "balanced":
            raise InputError(f"class_weight={given!r} must be balanced or a mapping.", code="invalid-parameter")
        elif not balanced:
            raise unsupported(
                "partial_fit does not see all rows, so it cannot balance classes: pass class_weight as a mapping."
            )
        else:
            factors = stream.balanced_weights(np.bincount(indices, minlength=len(classes)).tolist())
        own: np.ndarray = np.array(factors, np.float64)[indices]
        return own if weights is None else own * weights

    def decision_function(self, X: Any) -> np.ndarray:
        """Margins: (rows,) for two classes, positive for ``classes_[1]``; (rows, n_classes) for more."""
        margins = self._margins(X)
        return margins.ravel() if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> np.ndarray:
        """The label of the largest margin, the first of equals."""
        indices = predicted_labels(self._margins(X), 0.0, several=False)
        return np.asarray(self.classes_[indices])

    @available_if(lambda self: self._loss in ("logistic", "softmax"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """(rows, n_classes) float64: for ``loss="softmax"`` the softmax of the margins; for ``loss="logistic"``
        1/(1 + exp(−margin)), normalised to sum to 1 over more than two classes. Other losses have no probabilities."""
        margins = self._margins(X).astype(np.float64)
        if self._loss == "softmax":
            return np.asarray(softmax(margins, axis=1))
        probabilities: np.ndarray = expit(margins)
        if probabilities.shape[1] == 1:
            return np.hstack([1.0 - probabilities, probabilities])
        totals = probabilities.sum(axis=1, keepdims=True)
        probabilities[totals[:, 0] == 0] = 1.0  # every class underflowed: a uniform distribution
        totals[totals == 0] = probabilities.shape[1]
        probabilities /= totals
        return probabilities


def _class_labels(y: Any, matrix: Any) -> np.ndarray:
    """One label per row, of unchanged type."""
    labels: np.ndarray = column_or_1d(y, warn=True)
    check_consistent_length(matrix, labels)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int(np.flatnonzero(~np.isfinite(labels))[0])
        raise InputError(f"y has NaN or an infinity in row {row}.", code="invalid-labels")
    check_classification_targets(labels)
    return labels


def _class_indices(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The index of each label in `classes`. Raises `InputError` if one has none, or if there is one class."""
    index = {label: i for i, label in enumerate(classes.tolist())}
    indices = np.array([index.get(label, -1) for label in labels.tolist()], np.int64)
    if (indices < 0).any():
        raise InputError(
            f"y of row {int(np.flatnonzero(indices < 0)[0])} is not one of the classes.", code="invalid-labels"
        )
    if len(classes) < 2:
        raise InputError(
            f"y has only one class, {classes.tolist()}; a classifier needs at least two.", code="one-class"
        )
    return indices


# ----------------------------------------------------------------------------------------------------------------------
# The learners as a scikit-learn regressor.


class SparseOnlineRegressor(RegressorMixin, SparseOnline):  # type: ignore[misc]
    """A linear regression trained online on sparse rows.

    Parameters and attributes are those of `SparseOnlineClassifier`, without classes (`class_weight` must be None);
    `coef_` is (n_features,) and `intercept_` (1,). Scale features and target to the order of 1, which step sizes
    assume.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> X = sp.csr_matrix([[1, 0], [0, 1], [1, 1]])
    >>> model = SparseOnlineRegressor("fobos", lam=0.001, epochs=300, fit_intercept=False, random_state=0)
    >>> model.fit(X, [2.0, -1.0, 1.0]).predict(X).round(1).tolist()
    [2.0, -1.0, 1.0]
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SparseOnlineRegressor":
        """Start anew and learn the rows, `epochs` times.

        Parameters
        ----------
        X : (rows, features), sparse or dense
        y : (rows,)
            Numbers.
        sample_weight : (rows,), optional
            Factors ≥ 0 of the losses of the rows.
        """
        matrix = self._sparse(X, reset=True)
        targets = _targets(y, matrix)
        self._fit(matrix, targets, sample_weights(sample_weight, len(targets)), None)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SparseOnlineRegressor":
        """Learn the rows once, in order, after those of earlier calls."""
        matrix = self._sparse(X, reset=not hasattr(self, "learner_"))
        targets = _targets(y, matrix)
        self._partial_fit(matrix, targets, sample_weights(sample_weight, len(targets)), None)
        return self

    @property
    def coef_(self) -> np.ndarray:
        """(n_features,)."""
        return np.asarray(super().coef_[0])

    def predict(self, X: Any) -> np.ndarray:
        """(rows,): the margins."""
        return self._margins(X)[:, 0]


def _targets(y: Any, matrix: Any) -> np.ndarray:
    """One number per row."""
    targets = column_or_1d(y, warn=True)
    check_consistent_length(matrix, targets)
    if targets.dtype.kind not in "biuf":
        try:
            targets = targets.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(f"y holds {targets.dtype}, not numbers.", code="invalid-labels") from None
    return checked_labels(targets, matrix.shape[0], None)
