"""caos-erm on the cluster: the full pass of `cluster.passes`, then the rounds, in one task or in parts.

placement = serial is the paper's algorithm. One task plays all rounds: it reads the drawn examples from its worker's
corpus, a few thousand at a time, and their slopes from the files of the pass. The rounds take the time of one thread
whatever the cluster. A worker holds three numbers per feature and column (Z, Δ and, if corrected, the pass's gradient,
or the next prediction if it is the previous mini-batch's) and three per example (its size, the cumulative sum, its
position), and lays out the shards it draws from, eventually all of them.

placement = parallel: part p of `parts` owns a run of the examples and plays its share of the rounds on them only, from
the state at the beginning of the epoch; then the parts' states are averaged (see `epochs.Blocks.shares`,
`epochs.State`). The number of parts is a parameter and not the number of workers, so bits do not depend on the cluster.
Each worker has the costs of serial for its own shards only, and `parts` states of features × columns are summed from
worker to worker in a tree. The price is accuracy: parts do not exchange updates within an epoch, so an epoch makes
about the progress of rounds/parts serial rounds with less noise, and the first epochs, far from the optimum, overshoot;
corrected estimates (required) still let it converge. If documents are sorted, for example by class, a part's own
examples are not representative and accuracy suffers. On IMDB sorted by class (25,000 documents, logistic, α = 10,
R = 1, corrected), the objective exceeds its optimum after 1, 2, 5, 10 epochs by

    serial               190 %    28 %   1.6 %   1.0 %      (sampled, as in the paper: 21 %, 11 %, 11 %, 8.8 %)
    parallel, 4 parts    695 %   298 %    39 %   6.5 %
    parallel, 8 parts    772 %   353 %    59 %   7.2 %
    dealt, 4 parts       287 %    81 %   4.4 %   0.7 %
    dealt, 8 parts       413 %   146 %   9.6 %   1.2 %

placement = dealt: as parallel, but a part owns every `parts`-th mini-batch, a sample of all examples. Every machine
lays out all shards, as for streams in shuffled order.

One part gives the bits of serial. The state of an epoch, committed before the next one starts, is Z and Δ (features,
slots, columns), the number of rounds played and the weights.
"""

from functools import partial
from typing import Any

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from sparseoco.execution.clusters import placements
from sparseoco.kernels.epoch import EpochColumns
from sparseoco.offline.cluster.epoch_method import EpochMethod, block_rows, commit_state, epoch_problem
from sparseoco.offline.cluster.pass_tasks import RowsSource, open_rows, read_rows
from sparseoco.offline.cluster.passes import ClusterPasses, PassFiles
from sparseoco.offline.epoch_problem import Problem
from sparseoco.offline.epochs import Blocks, Share, State, mean_state, play_rounds, row_sizes
from sparseoco.offline.partial_sums import Floats
from sparseoco.offline.passes import Span
from sparseoco.storage.checkpoints import read_checkpoint, write_array
from sparseoco.storage.locations import Location, location
from sparseoco.store.references import StoreReference, open_store
from sparseoco.store.shards import Store
from sparseoco.store.worker import check_worker_running
from sparseoco.training.block import Block

LEAVES_PER_TASK = 16


class SampledOnCluster(EpochMethod):
    """A block of caos-erm."""

    failure = "The rounds of an epoch failed"

    def __init__(self, client: Client, block: Block, problem: Problem, store: Store, folder: Location) -> None:
        super().__init__(client, block, problem, store, folder)
        self._passes = ClusterPasses(
            client, store, self._folder / "passes", _span(block), *block_rows(block, store)[1:]
        )
        self._sizes_path = self._folder / "sizes.npy"
        sizes = self._row_sizes()
        blocks = Blocks.of(sizes, problem.configurations[0])
        self._shares = blocks.shares(problem.configurations[0])
        self.examples[:] = sizes.size + sum(share.rounds for share in self._shares) * blocks.batch

    def _play(self, before: Location | None, target: Location) -> None:
        files = self._passes.run(self.weights_file, f"epoch {self.epoch}", self.problem.pass_request)
        if self._shares:
            for outcome in self._pool.run([target], partial(self._start_rounds, before, files)):
                self._pool.check(outcome)
        else:  # no example has a feature: there is nothing to learn
            block, store = self._task_arguments()
            self._pool.call(_begin, block, store, str(target), self.epoch + 1, self.examples)
        for group in files:
            group.remove()

    def _start_rounds(self, before: Location | None, files: list[PassFiles], target: Location) -> Future:
        """Submit the shares of the rounds, their tree sum, and the task that commits the state."""
        epoch, state = self.epoch + 1, None if before is None else str(before)
        block, store = self._task_arguments()
        parts = [
            # On the workers that already have the part's shards: passes are placed in the same way.
            self._pool.submit(_play, block, store, state, str(self._sizes_path), files, share, epoch, **placement)
            for placement, share in zip(placements(self._pool.client, len(self._shares)), self._shares, strict=True)
        ]
        total = self._pool.tree(parts)
        return self._pool.submit(_finish, block, store, str(target), total, len(parts), epoch, self.examples)

    def _row_sizes(self) -> Floats:
        """L_j of the examples of the span; computed once and stored."""
        if not self._sizes_path.exists():
            source = block_rows(self._block, self._store)
            bounds = self._passes.bounds
            runs = [bounds[i : i + LEAVES_PER_TASK] for i in range(0, len(bounds), LEAVES_PER_TASK)]
            sizes = self._pool.map(_sizes, [(source, self._passes.span, run) for run in runs])
            write_array(self._sizes_path, np.concatenate([np.zeros(0), *sizes]))
        return read_rows(self._sizes_path, 1)[:, 0]


