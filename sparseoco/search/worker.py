"""Blocks of configurations on a worker: in progress, their checkpoints, and the tasks that run them."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed import Future
from numpy.typing import NDArray
from typing_extensions import TypedDict

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.core.logs import RowsCallback
from sparseoco.execution.clusters import TaskPool, task_reporter
from sparseoco.learners import check_algorithm_name
from sparseoco.search.packing import Job, state_bytes
from sparseoco.storage.commit import Count, commit_json, read_validated, remove_file, row_shape, with_other_keys
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row, read_checkpoint, write_checkpoint
from sparseoco.store.corpus import Corpus, check_worker_running, host_folder, weighted_corpus
from sparseoco.store.manifest import read_manifest
from sparseoco.store.shards import Store, StoreReference, open_store, store_reference
from sparseoco.store.terms import frequency_bins, frequency_rows, increment_weights, term_weights
from sparseoco.training.block import Block, Tables, cell_path, fold_order, passes_of, take_weights, write_cell
from sparseoco.training.decisions import PredictingLearner
from sparseoco.training.learner import Learner, ProgressiveTotals
from sparseoco.training.metrics import Scores, curve_rows, evaluate_held_out, metric_rows, new_scores
from sparseoco.training.options import learner_parameters
from sparseoco.training.search_tables import CURVES
from sparseoco.training.stream import START, Order, StreamPosition, curve_marks, stream, train

# ----------------------------------------------------------------------------------------------------------------------
# A block in progress: its learner, its position in the stream, and the metrics recorded so far.
#
# Its state at a position depends only on the block and the position, not on where it was stopped, saved or resumed.


@dataclass(eq=False)
class BlockRun:
    """A block at a position in its stream.

    Parameters
    ----------
    epoch_start : totals of the learner when the current epoch began.
    curves : the points recorded in the current epoch, for each configuration.
    seconds : time spent on the current epoch so far.
    totals : of all epochs so far, where they are not those of the learner: those of the parts that it averages.

    recorder : learns in place of the learner, to record margins or score them, if it is set.
    clock : the time of the last state, as `time.monotonic()`.
    """

    block: Block
    learner: Learner
    epoch_start: ProgressiveTotals
    position: StreamPosition = START
    curves: list[list[Row]] = field(default_factory=list)
    seconds: float = 0.0
    totals: ProgressiveTotals | None = None
    recorder: PredictingLearner | None = None
    clock: float = 0.0

    def __post_init__(self) -> None:
        self.curves = self.curves or [[] for _ in self.block.configurations]
        self._scores: Scores | None = None

    @classmethod
    def new(cls, block: Block, store: Store) -> "BlockRun":
        """A block before its first row, starting from the weights of its setting's model if there is one."""
        learner = new_learner(block, store)
        if block.setting.origin is not None:
            take_weights(block.setting.origin, learner, store)
        return cls(block, learner, learner.progress)

    def select(self, block: Block) -> "BlockRun":
        """The run of `block`, whose configurations are some of this one's, as if they had been run alone."""
        if block.identities == self.block.identities:
            return self
        numbers = [self.block.identities.index(name) for name in block.identities]
        start = self.epoch_start
        start = start._replace(loss_sum=start.loss_sum[numbers], error_count=start.error_count[numbers])
        curves = [self.curves[number] for number in numbers]
        return BlockRun(block, self.learner.select(numbers), start, self.position, curves, self.seconds)

    def score(self, n_rows: int) -> None:
        """Score the progressive predictions of so many rows, for the metrics."""
        self._scores = new_scores(self.learner, n_rows, self.block.setting.positive)
        self.recorder = PredictingLearner(self.learner, self._scores.add)

    def learn(self, corpus: Corpus, goal: StreamPosition) -> Iterator[StreamPosition]:
        """Learn up to `goal`; yields the position of every state on the way."""
        marks = curve_marks(corpus.n_rows)
        before, self.clock = self.learner.progress, time.monotonic()
        passes = passes_of(self.block.setting, corpus, goal, self.learner)._replace(start=self.position, marks=marks)
        for position in train((self.recorder or self.learner).learn_rows, corpus, passes):
            now = self.learner.progress
            if position.epoch > self.position.epoch:
                self.epoch_start, self.curves, self.seconds = before, [[] for _ in self.curves], 0.0
            if position.position in marks:
                for curve, point in zip(
                    self.curves, curve_rows(now, numbers=self.learner.n_classes is None), strict=True
                ):
                    curve.append(point)
            self.position, before = position, now
            self.seconds += time.monotonic() - self.clock
            self.clock = time.monotonic()
            yield position

    def tables(self, corpus: Corpus, store: Store) -> list[Tables]:
        """Each configuration's rows of the tables; at the end of an epoch, the held-out fold is evaluated.

        An increment of a nightly run has metrics only: the others would require reading the whole vocabulary.
        """
        if self.block.setting.increment is not None:
            return [{"metrics": [row]} for row in self._metrics(corpus, self.learner.nonzeros())]
        started = time.monotonic()
        bins, features = frequency_bins(store)
        counts = self.learner.nonzeros(bins=bins)
        metrics = self._metrics(corpus, counts.sum(axis=0))
        self.seconds += time.monotonic() - started
        timing = {"epoch": self.position.epoch, "seconds": self.seconds / len(metrics)}
        return [
            {
                "metrics": [row],
                "curves": list(curve),
                "feature_survival": frequency_rows(own, features),
                "timings": [timing],
            }
            for row, curve, own in zip(metrics, self.curves, counts.T, strict=True)
        ]

    def _metrics(self, corpus: Corpus, nonzeros: NDArray[np.int64]) -> list[Row]:
        now = self.totals or self.learner.progress
        at_end = self.position.position == corpus.n_rows
        setting = self.block.setting
        order = fold_order(setting, corpus) if at_end or setting.evaluate_rungs else Order()
        held_out, scores = evaluate_held_out(self.learner, corpus, order, setting.positive)
        prefix = "held_out"
        if self._scores is not None:
            prefix, scores = "progressive", self._scores.rows()
        return metric_rows(
            self.position.epoch,
            [now.rows] * len(nonzeros),
            now - self.epoch_start,
            held_out,
            scores,
            nonzeros,
            self.learner.features_used(),
            [f"diverged at row {row:,}" if row else "" for row in self.learner.diverged.tolist()],
            prefix,
            numbers=self.learner.n_classes is None,
        )


