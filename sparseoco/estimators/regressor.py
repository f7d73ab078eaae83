"""The learners as a scikit-learn regressor."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_consistent_length, column_or_1d

from sparseoco.core.errors import InputError
from sparseoco.estimators.base import SparseOnline, sample_weights
from sparseoco.training.validation import checked_labels


class SparseOnlineRegressor(RegressorMixin, SparseOnline):  # type: ignore[misc]
    """A linear regression trained online on sparse rows.

    Parameters and attributes are those of `SparseOnlineClassifier`, without classes; `coef_` is (n_features,) and
    `intercept_` (1,). Scale features and target to the order of 1, which step sizes assume.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> X = sp.csr_matrix([[1, 0], [0, 1], [1, 1]])
    >>> model = SparseOnlineRegressor("fobos", lam=0.001, epochs=300, fit_intercept=False, random_state=0)
    >>> model.fit(X, [2.0, -1.0, 1.0]).predict(X).round(1).tolist()
    [2.0, -1.0, 1.0]
    """

    def __init__(
        self,
        algorithm: str = "adagrad",
        *,
        loss: str = "squared",
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
        dtype: Any = "float64",
    ) -> None:
        self._set_parameters(locals())

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
        learner = self._new_learner(self.n_features_in_, None)
        weights = sample_weights(sample_weight, len(targets))
        self._fit(learner, self._rows(matrix, learner), targets, weights)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "SparseOnlineRegressor":
        """Learn the rows once, in order, after those of earlier calls."""
        first = not hasattr(self, "learner_")
        matrix = self._sparse(X, reset=first)
        targets = _targets(y, matrix)
        learner = self._new_learner(self.n_features_in_, None) if first else self._resumed_learner(None)
        weights = sample_weights(sample_weight, len(targets))
        self._partial_fit(learner, self._rows(matrix, learner), targets, weights)
        return self

    @property
    def coef_(self) -> np.ndarray:
        """(n_features,)."""
        coefficients: np.ndarray = self._weights()[0]
        return coefficients

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
