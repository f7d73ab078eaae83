"""Coordinate descent of cao-rcd in this process, and its draws."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.coordinate import (
    INIT_MARGINS,
    LINE,
    PREDICTIONS,
    TERMS,
    WEIGHTS,
    ColumnParams,
    CoordinateState,
    Sampling,
    fill_basis,
    play_kernel,
)
from sparseoco.kernels.epoch import DRAW
from sparseoco.kernels.full_pass import block_weights, coordinate_bounds, loss_kernels, max_abs_scales, row_norms
from sparseoco.kernels.order import epoch_rows
from sparseoco.learners.cao_rcd import lipschitz, slope_bounds
from sparseoco.learners.losses import Loss
from sparseoco.learners.penalties import PENALTIES, Penalty, find_penalty
from sparseoco.offline.passes import CHUNK_NONZEROS, ColumnMajor, for_features

# ----------------------------------------------------------------------------------------------------------------------
# How cao-rcd draws blocks of coordinates: ranges R_i, gradient bounds L_i and probabilities (Corollaries 4 and 5).


DRAWS_PART = 2**32  # part number of the draws; larger than the number of parts of caos-erm


class Draws:
    """The blocks of a configuration and their probabilities.

    Parameters
    ----------
    data : ColumnMajor
    weights : (rows,) float64
        Sample weights; rows of weight 0 are not in F.
    configuration : dict
    loss : Loss
    regression : bool
        Whether labels are numbers y_j; otherwise |y_j| = 1.
    seed : int
    release : callable
        As `Coordinates`.

    Attributes
    ----------
    scale : (features,) float64
        R_i/R.
    sampling : Sampling
    nonzeros : float
        Expected number of nonzeros of a drawn block.
    """

    def __init__(
        self,
        data: ColumnMajor,
        weights: NDArray[Any],
        configuration: Mapping[str, Any],
        loss: Loss,
        *,
        regression: bool,
        seed: int,
        release: Callable[[], None],
    ) -> None:
        n, batch = data.n_features, min(int(configuration["batch"]), data.n_features)
        norms, L, self.scale = np.zeros(data.n_rows), np.zeros(n), np.ones(n)
        if configuration["scale"] == "max_abs":
            for_features(data, release, max_abs_scales, data, weights, self.scale)
        if not lipschitz(loss):
            for_features(data, release, row_norms, data, self.scale, norms)
        sizes = np.where(regression, np.abs(data.labels), 1.0)
        bounds = weights * slope_bounds(loss, norms, sizes, configuration["R"])
        for_features(data, release, coordinate_bounds, data, bounds, L)
        order = epoch_rows(seed, 0, configuration["partition"] == "random", n, 0, n, -1, 1)
        block = np.zeros(-(-n // batch))
        block_weights(L[order], self.scale[order], batch, block)
        if configuration["sample"] == "uniform":
            block = (block > 0.0).astype(np.float64)
        self._seed, self._all_nonzeros, self._cumulative = seed, int(data.indptr[-1]), np.cumsum(block)
        total = self._cumulative[-1]
        self.sampling = Sampling(L, block / total if total > 0.0 else block, order, batch)
        sizes = np.add.reduceat(np.diff(data.indptr)[order], np.arange(0, n, batch))
        self.nonzeros = math.fsum(self.sampling.chances * sizes)

    def rounds(self, wanted: Any) -> int:
        """Rounds per epoch: as configured, or as many as are expected to read every nonzero once.

        0 if there is nothing to draw.
        """
        if self._cumulative[-1] == 0.0:
            return 0
        if wanted != "pass":
            return int(wanted)
        return max(1, round(self._all_nonzeros / self.nonzeros))

    def draw(self, epoch: int, first: int, count: int) -> NDArray[np.int64]:
        """The blocks of rounds first, first + 1, … of an epoch."""
        return np.asarray(DRAW(self._cumulative, self._seed, epoch, DRAWS_PART, first, count))


# ----------------------------------------------------------------------------------------------------------------------
# cao-rcd over data stored by columns: configurations that share the draws of their coordinates, epoch by epoch.
#
# An epoch computes margins from the weights and plays its rounds. The next epoch needs only the state of the
# coordinates and the number of rounds, so a run resumes with the same bits. Bits do not depend on which columns are
# trained together.


Floats = NDArray[np.float64]

CHUNK_ROWS = 4096
SHARED = ("rounds", "batch", "partition", "predict_gradient", "sample", "scale")
"""Parameters of which all configurations of a block have the same values."""


class Coordinates:
    """Configurations of cao-rcd over one matrix, each with as many adjacent columns as `positive` has.

    Weights are bounded, so no column can diverge.

    Parameters
    ----------
    data : ColumnMajor
    configurations : sequence of dict
        All parameters of each configuration, as `Algorithm.configuration` returns them.
    loss : Loss
    penalty : Penalty, default l1
    positive : sequence of int
        The class with y = +1 of each column of a configuration; −1: y is the label.
    seed : int
    weights : (rows,) array of numbers or booleans, optional
        Sample weights ω_j ≥ 0, 1 by default; F is the sum over the examples whose weight is not 0.
    release : callable, optional
        Called every few million nonzeros, to release pages of memory-mapped data.
    intercept : bool
        Whether the last feature is the intercept, 1 in every row, which has no penalty.
    """

    def __init__(
        self,
        data: ColumnMajor,
        configurations: Sequence[Mapping[str, Any]],
        *,
        loss: Loss,
        penalty: Penalty = PENALTIES["l1"],
        positive: Sequence[int],
        seed: int,
        weights: NDArray[Any] | None = None,
        release: Callable[[], None] = lambda: None,
        intercept: bool = False,
    ) -> None:
        self.configurations = list(configurations)
        self.outputs = len(positive)
        self.epoch = 0
        labels = np.asarray(data.labels, np.float64)
        self.data = ColumnMajor._make(map(np.ascontiguousarray, (*data[:3], labels)))
        self.weights_of_rows = np.ones(data.n_rows) if weights is None else np.ascontiguousarray(weights, np.float64)
        # Configurations of a block share their draws, which depend on R if slopes are bounded only in the box.
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, configuration in enumerate(self.configurations):
            own = [configuration[name] for name in SHARED]
            radius = 0.0 if lipschitz(loss) else configuration["R"]
            groups.setdefault((*own, radius), []).append(i)
        classes = np.array(positive, np.int64)
        self._blocks = [
            (
                members,
                _Block(
                    self.data,
                    self.weights_of_rows,
                    [self.configurations[i] for i in members],
                    loss,
                    penalty,
                    classes,
                    seed,
                    release,
                    data.n_features - intercept,
                ),
            )
            for members in groups.values()
        ]

    def play(self, report: Callable[[float], None] = lambda fraction: None) -> None:
        """Play one epoch; `report` is called with the fraction done."""
        total = sum(block.rounds for _, block in self._blocks)
        before = 0
        for _, block in self._blocks:
            for done in block.play(self.epoch + 1):
                report((before + done) / max(total, 1))
            before += block.rounds
        self.epoch += 1

    def weights(self) -> Floats:
        """(features, columns): the weights of the next round, without predictions."""
        return self._columns(lambda block: block.weights())

    def margins(self) -> Floats:
        """(rows, columns): margins of these weights, including held-out rows."""
        return self._columns(lambda block: block.margins())

    def losses(self) -> Floats:
        """(columns,): Σ_j f_j, in the order of the examples."""
        return self._columns(lambda block: block.losses())

    @property
    def rounds(self) -> list[int]:
        """Rounds per epoch, by configuration."""
        return [self._block(i).rounds for i in range(len(self.configurations))]

    def bounds(self, configuration: int) -> Floats:
        """L (features,), the gradient bounds of a configuration."""
        return np.asarray(self._block(configuration).draws.sampling.L)

    def ranges(self, configuration: int) -> Floats:
        """R_i (features,), the bounds of the weights of a configuration."""
        return np.asarray(float(self.configurations[configuration]["R"]) * self._block(configuration).draws.scale)

    def order(self, configuration: int) -> NDArray[np.int64]:
        """(features,): a permutation; each run of `batch` features is a block of a configuration."""
        return np.asarray(self._block(configuration).draws.sampling.order)

    def chances(self, configuration: int) -> Floats:
        """p (blocks,), the probabilities of a configuration."""
        return np.asarray(self._block(configuration).draws.sampling.chances)

    @property
    def examples(self) -> list[int]:
        """Examples read per epoch, by configuration: those in F for the margins, and the rounds' expected nonzeros
        converted to examples."""
        n, blocks = (
            int(np.count_nonzero(self.weights_of_rows)),
            [self._block(i) for i in range(len(self.configurations))],
        )
        return [round(n * (1.0 + b.rounds * b.draws.nonzeros / max(1, int(self.data.indptr[-1])))) for b in blocks]

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to checkpoint, by name, not copied. With the number of epochs they determine the next epoch."""
        return {f"{i}": block.slots for i, (_, block) in enumerate(self._blocks)}

    def resume(self, epoch: int) -> None:
        """Continue after `epoch` epochs, whose state has been copied into the arrays of `state`."""
        self.epoch = epoch
        for _, block in self._blocks:
            block.resume(epoch)

    def _block(self, configuration: int) -> "_Block":
        return next(block for members, block in self._blocks if configuration in members)

    def _columns(self, values: Callable[["_Block"], Floats]) -> Floats:
        """The blocks' values, with all columns in the last axis."""
        parts = [values(block) for _, block in self._blocks]
        out = np.empty((*parts[0].shape[:-1], len(self.configurations) * self.outputs))
        for (members, _), part in zip(self._blocks, parts, strict=True):
            out[..., np.add.outer(np.array(members) * self.outputs, np.arange(self.outputs)).ravel()] = part
        return out


