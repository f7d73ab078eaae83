"""Hyperparameters learned online: a grid of columns trained in one pass and mixed by AO-EG according to losses."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.kernels.columns import RowLoss, by_row
from sparseoco.kernels.responses import ERROR_C, MIX, MIXTURE_WEIGHTS, SUMS, response_of
from sparseoco.learners import find_algorithm, takes_intercept
from sparseoco.learners.penalties import find_penalty
from sparseoco.storage.checkpoints import read_checkpoint, write_checkpoint
from sparseoco.storage.commit import digest_file
from sparseoco.storage.locations import Location, location
from sparseoco.training.decisions import predicted_labels
from sparseoco.training.learner import Grid, Learner, ProgressiveTotals
from sparseoco.training.validation import checked_labels, checked_rows, checked_sample_weights, output_shape

FORMAT = 3
CHUNK_ROWS = 1024
"""Rows whose margins of all columns are in memory at once."""
GRID: dict[str, dict[str, list[Any]]] = {
    "adagrad": {"eta": [0.03, 0.1, 0.3, 1.0, 3.0], "lam": [1e-6, 1e-5, 3e-5]},
}
"""The default grid: 15 columns, chosen on IMDB, 20 Newsgroups and reviews (tests/benchmarks)."""

STEEP = ("squared", "squared_hinge")
"""Losses with unbounded slopes: long before a column counts as diverged, its margins may dominate those of the mixture,
however small its weight. Errors do not show that; losses do."""


def default_grid(penalty: str = "l1") -> dict[str, dict[str, list[Any]]]:
    """The part of `GRID` that is defined for a penalty: learners that take it, with the parameters they have then.

    Raises `InputError` for a penalty that is unknown.
    """
    penalty_, chosen = find_penalty(penalty), {}
    for name, grid in GRID.items():
        algorithm = find_algorithm(name)
        if penalty in algorithm.penalties:
            known = {parameter.name for parameter in algorithm.under(penalty_).parameters}
            chosen[name] = {key: values for key, values in grid.items() if key in known}
    return chosen


class Snapshot(NamedTuple):
    """Sums and bounds of a mixture after some rows, each predicted before it was learned."""

    rows: int
    weights: np.ndarray
    """(n,) float64: x of the next row."""
    loss_sum: float
    """Of the mixture's predictions, as is `error_count`."""
    error_count: int
    losses: np.ndarray
    """(n,) float64: Σ of the losses of each column, as are `errors`; infinite for one that has diverged."""
    errors: np.ndarray
    drawn: float
    """Σ_t x_t·g_t: the expected loss of columns drawn by the weights."""
    regret: float
    """`drawn` minus the sum of the best column: the bounds are bounds of it."""
    bound: float
    """s_{T−1}·log n + Σ_t m_t (`sparseoco.learners.exponentiated`)."""
    printed_bound: float
    """2√(2 log n·(C + Σ_{t<T} ‖g_t − g̃_t‖∞²)), Corollary 3 as printed, by "error"; NaN by "loss", and after weights
    above 1, for which C = 1 is no bound."""


class MixtureState(NamedTuple):
    """The arrays of a mixture of n columns, as `MIX` updates them."""

    total: np.ndarray
    guess: np.ndarray
    sums: np.ndarray
    out: np.ndarray
    losses: np.ndarray
    errors: np.ndarray
    loss_sum: np.ndarray
    error_count: np.ndarray