class _SlopeFiles:
    """Slopes of a pass at given positions of its span, read from the files of its leaves."""

    def __init__(self, files: list[PassFiles]) -> None:
        self._leaves = [[read_rows(path, each.last - each.first) for path in each.slopes] for each in files]
        self._starts = np.cumsum([0, *(len(leaf) for leaf in self._leaves[0])])

    def __call__(self, positions: NDArray[np.int64], /) -> Floats:
        leaf = np.searchsorted(self._starts, positions, side="right") - 1
        order = np.argsort(leaf, kind="stable")
        runs = np.split(order, np.flatnonzero(np.diff(leaf[order])) + 1)
        out = np.empty((positions.size, sum(leaves[0].shape[1] for leaves in self._leaves)))
        for run in runs:
            number = leaf[run[0]]
            column = 0
            for leaves in self._leaves:
                part = leaves[number]
                out[run, column : column + part.shape[1]] = part[positions[run] - self._starts[number]]
                column += part.shape[1]
        return out


def _play(
    description: dict[str, Any],
    store: StoreReference,
    before: str | None,
    sizes: str,
    files: list[PassFiles],
    share: Share,
    epoch: int,
) -> State:
    """Play one share of the rounds of an epoch, on a worker."""
    block, opened = Block.model_validate(description), open_store(store)
    problem = epoch_problem(block, opened)
    method, setting, first = problem.sampled(), block.setting, problem.configurations[0]
    if before is not None:
        with read_checkpoint(location(before)) as (described, read):
            read("state", method.state)
            read("diverged", method.diverged)
            method.rounds = int(described["rounds"])
    corpus = open_rows(block_rows(block, opened))
    gradient = None
    if first["estimate"] == "corrected":
        gradient = np.empty((problem.coordinates, files[-1].last))
        for each in files:
            each.gradient(gradient[:, each.first : each.last])
    rounds = play_rounds(
        method,
        corpus,
        _span(block).rows(corpus.n_rows, 0, corpus.n_rows),
        _SlopeFiles(files),
        gradient,
        Blocks.of(read_rows(location(sizes), 1)[:, 0], first),
        share,
        setting.seed,
        epoch,
    )
    for _ in rounds:
        check_worker_running()
    return State(method.state, method.rounds, method.diverged)


def _begin(
    description: dict[str, Any], store: StoreReference, target: str, epoch: int, examples: NDArray[np.int64]
) -> None:
    """Commit the state before the first round."""
    method = epoch_problem(Block.model_validate(description), open_store(store)).sampled()
    _commit(method, epoch, location(target), examples)


def _finish(
    description: dict[str, Any],
    store: StoreReference,
    target: str,
    total: State,
    count: int,
    epoch: int,
    examples: NDArray[np.int64],
) -> None:
    """Commit the state of the epoch, from the sum over its parts."""
    method = epoch_problem(Block.model_validate(description), open_store(store)).sampled()
    method.state, method.rounds, method.diverged = mean_state(total, count)
    _commit(method, epoch, location(target), examples)


def _commit(method: EpochColumns, epoch: int, target: Location, examples: NDArray[np.int64]) -> None:
    description = {"epoch": epoch, "rounds": method.rounds}
    arrays = {"state": method.state, "diverged": method.diverged}
    commit_state(target, description, arrays, method.weights(), method.diverged, examples)


def _sizes(source: RowsSource, span: Span, bounds: list[tuple[int, int]]) -> Floats:
    corpus = open_rows(source)
    return np.concatenate([row_sizes(corpus, span, start, stop) for start, stop in bounds])


def _span(block: Block) -> Span:
    """The examples that a block learns, in document order."""
    return Span(seed=block.setting.seed, fold=block.setting.fold, folds=block.setting.folds)