def new_learner(block: Block, store: Store) -> Learner:
    """A new learner for a block."""
    setting = block.setting
    return Learner(
        check_algorithm_name(block.algorithm),
        loss=setting.loss,
        penalty=setting.penalty,
        grid=[learner_parameters(configuration) for configuration in block.configurations],
        n_features=store.n_features,
        n_classes=store.n_classes,
        multilabel=store.is_multilabel,
        dtype=setting.dtype,
        intercept=block.intercept,
        feature_groups=None if setting.feature_groups is None else setting.feature_groups.read(store),
    )


# ----------------------------------------------------------------------------------------------------------------------
# Checkpoints of blocks, from which the block or any of its configurations can be resumed.
#
# A checkpoint is two files: the saved learner, large and uncompressed, and a JSON file with its name, the block and the
# position. A block has one checkpoint, its latest. Checkpoints are looked up by configuration, so configurations can be
# resumed in other groups. A missing or corrupt one only costs time: the stream is learned again from an earlier
# position, with the same results.


@with_other_keys
class State(TypedDict):
    """The content of the JSON file of a checkpoint: a block, its position, and its sums since the epoch's start."""

    block: Block
    position: StreamPosition
    rows: Count
    loss_sum: list[float]
    error_count: list[int]
    curves: list[list[row_shape(CURVES)]]  # type: ignore[valid-type]
    seconds: float


