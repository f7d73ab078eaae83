"""caos-erm on the cluster: the full pass as `cluster.passes` makes it, then the rounds, in one task or in parts.

placement = serial is the paper's own. One task plays all rounds: it fetches the examples it draws from its worker's
corpus, a few thousand at a time, and their slopes from the files of the pass. Cost: the rounds take as long as on one
thread, whatever the cluster; a worker holds three numbers a feature and column (Z, Δ and, corrected, the pass's
gradient) and three an example (its size, the running sum, its place), and lays out the shards that are drawn from,
sooner or later all of them. Through the folder go one slope an example and column, written by the pass, and the state.
Nothing is lost.

placement = parallel: part p of `parts` owns a run of the examples and plays its share of the rounds on them alone, from
the state that the epoch began with; then the parts' states are averaged (see `epochs.Blocks.shares`, `epochs.State`).
How many parts there are is a parameter, never the number of workers, so bits do not depend on the cluster. Cost: as
serial in every worker that plays, on its own shards only, and `parts` states of features × columns that go from worker
to worker in a tree. What is lost: a part does not see what the others do until the epoch ends, so that an epoch goes
as far as one of rounds/parts rounds with less noise, and its first epochs, far from the optimum, overshoot; corrected
estimates (which it needs) let it settle all the same. Where documents lie sorted, by class say, a part's own examples
tell it little of the others', and much is lost: measured on IMDB sorted by class (25,000 documents, logistic, α = 10,
R = 1, corrected), the objective is above its optimum after 1, 2, 5, 10 epochs by

    serial               190 %    28 %   1.6 %   1.0 %      (sampled, the paper's own: 21 %, 11 %, 11 %, 8.8 %)
    parallel, 4 parts    695 %   298 %    39 %   6.5 %
    parallel, 8 parts    772 %   353 %    59 %   7.2 %
    dealt, 4 parts       287 %    81 %   4.4 %   0.7 %
    dealt, 8 parts       413 %   146 %   9.6 %   1.2 %

placement = dealt: as parallel, but a part owns every `parts`-th mini-batch, so that it has of everything. Cost: every
machine lays out all shards, as it does for streams in a shuffled order.

One part gives the bits of serial.

Either way the state of an epoch is committed before the next begins, in one file (see `checkpoints`): Z and Δ
(features, slots, columns), the rounds played and the weights they give.
"""

from typing import Any

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from sparseoco.execution.clusters import spread_over
from sparseoco.execution.pool import await_result, send
from sparseoco.kernels.epoch import Sampled
from sparseoco.offline.epoch_states import EpochStates
from sparseoco.offline.epochs import Blocks, Problem, Share, State, mean_of, play_share, row_sizes
from sparseoco.offline.pass_tasks import ClusterPasses, PassFiles, read_rows
from sparseoco.offline.passes import Floats, Span
from sparseoco.storage.checkpoints import read_checkpoint, write_array, write_checkpoint
from sparseoco.storage.commit import remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.store.cache import corpus_of, end_with_worker
from sparseoco.store.shards import Store
from sparseoco.training.block import Block


