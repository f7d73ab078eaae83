"""cao-rcd over data by columns: configurations that share the draws of their coordinates, epoch by epoch.

An epoch begins with margins made afresh from the weights, plays its rounds, and leaves the state of every coordinate:
that and the number of rounds are all that the next one needs, so a run goes on from there with the same bits. Which
columns lie side by side changes none.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.kernels.coordinate import BEGIN, BLOCK_WEIGHTS, COORDINATE_BOUNDS, ROW_NORMS, WEIGHTS, play_for
from sparseoco.kernels.epoch import DRAW
from sparseoco.kernels.full_pass import loss_kernels
from sparseoco.learners.cao_rcd import lipschitz, slope_bounds
from sparseoco.learners.losses import Loss

Floats = NDArray[np.float64]

DRAWN_AS_PART = 2**32  # of the draws of an epoch: the epoch method's parts are never as many
CHUNK_NONZEROS = 1 << 22  # that are gone through before who plays is heard again
CHUNK_ROWS = 4096


class ColumnMajor(NamedTuple):
    """A matrix by columns, and the labels of its rows.

    indptr  (features + 1,) int64
    rows    (nonzeros,) int32 or int64, increasing within a column
    counts  (nonzeros,) any number type
    labels  (rows,) class indices, or numbers
    """

    indptr: NDArray[np.int64]
    rows: NDArray[Any]
    counts: NDArray[Any]
    labels: NDArray[Any]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.indptr.size - 1)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.labels.size)


def column_major(X: Any, y: NDArray[Any]) -> ColumnMajor:
    """A SciPy sparse matrix by columns, rows sorted."""
    csc = X.tocsc()
    csc.sort_indices()
    return ColumnMajor(csc.indptr.astype(np.int64), csc.indices, csc.data, y)


class Coordinates:
    """Configurations of cao-rcd over one matrix, each with as many adjacent columns as `positive` has.

    `positive` has the class that is y = +1 for each of them, or −1 where y is the label. `kept` (rows,) says which
    examples are in F; all are by default. Weights are bounded, so no column can diverge. `rest` is called after every
    few million nonzeros: memory-mapped data may be let go of then.
    """

    def __init__(
        self,
        data: ColumnMajor,
        configurations: Sequence[Mapping[str, Any]],
        *,
        loss: Loss,
        positive: Sequence[int],
        seed: int,
        kept: NDArray[np.bool_] | None = None,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        self.configurations = list(configurations)
        self.outputs = len(positive)
        self.epoch = 0
        labels = np.asarray(data.labels, np.float64)
        self.data = ColumnMajor._make(_read_only(array) for array in (*data[:3], labels))
        self.kept = _read_only(np.ones(data.n_rows, np.bool_) if kept is None else np.asarray(kept, np.bool_))
        # What is drawn, and what is compiled, is a block's own: bounds on the box are, for losses that need one.
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, configuration in enumerate(self.configurations):
            own = [configuration[name] for name in ("rounds", "batch", "predict", "sample")]
            radius = 0.0 if lipschitz(loss) else configuration["R"]
            groups.setdefault((*own, radius), []).append(i)
        self._blocks = [
            (
                members,
                _Block(
                    self.data,
                    self.kept,
                    [self.configurations[i] for i in members],
                    loss,
                    np.array(positive, np.int64),
                    seed,
                    rest,
                ),
            )
            for members in groups.values()
        ]

    def play(self, report: Callable[[float], None] = lambda share: None) -> None:
        """One epoch; `report` is told, now and then, what share of it is done."""
        total = sum(block.rounds for _, block in self._blocks)
        before = 0
        for _, block in self._blocks:
            for done in block.play(self.epoch + 1):
                report((before + done) / max(total, 1))
            before += block.rounds
        self.epoch += 1

    def weights(self) -> Floats:
        """(features, columns): the weights that the coming round would play if it drew none of them."""
        return self._columns(lambda block: block.weights())

    def margins(self) -> Floats:
        """(rows, columns) of these weights, held-out rows too."""
        return self._columns(lambda block: block.margins())

    def losses(self) -> Floats:
        """(columns,): Σ_j f_j over the examples that are kept, in their order."""
        return self._columns(lambda block: block.losses())

    @property
    def rounds(self) -> list[int]:
        """Rounds an epoch, by configuration."""
        return [self._block_of(i).rounds for i in range(len(self.configurations))]

    def bounds(self, configuration: int) -> Floats:
        """L (features,) that a configuration draws by."""
        return self._block_of(configuration).L

    def chances(self, configuration: int) -> Floats:
        """p (blocks,) that a configuration draws by."""
        return self._block_of(configuration).chances

    @property
    def examples(self) -> list[int]:
        """Examples an epoch goes through, by configuration: those in F for its margins, and in its rounds as many as
        the nonzeros they are expected to read come to."""
        n, blocks = int(self.kept.sum()), [self._block_of(i) for i in range(len(self.configurations))]
        return [round(n * (1.0 + b.rounds * b.nonzeros / max(1, int(self.data.indptr[-1])))) for b in blocks]

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays, by name, that with the number of epochs are all that the coming one needs; not copies."""
        return {f"{i}": block.state for i, (_, block) in enumerate(self._blocks)}

    def resume(self, epoch: int) -> None:
        """Go on after `epoch` epochs, whose state was put into the arrays of `state`."""
        self.epoch = epoch
        for _, block in self._blocks:
            block.resume(epoch)

    def _block_of(self, configuration: int) -> "_Block":
        return next(block for members, block in self._blocks if configuration in members)

    def _columns(self, values: Callable[["_Block"], Floats]) -> Floats:
        """Values by column in the last axis, each block's put in their places."""
        parts = [values(block) for _, block in self._blocks]
        out = np.empty((*parts[0].shape[:-1], len(self.configurations) * self.outputs))
        for (members, _), part in zip(self._blocks, parts, strict=True):
            out[..., np.add.outer(np.array(members) * self.outputs, np.arange(self.outputs)).ravel()] = part
        return out