class Checkpoint(NamedTuple):
    """The files of a block's state at a position, and the contents of the JSON file in `state`."""

    block: Block
    position: StreamPosition
    path: Location
    learner: Location
    state: State

    def remove(self) -> None:
        """Remove it, the JSON file first."""
        remove_file(self.path)
        remove_file(self.learner)


def save_checkpoint(folder: Location, run: BlockRun) -> None:
    """Commit the state of a block and remove the earlier one; does nothing if there is a later one."""
    path = _path(folder, run.block)
    with suppress(StorageError):
        if read_validated(path, State)["position"] >= run.position:
            return
    learner = _learner_path(path, run.position)
    run.learner.save(learner, named=True)
    commit_json(
        path,
        {
            "block": run.block.model_dump(mode="json"),
            "position": list(run.position),
            "rows": run.epoch_start.rows,
            "loss_sum": run.epoch_start.loss_sum.tolist(),
            "error_count": run.epoch_start.error_count.tolist(),
            "curves": run.curves,
            "seconds": run.seconds,
        },
    )
    for old in folder.glob(f"{path.stem}-*.learner"):
        if old.name != learner.name:
            remove_file(old)


def load_checkpoint(folder: Location, block: Block, last: StreamPosition) -> BlockRun | None:
    """A block at its furthest checkpoint up to `last`; None if no checkpoint has all of its configurations."""
    for found in fitting_checkpoints(folder, block, last):
        state = found.state
        with suppress(StorageError):
            learner = Learner.load(found.learner)
            epoch_start = ProgressiveTotals(
                state["rows"], np.array(state["loss_sum"], np.float64), np.array(state["error_count"], np.int64)
            )
            run = BlockRun(found.block, learner, epoch_start, found.position, state["curves"], state["seconds"])
            return run.select(block)
    return None


def fitting_checkpoints(folder: Location, block: Block, last: StreamPosition) -> list[Checkpoint]:
    """The checkpoints up to `last` that have all configurations of a block, the furthest first."""
    needed = set(block.identities)
    fitting = [
        found
        for found in find_checkpoints(folder, [block.setting.digest])
        if found.position <= last and needed <= set(found.block.identities)
    ]
    return sorted(fitting, key=lambda found: found.position, reverse=True)


def reached_position(folder: Location, block: Block) -> StreamPosition:
    """The position of the checkpoint of this block, `START` without one.

    Raises `StorageError` if it cannot be read now.
    """
    with suppress(DamagedError):
        return read_validated(_path(folder, block), State)["position"]
    return START


def find_checkpoints(folder: Location, settings: Iterable[str], *, strict: bool = False) -> Iterator[Checkpoint]:
    """The checkpoints of blocks under settings, given by digest; files that cannot be read are skipped.

    If it is `strict`, only corrupt ones are: a file that cannot be read now raises `StorageError`.
    """
    digests, ignore = set(settings), DamagedError if strict else StorageError
    for path in sorted(folder.glob("*.json")):
        if path.name.partition("-")[0] in digests:
            try:
                state = read_validated(path, State)
            except ignore:
                continue
            block, position = state["block"], state["position"]
            found = Checkpoint(block, position, path, _learner_path(path, position), state)
            if found.learner.exists():
                yield found


States = dict[tuple[str, str], Checkpoint]
"""By the digest of a setting and the identity of a configuration."""


def furthest_checkpoints(folder: Location, settings: Iterable[str], *, strict: bool = False) -> States:
    """By (digest of the setting, configuration), its furthest checkpoint; see `find_checkpoints`."""
    found = sorted(find_checkpoints(folder, settings, strict=strict), key=lambda one: (one.position, one.block.digest))
    return {(one.block.setting.digest, name): one for one in found for name in one.block.identities}


