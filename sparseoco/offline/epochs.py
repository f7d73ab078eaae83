"""Epoch methods: problem, epochs in this process."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.kernels.columns import MEASURE
from sparseoco.kernels.epoch import DRAW, ROW_SIZES, EpochColumns
from sparseoco.learners import find_algorithm
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.losses import Loss, find_loss
from sparseoco.learners.penalties import Penalty, find_penalty, penalty_values
from sparseoco.offline.coordinates import Coordinates
from sparseoco.offline.passes import (
    ColumnMajor,
    Floats,
    LocalPasses,
    PassRequest,
    PassResult,
    RowSource,
    Span,
    chunks,
    column_major,
    row_weights,
    tree_sum,
)
from sparseoco.training.learner import Grid, expand, group_by_static
from sparseoco.training.validation import checked_labels, checked_rows, checked_sample_weights, output_shape

# ----------------------------------------------------------------------------------------------------------------------
# The problem of an epoch method: configurations, loss, penalty, and the columns they train.


class EpochProblem(NamedTuple):
    """Configurations of one epoch method, their loss and penalty; `positive` as in `EpochColumns`."""

    algorithm: Algorithm
    loss: Loss
    penalty: Penalty
    configurations: tuple[dict[str, Any], ...]
    positive: tuple[int, ...]
    n_features: int
    intercept: bool = False
    """Whether one more feature, the last one, is 1 in every row and has no penalty."""

    @classmethod
    def of(
        cls,
        algorithm: str,
        loss: str,
        penalty: str,
        grid: Grid | None,
        n_classes: int | None,
        n_features: int,
        *,
        intercept: bool = False,
    ) -> "EpochProblem":
        """A checked problem. Raises `InputError` for unknown names and unsupported combinations."""
        loss_, penalty_ = find_loss(loss), find_penalty(penalty)
        definition = find_algorithm(algorithm).under(penalty_)
        if definition.online:
            raise InputError(f"{algorithm} learns from a stream: use sparseoco.Learner.", code="unsupported-algorithm")
        outputs, response = output_shape(loss_, n_classes)
        positive = {"regression": (-1,), "binary": (1,)}.get(response, tuple(range(outputs)))
        problem = cls(definition, loss_, penalty_, tuple(expand(definition, grid)), positive, n_features, intercept)
        problem.groups()
        return problem

    @property
    def outputs(self) -> int:
        """Columns per configuration."""
        return len(self.positive)

    @property
    def coordinates(self) -> int:
        """Features, including the intercept."""
        return self.n_features + self.intercept

    def split(self, weights: Floats) -> tuple[Floats, Floats]:
        """(weights (n_features, columns), intercepts (configurations, outputs)) of (coordinates, columns)."""
        features, shape = weights[: self.n_features], (len(self.configurations), self.outputs)
        return features, weights[-1].reshape(shape) if self.intercept else np.zeros(shape)

    @property
    def response(self) -> str:
        """The function of `kernels.responses` that evaluates margins."""
        return "one_vs_rest" if self.outputs > 1 else "binary" if self.positive[0] == 1 else "regression"

    @property
    def pass_request(self) -> PassRequest:
        """The request of a full pass."""
        return PassRequest(self.loss.name, self.positive * len(self.configurations))

    def groups(self) -> list[tuple[list[int], "EpochProblem"]]:
        """Groups of configurations that share their rounds: their indices, and a problem of that group."""
        for configuration in self.configurations:
            self.algorithm.rule(self.loss, self.penalty, configuration)  # raises for unsupported combinations
        return [
            (members, self._replace(configurations=tuple(self.configurations[i] for i in members)))
            for members in group_by_static(self.algorithm, self.configurations)
        ]

    def sampled(self) -> EpochColumns:
        """The state before the first round, for configurations that share their rounds."""
        columns = self.loss, self.penalty, self.configurations, self.positive
        return EpochColumns(*columns, self.coordinates, intercept=self.intercept)

    def penalties(self, weights: Floats) -> Floats:
        """(configurations,): αψ of weights (n_features, columns)."""
        size = len(self.configurations)
        absolute, squares, norms = np.zeros(size * self.outputs), np.zeros(size * self.outputs), np.zeros(size)
        MEASURE(weights, absolute, squares, norms)
        ratio = np.repeat([c.get("l1_ratio", 0.0) for c in self.configurations], self.outputs)
        alpha = np.array([c.get("alpha", 0.0) for c in self.configurations])  # a box has none
        values = penalty_values(self.penalty, absolute, squares, norms, ratio)
        return np.asarray(alpha * self.by_configuration(values))

    def by_configuration(self, values: NDArray[Any]) -> NDArray[Any]:
        """(columns,) summed over the outputs of each configuration."""
        return np.asarray(values.reshape(-1, self.outputs).sum(axis=1))

    def diverged(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """(configurations,): the first round in which a column of each diverged, or 0."""
        rounds = columns.reshape(-1, self.outputs)
        first = np.where(rounds > 0, rounds, np.iinfo(np.int64).max).min(axis=1)
        return np.where((rounds > 0).any(axis=1), first, 0)


# ----------------------------------------------------------------------------------------------------------------------
# Epoch methods in one process.
#
# An epoch of caos-erm is a full pass at the last iterate, followed by rounds over sampled examples, in one run or in
# `parts` whose states are averaged. An epoch of cao-rcd computes margins, followed by rounds over features.
# `sparseoco.offline.cluster.epochs` gives the same bits on a cluster.


CHUNK_EXAMPLES = 4096  # read from a source at a time


class Fit(NamedTuple):
    """Result of `fit_epochs`."""

    configurations: list[dict[str, Any]]
    weights: Floats
    """(n_features, columns), the outputs of a configuration adjacent."""
    objective: Floats
    """(epochs, configurations): Σ_j f_j(x) + αψ(x) of the weights at the end of each epoch, over all outputs."""
    diverged: NDArray[np.int64]
    """(configurations,): the round (from 1) in which it diverged, or 0."""
    intercepts: Floats
    """(configurations, outputs), 0 without an intercept."""


class Blocks(NamedTuple):
    """The mini-batches of a span: `batch` consecutive examples each, drawn with probability proportional to weight."""

    weights: Floats
    """Σ_{j∈Π} L_j of every mini-batch; with equal probabilities 1, or 0 if that sum is 0."""
    batch: int
    n_rows: int
    """Examples in the span."""

    @classmethod
    def of(cls, sizes: Floats, configuration: Mapping[str, Any]) -> "Blocks":
        """The mini-batches of examples with sizes L_j, in the order of the span, for `batch` and `sample`."""
        batch = configuration["batch"]
        weights = np.add.reduceat(sizes, np.arange(0, sizes.size, batch)) if sizes.size else sizes
        if configuration["sample"] == "uniform":
            weights = (weights > 0.0).astype(np.float64)
        return cls(weights, batch, sizes.size)

    def positions(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(positions of the examples of these mini-batches, concatenated; offsets of the mini-batches in them)."""
        starts = places * self.batch
        sizes = np.minimum(self.batch, self.n_rows - starts)
        edges = np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(edges[-1]) - np.repeat(edges[:-1], sizes)
        return np.repeat(starts, sizes) + within, edges

    def shares(self, configuration: Mapping[str, Any]) -> list["Share"]:
        """The rounds of an epoch: one share, or one per part.

        Part p of P owns the mini-batches whose number is p modulo P (dealt). It plays ⌈rounds/P⌉ rounds, draws from its
        own mini-batches in proportion to their weights, and multiplies by P. With F_p the sum over its own examples,
        its estimates are unbiased for ∇F(x̄) + P·(∇F_p(x) − ∇F_p(x̄)), corrected, or P·∇F_p(x), sampled; their means
        over the parts are ∇F(x). Parts of weight 0 are dropped. With nothing to draw there are no rounds.
        """
        n = self.weights.size
        parts = 1 if configuration["placement"] == "serial" else configuration["parts"]
        runs = [(p, n, parts) for p in range(parts)]
        totals = [float(np.cumsum(np.append(0.0, self.weights[slice(*run)]))[-1]) for run in runs]
        owned = [(run, total) for run, total in zip(runs, totals, strict=True) if total > 0.0]
        rounds = n if configuration["rounds"] == "pass" else configuration["rounds"]
        each = -(-rounds // max(1, len(owned)))
        return [Share(p, *run, each, total * len(owned)) for p, (run, total) in enumerate(owned)]


class Share(NamedTuple):
    """Rounds of an epoch that one worker plays, over some of the mini-batches."""

    part: int
    first: int
    stop: int
    step: int
    """The mini-batches are range(first, stop, step)."""
    rounds: int
    scale: float
    """1/p of a mini-batch times its weight."""


class Slopes(Protocol):
    """Slopes of a pass, by position."""

    def __call__(self, positions: NDArray[np.int64], /) -> Floats:
        """(positions, columns)."""


def row_sizes(source: RowSource, span: Span, start: int, stop: int) -> Floats:
    """L_j = ω_j·max_i |a_{j,i}| of the examples at positions start..stop of a span, with sample weights ω_j."""
    sizes = (row_weights(rows) * ROW_SIZES(rows.indptr, rows.values) for rows in chunks(source, span, start, stop))
    return np.concatenate([np.zeros(0), *sizes])


def play_rounds(
    method: EpochColumns,
    source: RowSource,
    rows: NDArray[np.int64],
    slopes: Slopes,
    gradient: Floats | None,
    blocks: Blocks,
    share: Share,
    seed: int,
    epoch: int,
) -> Iterator[int]:
    """Play a share of an epoch's rounds; yields the number of rounds played, every few thousand examples.

    `rows` are the row numbers at the span's positions; `gradient` is that of the pass if it corrects estimates.
    """
    method.start_run(gradient)
    cumulative = np.cumsum(blocks.weights[share.first : share.stop : share.step])
    step = max(1, CHUNK_EXAMPLES // blocks.batch)
    for first in range(0, share.rounds, step):
        count = min(step, share.rounds - first)
        places = share.first + share.step * DRAW(cumulative, seed, epoch, share.part, first, count)
        positions, edges = blocks.positions(places)
        method.play(source.gather(rows[positions]), edges, slopes(positions), share.scale / blocks.weights[places])
        yield count
    method.flush()


class State(NamedTuple):
    """The state after a part of an epoch; the mean over the parts is the epoch's.

    The mean of the parts' Z, Δ and g̃ is the state whose objective is the mean of theirs. ``rounds`` are those of one
    part; ``diverged`` is the first round of any part.
    """

    state: Floats
    rounds: int
    diverged: NDArray[np.int64]

    def __add__(self, other: Any) -> "State":
        both = np.stack([self.diverged, other.diverged])
        first = np.where((both > 0).all(axis=0), both.min(axis=0), both.max(axis=0))
        return State(self.state + other.state, self.rounds, first)


def mean_state(total: State, count: int) -> State:
    """The mean of `count` states, from their sum."""
    return total._replace(state=total.state / count)


class SampledEpochs:
    """caos-erm in this process, for configurations that share their rounds (see `EpochProblem.groups`)."""

    def __init__(self, problem: EpochProblem, passes: LocalPasses, seed: int) -> None:
        self.problem, self.seed, self.epoch = problem, seed, 0
        self._passes, self._method = passes, problem.sampled()
        source, span = passes.source, passes.span
        self._rows = span.rows(source.n_rows, span.start, span.stop)
        self._blocks = Blocks.of(row_sizes(source, span, span.start, span.stop), problem.configurations[0])
        self._anchor: PassResult = passes.totals(self._method.weights(), problem.pass_request)

    def play(self) -> None:
        """One epoch, and the pass at its last iterate."""
        configuration, method = self.problem.configurations[0], self._method
        slopes = self._passes.slopes(self._anchor)
        gradient = self._anchor.gradient if configuration["estimate"] == "corrected" else None
        before = State(method.state, method.rounds, method.diverged)
        shares = self._blocks.shares(configuration)
        self.epoch += 1

        def part(i: int) -> State:
            method.state, method.rounds = before.state.copy(), before.rounds
            method.diverged = before.diverged.copy()
            run = (self._passes.source, self._rows, slopes.__getitem__, gradient, self._blocks, shares[i])
            for _ in play_rounds(method, *run, self.seed, self.epoch):
                pass
            return State(method.state, method.rounds, method.diverged)

        if shares:
            total = tree_sum(part, 0, len(shares))
            method.state, method.rounds, method.diverged = mean_state(total, len(shares))
        self._anchor = self._passes.totals(method.weights(), self.problem.pass_request)

    def weights(self) -> Floats:
        """(coordinates, columns) at the end of the last epoch."""
        return self._method.weights()

    def objectives(self) -> Floats:
        """(configurations,): Σ_j f_j + αψ at these weights."""
        losses = self.problem.by_configuration(self._anchor.loss_sum)
        return np.asarray(losses + self.problem.penalties(self.problem.split(self.weights())[0]))

    @property
    def diverged(self) -> NDArray[np.int64]:
        """A configuration's round (from 1) in which it diverged, or 0."""
        return self.problem.diverged(self._method.diverged)


class CoordinateEpochs:
    """cao-rcd in this process."""

    def __init__(self, problem: EpochProblem, data: ColumnMajor, seed: int, weights: Floats | None = None) -> None:
        self.problem = problem
        self._coordinates = Coordinates(
            data,
            problem.configurations,
            loss=problem.loss,
            penalty=problem.penalty,
            positive=problem.positive,
            seed=seed,
            weights=weights,
            intercept=problem.intercept,
        )

    def play(self) -> None:
        """One epoch."""
        self._coordinates.play()

    def weights(self) -> Floats:
        """(coordinates, columns) at the end of the last epoch."""
        return self._coordinates.weights()

    def objectives(self) -> Floats:
        """(configurations,): Σ_j f_j + α‖x‖₁ at these weights."""
        losses = self.problem.by_configuration(self._coordinates.losses())
        return np.asarray(losses + self.problem.penalties(self.problem.split(self.weights())[0]))

    @property
    def diverged(self) -> NDArray[np.int64]:
        """(configurations,) zeros: weights are bounded."""
        return np.zeros(len(self.problem.configurations), np.int64)


def fit_epochs(
    X: Any,
    y: Any,
    *,
    algorithm: str = "caos-erm",
    loss: str = "logistic",
    penalty: str = "l1",
    grid: Grid | None = None,
    epochs: int = 5,
    seed: int = 0,
    n_classes: int | None = 2,
    sample_weight: Any = None,
    fit_intercept: bool = False,
) -> Fit:
    """Minimise Σ_j f_j(x) + αψ(x) over the rows of a SciPy sparse matrix by an epoch method.

    Equal arguments give equal bits, whatever else is in the grid.

    Parameters
    ----------
    X : (rows, n_features) sparse matrix
    y : (rows,) array
        Class indices (or −1 and +1 for two classes); numbers for regression. More than two classes are one-vs-rest.
    algorithm : {"caos-erm", "cao-rcd"}
    loss, penalty : str
        As in `Learner`; the method must be defined for them.
    grid : dict or list of dict, optional
        As in `Learner`.
    epochs : int
    seed : int
        Seed of the draws.
    n_classes : int or None
        None for regression.
    sample_weight : (rows,) array, optional
        Factors ≥ 0 of the losses f_j, 1 by default. The bounds by which examples or features are drawn follow them.
    fit_intercept : bool
        Learn an intercept: the weight of one more feature, 1 in every row, which the penalty leaves out. Like every
        weight it stays within the box, |b| ≤ R.

    Returns
    -------
    Fit
        Weights in float64, and the objective after every epoch.

    Raises
    ------
    InputError
        An argument is unknown, invalid or does not fit the others.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> X = csr_matrix([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 2.0]])
    >>> fit = fit_epochs(X, np.array([1, 0, 1, 0]), grid={"alpha": 0.5}, epochs=20)
    >>> fit.weights.shape, bool(fit.objective[-1, 0] < 4 * np.log(2))
    ((2, 1), True)
    """
    if isinstance(epochs, bool) or int(epochs) != epochs or epochs < 1:
        raise InputError(f"epochs={epochs!r} must be a whole number of at least 1.", code="invalid-option")
    if isinstance(seed, bool) or int(seed) != seed or not 0 <= seed < 2**63:
        raise InputError(f"seed={seed!r} must be a whole number from 0 to 2**63 − 1.", code="invalid-option")
    n_features = X.shape[1] if getattr(X, "ndim", 0) == 2 else 0
    matrix = checked_rows(X, n_features, np.dtype(np.float64))
    labels = checked_labels(y, matrix.shape[0], n_classes)
    weights = checked_sample_weights(sample_weight, matrix.shape[0])
    problem = EpochProblem.of(algorithm, loss, penalty, grid, n_classes, n_features, intercept=fit_intercept)
    size = len(problem.configurations)
    fit = Fit(
        list(problem.configurations),
        np.empty((n_features, size * problem.outputs)),
        np.empty((epochs, size)),
        np.zeros(size, np.int64),
        np.zeros((size, problem.outputs)),
    )
    for members, part in problem.groups():
        method: SampledEpochs | CoordinateEpochs
        if part.algorithm.samples_features:
            method = CoordinateEpochs(part, column_major(matrix, labels, intercept=fit_intercept), seed, weights)
        else:
            method = SampledEpochs(part, LocalPasses.of(matrix, labels, weights=weights, intercept=fit_intercept), seed)
        for epoch in range(epochs):
            method.play()
            fit.objective[epoch, members] = method.objectives()
        columns = np.add.outer(np.array(members) * problem.outputs, np.arange(problem.outputs)).ravel()
        fit.weights[:, columns], fit.intercepts[members] = part.split(method.weights())
        fit.diverged[members] = method.diverged
    return fit