class _Block:
    """Configurations with the same draws: one run of the compiled loop."""

    def __init__(
        self,
        data: ColumnMajor,
        kept: NDArray[np.bool_],
        configurations: list[Mapping[str, Any]],
        loss: Loss,
        positive: NDArray[np.int64],
        seed: int,
        rest: Callable[[], None],
    ) -> None:
        self.data, self.kept, self.seed, self.loss, self._rest = data, kept, seed, loss, rest
        first = configurations[0]
        self.batch = min(int(first["batch"]), data.n_features)
        self.positive = np.tile(positive, len(configurations))
        self.R = np.repeat([float(c["R"]) for c in configurations], positive.size)
        self.alpha = np.repeat([float(c["alpha"]) for c in configurations], positive.size)
        self.L, self.chances, self.cumulative = self._bounds(first)
        self.rounds = self._rounds(first["rounds"])
        self._play = play_for(self.loss, first["predict"])
        columns = self.positive.size
        n, integers = data.n_features, _integers(max(data.n_features, self.rounds))
        self.t = 0
        self.state = np.zeros((n, 3 if first["predict"] == "last" else 2, columns))
        self._lines = np.empty((n, 2, columns))
        self._links = np.empty((n, 3, columns), integers)
        self._head = np.empty((self.rounds, columns), integers)
        self._margins = np.empty((data.n_rows, 2, columns))
        self._fresh = False

    def _bounds(self, configuration: Mapping[str, Any]) -> tuple[Floats, Floats, Floats]:
        """L, the chances of the blocks and the running sums they are drawn by."""
        data = self.data
        norms, L = np.zeros(data.n_rows), np.zeros(data.n_features)
        if not lipschitz(self.loss):
            self._go_through(ROW_NORMS, *data[:3], norms)
        sizes = np.where(np.any(self.positive < 0), np.abs(data.labels), 1.0)
        bounds = np.where(self.kept, slope_bounds(self.loss, norms, sizes, configuration["R"]), 0.0)
        self._go_through(COORDINATE_BOUNDS, *data[:3], bounds, L)
        weights = np.zeros(-(-data.n_features // self.batch))
        BLOCK_WEIGHTS(L, self.batch, weights)
        if configuration["sample"] == "uniform":
            weights = (weights > 0.0).astype(np.float64)
        cumulative = np.cumsum(weights)
        return L, weights / cumulative[-1] if cumulative[-1] > 0.0 else weights, cumulative

    def _rounds(self, wanted: Any) -> int:
        """Rounds an epoch: those asked for, or as many as are expected to read as many nonzeros as there are.

        None where there is nothing to draw.
        """
        if self.cumulative[-1] == 0.0:
            return 0
        if wanted != "pass":
            return int(wanted)
        return max(1, round(int(self.data.indptr[-1]) / self.nonzeros))

    @property
    def nonzeros(self) -> float:
        """Expected nonzeros of the block that a round draws."""
        edges = np.append(np.arange(0, self.data.n_features, self.batch), self.data.n_features)
        return math.fsum(self.chances * np.diff(self.data.indptr[edges]))

    def play(self, epoch: int) -> Iterator[int]:
        """One epoch; yields how many of its rounds are done, now and then."""
        self._begin()
        chunk = int(CHUNK_NONZEROS / max(1.0, self.nonzeros)) + 1
        for first in range(0, self.rounds, chunk):
            count = min(chunk, self.rounds - first)
            self._fresh = False
            self._play(
                *self.data,
                self.kept,
                self.positive,
                self.R,
                self.alpha,
                self.L,
                self.chances,
                self.batch,
                DRAW(self.cumulative, self.seed, epoch, DRAWN_AS_PART, first, count),
                self.t + 1.0,
                first,
                self.state,
                self._lines,
                self._links,
                self._head,
                self._margins,
            )
            self._rest()
            yield first + count
        self.t += self.rounds

    def weights(self) -> Floats:
        out = np.empty((self.data.n_features, self.positive.size))
        WEIGHTS(self.t + 1.0, self.R, self.alpha, self.state, out)
        return out

    def margins(self) -> Floats:
        self._begin()
        return self._margins[:, 0].copy()

    def losses(self) -> Floats:
        self._begin()
        loss_sum = np.zeros(self.positive.size)
        for start in range(0, self.data.n_rows, CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            z = self._margins[part, 0][self.kept[part]]
            labels = self.data.labels[part][self.kept[part]]
            loss_kernels(self.loss).respond(z, labels, self.positive, np.empty_like(z), loss_sum)
        return loss_sum

    def resume(self, epochs: int) -> None:
        self.t, self._fresh = epochs * self.rounds, False

    def _begin(self) -> None:
        """Margins, lines and calendar as the head of the coming epoch has them."""
        if self._fresh:
            return
        self._lines[...], self._margins[...] = 0.0, 0.0
        self._links[...], self._head[...] = -1, -1
        arrays = (self.R, self.alpha, self.state, self._lines, self._links, self._head, self._margins)
        self._go_through(BEGIN, self.t + 1.0, *self.data[:3], *arrays)
        self._fresh = True

    def _go_through(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """Run a kernel over all features in order, a few million nonzeros at a time."""
        first, n = 0, self.data.n_features
        while first < n:
            end = self.data.indptr[first] + CHUNK_NONZEROS
            stop = max(first + 1, int(np.searchsorted(self.data.indptr, end, side="right")) - 1)
            kernel(first, stop, *arguments)
            self._rest()
            first = stop


def bytes_needed(n_rows: int, n_features: int, columns: int, rounds: Any = "pass") -> int:
    """Memory of `Coordinates`, the data apart, of configurations with so many `rounds` an epoch.

    State, lines, weights and links by feature, the calendar's heads by round, margins by row. Rounds of a pass are
    counted as many as features: what is drawn oftener has more nonzeros than others.
    """
    played = n_features if rounds == "pass" else int(rounds)
    integer = _integers(max(n_features, played))().itemsize
    return columns * (n_features * (8 * (3 + 2 + 1) + 3 * integer) + played * integer + 16 * n_rows)


def _integers(largest: int) -> type[np.int32] | type[np.int64]:
    """The narrower type that holds it."""
    return np.int32 if largest < 2**31 else np.int64


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written: memory-mapped columns are, and one type of array is one compiled kernel."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