def remove_unneeded(folder: Location, settings: Sequence[str], alive: set[str]) -> None:
    """Remove checkpoints that are not the furthest of any configuration in `alive`."""
    furthest = furthest_checkpoints(folder, settings).items()
    needed = {found.block.digest for (_, name), found in furthest if name in alive}
    for found in list(find_checkpoints(folder, settings)):
        if found.block.digest not in needed:
            found.remove()


def _path(folder: Location, block: Block) -> Location:
    return folder / f"{block.setting.digest}-{block.digest}.json"


def _learner_path(path: Location, position: StreamPosition) -> Location:
    return path.with_name(f"{path.stem}-{position.epoch}-{position.position}.learner")


# ----------------------------------------------------------------------------------------------------------------------
# Blocks of increments: what they learn, and the state that they start from.
#
# The increment of a version of a store is the documents that it added, over its features. A block of it starts with the
# final state of the increment before.


class StateLostError(StorageError):
    """The state at the end of an increment is missing or corrupt; corrupt files are removed, to be learned again."""


def increment_store(folder: Location, version: int) -> Store:
    """The documents that a version of a store added, over the features of that version.

    Raises `StorageError` for a manifest that is missing or cannot be read.
    """
    return Store(folder, read_manifest(folder, version)).increment


def block_corpus(block: Block, store: Store, scratch: Path) -> Corpus:
    """The rows of a store as a block weights them, in an increment with the idf of that time.

    `scratch` is the folder of the files of the host. Raises `StorageError`.
    """
    increment = block.setting.increment
    if increment is None:
        weights = term_weights(store, block.weighting)
    else:
        weights = increment_weights(store.folder, increment.version, block.weighting)
    return weighted_corpus(store, scratch, weights, block.setting.dtype)


def start_run(folder: Location, block: Block, store: Store) -> BlockRun:
    """A block before its first row: new or, after the first increment, with the final state of the previous one.

    Raises `StateLostError` if that state is missing or corrupt.
    """
    increment = block.setting.increment
    if increment is None or increment.previous is None:
        run = BlockRun.new(block, store)
    else:
        learner = learner_after(folder, increment.previous, increment.version - 1, block.identities, store)
        run = BlockRun(block, learner, learner.progress)
    if block.setting.progressive_metrics:
        run.score(store.n_rows)
    return run


def learner_after(folder: Location, setting: str, version: int, names: Sequence[str], store: Store) -> Learner:
    """Configurations, by identity, as they were at the end of an increment, over the features of `store`.

    The state is as if features that were added later had been there from the start. `setting` is the digest of the
    increment's setting. Raises `StateLostError` if the state in `folder` is missing or corrupt, `StorageError` if it
    cannot be read now; then it is left unchanged.
    """
    end = StreamPosition(1, increment_store(store.folder, version).n_rows)
    for found in find_checkpoints(folder, [setting], strict=True):
        own = found.block.identities
        if found.position != end or not set(names) <= set(own):
            continue
        try:
            learner = Learner.load(found.learner, n_features=store.n_features)
        except DamagedError:
            found.remove()
            continue
        return learner if list(names) == own else learner.select([own.index(name) for name in names])
    raise StateLostError(
        f"The state of increment {version} in {folder} is missing or corrupt: the increment has to be learned again.",
        code="state-lost",
    )


# ----------------------------------------------------------------------------------------------------------------------
# Running a block on a worker: commit a cell at each milestone, save checkpoints where they are worth their cost.
#
# The task is a pure function of its description, and its results are files named by their contents: running it again,
# on any worker, finds the files or writes the same ones.


POLL_SECONDS = 0.5  # between two checks of the stop file
CHECKPOINT_BYTES_PER_SECOND = 500e6  # rough speed of writing and syncing
PART_FORMAT = 2  # of the file of a part: with a row of the intercept


