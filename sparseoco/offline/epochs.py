"""Epoch methods: problem, epochs in this process."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.kernels import coordinate
from sparseoco.kernels.columns import MEASURE, block_weights, coordinate_bounds, loss_kernels, max_abs_scales, row_norms
from sparseoco.kernels.epoch import WEIGHTS, EpochColumns, column_parameters, draw
from sparseoco.kernels.order import epoch_rows
from sparseoco.learners import find_algorithm
from sparseoco.learners.cao_rcd import lipschitz, slope_bounds
from sparseoco.learners.caos_erm import adaptive_chances
from sparseoco.learners.contract import Algorithm, Grid
from sparseoco.learners.losses import Loss, find_loss
from sparseoco.learners.optimistic_averaging import averaged, played, weight_sum
from sparseoco.learners.penalties import Penalty, find_penalty, penalty_values
from sparseoco.offline import passes as full_passes
from sparseoco.offline.passes import ColumnMajor, Floats, LocalPasses, PassRequest, PassResult, RowSource, SpanRows
from sparseoco.training import validation

# ----------------------------------------------------------------------------------------------------------------------
# The problem of an epoch method: configurations, loss, penalty, and the columns they train.


def shared_values(algorithm: Algorithm, loss: Loss, configuration: Mapping[str, Any]) -> tuple[Any, ...]:
    """What configurations must have in common to be trained together: what is compiled, and the draws of features.

    These depend on R if slopes are bounded only in the box, and on every parameter if they follow its iterates.
    """
    in_box = algorithm.samples_features and not lipschitz(loss)
    own = tuple(configuration.values()) if configuration.get("sample") == "adaptive" else ()
    return *algorithm.static_values(configuration), configuration["R"] if in_box else 0.0, *own


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
        cls, algorithm: str, loss: str, penalty: str, grid: Grid | None, n_classes: int | None, n_features: int
    ) -> "EpochProblem":
        """A checked problem without an intercept. Raises `InputError` for unknown names, unsupported combinations."""
        loss_, penalty_ = find_loss(loss), find_penalty(penalty)
        definition = find_algorithm(algorithm).under(penalty_)
        if definition.online:
            raise InputError(f"{algorithm} learns from a stream: use sparseoco.Learner.", code="unsupported-algorithm")
        outputs, response = validation.output_shape(loss_, n_classes)
        positive = {"regression": (-1,), "binary": (1,)}.get(response, tuple(range(outputs)))
        configurations = tuple(definition.expand(grid))
        for configuration in configurations:
            definition.rule(loss_, penalty_, configuration)  # raises for unsupported combinations
        return cls(definition, loss_, penalty_, configurations, positive, n_features)

    @property
    def outputs(self) -> int:
        """Columns per configuration."""
        return len(self.positive)

    @property
    def columns(self) -> int:
        """Columns of the weights of all configurations."""
        return len(self.configurations) * self.outputs

    @property
    def coordinates(self) -> int:
        """Features, including the intercept."""
        return self.n_features + self.intercept

    def split(self, weights: Floats) -> tuple[Floats, Floats]:
        """(weights (n_features, columns), intercepts (configurations, outputs)) of (coordinates, columns)."""
        features, shape = weights[: self.n_features], (len(self.configurations), self.outputs)
        return features, weights[-1].reshape(shape) if self.intercept else np.zeros(shape)

    @property
    def pass_request(self) -> PassRequest:
        """The request of a full pass."""
        return PassRequest(self.loss.name, self.positive * len(self.configurations))

    def groups(self) -> list[tuple[list[int], "EpochProblem"]]:
        """Groups of configurations that share their rounds: their indices, and a problem of that group."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, configuration in enumerate(self.configurations):
            groups.setdefault(shared_values(self.algorithm, self.loss, configuration), []).append(i)
        return [
            (members, self._replace(configurations=tuple(self.configurations[i] for i in members)))
            for members in groups.values()
        ]

    def columns_of(self, members: list[int]) -> NDArray[np.int64]:
        """The columns of these configurations."""
        return np.asarray(np.add.outer(np.array(members) * self.outputs, np.arange(self.outputs)).ravel())

    def sampled(self) -> EpochColumns:
        """The state of caos-erm before the first round, for configurations that share their rounds."""
        assert len(self.groups()) == 1
        columns = self.loss, self.penalty, self.configurations, self.positive
        return EpochColumns(*columns, self.coordinates, self.intercept)

    def averaged(self) -> "AveragedColumns":
        """The state of optimistic-averaging before the first round."""
        columns = self.loss, self.penalty, self.configurations, self.positive
        return AveragedColumns(*columns, self.coordinates, self.intercept)

    def penalties(self, weights: Floats) -> Floats:
        """(configurations,): αψ of weights (n_features, columns)."""
        size = len(self.configurations)
        absolute, squares, norms = np.zeros(self.columns), np.zeros(self.columns), np.zeros(size)
        MEASURE(weights, absolute, squares, norms)
        ratio = np.repeat([c.get("l1_ratio", 0.0) for c in self.configurations], self.outputs)
        alpha = np.array([c.get("alpha", 0.0) for c in self.configurations])  # a box has none
        values = penalty_values(self.penalty, absolute, squares, norms, ratio)
        return np.asarray(alpha * self.by_configuration(values))

    def objectives(self, losses: Floats, weights: Floats) -> Floats:
        """(configurations,): Σ_j f_j + αψ, from the losses (columns,) at weights (coordinates, columns)."""
        return np.asarray(self.by_configuration(losses) + self.penalties(self.split(weights)[0]))

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
# `parts` whose states are averaged. One of optimistic-averaging is a full pass. An epoch of cao-rcd computes margins,
# followed by rounds over features. `sparseoco.offline.cluster.epochs` gives the same bits on a cluster.


