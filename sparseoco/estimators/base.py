"""The common base of the estimators: parameters, rows, epochs, weights."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sparseoco.core.errors import InputError
from sparseoco.learners import takes_intercept
from sparseoco.storage.temporary import temporary_folder
from sparseoco.training.learner import Learner
from sparseoco.training.orders import range_rows_of
from sparseoco.training.stream import START, MatrixRows, Order, StreamPosition, train_stream
from sparseoco.training.validation import checked_rows, checked_sample_weights

_PARAMETERS = ("lam", "eta0", "gamma", "p", "K", "by", "R", "predict_gradient")
_INTEGER = (int, np.integer)


class SparseOnline(BaseEstimator):  # type: ignore[misc]
    """See `SparseOnlineClassifier` for the parameters."""

    learner_: Learner
    n_features_in_: int

    def _set_parameters(self, values: Mapping[str, Any]) -> None:
        """Set the parameters of `__init__` as attributes, unchanged, as scikit-learn requires."""
        for name in self._get_param_names():
            setattr(self, name, values[name])

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

    def _new_learner(self, n_features: int, n_classes: int | None) -> Learner:
        """A new learner with the current parameters, which are checked."""
        given: dict[str, Any] = dict(self.extra_params or {})
        for name in _PARAMETERS:
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        intercept = self.fit_intercept
        if intercept is None:
            intercept = takes_intercept(self.algorithm, self.penalty)
        return Learner(
            self.algorithm,
            loss=self.loss,
            penalty=self.penalty,
            grid=[given],
            n_features=n_features,
            n_classes=n_classes,
            dtype=self.dtype,
            intercept=intercept,
        )

    def _resumed_learner(self, n_classes: int | None) -> Learner:
        """The learner of earlier calls of `partial_fit`, if the estimator's parameters have not changed."""
        if self._new_learner(self.n_features_in_, n_classes).description != self.learner_.description:
            raise InputError(
                "The parameters are not those of the first partial_fit: set them back, or call fit to start again.",
                code="parameters-changed",
            )
        return self.learner_

    def _sparse(self, X: Any, *, reset: bool) -> Any:
        """X as CSR; its features are recorded (`reset`) or compared with those of `fit`."""
        X = validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite=False)
        return X if sp.issparse(X) else sp.csr_matrix(X)

    def _rows(self, matrix: Any, learner: Learner) -> sp.csr_matrix:
        """Checked rows."""
        return checked_rows(matrix, self.n_features_in_, learner.dtype)

    def _fit(
        self, learner: Learner, rows: sp.csr_matrix, labels: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        if isinstance(self.epochs, bool) or not isinstance(self.epochs, _INTEGER) or self.epochs < 1:
            raise InputError(f"epochs={self.epochs!r} must be an integer of at least 1.", code="invalid-parameter")
        order = Order(self._seed(), range_rows_of(self.shuffle, len(labels), rows.nnz)) if self.shuffle else Order()
        if weights is not None and not weights.any():
            raise InputError("All sample weights are zero: there is nothing to learn.", code="invalid-sample-weights")
        source, goal = MatrixRows(rows, labels, weights), StreamPosition(int(self.epochs), len(labels))
        for _ in train_stream(learner, source, order, START, goal):
            pass
        self._finish(learner, 0)

    def _partial_fit(
        self, learner: Learner, rows: sp.csr_matrix, labels: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        before = int(learner.diverged[0])
        learner.learn_rows(rows.indptr, rows.indices, rows.data, labels, weights)
        self._finish(learner, before)

    def _finish(self, learner: Learner, diverged_before: int) -> None:
        self.learner_ = learner
        row = int(learner.diverged[0])
        if row and not diverged_before:
            warnings.warn(
                f"{self.algorithm} diverged: at row {row} of its stream a margin exceeded all bounds, and nothing was "
                "learned after it; smaller steps (eta0, 1/gamma) or scaled features prevent this.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _seed(self) -> int:
        if isinstance(self.random_state, _INTEGER):
            if not 0 <= self.random_state < 2**63:
                raise InputError(
                    f"random_state={self.random_state!r} must be from 0 to 2**63 − 1.", code="invalid-parameter"
                )
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _margins(self, X: Any) -> np.ndarray:
        """(rows, outputs)."""
        check_is_fitted(self)
        rows = self._rows(self._sparse(X, reset=False), self.learner_)
        margins: np.ndarray = self.learner_.margins(rows.indptr, rows.indices, rows.data)[:, 0]
        return margins

    def _weights(self) -> np.ndarray:
        """(outputs, features)."""
        check_is_fitted(self)
        return np.ascontiguousarray(self.learner_.weights_of(0).T)

    @property
    def intercept_(self) -> np.ndarray:
        """(outputs,): zeros without an intercept."""
        check_is_fitted(self)
        intercepts: np.ndarray = self.learner_.intercepts()[0]
        return intercepts


def sample_weights(given: Any, rows: int) -> np.ndarray | None:
    """Weights of rows, of which one number is that of all. Raises `InputError` for negative and other bad ones."""
    if given is not None:
        given = np.asarray(given)
        given = np.broadcast_to(given, rows) if given.ndim == 0 else given
    return checked_sample_weights(given, rows)