class Folders(NamedTuple):
    """The absolute paths of a search, which all workers see; blocks stop when the file `stop` exists."""

    cells: Location
    checkpoints: Location
    stop: Location

    @classmethod
    def of(cls, search: Location) -> "Folders":
        """The paths in the folder of a search."""
        folder = search.resolve()
        return cls(folder / "cells", folder / "checkpoints", folder / "stop")


Place = tuple[Store, Path, RowsCallback, Callable[[], bool]]
"""What a task works with: the store, the folder of its host's files, how to report rows, and when to stop."""


class Site(NamedTuple):
    """A store, and the file whose existence stops tasks. It is sent to workers, each of which opens it."""

    store: StoreReference
    stop: Location | None = None

    def open(self, blocks: Sequence[Block]) -> Place:
        """The place on this worker; its reports are of these blocks, and raise if the worker is closing."""
        report = task_reporter([block.digest for block in blocks], check_worker_running)
        stopped = self.stop.exists if self.stop is not None else lambda: False
        return open_store(self.store), host_folder(), report, stopped


def run_block(site: Site, job: Job, folders: Folders) -> bool:
    """Run a block to the last of the job's milestones, committing the cells that are missing: a task.

    A later task continues every increment, so its checkpoint is committed before its cell, whether or not the job is
    resumable.

    Returns
    -------
    False if the site was stopped before the end; then there is a checkpoint if the disk has space for it.

    Raises
    ------
    StorageError : for a corrupt shard or a disk without space for a cell.
    """
    block, milestones, resumable = job
    store, scratch, report, stopped = site.open([block])
    chained = block.setting.increment is not None
    missing = [milestone for milestone in milestones if not cell_path(folders.cells, block, milestone).exists()]
    if chained:  # the next increment starts from the checkpoint
        learner = _learner_path(_path(folders.checkpoints, block), milestones[-1])
        if reached_position(folders.checkpoints, block) != milestones[-1] or not learner.exists():
            missing = list(milestones)
    if not missing:
        return True
    if stopped():
        return False
    corpus = block_corpus(block, store, scratch)
    run = load_checkpoint(folders.checkpoints, block, missing[0]) or start_run(folders.checkpoints, block, store)
    cost = state_bytes(block, store) / CHECKPOINT_BYTES_PER_SECOND
    polled = saved = time.monotonic()
    for milestone in missing:
        for position in run.learn(corpus, milestone):
            report(position.rows_before(corpus.n_rows))
            now = time.monotonic()
            if now - polled < POLL_SECONDS:
                continue
            polled, stop = now, stopped()
            # Scores of progressive predictions are not in a checkpoint: the increment is learned again.
            if not block.setting.progressive_metrics and _pays(now - saved, cost, requested=stop):
                _save_if_possible(folders, run)
                saved = run.clock = time.monotonic()
            if stop:
                return False
        if chained:
            save_checkpoint(folders.checkpoints, run)
        write_cell(cell_path(folders.cells, block, milestone), block, milestone, run.tables(corpus, store))
    if resumable and not chained and _pays(time.monotonic() - saved, cost, requested=True):
        _save_if_possible(folders, run)
    return True


def _save_if_possible(folders: Folders, run: BlockRun) -> None:
    """Save a checkpoint if the disk has space for it: without one the stream is learned again, with the same results.

    A cell is far smaller; if there is no space even for that, the search stops.
    """
    with suppress(StorageError):
        save_checkpoint(folders.checkpoints, run)


def _pays(lost: float, cost: float, *, requested: bool) -> bool:
    """Whether to save a checkpoint that takes `cost` seconds to write and would save `lost` seconds of work.

    With `requested` it will be used; otherwise only if the worker dies, and it must be a small part of the work.
    """
    return lost > max(1.0, 2 * cost) if requested else lost > max(10.0, 20 * cost)


