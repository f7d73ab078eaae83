"""The learners as a scikit-learn classifier."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from sparseoco.core.errors import InputError
from sparseoco.estimators.base import SparseOnline, sample_weights
from sparseoco.training.class_weights import balanced_weights, named_class_weights


class SparseOnlineClassifier(ClassifierMixin, SparseOnline):  # type: ignore[misc]
    """A linear classifier trained online on sparse rows.

    Parameters
    ----------
    algorithm : str
        Name of a learner; ``sparseoco algorithms`` lists them.
    loss : str
        Name of a loss, as `sparseoco.Learner` takes it.
    penalty : str
        Name of a penalty, as `sparseoco.Learner` takes it.
    lam : float, optional
        Weight λ of the penalty. None is the default of the learner, here and in the next seven; a parameter that the
        learner does not have raises.
    eta0 : float, optional
        Step size of the first round.
    gamma : float, optional
        Weight of the proximal term: steps are 1/(gamma·√t).
    p : float or str, optional
        Order of the norm of a coordinate's history, 1 or more, or "inf".
    K : int, optional
        Rounds between two proximal steps.
    by : str, optional
        What the norm of a coordinate's history is of: "subgradient" or "feature".
    R : float, optional
        Bound of every absolute weight.
    predict_gradient : str, optional
        How optimistic learners predict the next gradient.
    extra_params : mapping, optional
        Other parameters of the learner or the penalty: ``{"l1_ratio": 0.5}``.
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

    def __init__(
        self,
        algorithm: str = "adagrad",
        *,
        loss: str = "hinge",
        penalty: str = "l1",
        lam: float | None = None,
        eta0: float | None = None,
        gamma: float | None = None,
        p: float | str | None = None,
        K: int | None = None,
        by: str | None = None,
        R: float | None = None,
        predict_gradient: str | None = None,
        extra_params: Mapping[str, Any] | None = None,
        epochs: int = 5,
        shuffle: bool = True,
        random_state: Any = None,
        fit_intercept: bool | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        dtype: Any = "float64",
    ) -> None:
        self._set_parameters(locals())

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
        learner = self._new_learner(self.n_features_in_, _count_classes(classes))
        indices = _class_indices(y, classes)
        weights = self._weights_of_rows(sample_weight, indices, classes, balanced=True)
        self._fit(learner, self._rows(matrix, learner), indices, weights)
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
        n_classes = _count_classes(known)
        weights = self._weights_of_rows(sample_weight, labels, known, balanced=False)
        learner = self._new_learner(self.n_features_in_, n_classes) if first else self._resumed_learner(n_classes)
        self._partial_fit(learner, self._rows(matrix, learner), labels, weights)
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
            factors = named_class_weights(given, classes.tolist())
        elif given != "balanced":
            raise InputError(f"class_weight={given!r} must be balanced or a mapping.", code="invalid-parameter")
        elif not balanced:
            raise InputError(
                "partial_fit does not see all rows, so it cannot balance classes: pass class_weight as a mapping.",
                code="unsupported-combination",
            )
        else:
            factors = balanced_weights(np.bincount(indices, minlength=len(classes)).tolist())
        own: np.ndarray = np.array(factors, np.float64)[indices]
        return own if weights is None else own * weights

    @property
    def coef_(self) -> np.ndarray:
        """(1, n_features) for two classes, else (n_classes, n_features)."""
        return self._weights()

    def decision_function(self, X: Any) -> np.ndarray:
        """Margins: (rows,) for two classes, positive for ``classes_[1]``; (rows, n_classes) for more."""
        margins = self._margins(X)
        return margins.ravel() if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> np.ndarray:
        """The label of the largest margin, the first of equals."""
        margins = self.decision_function(X)
        indices = (margins > 0).astype(np.int64) if margins.ndim == 1 else margins.argmax(axis=1)
        labels: np.ndarray = self.classes_[indices]
        return labels

    @available_if(lambda self: self.loss in ("logistic", "softmax"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """(rows, n_classes) float64: for ``loss="softmax"`` the softmax of the margins; for ``loss="logistic"``
        1/(1 + exp(−margin)), normalised to sum to 1 over more than two classes. Other losses have no probabilities."""
        margins = self._margins(X).astype(np.float64)
        if self.loss == "softmax":
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


def _count_classes(classes: np.ndarray) -> int:
    if len(classes) < 2:
        raise InputError(
            f"y has only one class, {classes.tolist()}; a classifier needs at least two.", code="one-class"
        )
    return len(classes)


def _class_indices(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The index of each label in `classes`."""
    index = {label: i for i, label in enumerate(classes.tolist())}
    indices = np.array([index.get(label, -1) for label in labels.tolist()], np.int64)
    if (indices < 0).any():
        raise InputError(
            f"y of row {int(np.flatnonzero(indices < 0)[0])} is not one of the classes.", code="invalid-labels"
        )
    return indices