CHUNK_EXAMPLES = 4096  # read from a source at a time


class Blocks(NamedTuple):
    """The mini-batches of a span: `batch` examples each, drawn with probability proportional to weight."""

    weights: Floats
    """Σ_{j∈Π} L_j of every mini-batch; with equal probabilities 1, or 0 if that sum is 0."""
    batch: int
    order: NDArray[np.int64]
    """The positions of the span's examples, mini-batch after mini-batch."""
    largest: Floats | None
    """max_i |a_{j,i}| of every example if probabilities follow the slopes of the epoch's pass."""

    @classmethod
    def of(cls, sizes: Floats, configuration: Mapping[str, Any], seed: int) -> "Blocks":
        """The mini-batches of examples with the `row_sizes` of the span, for `batch`, `partition`, `sample`."""
        batch, n, sample = configuration["batch"], len(sizes), configuration["sample"]
        order = epoch_rows(seed, 0, configuration["partition"] == "random", n, 0, n, -1, 1)
        weights = np.add.reduceat(sizes[order, 0], np.arange(0, n, batch)) if n else sizes[:, 0]
        if sample == "uniform":
            weights = (weights > 0.0).astype(np.float64)
        return cls(weights, batch, order, sizes[:, 1] if sample == "adaptive" else None)

    def weights_of(self, owned: NDArray[np.int64], slopes: Callable[[NDArray[np.int64]], Floats]) -> Floats:
        """The weights that an epoch draws these mini-batches by, from the slopes of its pass if they follow them."""
        if self.largest is None:
            return self.weights[owned]
        positions, edges = self.positions(owned)
        seen = np.linalg.norm(slopes(positions), axis=1) * self.largest[positions]
        return np.asarray(adaptive_chances(self.weights[owned], np.add.reduceat(seen, edges[:-1])))

    def positions(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(positions of the examples of these mini-batches, concatenated; offsets of the mini-batches in them)."""
        starts = places * self.batch
        edges = np.concatenate([[0], np.cumsum(np.minimum(self.batch, self.order.size - starts))])
        return self.order[joined(starts, edges)], edges

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
        parts = len(owned)
        return [Share(p, *run, each, total * parts, parts) for p, (run, total) in enumerate(owned)]


def joined(starts: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Runs of consecutive numbers from these starts, one after the other, at these offsets."""
    return np.asarray(np.repeat(starts - edges[:-1], np.diff(edges)) + np.arange(edges[-1]))


class Share(NamedTuple):
    """Rounds of an epoch that one worker plays, over some of the mini-batches."""

    part: int
    first: int
    stop: int
    step: int
    """The mini-batches are range(first, stop, step)."""
    rounds: int
    scale: float
    """1/p of a mini-batch times its weight in `Blocks.weights`."""
    parts: int
    """Shares of the epoch."""


def row_sizes(examples: SpanRows, start: int, stop: int) -> Floats:
    """(examples, 2): L_j = ω_j·max_i |a_{j,i}| and max_i |a_{j,i}| of the examples at positions start..stop of a span,
    with sample weights ω_j."""
    sizes = [np.zeros((0, 2))]
    for rows in examples.chunks(start, stop):
        largest = np.zeros(len(rows.labels))
        owner = np.repeat(np.arange(largest.size), np.diff(rows.indptr))
        np.maximum.at(largest, owner, np.abs(rows.values.astype(np.float64)))
        sizes.append(np.stack([full_passes.row_weights(rows) * largest, largest], axis=1))
    return np.concatenate(sizes)


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

    def mean(self, count: int) -> "State":
        """The mean of `count` states, of which this is the sum."""
        return self._replace(state=self.state / count)


class Rounds(NamedTuple):
    """The rounds of an epoch: their examples and mini-batches, what the full pass found, and what they are drawn by."""

    source: RowSource
    rows: NDArray[np.int64]
    """The row numbers at the span's positions."""
    slopes: Callable[[NDArray[np.int64]], Floats]
    """Returns those of the pass, (positions, columns)."""
    gradient: Floats | None
    """That of the pass if it corrects estimates."""
    blocks: Blocks
    seed: int
    epoch: int


Check = Callable[[], None]
"""Called every few thousand examples."""


def play_rounds(method: EpochColumns, rounds: Rounds, share: Share, check: Check = lambda: None) -> State:
    """Play a share of an epoch's rounds."""
    source, rows, slopes, gradient, blocks, seed, epoch = rounds
    method.start_run(gradient, share.parts)
    owned = np.arange(share.first, share.stop, share.step)
    weights = blocks.weights_of(owned, slopes)
    cumulative = np.cumsum(weights)
    scale = share.scale if blocks.largest is None else cumulative[-1] * share.parts
    if method.refreshes:
        own_positions, own_edges = blocks.positions(owned)
        table = np.array(slopes(own_positions))
    step = max(1, CHUNK_EXAMPLES // blocks.batch)
    for first in range(0, share.rounds, step):
        check()
        count = min(step, share.rounds - first)
        drawn = draw(cumulative, seed, epoch, share.part, first, count)
        positions, edges = blocks.positions(owned[drawn])
        batch = source.gather(rows[positions])
        batch = batch._replace(labels=np.asarray(batch.labels, np.float64))  # the type that kernels are compiled for
        anchor = (table, joined(own_edges[drawn], edges)) if method.refreshes else (slopes(positions), None)
        method.play(batch, edges, anchor[0], scale / weights[drawn], anchor[1])
    method.flush()
    return State(method.state, method.rounds, method.diverged)


class AveragedColumns(EpochColumns):
    """State of optimistic-averaging: Z, Δ, (t + 1)·g_t and x̄_{t+1}, (n_features, 4, columns), after t = `rounds`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.state = np.zeros((self.n_features, 4, self.diverged.size))

    def learn(self, gradient: Floats) -> None:
        """A round, given the gradient (n_features, columns) at `weights`."""
        Z, Delta, g_tilde, mean = self.state.swapaxes(0, 1)
        self.rounds += 1
        t = self.rounds
        self.diverged[(self.diverged == 0) & ~np.isfinite(gradient).all(axis=0)] = t
        with np.errstate(over="ignore", invalid="ignore"):  # in columns that diverged
            Z[...], Delta[...] = played(Z, Delta, t * gradient, g_tilde)
            g_tilde[...] = (t + 1) * gradient
            x = np.empty(mean.shape)  # x_{t+1}: as that of `EpochColumns` in a round with A_{t+1} times the penalty
            WEIGHTS(weight_sum(t + 1) - 1, self._params, self.state, x)
            mean[...] = averaged(mean, x, t + 1)

    def weights(self) -> Floats:
        """(n_features, columns): the mean x̄, the point of the next pass."""
        return self.state[:, 3].copy()


class PassEpochs:
    """A method in this process whose epochs begin with a full pass, for configurations that share their rounds."""

    def __init__(self, problem: EpochProblem, passes: LocalPasses, method: EpochColumns) -> None:
        self.problem, self._passes, self._method = problem, passes, method
        self._anchor: PassResult = passes.totals(method.weights(), problem.pass_request)

    def weights(self) -> Floats:
        """(coordinates, columns) at the end of the last epoch."""
        return self._method.weights()

    def losses(self) -> Floats:
        """(columns,): Σ_j f_j at these weights."""
        return self._anchor.loss_sum

    @property
    def diverged(self) -> NDArray[np.int64]:
        """(columns,): the round (from 1) in which it diverged, or 0."""
        return self._method.diverged

    def play(self) -> None:
        """One epoch, and the pass at its last weights."""
        self._learn()
        self._anchor = self._passes.totals(self._method.weights(), self.problem.pass_request)

    def _learn(self) -> None:
        """The rounds of an epoch."""
        raise NotImplementedError


class AveragedEpochs(PassEpochs):
    """optimistic-averaging in this process."""

    def __init__(self, problem: EpochProblem, passes: LocalPasses) -> None:
        self._columns = problem.averaged()
        super().__init__(problem, passes, self._columns)

    def _learn(self) -> None:
        self._columns.learn(self._anchor.gradient)


class SampledEpochs(PassEpochs):
    """caos-erm in this process, for configurations that share their rounds (see `EpochProblem.groups`)."""

    def __init__(self, problem: EpochProblem, passes: LocalPasses, seed: int) -> None:
        super().__init__(problem, passes, problem.sampled())
        self.seed, self.epoch = seed, 0
        source, span = passes.source, passes.span
        self._rows = span.rows(source.n_rows, span.start, span.stop)
        sizes = row_sizes(SpanRows(source, span), span.start, span.stop)
        self._blocks = Blocks.of(sizes, problem.configurations[0], seed)

    def _learn(self) -> None:
        configuration, method = self.problem.configurations[0], self._method
        slopes = self._passes.slopes(self._anchor)
        gradient = self._anchor.gradient if configuration["estimate"] == "corrected" else None
        before = State(method.state, method.rounds, method.diverged)
        shares = self._blocks.shares(configuration)
        self.epoch += 1
        played = self._passes.source, self._rows, slopes.__getitem__, gradient, self._blocks, self.seed, self.epoch
        rounds = Rounds(*played)

        def part(i: int) -> State:
            method.state, method.rounds, method.diverged = before.state.copy(), before.rounds, before.diverged.copy()
            return play_rounds(method, rounds, shares[i])

        if shares:
            total = full_passes.tree_sum(part, 0, len(shares))
            method.state, method.rounds, method.diverged = total.mean(len(shares))


# ----------------------------------------------------------------------------------------------------------------------
# How cao-rcd draws blocks of coordinates: ranges R_i, gradient bounds L_i and probabilities (Corollaries 4 and 5).


DRAWS_PART = 2**32  # part number of the draws; larger than the number of parts of caos-erm


@dataclass(eq=False, repr=False)
class Draws:
    """The blocks of configurations with the same draws, and their probabilities.

    Attributes
    ----------
    scale : (features,) float64
        R_i/R.
    sampling : Sampling
    nonzeros : float
        Expected number of nonzeros of a drawn block.
    """

    problem: EpochProblem
    data: ColumnMajor
    seed: int
    weights: Floats
    """Rows of weight 0 are not in F."""
    release: Callable[[], None]

    def __post_init__(self) -> None:
        problem, data, weights, release = self.problem, self.data, self.weights, self.release
        configuration, loss = problem.configurations[0], problem.loss
        n, batch = data.n_features, min(int(configuration["batch"]), data.n_features)
        norms, L, self.scale = np.zeros(data.n_rows), np.zeros(n), np.ones(n)
        if configuration["scale"] == "max_abs":
            full_passes.for_features(data, release, max_abs_scales, data, weights, self.scale)
        if not lipschitz(loss):
            full_passes.for_features(data, release, row_norms, data, self.scale, norms)
        sizes = np.abs(data.labels) if problem.positive[0] < 0 else np.ones(data.n_rows)
        bounds = weights * slope_bounds(loss, norms, sizes, configuration["R"])
        full_passes.for_features(data, release, coordinate_bounds, data, bounds, L)
        order = epoch_rows(self.seed, 0, configuration["partition"] == "random", n, 0, n, -1, 1)
        block = block_weights(L[order], self.scale[order], batch)
        if configuration["sample"] == "uniform":
            block = (block > 0.0).astype(np.float64)
        self._all_nonzeros, self._cumulative = int(data.indptr[-1]), np.cumsum(block)
        self._rounds = configuration["rounds"]
        total = self._cumulative[-1]
        self.sampling = coordinate.Sampling(L, block / total if total > 0.0 else block, order, batch)
        sizes_of_blocks = np.add.reduceat(np.diff(data.indptr)[order], np.arange(0, n, batch))
        self.nonzeros = math.fsum(self.sampling.chances * sizes_of_blocks)

    @property
    def rounds(self) -> int:
        """Rounds per epoch: as configured, or as many as are expected to read every nonzero once.

        0 if there is nothing to draw.
        """
        if self._cumulative[-1] == 0.0:
            return 0
        if self._rounds != "pass":
            return int(self._rounds)
        return max(1, round(self._all_nonzeros / self.nonzeros))

    def draw(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """The blocks of rounds first, first + 1, … of an epoch."""
        return np.asarray(draw(self._cumulative, self.seed, epoch, DRAWS_PART, first, count))


# ----------------------------------------------------------------------------------------------------------------------
# cao-rcd over data stored by columns, for configurations that share the draws of their coordinates, epoch by epoch.
#
# An epoch computes margins from the weights and plays its rounds. The next epoch needs only the state of the
# coordinates and the number of rounds, so a run resumes with the same bits. Bits do not depend on which columns are
# trained together.


@dataclass(eq=False, repr=False)
class Coordinates:
    """cao-rcd over one matrix. Weights are bounded, so no column can diverge.

    Parameters
    ----------
    problem : EpochProblem
        Of configurations that share their draws (see `EpochProblem.groups`).
    data : ColumnMajor
        With the intercept, if the problem has one, as its last feature.
    seed : int
    weights_of_rows : (rows,) array of numbers or booleans, optional
        Sample weights ω_j ≥ 0, 1 by default; F is the sum over the examples whose weight is not 0.
    release : callable, optional
        Called every few million nonzeros, to release pages of memory-mapped data.

    Attributes
    ----------
    state : (features, slots, columns) float64
        With the number of epochs it determines the next epoch.
    epoch : int
        Epochs played; set it, and fill `state`, to resume.
    draws : Draws
    """

    problem: EpochProblem
    data: ColumnMajor
    seed: int
    weights_of_rows: Any = None
    release: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        problem, data, weights = self.problem, self.data, self.weights_of_rows
        assert len(problem.groups()) == 1
        self.epoch, self.diverged = 0, np.zeros(problem.columns, np.int64)
        labels = np.asarray(data.labels, np.float64)
        self.data = ColumnMajor._make(map(np.ascontiguousarray, (*data[:3], labels)))
        self.weights_of_rows = np.ones(data.n_rows) if weights is None else np.ascontiguousarray(weights, np.float64)
        self.draws = Draws(problem, self.data, self.seed, self.weights_of_rows, self.release)
        configurations, penalty, positive = problem.configurations, problem.penalty, np.array(problem.positive)
        R, l1, ridge = column_parameters(penalty, configurations, positive.size)
        classes = np.tile(positive, len(configurations))
        self._columns = coordinate.ColumnParams(classes, R, l1, ridge, self.draws.scale, problem.n_features)
        prediction = configurations[0]["predict_gradient"]
        basis = coordinate.TERMS if penalty.decaying else coordinate.LINE
        self._play = coordinate.play_kernel(problem.loss, basis)
        self._prediction = coordinate.PREDICTIONS.index(prediction)
        n, columns, rounds = data.n_features, classes.size, self.draws.rounds
        integers = np.int32 if max(n, rounds) < 2**31 else np.int64
        self.state = np.zeros((n, 3 if prediction == "last" else 2, columns))
        self._work = coordinate.CoordinateState(
            self.state,
            np.empty((n, basis, columns)),
            np.empty((n, 3, columns), integers),
            np.empty((rounds, columns), integers),
            np.empty((data.n_rows, basis, columns)),
        )
        self._origin = 0  # the round whose margins are in the state, or 0

    @property
    def ranges(self) -> Floats:
        """(features, configurations): R_i, the bounds of the weights."""
        return np.asarray(np.outer(self.draws.scale, [float(c["R"]) for c in self.problem.configurations]))

    @property
    def examples(self) -> int:
        """Examples read in the last epoch: those in F for the margins, and the rounds' expected nonzeros converted to
        examples."""
        n, nonzeros = int(np.count_nonzero(self.weights_of_rows)), max(1, int(self.data.indptr[-1]))
        return round(n * (1.0 + self.draws.rounds * self.draws.nonzeros / nonzeros))

    def play(self, check: Callable[[], None] = lambda: None) -> None:
        """Play one epoch; `check` is called every few million nonzeros."""
        rounds, before = self.draws.rounds, self._rounds_played
        chunk = int(full_passes.CHUNK_NONZEROS / max(1.0, self.draws.nonzeros)) + 1
        start = 0
        while start < rounds:
            origin = before + start + 1
            self._init_margins(origin)
            # The series of a ridge converge from round `origin` to 2·`origin`.
            stop = min(rounds, start + origin + 1) if self.problem.penalty.decaying else rounds
            for first in range(start, stop, chunk):
                count = min(chunk, stop - first)
                self._origin = 0
                drawn = self.draws.draw(self.epoch + 1, first, count)
                played = self._prediction, drawn, float(origin), first - start
                self._play(self.data, self.weights_of_rows, self._columns, self.draws.sampling, *played, self._work)
                self.release()
                check()
            start = stop
        self.epoch += 1

    def weights(self) -> Floats:
        """(features, columns): the weights of the next round, without predictions."""
        out = np.empty((self.data.n_features, self.problem.columns))
        coordinate.WEIGHTS(self._rounds_played + 1.0, self._columns, self.state, out)
        return out

    def margins(self) -> Floats:
        """(rows, columns): margins of these weights, including held-out rows."""
        self._init_margins(self._rounds_played + 1)
        return self._margins(slice(None))

    def losses(self) -> Floats:
        """(columns,): Σ_j f_j, in the order of the examples."""
        self._init_margins(self._rounds_played + 1)
        loss_sum = np.zeros(self.problem.columns)
        for start in range(0, self.data.n_rows, full_passes.CHUNK_ROWS):
            part = slice(start, start + full_passes.CHUNK_ROWS)
            weights = self.weights_of_rows[part]
            z, labels = self._margins(part)[weights > 0], self.data.labels[part][weights > 0]
            loss_kernels(self.problem.loss).respond(
                z, labels, weights[weights > 0], self._columns.positive, np.empty_like(z), loss_sum
            )
        return loss_sum

    @property
    def _rounds_played(self) -> int:
        return self.epoch * self.draws.rounds

    def _margins(self, rows: slice) -> Floats:
        """(rows, columns): margins in the first round of a stretch."""
        basis = np.empty(self._work.margins.shape[1])
        coordinate.fill_basis(0, float(self._origin), basis)
        return np.asarray(np.einsum("p,mpc->mc", basis, self._work.margins[rows]))

    def _init_margins(self, origin: int) -> None:
        """Initialise margins, lines and calendar for a stretch of rounds that starts with `origin`."""
        if self._origin == origin:
            return
        self._work.lines[...], self._work.margins[...] = 0.0, 0.0
        self._work.links[...], self._work.head[...] = -1, -1
        full_passes.for_features(
            self.data, self.release, coordinate.INIT_MARGINS, float(origin), self.data, self._columns, self._work
        )
        self._origin = origin


def bytes_needed(n_rows: int, n_features: int, columns: int, rounds: Any = "pass", penalty: str = "l1") -> int:
    """Bytes of memory of `Coordinates`, without the data, for `rounds` rounds per epoch.

    State, lines, weights and links per feature, heads of the calendar per round, margins per row. For a pass, rounds
    are estimated as the number of features: features drawn more often have more nonzeros than others.
    """
    n_rounds = n_features if rounds == "pass" else int(rounds)
    integer = 4 if max(n_features, n_rounds) < 2**31 else 8
    basis = coordinate.TERMS if find_penalty(penalty).decaying else coordinate.LINE
    return columns * (n_features * (8 * (3 + basis + 1) + 3 * integer) + n_rounds * integer + 8 * basis * n_rows)


# ----------------------------------------------------------------------------------------------------------------------
# The methods on a matrix.


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
    algorithm : {"caos-erm", "optimistic-averaging", "cao-rcd"}
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
    epochs = validation.check_integer("epochs", epochs)
    if isinstance(seed, bool) or int(seed) != seed or not 0 <= seed < 2**63:
        raise InputError(f"seed={seed!r} must be a whole number from 0 to 2**63 − 1.", code="invalid-option")
    n_features = X.shape[1] if getattr(X, "ndim", 0) == 2 else 0
    matrix = validation.checked_rows(X, n_features, np.dtype(np.float64))
    labels = validation.checked_labels(y, matrix.shape[0], n_classes)
    weights = validation.checked_sample_weights(sample_weight, matrix.shape[0])
    problem = EpochProblem.of(algorithm, loss, penalty, grid, n_classes, n_features)._replace(intercept=fit_intercept)
    size = len(problem.configurations)
    fit = Fit(
        list(problem.configurations),
        np.empty((n_features, size * problem.outputs)),
        np.empty((epochs, size)),
        np.zeros(size, np.int64),
        np.zeros((size, problem.outputs)),
    )
    for members, part in problem.groups():
        method: PassEpochs | Coordinates
        if part.algorithm.samples_features:
            method = Coordinates(part, full_passes.column_major(matrix, labels, intercept=fit_intercept), seed, weights)
        else:
            passes = LocalPasses.of(matrix, labels, weights, intercept=fit_intercept)
            sampled = part.algorithm.driver == "epoch"
            method = SampledEpochs(part, passes, seed) if sampled else AveragedEpochs(part, passes)
        for epoch in range(epochs):
            method.play()
            fit.objective[epoch, members] = part.objectives(method.losses(), method.weights())
        fit.weights[:, problem.columns_of(members)], fit.intercepts[members] = part.split(method.weights())
        fit.diverged[members] = part.diverged(method.diverged)
    return fit