class _Ratio(NamedTuple):
    """The parameter ρ, as `penalties.PenaltyFunctions.split` reads it."""

    l1_ratio: float


class _Block:
    """Configurations with the same draws, which one call of the kernel trains."""

    def __init__(
        self,
        data: ColumnMajor,
        weights: NDArray[Any],
        configurations: list[Mapping[str, Any]],
        loss: Loss,
        penalty: Penalty,
        positive: NDArray[np.int64],
        seed: int,
        release: Callable[[], None],
        penalised: int,
    ) -> None:
        self.data, self.weights_of_rows, self.loss, self._release = data, weights, loss, release
        first = configurations[0]
        R = np.repeat([float(c["R"]) for c in configurations], positive.size)
        split = [_penalty_weights(penalty, c) for c in configurations]
        l1, ridge = np.repeat(np.array(split, np.float64), positive.size, axis=0).T.copy()
        regression = bool(np.any(positive < 0))
        self.draws = Draws(data, weights, first, loss, regression=regression, seed=seed, release=release)
        self._columns = ColumnParams(np.tile(positive, len(configurations)), R, l1, ridge, self.draws.scale, penalised)
        self._decaying = penalty.decaying
        self.rounds = self.draws.rounds(first["rounds"])
        prediction, basis = first["predict_gradient"], _basis_size(penalty)
        self._play, self._prediction = play_kernel(loss, basis), PREDICTIONS.index(prediction)
        columns = self._columns.positive.size
        n, integers = data.n_features, _integers(max(data.n_features, self.rounds))
        self.t = 0
        self._state = CoordinateState(
            np.zeros((n, 3 if prediction == "last" else 2, columns)),
            np.empty((n, basis, columns)),
            np.empty((n, 3, columns), integers),
            np.empty((self.rounds, columns), integers),
            np.empty((data.n_rows, basis, columns)),
        )
        self._origin = 0  # the round whose margins are in the state, or 0

    @property
    def slots(self) -> Floats:
        """(features, slots, columns)."""
        return self._state.slots  # type: ignore[no-any-return]

    def play(self, epoch: int) -> Iterator[int]:
        """Play one epoch; yields the number of rounds done, every few million nonzeros."""
        chunk = int(CHUNK_NONZEROS / max(1.0, self.draws.nonzeros)) + 1
        start = 0
        while start < self.rounds:
            origin = self.t + start + 1
            self._init_margins(origin)
            # The series of a ridge converge from round `origin` to 2·`origin`.
            stop = min(self.rounds, start + origin + 1) if self._decaying else self.rounds
            for first in range(start, stop, chunk):
                count = min(chunk, stop - first)
                self._origin = 0
                drawn = self.draws.draw(epoch, first, count)
                rounds = self._prediction, drawn, float(origin), first - start
                self._play(self.data, self.weights_of_rows, self._columns, self.draws.sampling, *rounds, self._state)
                self._release()
                yield first + count
            start = stop
        self.t += self.rounds

    def weights(self) -> Floats:
        """See `Coordinates.weights`."""
        out = np.empty((self.data.n_features, self._columns.positive.size))
        WEIGHTS(self.t + 1.0, self._columns, self._state.slots, out)
        return out

    def margins(self) -> Floats:
        """See `Coordinates.margins`."""
        self._init_margins(self.t + 1)
        return self._margins(slice(None))

    def losses(self) -> Floats:
        """See `Coordinates.losses`."""
        self._init_margins(self.t + 1)
        loss_sum = np.zeros(self._columns.positive.size)
        for start in range(0, self.data.n_rows, CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            weights = self.weights_of_rows[part]
            z, labels = self._margins(part)[weights > 0], self.data.labels[part][weights > 0]
            loss_kernels(self.loss).respond(
                z, labels, weights[weights > 0], self._columns.positive, np.empty_like(z), loss_sum
            )
        return loss_sum

    def resume(self, epochs: int) -> None:
        """See `Coordinates.resume`."""
        self.t, self._origin = epochs * self.rounds, 0

    def _margins(self, rows: slice) -> Floats:
        """(rows, columns): margins in the first round of a stretch."""
        basis = np.empty(self._state.margins.shape[1])
        fill_basis(0, float(self._origin), basis)
        return np.asarray(np.einsum("p,mpc->mc", basis, self._state.margins[rows]))

    def _init_margins(self, origin: int) -> None:
        """Initialise margins, lines and calendar for a stretch of rounds that starts with `origin`."""
        if self._origin == origin:
            return
        self._state.lines[...], self._state.margins[...] = 0.0, 0.0
        self._state.links[...], self._state.head[...] = -1, -1
        for_features(self.data, self._release, INIT_MARGINS, float(origin), self.data, self._columns, self._state)
        self._origin = origin


def _penalty_weights(penalty: Penalty, configuration: Mapping[str, Any]) -> tuple[float, float]:
    """αρ and α(1 − ρ); both are 0 for a box, which is that of all configurations."""
    if penalty.bounded:
        return 0.0, 0.0
    ratio = _Ratio(configuration.get("l1_ratio", 0.0))
    return penalty.maps.split(float(configuration["alpha"]), ratio)  # type: ignore[no-any-return]


def _basis_size(penalty: Penalty) -> int:
    return TERMS if penalty.decaying else LINE


def bytes_needed(n_rows: int, n_features: int, columns: int, rounds: Any = "pass", penalty: str = "l1") -> int:
    """Bytes of memory of `Coordinates`, without the data, for `rounds` rounds per epoch.

    State, lines, weights and links per feature, heads of the calendar per round, margins per row. For a pass, rounds
    are estimated as the number of features: features drawn more often have more nonzeros than others.
    """
    n_rounds = n_features if rounds == "pass" else int(rounds)
    integer = _integers(max(n_features, n_rounds))().itemsize
    basis = _basis_size(find_penalty(penalty))
    return columns * (n_features * (8 * (3 + basis + 1) + 3 * integer) + n_rounds * integer + 8 * basis * n_rows)


def _integers(largest: int) -> type[np.int32] | type[np.int64]:
    """The smallest integer type that can hold it."""
    return np.int32 if largest < 2**31 else np.int64
