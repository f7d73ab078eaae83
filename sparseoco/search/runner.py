"""The runner of a search: stages, tasks, chains of increments."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

from distributed import Future

from sparseoco.core.logs import log_event, report_progress
from sparseoco.execution.clusters import Outcome, TaskPool, failure_reason, task_reports
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.epochs import run_epoch_block
from sparseoco.search.packing import Job, cluster_capacity, halved, pack
from sparseoco.search.selection import Stage, full_run, plan_stages, survivors
from sparseoco.search.worker import Folders, Site, furthest_checkpoints, remove_unneeded, run_block, submit_epochs
from sparseoco.storage.commit import commit_bytes, make_folder, remove_file, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import Row
from sparseoco.store.shards import Session, store_reference
from sparseoco.training.block import Block, Cells, Key, Setting, Tables, cell_path, search_settings
from sparseoco.training.options import SearchOptions
from sparseoco.training.search_tables import SEARCH_TABLES
from sparseoco.training.stream import StreamPosition

# ----------------------------------------------------------------------------------------------------------------------
# Blocks as tasks on the cluster: stream blocks run concurrently, blocks of epoch methods one after the other.


BLOCK_TRIES = 2  # for a configuration whose worker was killed
Failures = dict[Key, str]
"""By configuration and fold, the reason why it could not be run."""


class ProgressTracker:
    """Progress in rows × configurations: the position of each configuration in each fold, of `rows` each."""

    def __init__(self, session: Session, step: str, keys: Sequence[Key], rows: int) -> None:
        self.session, self._step, self._rows = session, step, rows
        self.blocks: dict[str, Block] = {}
        """The blocks whose tasks report, by digest."""
        self._reached = dict.fromkeys(keys, 0)
        self._lock = Lock()  # workers report in a thread of their own

    def reach(self, keys: Sequence[Key], rows: int | None = None) -> None:
        """Record that these configurations are at `rows`; None for the end, also of those that failed."""
        now = self._rows if rows is None else min(rows, self._rows)
        with self._lock:
            for key in keys:
                self._reached[key] = max(now, self._reached[key])
            report_progress(self._step, sum(self._reached.values()), len(self._reached) * self._rows)

    @contextmanager
    def reports(self) -> Iterator[None]:
        """A context in which the reports of tasks are received."""

        def reported(name: str, rows: int) -> None:
            if name in self.blocks:
                self.reach(self.blocks[name].keys, rows)

        self.reach([], 0)
        with task_reports(self.session.client, reported):
            yield


def run_jobs(tracker: ProgressTracker, jobs: list[Job], folders: Folders, deadline: float | None) -> Failures:
    """Run stream blocks in the given order, until their cells are committed; returns the reasons of failures.

    A block that fails is split in halves until the failing configuration is alone; if its worker died, it is then tried
    once more with nothing else running. After `deadline` (`time.monotonic()`) no block is started, and running ones
    save a checkpoint and stop: configurations without a cell then are neither done nor failed. Raises `SparseocoError`
    for what would stop every block (a corrupt shard, a full disk).
    """
    client, store = tracker.session
    pool, failures = TaskPool(client), Failures()
    with tracker.reports():

        def start(job: Job) -> Future:
            tracker.blocks[job.block.digest] = job.block
            if job.block.parts > 1:
                return submit_epochs(pool, job, store, folders)
            # Only a reference, paths and a description are sent, so a lost task can run again on any worker.
            return pool.submit(run_block, Site(store_reference(store), folders.stop), job, folders)

        for outcome in pool.run(
            jobs,
            start,
            split=lambda job: [job._replace(block=half) for half in halved(job.block, store)],
            tries=BLOCK_TRIES,
            deadline=deadline,
            stop=lambda: commit_bytes(folders.stop, b""),
        ):
            _log_outcome(outcome)
            block, goal = outcome.task.block, outcome.task.milestones[-1]
            if outcome.failure is not None:
                failures |= dict.fromkeys(block.keys, outcome.failure)
                tracker.reach(block.keys)
            # A cell survives the worker that wrote it, the result of the task does not.
            elif outcome.error is None and cell_path(folders.cells, block, goal).exists():
                tracker.reach(block.keys, goal.rows_before(store.n_rows))
    return failures


def run_epoch_jobs(tracker: ProgressTracker, jobs: list[Job], folders: Folders, deadline: float | None) -> Failures:
    """Run blocks of epoch methods to their last epoch; otherwise as `run_jobs`.

    One block runs at a time, since each is spread over the whole cluster.
    """
    session, failures = tracker.session, Failures()
    waiting = [job.block for job in reversed(jobs)]

    def late() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    while waiting and not late():
        block = waiting.pop()
        report = partial(tracker.reach, block.keys)
        try:
            run_epoch_block(session, block, folders.cells, folders.checkpoints, report, stopped=late)
        except Exception as error:  # any failure of a task; `failure_reason` raises what would stop every block
            reason = failure_reason(error)
            halves = halved(block, session.store)
            if len(halves) == 2:
                waiting += reversed(halves)
            else:
                failures |= dict.fromkeys(block.keys, reason)
                tracker.reach(block.keys)
    return failures


def _log_outcome(outcome: Outcome[Job]) -> None:
    block, goal, error = outcome.task.block, outcome.task.milestones[-1], outcome.error
    fields: dict[str, Any] = {
        "block": block.digest[:12],
        "algorithm": block.algorithm,
        "configurations": len(block.configurations),
        "fold": block.setting.fold,
        "epoch": goal.epoch,
        "row": goal.position,
        "seconds": round(outcome.seconds, 3),
    }
    if error is not None:
        fields |= {"level": logging.WARNING, "error": type(error).__name__}
    log_event("search", "block finished" if error is None else "block failed", **fields)


# ----------------------------------------------------------------------------------------------------------------------
# Searches: every configuration in every fold, stage by stage.
#
# Results are committed as cells and identified by their contents. A search that was killed, extended or stopped at its
# time limit runs what is missing, and ends with the same tables as one that was not interrupted.
#
# `search_configurations` goes through the stages; `Runner` packs missing work into jobs; the task `run_block` trains
# each to its milestones and commits cells, from which the tables are built. Nightly runs use `Runner` for a chain of
# increments.


Work = Sequence[tuple[Setting, str, tuple[StreamPosition, ...]]]
"""Configurations, by setting and identity, with the milestones at which their cells are missing."""


@dataclass(eq=False)
class Runner:
    """Configurations under settings, whose results are committed to a folder.

    Parameters
    ----------
    settings : their digests.
    deadline : `time.monotonic()` from which on no block is started.

    Attributes
    ----------
    grid, configurations : in the order of their numbers, and by identity.
    cells : the results so far.
    failures : by configuration and fold, the reason why it could not be run.
    """

    options: SearchOptions
    settings: Sequence[str]
    folder: Location
    deadline: float | None

    def __post_init__(self) -> None:
        self.grid = self.options.configurations()
        self.configurations = {configuration.identity: configuration for configuration in self.grid}
        self.folders = Folders.of(self.folder)
        self.cells = Cells(self.folders.cells, self.settings)
        self.failures = Failures()

    def run(self, tracker: ProgressTracker, work: Work, *, resumable: bool = True) -> Failures:
        """Run `work`, all of stream learners or all of epoch methods; returns the reasons of failures.

        `resumable` as in `Job`. Raises `InputError` if not even one configuration fits in memory, and as `run_jobs`.
        """
        starts = furthest_checkpoints(self.folders.checkpoints, {_start(setting) for setting, _, _ in work})
        blocks = {key: start.block.digest for key, start in starts.items()}
        begun = [
            (self.configurations[name], setting, milestones, blocks.get((_start(setting), name)))
            for setting, name, milestones in work
        ]
        capacity, online = cluster_capacity(tracker.session, self.options), find_algorithm(begun[0][0].algorithm).online
        if not online:  # one block runs at a time, spread over the cluster
            capacity = capacity._replace(tasks=1)
        make_folder(self.folders.stop.parent)
        remove_file(self.folders.stop)
        jobs = pack(begun, self.options, tracker.session.store, capacity, resumable=resumable)
        failures = (run_jobs if online else run_epoch_jobs)(tracker, jobs, self.folders, self.deadline)
        self.failures |= failures
        self.cells.refresh()
        remove_file(self.folders.stop)
        return failures


def _start(setting: Setting) -> str:
    """The setting whose checkpoints a block starts from: that of the previous increment or, in a search, its own."""
    return setting.digest if setting.increment is None else setting.increment.previous or ""


def search_deadline(options: SearchOptions) -> float | None:
    """When a search that starts now ends: `time.monotonic()` at its time limit."""
    return None if options.time_limit is None else time.monotonic() + options.time_limit


def search_configurations(
    session: Session, options: SearchOptions, folder: Location, deadline: float | None = None
) -> Tables:
    """The tables of a search, rows in order of configuration, fold and epoch; cells and checkpoints go to `folder`.

    After `deadline` (`time.monotonic()`) no more work is started.

    Stream learners run stage by stage; epoch methods run to the end, since they are compared at convergence, as do
    learners with several parts.
    Configurations that failed, were dropped, or are unfinished at the time limit have rows with the
    reason.

    Raises `InputError` if not even one configuration fits in memory, `SparseocoError` for what would stop every block
    (a corrupt shard, a full disk).
    """
    store, settings = session.store, search_settings(options, session.store)
    digests = [setting.digest for setting in settings]
    runner = Runner(options, digests, folder, deadline)
    search = _Search(runner, settings, store.n_rows)
    log_event("search", "search started", configurations=len(runner.grid), folds=options.folds, found=len(runner.cells))
    keys = search.keys([*search.alive, *search.divided, *search.offline])
    tracker = ProgressTracker(session, "search", keys, options.epochs * store.n_rows)
    done = True
    for stage, names in search.rounds(plan_stages(options, store.n_rows, max(1, len(search.alive)))):
        work = search.missing(stage, names)
        waiting = {(setting.fold, name) for setting, name, _ in work}
        tracker.reach([key for key in search.keys(names) if key not in waiting], stage.goal.rows_before(store.n_rows))
        if work:
            runner.run(tracker, work, resumable=not stage.is_last)
        if not search.is_complete(stage, names):
            done = False
        elif names is search.alive:
            tracker.reach(search.keys(search.decide(stage)))
            remove_unneeded(runner.folders.checkpoints, digests, {*search.alive, *search.divided})
    if done:
        remove_folder(runner.folders.checkpoints)
    tables = search.tables()
    for row in tables["metrics"]:
        if row["status"] in ("diverged", "failed"):
            fields = {name: row[name] for name in ("configuration", "algorithm", "fold", "epoch", "reason")}
            log_event("search", f"configuration {row['status']}", level=logging.WARNING, **fields)
    return tables


class _Search:
    """The configurations of a search by identity: which continue, and why the others do not.

    `alive` are the stream learners that continue, `divided` those with several parts where a search stops some early:
    they have no weights before the end of an epoch, and run all of them; `offline` are the epoch methods.
    """

    def __init__(self, runner: Runner, settings: Sequence[Setting], n_rows: int) -> None:
        self._runner, self._settings, self._n_rows = runner, settings, n_rows
        online = {name for name, c in runner.configurations.items() if find_algorithm(c.algorithm).online}
        decided = runner.options.halving is not None
        self.divided = [name for name, c in runner.configurations.items() if c.parts > 1 and decided]
        self.alive = [name for name in runner.configurations if name in online and name not in self.divided]
        self.offline = [name for name in runner.configurations if name not in online]
        self._endings: dict[str, tuple[StreamPosition, str]] = {}
        """Where a configuration was dropped, in all folds, and why."""

    def rounds(self, stages: Sequence[Stage]) -> Iterator[tuple[Stage, list[str]]]:
        """Each stage with the configurations that it is for; those that continue end with the first incomplete one."""
        for stage in stages if self.alive else ():
            if not stage.is_last and len(self.alive) == 1:
                continue
            names = self.alive
            yield stage, names
            if not self.is_complete(stage, names):
                break
        for names in (self.divided, self.offline):
            yield full_run(self._runner.options, self._n_rows), names

    def keys(self, names: Sequence[str]) -> list[Key]:
        """These configurations in every fold."""
        return [(setting.fold, name) for name in names for setting in self._settings]

    def missing(self, stage: Stage, names: Sequence[str]) -> Work:
        """The milestones of a stage at which cells of these configurations are missing; failed ones are left out."""
        at, goals = self._runner.cells.at, stage.milestones
        found = [
            (setting, name, tuple(position for position in goals if at(setting.digest, name, position) is None))
            for setting in self._settings
            for name in names
            if (setting.fold, name) not in self._runner.failures
        ]
        return [entry for entry in found if entry[2]]

    def is_complete(self, stage: Stage, names: Sequence[str]) -> bool:
        """Whether these configurations, except those that failed, have reached the end of a stage."""
        return not any(stage.goal in milestones for _, _, milestones in self.missing(stage, names))

    def decide(self, stage: Stage) -> list[str]:
        """End the configurations that do not continue after a stage; returns them."""
        options = self._runner.options
        if stage.is_last or options.halving is None:
            return []
        rows: dict[str, list[Row]] = {}  # of each, the metrics at the goal, one row per fold with a cell
        for name in self.alive:
            found = [self._runner.cells.at(setting.digest, name, stage.goal) for setting in self._settings]
            rows[name] = [tables["metrics"][0] for tables in found if tables is not None]
        complete = {name: own for name, own in rows.items() if len(own) == len(self._settings)}
        best = survivors(complete, options.halving.factor, options.selection_metric)
        for name in rows.keys() - best:
            failed = name not in complete or any(row["status"] != "ok" for row in complete[name])
            why = ": another fold failed" if failed else " by successive halving"
            self._endings[name] = stage.goal, f"dropped at row {stage.goal.position:,}{why}"
        ended = [name for name in self.alive if name in self._endings]
        self.alive = [name for name in self.alive if name not in self._endings]
        log_event("search", "stage finished", epoch=stage.goal.epoch, row=stage.goal.position, left=len(self.alive))
        return ended

    def tables(self) -> Tables:
        """The rows of all tables."""
        tables: Tables = {name: [] for name in SEARCH_TABLES}
        for configuration in self._runner.grid:
            described = configuration.columns
            for setting in self._settings:
                key: Row = {"configuration": configuration.number, "fold": setting.fold}
                own = key | described | {"loss": setting.loss, "penalty": setting.penalty}
                for table, rows in self._tables(configuration.identity, setting).items():
                    tables[table] += [(own if table == "metrics" else key) | row for row in rows]
        return tables

    def _tables(self, name: str, setting: Setting) -> Tables:
        """The rows of a configuration in a fold, up to where it ended, failed or was left unfinished."""
        cells, end = self._runner.cells, StreamPosition(setting.epochs, self._n_rows)
        last, dropped = self._endings.get(name, (end, ""))
        ends = [min(StreamPosition(epoch, self._n_rows), last) for epoch in range(1, last.epoch + 1)]
        parts = []
        for position in ends:
            part = cells.at(setting.digest, name, position)
            outcome: Row = {}
            if part is None:
                reason = self._runner.failures.get((setting.fold, name))
                outcome = {"status": "failed", "reason": reason}
                if reason is None:
                    limit = self._runner.options.time_limit
                    outcome = {"status": "unfinished", "reason": f"not finished within the time limit of {limit:g} s"}
                part = cells.last(setting.digest, name, position.epoch) or {"metrics": [{"epoch": position.epoch}]}
            elif dropped and position == last and part["metrics"][0]["status"] == "ok":
                outcome = {"status": "dropped", "reason": dropped}
            parts.append({**part, "metrics": [part["metrics"][0] | outcome]})
            if outcome:
                break
        rows = {table: [row for part in parts for row in part.get(table, [])] for table in SEARCH_TABLES}
        return rows | {"feature_survival": parts[-1].get("feature_survival", [])}
