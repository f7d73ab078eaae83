"""The stateful interface of the learners: a grid of configurations trained together on one stream of sparse rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.kernels import columns as loops
from sparseoco.kernels.columns import MARGINS, ColumnBlock, Kernels, Rows, Scratch, State, with_intercept
from sparseoco.kernels.dense import DenseColumns
from sparseoco.kernels.groups import GroupColumns
from sparseoco.kernels.responses import row_loss
from sparseoco.learners import check_algorithm_name, check_outside, find_algorithm, name_learner
from sparseoco.learners.contract import Algorithm, Clock, DenseRule, Grid, Rule, stored_weight
from sparseoco.learners.losses import PORTFOLIO_LOSSES, Loss, check_portfolio, check_relatives
from sparseoco.learners.penalties import Penalty, find_penalty
from sparseoco.storage.locations import Location, location
from sparseoco.storage.tables import read_checkpoint, write_checkpoint
from sparseoco.training import validation

# ----------------------------------------------------------------------------------------------------------------------
# A block of columns: configurations of one learner that run through one compiled loop, and their arrays.


LANE_BYTES = 64
"""Columns are padded to a multiple of this many bytes per slot, one cache line, so that their loop vectorises."""
NARROW = (1, 4, 8)
"""Smaller numbers of columns, for each of which a loop is compiled."""
MANY_NONZEROS = 1 << 21
"""Nonzeros from which on a block learns with the loop of its width: faster (4 columns by two thirds, 1 and 8 by a
sixth), and a second to compile."""


def padded(columns: int, dtype: np.dtype) -> int:
    """The number of columns with padding."""
    lanes = LANE_BYTES // dtype.itemsize
    return next((width for width in NARROW if columns <= width), -(-columns // lanes) * lanes)


@dataclass(eq=False, repr=False)
class Columns(ColumnBlock):
    """State of configurations with `outputs` adjacent columns each; `numbers` has a list of parameters for each.

    Arrays: ``state`` (n_features, slots, width); ``last_update`` (n_features,) float64, empty for rules without time
    stamps; ``clock`` float64, the fields of `Clock`; ``params`` (numbers, width) float64 and its last rows,
    ``per_column_sums``; per configuration ``loss_sum`` and ``surplus`` float64, ``error_count`` and ``diverged`` int64.
    With an intercept, it is one more feature, and ``params`` has 2·width columns, the second half with λ = 0.
    """

    rule: Rule
    penalty: Penalty
    loss: Loss
    response: str
    numbers: list[list[float]]
    outputs: int
    n_features: int
    dtype: np.dtype
    track_l1_norm: bool = False
    intercept: bool = False

    def __post_init__(self) -> None:
        rule, dtype, n_features, intercept = self.rule, self.dtype, self.n_features, self.intercept
        self.columns = len(self.numbers) * self.outputs
        self.width = padded(self.columns, dtype)
        self.refresh_interval = rule.stored_weight_valid_for if self.track_l1_norm else 0.0
        tracked = self.refresh_interval > 0.0
        # Without values that compiled code does not depend on, so that configurations share kernels.
        left_out: dict[str, Any] = {"reported": None, "threshold": None, "initial_state": (), "sees_predictions": False}
        self._compiled_rule = replace(rule, start=Clock(), stored_weight_valid_for=0.0, **left_out)
        self.kernels: Kernels = loops.kernels_for(self._compiled_rule, dtype.name, grouped=self.penalty.grouped)
        self._nonzeros = 0
        self._current_weights: np.ndarray | None = None
        self.slot_names = rule.slots
        values = [entry for entry in self.numbers for _ in range(self.outputs)]
        values += [values[-1]] * (self.width - self.columns)
        self.params = np.array(values, np.float64).T.copy()
        if intercept:  # the same with λ = 0
            unpenalised = self.params.copy()
            if "lam" in rule.param_names:
                unpenalised[rule.param_names.index("lam")] = 0.0
            self.params = np.hstack([self.params, unpenalised])
        self.per_column_sums = self.params[len(self.params) - len(rule.per_column_sums) :]
        stored = n_features + intercept
        self.state = np.zeros((stored, len(rule.slots), self.width), dtype)
        if rule.initial_state:
            self.state[...] = np.array(rule.initial_state)[:, None]
        self.last_update = np.zeros(stored if rule.clock_time else 0, np.float64)
        self.clock = np.array(rule.start, np.float64)
        self.start_sums(len(self.numbers), self.width if tracked else 0)

    def learn(
        self,
        rows: Rows,
        labels: np.ndarray,
        weights: np.ndarray | None,
        margins_out: np.ndarray | None,
        predicted: np.ndarray,
    ) -> None:
        """Learn the rows in turn; `labels`, `weights` and `predicted` (rows, outputs) are read-only float64.

        `margins_out` (rows, width), if given, receives the margins with which each row was predicted, padding included.
        """
        if margins_out is None:
            margins_out = np.empty((0, self.width), self.dtype)
        labels = loops.by_row(labels)
        if weights is None:
            weights = np.ones(len(labels))
        seen = weights[:, None] * predicted if self.rule.sees_predictions else weights[:, None]
        if not 0.0 < self.refresh_interval < np.inf:
            self._learn(rows, labels, weights, seen, margins_out)
            return
        start, interval = 0, int(self.refresh_interval)
        while start < len(labels):  # up to the next round that moves all coordinates
            stop = min(start + interval - self.rounds % interval, len(labels))
            entries = slice(*(rows.indptr[[start, stop]] - rows.indptr[0]))
            part = Rows(rows.indptr[start : stop + 1], rows.indices[entries], rows.values[entries])
            self._learn(part, labels[start:stop], weights[start:stop], seen[start:stop], margins_out[start:stop])
            if self.rounds % interval == 0:
                self._measure_l1_norm()
            start = stop

    def _learn(
        self, rows: Rows, labels: np.ndarray, weights: np.ndarray, seen: np.ndarray, margins_out: np.ndarray
    ) -> None:
        loss_width = self.width if self.rule.needs_loss else 0
        scratch = Scratch(
            scalars=self._scalars(),
            margins=np.zeros(self.width, self.dtype),
            slopes=np.zeros(self.width, self.dtype),
            losses=np.zeros(loss_width, self.dtype),
            row_losses=np.zeros(len(self.loss_sum)),
            sq_slopes=np.zeros(loss_width, self.dtype),
            state_sums=np.zeros(self.width if self.rule.row_term else 0, self.dtype),
        )
        self._nonzeros += len(rows.values)
        fixed = self.width if self.width in NARROW and self._nonzeros >= MANY_NONZEROS else 0
        flags = {"grouped": self.penalty.grouped, "tracked": self.refresh_interval > 0.0}
        learn = loops.learn_kernel(self._compiled_rule, self.dtype.name, fixed=fixed, **flags)
        shared = self.loss.joint or self.penalty.grouped
        loss = row_loss(self.loss, self.response, self.dtype.name, self.outputs if shared else 1)
        self._current_weights = None
        self.clock[:] = learn(
            rows, labels, weights, seen, loss, self.outputs, self._state(), self.progress, scratch, margins_out
        )

    def _measure_l1_norm(self) -> None:
        norm = np.zeros(self.columns)
        for _, _, weights in self.weight_runs():
            loops.MEASURE_ABSOLUTE(weights, norm)
        self.l1_norm[: self.columns] = norm

    def margins(self, rows: Rows) -> np.ndarray:
        """(rows, width), padding included. The weights of all features are kept until the state changes."""
        if self._current_weights is None:
            self._current_weights = self._materialized(self.rule.reported, 0, len(self.state))
        out = np.empty((len(rows.indptr) - 1, self.width), self.dtype)
        MARGINS(*rows, self._current_weights, out)
        return out

    def weights(self, first: int, stop: int) -> np.ndarray:
        """(stop − first, columns): the weights of a run of features."""
        if self._current_weights is not None:
            return self._current_weights[first:stop, : self.columns].astype(self.dtype, copy=False)
        weights = self._materialized(self.rule.reported, first, stop)
        return weights[:, : self.columns].astype(self.dtype, copy=False)

    def intercepts(self) -> np.ndarray:
        """(columns,): the weights of the intercept, 0 without one."""
        if not self.intercept:
            return super().intercepts()
        return np.asarray(self.weights(self.n_features, self.n_features + 1)[0])

    def thresholds(self) -> np.ndarray | None:
        """(n_features, columns): h of every coordinate (`Rule.threshold`); None where it is 1."""
        if self.rule.threshold is None:
            return None
        return self._materialized(self.rule.threshold, 0, self.n_features)[:, : self.columns]

    def _materialized(self, weight: Callable[..., Any] | None, first: int, stop: int) -> np.ndarray:
        """(stop − first, width): a function of the state of a run of features, by default `Rule.weight`.

        In float64 if `Rule.weight_is_float64`, else of the columns' dtype.
        """
        rule = self._compiled_rule
        rule = rule if weight is None else replace(rule, weight=weight)
        if rule.weight is stored_weight and not self.penalty.grouped:
            return self.state[first:stop, 0].copy()
        out = np.empty((stop - first, self.width), np.float64 if rule.weight_is_float64 else self.dtype)
        materialize = loops.kernels_for(rule, self.dtype.name, grouped=self.penalty.grouped).materialize
        materialize(first, self.outputs, self._state(), self._scalars(), out)
        return out

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """The complete state by name: views, without padding."""
        n = self.n_features
        yield "state", self.state[:n, :, : self.columns]
        yield "last_update", self.last_update[:n]
        yield "intercept_state", self.state[n:, :, : self.columns]
        yield "intercept_update", self.last_update[n:]
        yield "clock", self.clock
        yield "running", self._sums_by_part[..., : self.columns]
        yield "l1_norm", self.l1_norm[: self.columns]
        yield "l1_norm_sum", self.l1_norm_sum[: self.columns]
        yield "loss_sum", self.loss_sum
        yield "surplus", self.surplus
        yield "error_count", self.error_count
        yield "diverged", self.diverged

    def start_from(self, weights: np.ndarray, columns: np.ndarray, rows: int, intercepts: np.ndarray | None) -> None:
        """Turn this new block into one after `rows` rounds whose weights are these columns of `weights`.

        `intercepts` (columns,), if given, are the intercepts.
        """
        self._current_weights = None
        self.clock[:] = self.kernels.pass_rounds(rows, Clock(*self.clock.tolist()), self.params)
        for first, stop in self.feature_runs():
            self._init_state(first, weights[first:stop, columns])
        if self.intercept:
            given = np.zeros(self.columns) if intercepts is None else intercepts
            self._init_state(self.n_features, given[None])
        if self.refresh_interval:
            self._measure_l1_norm()

    def _init_state(self, first: int, weights: np.ndarray) -> None:
        """Give the features from `first` on these weights (features, columns)."""
        part = np.zeros((len(weights), self.width), self.dtype)
        part[:, : self.columns] = weights
        if self.penalty.bounded:
            radius = self.params[self.rule.param_names.index("R")].astype(self.dtype)
            np.clip(part, -radius, radius, out=part)
        self.kernels.init_state(first, self.outputs, part, self._state(), self._scalars())

    def pad(self) -> None:
        """Complete a state that was written into `arrays`: the padding has the sums of the last column."""
        self._current_weights = None
        self._sums_by_part[..., self.columns :] = self._sums_by_part[..., self.columns - 1 : self.columns]

    def take(self, other: "Columns", configurations: np.ndarray) -> None:
        """Copy the state of these configurations of another block of the same rule into this new block."""
        columns = (configurations[:, None] * self.outputs + np.arange(self.outputs)).ravel()
        self.take_sums(other, configurations)
        for (name, own), (_, value) in zip(self.arrays(), other.arrays(), strict=True):
            if name in ("last_update", "intercept_update", "clock"):
                own[...] = value
            elif name == "state":
                for first, stop in self.feature_runs():
                    own[first:stop] = value[first:stop, :, columns]
            elif value.size and name not in loops.SUMS:
                own[...] = value[..., columns]
        self.pad()

    @property
    def _sums_by_part(self) -> np.ndarray:
        """(numbers, 1 or 2, width): the per-column sums, those of the intercept last."""
        return self.per_column_sums.reshape(len(self.per_column_sums), 1 + self.intercept, self.width)

    def _state(self) -> State:
        return State(self.state, self.last_update, self.params, Clock(*self.clock.tolist()))

    def _scalars(self) -> np.ndarray:
        return np.zeros((1 + self.intercept, len(self.rule.scalars._fields), self.width), self.dtype)


AnyColumns = Columns | DenseColumns | GroupColumns


# ----------------------------------------------------------------------------------------------------------------------
# The learner. Its file is a checkpoint with its description and the arrays of its blocks.


FORMAT = 8
CHUNK = 1 << 18  # nonzeros whose counts are cast to the columns' dtype at a time: a few percent of a cache
BY_FEATURE = ("state", "last_update")
"""The arrays of a sparse block with one entry per feature."""


class ProgressiveTotals(NamedTuple):
    """Loss and errors incurred so far, every row predicted before it was learned; arrays have one entry per
    configuration."""

    rows: int
    loss_sum: np.ndarray
    error_count: np.ndarray

    def __sub__(self, before: "ProgressiveTotals") -> "ProgressiveTotals":
        """The totals of the rows between two readings."""
        loss_sum, error_count = self.loss_sum - before.loss_sum, self.error_count - before.error_count
        return ProgressiveTotals(self.rows - before.rows, loss_sum, error_count)


class Measured(NamedTuple):
    """What the configurations of a learner incurred, and the size of their weights: arrays with an entry for each."""

    rows: int
    """Rows learned by then."""
    progressive_loss: np.ndarray
    """float64: mean over those rows, each predicted before it was learned."""
    progressive_error: np.ndarray
    penalty: np.ndarray
    """float64: ψ(w), λ included, of the weights at the mark."""
    objective: np.ndarray
    """float64: R̄(T) = Σ_{t≤T} (f_t(w_t) + ψ(w_t)) / T (Togari and Yamashita 2016, (42)), whatever the `schedule` of the
    penalties; NaN unless ψ(w_t) is summed in every round."""
    nonzeros: np.ndarray
    """(columns,) int64."""


class Learner:
    """Many configurations of one learner, trained in one pass over the rows.

    A configuration whose margin is not finite, or exceeds the bound of the loss, has diverged: from that row on it
    learns nothing and its sums stay as they are. Weights do not depend, in any bit, on how the stream is cut into
    calls, on which configurations are trained together, or on saving and loading. Reading never changes the state.

    A bandit plays points around its weights: `progress` is of the points played, `margins` and `weights` are of the
    weights.

    Parameters
    ----------
    algorithm : str
        Name of a learner; ``sparseoco algorithms`` lists them. Or ``PATH.py:NAME``, one of a file of yours.
    loss : str, optional
        Name of a loss, see `sparseoco.learners.losses.LOSSES`; by default the learner's own, mostly ``"logistic"``.
        Dense learners also take `PORTFOLIO_LOSSES`, with ``n_classes=None``.
    penalty : str
        Name of a penalty, see `sparseoco.learners.penalties.PENALTIES`; learners without one take ``"l1"``.
    grid : mapping or list of mappings, optional
        Parameters to values (the product is trained, in a fixed order), or a list of configurations.
    n_features : int
        Features have indices 0 … n_features − 1.
    n_classes : int or None
        2 for binary problems: one column per configuration, labels 0 and 1 meaning y = −1 and +1. K > 2 for K classes:
        K adjacent columns per configuration, the loss being the sum of K binary losses, one-vs-rest, or one joint
        loss. None for regression.
    multilabel : bool
        Rows have any number of the classes: K adjacent columns, also for K = 2, one-vs-rest, and labels as an indicator
        matrix. A class is predicted if its margin is positive; an error is a row whose set of
        classes is not exactly right.
    dtype : {"float64", "float32"}
        Type of the weights. Clocks, sums of losses and the whole state of dense learners are always float64.
    objective : bool
        Sum ψ(w_t) in every round, so that `measure` gives the exact R̄(T). It has an effect for l1 and learners whose
        stored weight is the iterate: cl-fobos, cumulative learners, and l-fobos, which then reads all weights every K
        rounds.
    intercept : bool
        Learn an intercept: the weight of one more feature, with value 1 in every row and no penalty, which `weights`,
        `nonzeros` and `n_features` leave out. Learners in a convex set have none, nor has penalty="box".
    feature_groups : array_like, (n_features,), optional
        With ``penalty="group"``: the group of each feature, an integer ≥ 0. The penalty is λ Σ_G ‖w_G‖₂ over groups G
        of features and all classes, so that a group is kept or 0 as a whole; for fobos, l-fobos and cl-fobos, and with
        any number of classes. Without it a group is the classes of one feature.

    Raises
    ------
    InputError
        For an unknown name or parameter, a combination that is not supported, and for more features than a dense
        learner can hold.
    """

    def __init__(
        self,
        algorithm: str,
        *,
        loss: str | None = None,
        penalty: str = "l1",
        grid: Grid | None = None,
        n_features: int,
        n_classes: int | None = 2,
        multilabel: bool = False,
        dtype: Any = "float64",
        objective: bool = False,
        intercept: bool = False,
        feature_groups: Any = None,
    ) -> None:
        penalty_, algorithm = find_penalty(penalty), name_learner(algorithm)
        definition = find_algorithm(algorithm, online=True).under(penalty_)
        if not definition.online:
            raise InputError(
                f"{algorithm} makes many passes over the same rows, so it cannot learn from a stream: use "
                "sparseoco.fit_epochs, `sparseoco train` or a search.",
                code="not-online",
            )
        loss_ = definition.loss(loss)
        self.algorithm, self.loss, self.penalty = algorithm, loss_.name, penalty
        self.n_features, self.n_classes = validation.check_integer("n_features", n_features), n_classes
        self.feature_groups: np.ndarray | None = None
        if feature_groups is not None:
            validation.check_groups_apply(definition, penalty_)
            self.feature_groups = validation.checked_groups(feature_groups, self.n_features)
        flags = {"multilabel": multilabel, "intercept": intercept, "by_class": self.feature_groups is None}
        validation.check_combination(definition, penalty_, n_classes, **flags)
        self.multilabel = bool(multilabel)
        self.n_outputs, response = validation.output_shape(loss_, n_classes, multilabel=self.multilabel)
        self.dtype = validation.column_dtype(dtype)
        self.objective = bool(objective) and penalty == "l1"
        self.intercept = bool(intercept)
        self._configurations = definition.expand(grid)
        if loss_.name in PORTFOLIO_LOSSES:
            check_portfolio(loss_.name, self._configurations, n_classes)
        validation.check_size(algorithm, self.n_features)
        self._initial_rounds = 0
        self._blocks: list[tuple[np.ndarray, AnyColumns]] = []
        groups: dict[tuple[Any, ...], list[int]] = {}  # those that share a compiled loop
        for i, configuration in enumerate(self._configurations):
            groups.setdefault(definition.static_values(configuration), []).append(i)
        for members in groups.values():
            entries = [self._configurations[i] for i in members]
            shape = (self.n_outputs, self.n_features, self.dtype)
            block: AnyColumns
            if self.feature_groups is not None:
                block = self._group_columns(definition, loss_, response, entries)
            elif isinstance(rule := definition.rule(loss_, penalty_, entries[0]), DenseRule):
                block = DenseColumns(rule, loss_, response, entries, *shape)
            else:
                params = [definition.numbers(entry, rule.param_names) for entry in entries]
                block = Columns(rule, penalty_, loss_, response, params, *shape, self.objective, self.intercept)
            self._blocks.append((np.array(members), block))

    def _group_columns(
        self, definition: Algorithm, loss: Loss, response: str, configurations: Sequence[dict[str, Any]]
    ) -> GroupColumns:
        assert definition.group_rules is not None
        assert self.feature_groups is not None
        rule = definition.group_rules(loss, configurations[0])
        numbers = [definition.numbers(entry, ("eta0", "lam")) for entry in configurations]
        params = np.repeat(np.array(numbers), self.n_outputs, axis=0).T.copy()
        return GroupColumns(
            rule, loss, response, params, self.n_outputs, self.feature_groups, self.dtype, self.intercept
        )

    @property
    def configurations(self) -> list[dict[str, Any]]:
        """Every configuration with all its parameters; its index in the list is its number everywhere."""
        return [dict(configuration) for configuration in self._configurations]

    @property
    def n_columns(self) -> int:
        """Configurations × outputs."""
        return len(self._configurations) * self.n_outputs

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, predicted_slopes: Any = None) -> "Learner":
        """Learn rows in order.

        Parameters
        ----------
        X : scipy.sparse matrix, (rows, n_features)
            Integer or float, 32- or 64-bit indices; duplicate entries are summed, indices sorted and explicit zeros
            dropped, in a copy.
        y : array_like, (rows,)
            Class indices 0 … n_classes − 1, or −1 and +1 for two classes; numbers for regression. With `multilabel` an
            indicator matrix (rows, n_classes), sparse or dense.
        sample_weight : array_like, (rows,), optional
            Factors ≥ 0 of the rows' losses, 1 by default. For passive-aggressive and arow they multiply C or 1/r. A row
            of weight 0 is predicted, and counts as a round without features. `progress` does not weight its sums.
        predicted_slopes : array_like, (rows,) or (rows, outputs), optional
            For ``predict_gradient="given"``: what the derivative of each row's loss in its margin is expected to be,
            such as that of another model, known before the label is. The gradient predicted is this slope times the row
            and its weight.

        Raises
        ------
        InputError
            Naming the first row that has NaN, an infinity, an unknown label or a negative weight; if slopes are needed
            and missing, or given and not used. Then no row is learned.

        Examples
        --------
        The true slopes predict best:

        >>> import numpy as np, scipy.sparse as sp
        >>> X, y = sp.csr_matrix(np.eye(2)), [0, 1]
        >>> learner = Learner("ao-ftrl", grid={"predict_gradient": "given", "R": 1.0}, n_features=2)
        >>> learner.partial_fit(X, y, predicted_slopes=[0.5, -0.5]).progress.loss_sum < 2 * np.log(2)
        array([ True])
        """
        matrix = validation.checked_rows(X, self.n_features, self.dtype)
        labels = validation.checked_labels(y, matrix.shape[0], self.n_classes, multilabel=self.multilabel)
        if self.loss == "log_return":
            check_relatives(matrix)
        weights = validation.checked_sample_weights(sample_weight, matrix.shape[0])
        needed = any(isinstance(block, Columns) and block.rule.sees_predictions for _, block in self._blocks)
        slopes = validation.checked_slopes(predicted_slopes, matrix.shape[0], self.n_outputs, needed=needed)
        self.learn_rows(matrix.indptr, matrix.indices, matrix.data, labels, weights, predicted_slopes=slopes)
        return self

    def learn_rows(
        self,
        indptr: Any,
        indices: Any,
        values: Any,
        labels: Any,
        weights: Any = None,
        *,
        margins_out: np.ndarray | None = None,
        predicted_slopes: np.ndarray | None = None,
    ) -> None:
        """`partial_fit` without checks, on CSR arrays as shards hold them.

        Parameters
        ----------
        indptr : int32 or int64, (rows + 1,)
        indices : int32 or int64
            Unique within a row and below n_features.
        values : any number type
            No explicit zeros.
        labels : (rows,), or (rows, n_classes)
            Class indices, or float64 for regression; an indicator with `multilabel`.
        weights : (rows,), optional
            Sample weights ≥ 0.
        margins_out : (rows, configurations, outputs), optional
            Receives the margins with which each row was predicted, before it was learned.
        predicted_slopes : (rows, outputs) float64, optional
            Without them, ``predict_gradient="given"`` predicts 0.
        """
        for start, stop, rows in self._chunks(indptr, indices, values):
            part = np.asarray(labels[start:stop], np.float64)
            own = None if weights is None else np.ascontiguousarray(weights[start:stop], np.float64)
            slopes = np.zeros((stop - start, 1)) if predicted_slopes is None else predicted_slopes[start:stop]
            for members, block in self._blocks:
                z = None if margins_out is None else np.empty((stop - start, block.width), self.dtype)
                if isinstance(block, Columns):
                    block.learn(rows, part, own, z, slopes)
                else:
                    block.learn(rows, part, own, z)
                if z is not None and margins_out is not None:
                    margins_out[start:stop, members] = self._by_configuration(z, block, len(members))

    def decision_function(self, X: Any) -> np.ndarray:
        """Margins (rows, configurations, outputs) of a SciPy sparse matrix; `InputError` as `partial_fit`."""
        matrix = validation.checked_rows(X, self.n_features, self.dtype)
        return self.margins(matrix.indptr, matrix.indices, matrix.data)

    def margins(self, indptr: Any, indices: Any, counts: Any) -> np.ndarray:
        """Margins (rows, configurations, outputs) under the current weights, unchecked as `learn_rows`."""
        out = np.empty((len(indptr) - 1, len(self._configurations), self.n_outputs), self.dtype)
        for start, stop, rows in self._chunks(indptr, indices, counts):
            for members, block in self._blocks:
                out[start:stop, members] = self._by_configuration(block.margins(rows), block, len(members))
        return out

    def _by_configuration(self, z: np.ndarray, block: AnyColumns, configurations: int) -> np.ndarray:
        """(rows, configurations, outputs) of margins (rows, width)."""
        return z[:, : block.columns].reshape(len(z), configurations, self.n_outputs)

    def evaluate(
        self,
        indptr: Any,
        indices: Any,
        counts: Any,
        labels: Any,
        loss_sum: np.ndarray | None = None,
        error_count: np.ndarray | None = None,
        *,
        margins_out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Summed loss (float64) and error count (int64) of each configuration; nothing is learned or checked.

        Given `loss_sum` and `error_count`, adds to them in place, row by row, so that the sums of a stream do not
        depend on how it is cut into calls. `margins_out` (rows, configurations, outputs), if given, receives the
        margins.
        """
        size = len(self._configurations)
        loss_sum = np.zeros(size, np.float64) if loss_sum is None else loss_sum
        error_count = np.zeros(size, np.int64) if error_count is None else error_count
        for start, stop, rows in self._chunks(indptr, indices, counts):
            part = np.asarray(labels[start:stop], np.float64)
            for members, block in self._blocks:
                losses, errors = loss_sum[members], error_count[members]
                z = block.evaluate(rows, part, losses, errors)
                loss_sum[members], error_count[members] = losses, errors
                if margins_out is not None:
                    margins_out[start:stop, members] = self._by_configuration(z, block, len(members))
        return loss_sum, error_count

    @property
    def progress(self) -> ProgressiveTotals:
        """Rows learned, and the loss and errors incurred on them before learning each."""
        return ProgressiveTotals(
            self.rounds - self._initial_rounds,
            self._gather([block.loss_sum for _, block in self._blocks]),
            self._gather([block.error_count for _, block in self._blocks]),
        )

    @property
    def weighted_loss_sum(self) -> np.ndarray:
        """(configurations,): `progress.loss_sum` with each row's loss times its sample weight."""
        return self._gather([block.loss_sum + block.surplus for _, block in self._blocks])

    @property
    def rounds(self) -> int:
        """Rounds on the clock: rows learned and, after `start_from`, the rounds that it counted."""
        return self._blocks[0][1].rounds

    def measure(self) -> Measured:
        """Losses, objective and nonzero weights so far; reads all weights once."""
        size = len(self._configurations)
        penalty, penalty_sum = np.zeros(size), np.full(size, np.nan)
        nonzeros = np.zeros((size, self.n_outputs), np.int64)
        penalty_ = find_penalty(self.penalty)
        for members, block in self._blocks:
            lam = np.array([self._configurations[i].get("lam", 0.0) for i in members])
            ratio = [self._configurations[i].get("l1_ratio", 0.0) for i in members]
            values, counts = block.measure(penalty_, np.repeat(ratio, self.n_outputs))
            shape = (len(members), self.n_outputs)
            nonzeros[members] = counts.reshape(shape)
            penalty[members] = lam * values.reshape(shape).sum(axis=1)
            if block.refresh_interval:
                penalty_sum[members] = lam * block.l1_norm_sum[: block.columns].reshape(shape).sum(axis=1)
        rows, _, error_count = self.progress
        n = max(rows, 1)
        loss = self.weighted_loss_sum / n
        return Measured(rows, loss, error_count / n, penalty, loss + penalty_sum / n, nonzeros.ravel())

    @property
    def diverged(self) -> np.ndarray:
        """The row (from 1) at which each configuration diverged, or 0."""
        rounds = self._gather([block.diverged for _, block in self._blocks])
        return np.where(rounds > 0, rounds - self._initial_rounds, 0)

    def nonzeros(self, bins: Any = None) -> np.ndarray:
        """Nonzero weights over all outputs: (configurations,) or, given the bin of each feature (int64, n_features),
        (n_bins, configurations)."""
        feature_bins = np.zeros(self.n_features, np.int64) if bins is None else np.asarray(bins, np.int64)
        n_bins = int(feature_bins.max()) + 1
        out = np.zeros((n_bins, len(self._configurations)), np.int64)
        for members, block in self._blocks:
            counted = block.nonzeros(feature_bins, n_bins)
            out[:, members] = counted.reshape(n_bins, len(members), self.n_outputs).sum(axis=2)
        return out[0] if bins is None else out

    def features_used(self) -> np.ndarray:
        """(configurations,) int64: features with a nonzero weight for any output."""
        if self.n_outputs == 1:
            return self.nonzeros()
        return self._gather([block.features_used() for _, block in self._blocks])

    def weights(self) -> np.ndarray:
        """(n_features, n_columns), the outputs of a configuration adjacent."""
        out = np.empty((self.n_features, self.n_columns), self.dtype)
        for members, block in self._blocks:
            columns = self._columns(members)
            for first, stop, part in block.weight_runs():
                out[first:stop, columns] = part
        return out

    def weights_of(self, configuration: int) -> np.ndarray:
        """(n_features, outputs) of one configuration; `InputError` if there is none of that number."""
        block, own = self._find(configuration)
        out = np.empty((self.n_features, self.n_outputs), self.dtype)
        for first, stop, part in block.weight_runs():
            out[first:stop] = part[:, own]
        return out

    def intercepts(self) -> np.ndarray:
        """(configurations, outputs): the intercepts, 0 without them."""
        out = np.empty((len(self._configurations), self.n_outputs), self.dtype)
        for members, block in self._blocks:
            out[members] = block.intercepts().reshape(len(members), self.n_outputs)
        return out

    def thresholds_of(self, configuration: int) -> np.ndarray | None:
        """(n_features, outputs): h_t of one configuration after the last round t, for learners whose penalty is
        λ·h_t·|w|, weighted by the history of the coordinate (sgft, stda); None for all others."""
        block, own = self._find(configuration)
        values = block.thresholds()
        return None if values is None else values[:, own]

    def slots_of(self, configuration: int, *, intercept: bool = False) -> dict[str, np.ndarray]:
        """The state of one configuration: (n_features, outputs) by the name of the slot in its learner's docstring, and
        `last_update` (n_features, 1) where features have a time stamp. These are views: do not write to them.

        With `intercept` its state, if there is one, is the last row."""
        block, own = self._find(configuration)
        n = self.n_features + (intercept and self.intercept)
        stored = {name: block.state[:n, i, own] for i, name in enumerate(block.slot_names)}
        return stored | ({"last_update": block.last_update[:n, None]} if len(block.last_update) else {})

    def start_from(self, weights: Any, rows: int, intercepts: Any = None) -> "Learner":
        """Start from given weights, before any row was learned, at round `rows` + 1.

        `weights()` then returns the given weights: exactly or, for learners that keep sums of gradients, up to the
        rounding of their closed form. The learner's `state_from_weight` gives the rest of the state; the state of a
        weight of 0 is that of a feature that was never seen. No penalty is due for the earlier rounds. `progress`,
        `diverged` and `measure` count only what is learned from here on.

        Parameters
        ----------
        weights : array_like, (n_features, n_columns) or (n_features, outputs)
            The latter for every configuration. Weights outside a learner's box or set are projected onto it.
        rows : int
            Rounds on the clock, at least 1: they determine steps and penalties.
        intercepts : array_like, (configurations, outputs) or (outputs,), optional
            0 by default; only for a learner with an intercept.

        Raises
        ------
        InputError
            For weights or intercepts of another shape or that are not finite, and if rows were learned already.
        """
        rounds = validation.check_integer("rows", rows)
        if self.rounds > 0:
            raise InputError(
                "Rows were learned already: a learner starts from weights before its first row.", code="already-learned"
            )
        values = validation.checked_weights(weights, self.n_features, {self.n_columns, self.n_outputs}, self.dtype)
        starts = None
        if intercepts is not None:
            given = np.asarray(intercepts).reshape(1, -1)
            widths = {self.n_columns, self.n_outputs} if self.intercept else {0}
            starts = np.resize(validation.checked_weights(given, 1, widths, self.dtype)[0], self.n_columns)
        for members, block in self._blocks:
            columns = self._columns(members)
            own = None if starts is None else starts[columns]
            block.start_from(values, columns % values.shape[1], rounds, own)
        self._initial_rounds = rounds
        return self

    def stop_diverged(self, rows: np.ndarray) -> None:
        """Stop the configurations that diverged elsewhere, at these rows; 0 for those that did not."""
        for members, block in self._blocks:
            block.diverged[:] = np.where(rows[members] > 0, rows[members] + self._initial_rounds, 0)

    def select(self, configurations: Sequence[int]) -> "Learner":
        """A learner of these configurations only, by number, in this order. It continues, bit for bit, as they would
        have here. Raises `InputError` for an unknown number."""
        chosen = self._checked(configurations)
        fewer = self.new([self._configurations[number] for number in chosen])
        index: dict[int, tuple[Any, int]] = {
            int(i): (block, at) for members, block in self._blocks for at, i in enumerate(members)
        }
        for members, block in fewer._blocks:
            sources = [index[chosen[i]] for i in members]
            block.take(sources[0][0], np.array([at for _, at in sources]))
        fewer._initial_rounds = self._initial_rounds
        return fewer

    def new(self, grid: Grid | None = None) -> "Learner":
        """An equal learner with nothing learned, or one of another grid."""
        given: dict[str, Any] = {"feature_groups": self.feature_groups} | ({} if grid is None else {"grid": grid})
        return Learner(**self.description | given)

    def save(self, path: str | Location, *, named: bool = False) -> None:
        """Write the complete state to one file (npz, no pickle), atomically; equal learners give equal bytes.

        If it is `named`, the file has its name too, and `load` refuses it under another one.
        """
        described = {"format": FORMAT, "learner": self.description, "initial_rounds": self._initial_rounds}
        write_checkpoint(location(path), described, self._arrays(), named=named)

    @classmethod
    def load(cls, path: str | Location, *, n_features: int | None = None) -> "Learner":
        """A saved learner, which continues with the same bits.

        With more features than it had, it continues as if it had had them from the first row on, with the same bits.

        Raises
        ------
        DamagedError
            For a file that is corrupt or not a learner's.
        StorageError
            For a file that cannot be read now.
        InputError
            For fewer features, and for more if the learner updates all features in every round.
        """
        path = location(path)
        with read_checkpoint(path) as (described, _):
            if described["format"] != FORMAT:
                message = f"{path} was saved by another version of sparseoco; train it again."
                raise DamagedError(message, code="format-version")
            description, rounds = dict(described["learner"]), int(described["initial_rounds"])
            saved, algorithm = int(description["n_features"]), str(description["algorithm"])
        check_outside(algorithm)
        if n_features is not None and n_features < saved:
            message = f"{path} has {saved:,} features: it cannot continue with {n_features:,}."
            raise InputError(message, code="fewer-features")
        if n_features not in (None, saved) and find_algorithm(algorithm).touches_all_features:
            raise InputError(
                f"{algorithm} updates all features in every round: a saved one cannot continue with more features.",
                code="more-features",
            )
        if n_features not in (None, saved) and "feature_groups" in description:
            raise InputError(
                "The groups of new features are not known: a learner with groups cannot continue with more features.",
                code="more-features",
            )
        with read_checkpoint(path) as (_, read):  # what is invalid in the block is damage of the file
            named = {"algorithm": check_algorithm_name(algorithm), "n_features": n_features or saved}
            if "feature_groups" in description:
                named["feature_groups"] = read("feature_groups")
            learner = cls(**description | named)
            if rounds and learner.n_features > saved:
                learner.start_from(np.zeros((learner.n_features, learner.n_outputs)), rounds)
            learner._initial_rounds = rounds
            for name, own in learner._arrays():
                read(name, own[:saved] if name.partition(".")[2] in BY_FEATURE else own)
            for _, block in learner._blocks:
                block.pad()
        return learner

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """The arrays of its file, by name."""
        if self.feature_groups is not None:
            yield "feature_groups", self.feature_groups
        for i, (_, block) in enumerate(self._blocks):
            for name, array in block.arrays():
                yield f"{i}.{name}", array

    @property
    def description(self) -> dict[str, Any]:
        """The arguments that construct an equal learner with nothing learned; of groups of features their digest."""
        groups = self.feature_groups
        digest = {} if groups is None else {"feature_groups": sha256(groups.tobytes()).hexdigest()}
        return digest | {
            "algorithm": self.algorithm,
            "loss": self.loss,
            "penalty": self.penalty,
            "grid": self.configurations,
            "n_features": self.n_features,
            "n_classes": self.n_classes,
            "multilabel": self.multilabel,
            "dtype": self.dtype.name,
            "objective": self.objective,
            "intercept": self.intercept,
        }

    def _checked(self, configurations: Sequence[int]) -> list[int]:
        chosen, size = [int(number) for number in configurations], len(self._configurations)
        for number in chosen:
            if not 0 <= number < size:
                message = f"There is no configuration {number}: they are numbered 0 … {size - 1}."
                raise InputError(message, code="unknown-configuration")
        return chosen

    def _find(self, configuration: int) -> tuple[AnyColumns, slice]:
        """The block of a configuration, and its columns there."""
        (number,) = self._checked([configuration])
        members, block = next(entry for entry in self._blocks if number in entry[0])
        first = int(np.flatnonzero(members == number)[0]) * self.n_outputs
        return block, slice(first, first + self.n_outputs)

    def _chunks(self, indptr: Any, indices: Any, values: Any) -> Iterator[tuple[int, int, Rows]]:
        """Rows as the compiled loops take them: (first, stop, rows), values in the columns' dtype.

        Runs have at most `CHUNK` nonzeros, or one row. Indices are int32 if they fit, so that kernels are compiled for
        one type of them.
        """
        index = np.int32 if self.n_features <= np.iinfo(np.int32).max else np.int64
        indptr = np.asarray(indptr, np.int64)
        start, last = 0, len(indptr) - 1
        while start < last:
            stop = int(np.searchsorted(indptr, indptr[start] + CHUNK, side="right")) - 1
            stop = min(max(stop, start + 1), last)
            entries = slice(int(indptr[start]), int(indptr[stop]))
            features = np.ascontiguousarray(indices[entries], index)
            rows = Rows(indptr[start : stop + 1], features, np.ascontiguousarray(values[entries], self.dtype))
            yield start, stop, with_intercept(*rows, self.n_features) if self.intercept else rows
            start = stop

    def _columns(self, members: np.ndarray) -> np.ndarray:
        return (members[:, None] * self.n_outputs + np.arange(self.n_outputs)).ravel()

    def _gather(self, parts: list[np.ndarray]) -> np.ndarray:
        out = np.empty(len(self._configurations), parts[0].dtype)
        for (members, _), part in zip(self._blocks, parts, strict=True):
            out[members] = part
        return out