# ----------------------------------------------------------------------------------------------------------------------
# Iterative parameter mixing: blocks with K parts of every epoch, which K tasks learn and one averages.
#
# Part p of an epoch is the positions ⌊np/K⌋ … ⌊n(p + 1)/K⌋ of its stream of n rows. Feature j then has the weight
#
#     w_j = Σ_p n_{p,j} w_{p,j} / Σ_p n_{p,j},
#
# where n_{p,j} is the number of rows of part p that have it; one that no part has seen keeps its weight, and the
# intercept is in every row. All parts of the next epoch start from these weights (`Learner.start_from`), at the mean of
# their rounds. Sums run in the order of the parts, so that bits depend on K and the order of the stream only.
#
# The tasks of an epoch wait for the average of the epoch before. A part commits a file with its weights; the average
# commits the cell of the epoch, then a checkpoint of the block, whose learner starts the next epoch, and removes the
# files of the parts. A task whose file exists, or whose epoch is averaged, does nothing: so a run that was killed
# continues from the parts that it has, and any task may run twice.
#
# References
# ----------
# McDonald, Hall and Mann 2010, "Distributed training strategies for the structured perceptron", §3.2.
# Agarwal, Chapelle, Dudík and Langford 2014, "A reliable effective terascale linear learning system", §2.2, who average
# the weights of a feature by what each part has seen of it.


def submit_epochs(pool: TaskPool, job: Job, store: Store, folders: Folders) -> Future:
    """Submit the tasks of a block with parts, from its last checkpoint on; returns the future of the last average.

    Checkpoints after the first missing cell are removed: they would end the tasks that write it.
    """
    block, goal = job.block, job.milestones[-1].epoch
    missing = [epoch for epoch in job.milestones if not cell_path(folders.cells, block, epoch).exists()]
    first = missing[0].epoch if missing else goal
    found = fitting_checkpoints(folders.checkpoints, block, job.milestones[-1])
    for checkpoint in found:
        if checkpoint.position.epoch >= first:
            checkpoint.remove()
    done = max((c.position.epoch for c in found if c.position.epoch < first), default=0)
    site = Site(store_reference(store), folders.stop)
    last: Future | None = None
    for epoch in range(done + 1, goal + 1):
        parts = [pool.submit(learn_part, site, block, epoch, part, folders, last) for part in range(block.parts)]
        last = pool.submit(average_epoch, site, block, epoch, folders, parts)
    assert last is not None  # at least one epoch is left
    return last