class SampledOnCluster:
    """A block of caos-erm; see `cluster.epochs.Method`. Its files are in `folder`."""

    def __init__(self, client: Client, block: Block, problem: Problem, store: Store, folder: Location) -> None:
        self.problem, self.epoch = problem, 0
        self.diverged = np.zeros(len(problem.configurations), np.int64)
        self._client, self._block, self._store, self._folder = client, block, store, folder.resolve()
        setting = block.setting
        self._states = EpochStates(self._folder)
        span = Span(seed=setting.seed, fold=setting.fold, folds=setting.folds)
        self._passes = ClusterPasses(client, store, self._folder / "passes", span)
        sizes = self._sizes()
        blocks = Blocks.of(sizes, problem.configurations[0]["batch"])
        self._shares = blocks.shares(problem.configurations[0])
        played = sum(share.rounds for share in self._shares) * blocks.batch
        self.rows = sizes.size + played
        self._weights = np.zeros((problem.n_features, problem.outputs * len(problem.configurations)))
        latest = self._states.latest()
        if latest is not None:
            self._take_up(latest)

    def weights(self) -> Floats:
        """(n_features, columns) at the end of the last epoch."""
        return self._weights

    def play(self) -> None:
        """A full pass, the rounds, a state committed; what the last epoch left is then removed."""
        files = self._passes.run(self._weights, self.problem.question)
        target = self._states.path(self.epoch + 1)
        if self._shares:
            await_result(self._client, self._rounds(files, target), "The rounds of an epoch failed")
        else:  # no example has a feature: there is nothing to learn
            _commit(self.problem.sampled(), self.epoch + 1, target)
        self._take_up(target)
        for name in (
            self._states.path(self.epoch - 1),
            *(path for each in files for path in (each.weights, each.total, *each.slopes)),
        ):
            remove_file(name)

    def _rounds(self, files: list[PassFiles], target: Location) -> Future:
        """The shares of the rounds, their sum as a tree from worker to worker, and the state it leaves."""
        before = self._states.path(self.epoch)
        description = self._block.model_dump(mode="json")
        parts = [
            send(
                self._client,
                "rounds",
                _play,
                description,
                str(self._store.folder.resolve()),
                str(before) if before.exists() else None,
                str(self._sizes_path),
                files,
                share,
                self.epoch + 1,
                **place,  # where a part's shards lie already, as passes spread them
            )
            for place, share in zip(spread_over(self._client, len(self._shares)), self._shares, strict=True)
        ]

        def added(first: int, last: int) -> Future:
            if last - first == 1:
                return parts[first]
            middle = (first + last) // 2
            return send(self._client, "rounds-sum", _add, added(first, middle), added(middle, last))

        whole = added(0, len(parts))
        paths = str(self._store.folder.resolve()), str(target)
        return send(self._client, "rounds-end", _finish, description, *paths, whole, len(parts), self.epoch + 1)

    def _sizes(self) -> Floats:
        """L_j of the examples of the span, made once."""
        if not self._sizes_path.exists():
            folder, bounds = str(self._store.folder.resolve()), self._passes.bounds
            futures = [
                send(self._client, "sizes", _sizes, folder, self._passes.span, bounds[i : i + 16])
                for i in range(0, len(bounds), 16)
            ]
            parts = [await_result(self._client, future, "Measuring the examples failed") for future in futures]
            write_array(self._sizes_path, np.concatenate([np.zeros(0), *parts]))
        return read_rows(self._sizes_path, 1)[:, 0]

    @property
    def _sizes_path(self) -> Location:
        return self._folder / "sizes.npy"

    def _take_up(self, path: Location) -> None:
        """Go on from a state."""
        with read_checkpoint(path) as (description, read):
            self._weights = read("weights")
            self.diverged = self.problem.diverged(read("diverged"))
            self.epoch = int(description["epoch"])


class _SlopeFiles:
    """Slopes of a pass at any positions of its span, out of the files of its leaves."""

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
    store: str,
    before: str | None,
    sizes: str,
    files: list[PassFiles],
    share: Share,
    epoch: int,
) -> State:
    """One share of the rounds of an epoch, on a worker."""
    block, opened = Block.model_validate(description), Store.open(store)
    problem = problem_of(block, opened)
    method, setting, first = problem.sampled(), block.setting, problem.configurations[0]
    if before is not None:
        with read_checkpoint(location(before)) as (described, read):
            read("state", method.state)
            read("diverged", method.diverged)
            method.rounds = int(described["rounds"])
    corpus = corpus_of(opened)
    span = Span(seed=setting.seed, fold=setting.fold, folds=setting.folds)
    gradient = None
    if first["estimate"] == "corrected":
        gradient = np.hstack([_gradient(each.total) for each in files])
    rounds = play_share(
        method,
        corpus,
        span.rows(corpus.n_rows, 0, corpus.n_rows),
        _SlopeFiles(files),
        gradient,
        Blocks.of(read_rows(location(sizes), 1)[:, 0], first["batch"]),
        share,
        setting.seed,
        epoch,
    )
    for _ in rounds:
        end_with_worker()
    return State(method.state, method.rounds, method.diverged)


def _gradient(total: Location) -> Floats:
    """(features, columns), out of the total of a pass."""
    with read_checkpoint(total) as (_, read):
        return read("gradient")


def _add(a: State, b: State) -> State:
    return a + b


def _finish(description: dict[str, Any], store: str, target: str, total: State, count: int, epoch: int) -> None:
    """Commit the state that the parts' sum gives."""
    method = problem_of(Block.model_validate(description), Store.open(store)).sampled()
    method.state, method.rounds, method.diverged = mean_of(total, count)
    _commit(method, epoch, location(target))


def _commit(method: Sampled, epoch: int, target: Location) -> None:
    arrays = {"state": method.state, "diverged": method.diverged, "weights": method.weights()}
    write_checkpoint(target, {"epoch": epoch, "rounds": method.rounds}, arrays.items())


def _sizes(store: str, span: Span, bounds: list[tuple[int, int]]) -> Floats:
    corpus = corpus_of(Store.open(store))
    return np.concatenate([row_sizes(corpus, span, start, stop) for start, stop in bounds])


def problem_of(block: Block, store: Store) -> Problem:
    """What a block asks of a store. Raises `InputError` as `Problem.of`."""
    setting = block.setting
    classes = max(2, len(store.classes)) if store.classes else None
    return Problem.of(block.algorithm, setting.loss, setting.penalty, block.configurations, classes, store.n_features)