class Mixture:
    """One pass trains a grid of columns, configurations of several learners, and mixes their predictions.

    In round t every column c predicts with its margins z_{t,c}; the mixture predicts with Σ_c x_{t,c}·z_{t,c}, which is
    one linear model, Σ_c x_c·w_c. Then each column incurs g_{t,c} and AO-EG (Mohri and Yang 2015, Corollary 3) moves
    the weights x on the simplex. It needs neither the number of rounds nor a learning rate, and at any time, for every
    column c*

        Σ_t x_t·g_t − Σ_t g_{t,c*} ≤ bound,    which grows like √(T·log n) at most.

    Sample weights multiply g and what columns learn. A column that diverges has weight 0 from that row on, inclusive;
    the bound then holds for the others. Weights do not depend, in any bit, on how the stream is cut into calls or on
    saving and loading.

    Parameters
    ----------
    grids : mapping, optional
        The grid of each learner by name, as `sparseoco.Learner` takes them; `GRID` by default.
    loss, penalty, n_features, n_classes, multilabel, dtype
        As `sparseoco.Learner` takes them, for all columns.
    intercept : bool or None
        As `sparseoco.Learner` takes it; None: in the columns of learners that have room for one.
    by : {"error", "loss"}, optional
        "error": g is 1 if a column predicts the wrong class, else 0, so the C of Corollary 3 is 1. The bound is of the
        mean error of the columns; the error of the mixture is not a convex function of the weights, but mostly
        smaller. "loss": g is the loss, which has no known bound, so s is balanced (`learners.exponentiated`); the loss
        of the mixture is at most the mean by convexity. By default "error", but "loss" for regression and `STEEP`
        losses.
    predict_gradient : {"last", "none"}
        "last" for g̃_{t+1} = g_t, as in the paper, or "none" for 0.

    Raises
    ------
    InputError
        For an unknown name or parameter, or a combination that is not supported.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> X = sp.csr_matrix([[1, 0, 2], [0, 3, 0], [2, 0, 1], [0, 1, 0]] * 5)
    >>> mixture = Mixture({"adagrad": {"eta": [0.01, 1.0]}}, n_features=3).partial_fit(X, [1, 0, 1, 0] * 5)
    >>> mixture.predict(X[:4]).tolist()
    [1, 0, 1, 0]
    """

    def __init__(
        self,
        grids: Mapping[str, Grid] | None = None,
        *,
        loss: str = "logistic",
        penalty: str = "l1",
        n_features: int,
        n_classes: int | None = 2,
        multilabel: bool = False,
        dtype: Any = "float64",
        by: str | None = None,
        predict_gradient: str = "last",
        intercept: bool | None = False,
    ) -> None:
        grids = default_grid(penalty) if grids is None else grids
        if not grids:
            message = f"A mixture needs at least one learner to mix: name those that take penalty={penalty!r}."
            raise InputError(message, code="invalid-grid")
        self.by = by or ("error" if n_classes is not None and loss not in STEEP else "loss")
        if self.by not in ("error", "loss"):
            raise InputError(f"by={by!r} must be error or loss.", code="invalid-option")
        if self.by == "error" and n_classes is None:
            message = "by='error' counts wrong classes; for numbers it is by='loss'."
            raise InputError(message, code="unsupported-combination")
        if predict_gradient not in ("last", "none"):
            raise InputError(f"predict_gradient={predict_gradient!r} must be last or none.", code="invalid-option")
        self.loss, self.penalty, self.prediction = loss, penalty, predict_gradient
        self.learners = [
            Learner(
                name,
                loss=loss,
                penalty=penalty,
                grid=grid,
                n_features=n_features,
                n_classes=n_classes,
                multilabel=multilabel,
                dtype=dtype,
                intercept=takes_intercept(name, penalty) if intercept is None else intercept,
            )
            for name, grid in grids.items()
        ]
        first = self.learners[0]
        self.n_features, self.n_classes, self.n_outputs = first.n_features, n_classes, first.n_outputs
        self.dtype, self.intercept = first.dtype, intercept
        loss_ = find_algorithm(first.algorithm).loss(loss)
        self.multilabel = first.multilabel
        response = output_shape(loss_, n_classes, multilabel=self.multilabel)[1]
        self._row_loss = RowLoss(response_of(loss_, response, "float64"), loss_.bound, 1)
        n = len(self.columns)
        self._rows = 0
        self._state = MixtureState(
            total=np.zeros(n),
            guess=np.zeros(n),
            sums=np.zeros(len(SUMS)),
            out=np.zeros(n, np.int64),
            losses=np.zeros(n),
            errors=np.zeros(n, np.int64),
            loss_sum=np.zeros(1),
            error_count=np.zeros(1, np.int64),
        )

    @property
    def columns(self) -> list[tuple[str, dict[str, Any]]]:
        """Algorithm and parameters of every column; its index in the list is its number everywhere."""
        return [(learner.algorithm, parameters) for learner in self.learners for parameters in learner.configurations]

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Mixture":
        """Learn the rows of a SciPy sparse matrix, in order; see `Learner.partial_fit`."""
        matrix = checked_rows(X, self.n_features, self.dtype)
        labels = checked_labels(y, matrix.shape[0], self.n_classes, multilabel=self.multilabel)
        weights = checked_sample_weights(sample_weight, matrix.shape[0])
        self.learn_rows(matrix.indptr, matrix.indices, matrix.data, labels, weights)
        return self

    def learn_rows(self, indptr: Any, indices: Any, values: Any, labels: Any, weights: Any = None) -> None:
        """`partial_fit` without checks, on arrays as `Learner.learn_rows` takes them."""
        labels = np.ascontiguousarray(labels, np.float64)
        weights = None if weights is None else np.ascontiguousarray(weights, np.float64)
        n = len(self._state.total)
        for start in range(0, len(labels), CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, len(labels))
            entries = slice(int(indptr[start]), int(indptr[stop]))
            rows = np.asarray(indptr[start : stop + 1]) - indptr[start], indices[entries], values[entries]
            part = labels[start:stop], None if weights is None else weights[start:stop]
            margins = np.empty((stop - start, n, self.n_outputs), self.dtype)
            for learner, columns in self._parts():
                learner.learn_rows(*rows, *part, margins_out=margins[:, columns])
            MIX(
                margins.reshape(stop - start, n * self.n_outputs),
                by_row(part[0]),
                np.ones(stop - start) if weights is None else weights[start:stop],
                self._row_loss,
                self._rows,
                self.n_outputs,
                self.by == "error",
                self.prediction == "last",
                *self._state,
            )
            self._rows += stop - start

    @property
    def column_weights(self) -> np.ndarray:
        """(n,) float64: the weights x of the columns in the next round."""
        x = np.zeros(len(self._state.total))
        MIXTURE_WEIGHTS(*self._state[:3], self.by == "error", x)
        return x

    @property
    def heaviest(self) -> int:
        """The number of the column with the largest weight, the first of equals."""
        return int(self.column_weights.argmax())

    @property
    def progress(self) -> ProgressiveTotals:
        """Rows learned, and the loss and errors of the mixture's predictions on them: arrays of one entry."""
        return ProgressiveTotals(self._rows, self._state.loss_sum.copy(), self._state.error_count.copy())

    @property
    def diverged(self) -> np.ndarray:
        """(n,) int64: the row (from 1) at which each column diverged, or 0."""
        return self._state.out.copy()

    def snapshot(self) -> Snapshot:
        """Sums over the rows so far, with the bounds."""
        state, sums = self._state, dict(zip(SUMS, self._state.sums.tolist(), strict=True))
        n, fine = len(state.total), state.out == 0
        log_n = math.log(n)
        printed = math.nan
        scaled = sums["gaps_before"]  # s·log n
        if self.by == "error":
            scaled = math.sqrt(2.0 * log_n * (ERROR_C + sums["deviation_before"]))
            printed = 2.0 * scaled if sums["largest"] == 0.0 else math.nan
        least = float(state.total.min())
        return Snapshot(
            self._rows,
            self.column_weights,
            float(state.loss_sum[0]),
            int(state.error_count[0]),
            np.where(fine, state.losses, np.inf),
            np.where(fine, state.errors, np.inf),
            sums["drawn"],
            sums["drawn"] - least,
            (scaled if n > 1 else 0.0) + sums["gaps"],
            printed,
        )

    def margins(self, indptr: Any, indices: Any, counts: Any) -> np.ndarray:
        """(rows, outputs) float64: Σ_c x_c·z_c with the current weights, unchecked as `learn_rows`."""
        out = np.zeros((len(indptr) - 1, self.n_outputs))
        x = self.column_weights
        for learner, columns in self._parts():
            z = learner.margins(indptr, indices, counts)
            for c in np.flatnonzero(x[columns]):
                out += x[columns][c] * z[:, c]
        return out

    def decision_function(self, X: Any) -> np.ndarray:
        """Margins (rows, outputs) of a SciPy sparse matrix; `InputError` as `partial_fit`."""
        matrix = checked_rows(X, self.n_features, self.dtype)
        return self.margins(matrix.indptr, matrix.indices, matrix.data)

    def predict(self, X: Any) -> np.ndarray:
        """(rows,): class indices, the first of equals; numbers for regression; an indicator matrix of label sets."""
        z = self.decision_function(X)
        return z[:, 0] if self.n_classes is None else predicted_labels(z, 0.0, several=self.multilabel)

    def weights(self) -> np.ndarray:
        """(n_features, outputs) float64: Σ_c x_c·w_c, the mixture as one linear model."""
        out = np.zeros((self.n_features, self.n_outputs))
        x = self.column_weights
        for learner, columns in self._parts():
            weights = learner.weights()
            for c in np.flatnonzero(x[columns]):
                out += x[columns][c] * weights[:, c * self.n_outputs : (c + 1) * self.n_outputs]
        return out

    def intercepts(self) -> np.ndarray:
        """(outputs,) float64: Σ_c x_c·b_c of the intercepts b_c, 0 without them."""
        x = self.column_weights
        kept = np.flatnonzero(x)
        every = np.concatenate([learner.intercepts() for learner in self.learners])
        return np.asarray(x[kept] @ every[kept].astype(np.float64))

    def best(self) -> Learner:
        """The heaviest column as a learner, with the same bits as one trained alone."""
        column = self.heaviest
        learner, columns = next((learner, columns) for learner, columns in self._parts() if column < columns.stop)
        return learner.select([column - columns.start])

    def save(self, folder: str | Location) -> None:
        """Write the complete state into a folder: one file per learner, then `mixture.npz` with their digests."""
        folder = location(folder)
        digests = []
        for i, learner in enumerate(self.learners):
            learner.save(folder / f"learner-{i}.npz")
            digests.append(digest_file(folder / f"learner-{i}.npz"))
        write_checkpoint(
            folder / "mixture.npz",
            {
                "format": FORMAT,
                "rows": self._rows,
                "by": self.by,
                "predict_gradient": self.prediction,
                "intercept": self.intercept,
                "learners": digests,
            },
            self._state._asdict().items(),
        )

    @classmethod
    def load(cls, folder: str | Location) -> "Mixture":
        """A saved mixture, which continues with the same bits. Raises `DamagedError` for corrupt or other files."""
        folder = location(folder)
        with read_checkpoint(folder / "mixture.npz") as (described, read):
            if described["format"] != FORMAT:
                message = f"{folder} was saved by another version of sparseoco; train it again."
                raise DamagedError(message, code="format-version")
            if not described["learners"]:
                raise DamagedError(f"{folder}/mixture.npz is corrupt: it names no learner.", code="corrupt-file")
            learners = []
            for i, digest in enumerate(described["learners"]):
                if digest_file(folder / f"learner-{i}.npz") != digest:
                    message = f"{folder}: learner-{i}.npz is not the one that mixture.npz was saved with."
                    raise DamagedError(message, code="corrupt-file")
                learners.append(Learner.load(folder / f"learner-{i}.npz"))
            shape = ("loss", "penalty", "n_features", "n_classes", "multilabel", "dtype")
            options = {name: learners[0].description[name] for name in shape}
            options |= {name: described[name] for name in ("by", "predict_gradient", "intercept")}
            mixture = cls({learner.algorithm: learner.configurations for learner in learners}, **options)
            mixture.learners = learners
            mixture._rows = int(described["rows"])
            for name, own in mixture._state._asdict().items():
                read(name, own)
        return mixture

    def _parts(self) -> Iterator[tuple[Learner, slice]]:
        """The learners, each with the slice of its columns."""
        first = 0
        for learner in self.learners:
            last = first + len(learner.configurations)
            yield learner, slice(first, last)
            first = last