def learn_part(site: Site, block: Block, epoch: int, part: int, folders: Folders, _: None = None) -> None:
    """Learn a part of an epoch and commit its weights, unless they exist or the epoch is averaged: a task.

    It waits for the average of the epoch before, the last argument. Raises `StorageError` for a corrupt shard or a full
    disk.
    """
    store, scratch, report, stopped = site.open([block])
    path, end = _part_path(folders.checkpoints, block, epoch, part), StreamPosition(epoch, store.n_rows)
    if path.exists() or reached_position(folders.checkpoints, block) >= end or stopped():
        return
    learner, started = _before(block, epoch, store, folders).learner, time.monotonic()
    corpus = block_corpus(block, store, scratch)
    counts = np.zeros(store.n_features, np.int64)
    start, stop = (StreamPosition(epoch, store.n_rows * k // block.parts) for k in (part, part + 1))
    polled = time.monotonic()
    passes = passes_of(block.setting, corpus, stop, learner)._replace(start=start)
    for position, rows in stream(corpus, passes):
        np.add.at(counts, rows.indices, 1)
        learner.learn_rows(*rows)
        report((epoch - 1) * store.n_rows + position.position - start.position)
        if time.monotonic() - polled > POLL_SECONDS:
            polled = time.monotonic()
            if stopped():
                return
    seen, progress = np.flatnonzero(counts), learner.progress
    description = {
        "rows": progress.rows,
        "loss_sum": progress.loss_sum.tolist(),
        "error_count": progress.error_count.tolist(),
        "diverged": learner.diverged.tolist(),
        "rounds": learner.rounds,
        "seconds": time.monotonic() - started,
    }
    arrays = {
        "features": np.append(seen, store.n_features),
        "counts": np.append(counts[seen], progress.rows),
        "weights": _with_intercepts(learner.weights()[seen], learner),
    }
    write_checkpoint(path, description, arrays.items())


def average_epoch(site: Site, block: Block, epoch: int, folders: Folders, _: Sequence[None] = ()) -> None:
    """Average the parts of an epoch and commit its cell and the checkpoint, unless they exist: a task.

    It waits for the parts, the last argument. Raises `StorageError` for a corrupt shard or a full disk.
    """
    store, scratch, report, stopped = site.open([block])
    end = StreamPosition(epoch, store.n_rows)
    if reached_position(folders.checkpoints, block) >= end or stopped():
        return
    before = _before(block, epoch, store, folders)
    weights = _with_intercepts(before.learner.weights(), before.learner)
    sums, counts = np.zeros(weights.shape), np.zeros(len(weights), np.int64)
    totals, diverged, rounds, seconds = before.epoch_start, before.learner.diverged, 0, 0.0
    paths = [_part_path(folders.checkpoints, block, epoch, part) for part in range(block.parts)]
    for path in paths:
        try:
            with read_checkpoint(path) as (description, read):
                features, own_counts = read("features"), read("counts")
                sums[features] += own_counts[:, None] * read("weights").astype(np.float64)
                counts[features] += own_counts
                own = np.array(description["diverged"])  # rows of the part; those before it are in `totals`
                diverged = np.where((diverged == 0) & (own > 0), totals.rows + own, diverged)
                totals = ProgressiveTotals(
                    totals.rows + description["rows"],
                    totals.loss_sum + np.array(description["loss_sum"]),
                    totals.error_count + np.array(description["error_count"]),
                )
                rounds, seconds = rounds + description["rounds"], seconds + description["seconds"]
        except DamagedError:
            if reached_position(folders.checkpoints, block) >= end:  # this task runs twice, and the other was first
                return
            remove_file(path)  # a corrupt part is learned again
            raise
    seen = counts > 0
    weights[seen] = sums[seen] / counts[seen, None]
    weights[:, np.repeat(diverged > 0, store.n_outputs)] = 0
    learner = before.learner.new()
    learner.start_from(weights[:-1], max(1, rounds // block.parts), weights[-1] if learner.intercept else None)
    learner.stop_diverged(diverged)
    curves = [[point] for point in curve_rows(totals, numbers=learner.n_classes is None)]
    run = BlockRun(block, learner, before.epoch_start, end, curves, seconds, totals)
    corpus = block_corpus(block, store, scratch)
    write_cell(cell_path(folders.cells, block, end), block, end, run.tables(corpus, store))
    save_checkpoint(folders.checkpoints, BlockRun(block, learner, totals, end))
    for path in paths:
        remove_file(path)
    report(end.rows_before(store.n_rows))


def _with_intercepts(weights: NDArray[Any], learner: Learner) -> NDArray[Any]:
    """Weights (features, columns), with the intercepts as those of one more feature."""
    return np.vstack([weights, learner.intercepts().reshape(1, -1)])


def _before(block: Block, epoch: int, store: Store, folders: Folders) -> BlockRun:
    """The block at the start of an epoch; its `epoch_start` has the totals of the earlier ones."""
    if epoch == 1:
        return BlockRun.new(block, store)
    position = StreamPosition(epoch - 1, store.n_rows)
    run = load_checkpoint(folders.checkpoints, block, position)
    if run is None or run.position != position:
        raise StorageError(
            f"The averaged weights of epoch {epoch - 1} in {folders.checkpoints} are missing: run again.",
            code="state-lost",
        )
    return run


def _part_path(checkpoints: Location, block: Block, epoch: int, part: int) -> Location:
    return checkpoints / f"{block.setting.digest}-{block.digest}-{epoch}-part-{part}-{PART_FORMAT}.npz"
