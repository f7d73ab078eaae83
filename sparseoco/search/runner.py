"""The runner of a search: stages, tasks, chains of increments."""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

from distributed import Client, Future

from sparseoco.core.errors import DamagedError, InputError, SparseocoError
from sparseoco.core.formatting import plural
from sparseoco.core.logs import ProgressCallback, log_event
from sparseoco.execution.pool import Outcome, TaskError, TaskPool, failure_reason, task_reports
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.epochs import run_epoch_block
from sparseoco.search.packing import BlockKey, Job, cluster_capacity, halved, pack
from sparseoco.search.results import (
    EMPTY,
    Checkpoint,
    IncrementPlan,
    furthest_checkpoints,
    increment_store,
    reached_position,
    read_increment_results,
    remove_unneeded,
)
from sparseoco.search.selection import Stage, epochs_without_improvement, full_run, plan_stages, survivors
from sparseoco.search.worker import Folders, Site, run_block, submit_epochs
from sparseoco.storage.commit import commit_bytes, make_folder, remove_file, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.tables import SEARCH_TABLES, Row
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, Cells, Key, Setting, Tables, cell_path, configuration_id, search_setting
from sparseoco.training.options import Configuration, SearchOptions
from sparseoco.training.stream import NO_FOLD, StreamPosition

# ----------------------------------------------------------------------------------------------------------------------
# Blocks as tasks on the cluster: stream blocks run concurrently, blocks of epoch methods one after the other.


BLOCK_TRIES = 2  # for a configuration whose worker was killed


class ProgressTracker:
    """Progress in rows × configurations: the position of each configuration in each fold, of `rows` each."""

    def __init__(self, step: str, keys: Sequence[Key], rows: int, progress: ProgressCallback) -> None:
        self._step, self._rows, self._progress = step, rows, progress
        self._reached = dict.fromkeys(keys, 0)
        self._total = len(self._reached) * rows
        self._done = 0
        self._lock = Lock()  # workers report in a thread of their own

    def reach(self, keys: Sequence[Key], rows: int | None = None) -> None:
        """Record that these configurations are at `rows`; None for the end, also of those that failed."""
        now = self._rows if rows is None else min(rows, self._rows)
        with self._lock:
            for key in keys:
                if now > self._reached[key]:
                    self._done += now - self._reached[key]
                    self._reached[key] = now
            self._progress(self._step, self._done, self._total)


def run_jobs(
    client: Client,
    jobs: Sequence[Job],
    store: Store,
    folders: Folders,
    tracker: ProgressTracker,
    deadline: float | None,
) -> dict[Key, str]:
    """Run stream blocks in the given order, until their cells are committed; returns the reasons of failures.

    A block that fails is split in halves until the failing configuration is alone; if its worker died, it is then tried
    once more with nothing else running. After `deadline` (`time.monotonic()`) no block is started, and running ones
    save a checkpoint and stop: configurations without a cell then are neither done nor failed. Raises `SparseocoError`
    for what would stop every block (a corrupt shard, a full disk).
    """
    pool, failures = TaskPool(client), dict[Key, str]()
    with reported_rows(client, tracker, {}) as blocks:

        def start(job: Job) -> Future:
            blocks[job.block.digest] = job.block
            if job.block.parts > 1:
                return submit_epochs(pool, job, store, folders)
            # Only a reference, paths and a description are sent, so a lost task can run again on any worker.
            arguments = job.block, job.milestones, folders, job.resumable
            return pool.submit(run_block, Site.of(store, folders.stop), *arguments)

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


def run_parts(
    client: Client, blocks: Sequence[Block], store: Store, work: Location, tracker: ProgressTracker, failure: str
) -> None:
    """Run blocks of one configuration with several parts to their last epoch, in the folder `work`.

    Raises `TaskError`, which begins with `failure`, if one cannot be run.
    """
    epochs = range(1, blocks[0].setting.epochs + 1)
    milestones = tuple(StreamPosition(epoch, store.n_rows) for epoch in epochs)
    folders = Folders.of(work)
    waiting = [block for block in blocks if reached_position(folders.checkpoints, block) < milestones[-1]]
    jobs = [Job(block, milestones, resumable=False) for block in waiting]
    for reason in run_jobs(client, jobs, store, folders, tracker, None).values():
        raise TaskError(failure, reason)


def run_epoch_jobs(
    client: Client,
    jobs: Sequence[Job],
    store: Store,
    folders: Folders,
    tracker: ProgressTracker,
    deadline: float | None,
) -> dict[Key, str]:
    """Run blocks of epoch methods to their last epoch; otherwise as `run_jobs`.

    One block runs at a time, since each is spread over the whole cluster.
    """
    failures: dict[Key, str] = {}
    waiting = [job.block for job in reversed(jobs)]

    def late() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    while waiting and not late():
        block = waiting.pop()

        def report(rows: int, keys: list[Key] = block.keys) -> None:
            tracker.reach(keys, rows)

        try:
            run_epoch_block(client, block, store, folders.cells, folders.checkpoints, report, stopped=late)
        except Exception as error:  # any failure of a task; `failure_reason` raises what would stop every block
            reason = failure_reason(error)
            halves = halved(block, store)
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
    if error is None:
        log_event("search", "block finished", **fields)
    else:
        log_event("search", "block failed", level=logging.WARNING, **fields, error=type(error).__name__)


@contextmanager
def reported_rows(client: Client, tracker: ProgressTracker, blocks: dict[str, Block]) -> Iterator[dict[str, Block]]:
    """Track what workers report of `blocks`, by digest; more blocks may be added to the mapping that it yields."""

    def reported(name: str, rows: int) -> None:
        block = blocks.get(name)
        if block is not None:
            tracker.reach(block.keys, rows)

    tracker.reach([], 0)
    with task_reports(client, reported):
        yield blocks


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


class Runner:
    """Configurations under settings, whose results are committed to a folder.

    Parameters
    ----------
    settings : their digests.

    Attributes
    ----------
    configurations : by identity.
    cells : the results so far.
    failures : by configuration and fold, the reason why it could not be run.
    """

    def __init__(
        self,
        configurations: Iterable[Configuration],
        options: SearchOptions,
        settings: Iterable[str],
        folder: Location,
    ) -> None:
        self.options = options
        self.configurations = {configuration_id(c.algorithm, c.parameters, c.weighting): c for c in configurations}
        self.folders = Folders.of(folder)
        self.cells = Cells(self.folders.cells, settings)
        self.failures: dict[Key, str] = {}

    def jobs(
        self, client: Client, store: Store, work: Work, *, resumable: bool = True, whole_cluster: bool = False
    ) -> list[Job]:
        """The jobs of `work` on a store, longest first.

        `resumable` as in `run_block`; with `whole_cluster`, one block runs at a time, spread over the cluster. Raises
        `InputError` if not even one configuration fits in memory.
        """
        groups: dict[BlockKey, list[Configuration]] = {}
        starts = furthest_checkpoints(self.folders.checkpoints, {_start(setting) for setting, _, _ in work})
        for setting, name, milestones in work:
            start, configuration = starts.get((_start(setting), name)), self.configurations[name]
            key = BlockKey.of(setting, milestones, None if start is None else start.block.digest, configuration)
            groups.setdefault(key, []).append(configuration)
        capacity = cluster_capacity(client, self.options, store)
        if whole_cluster:
            capacity = capacity._replace(tasks=1)
        return pack(groups, self.options, store, capacity, resumable=resumable)

    @contextmanager
    def running(self) -> Iterator[None]:
        """A context to run jobs in, without the file that stops them; at its end the new results are read."""
        make_folder(self.folders.stop.parent)
        remove_file(self.folders.stop)
        yield
        self.cells.refresh()
        remove_file(self.folders.stop)


def _start(setting: Setting) -> str:
    """The setting whose checkpoints a block starts from: that of the previous increment or, in a search, its own."""
    return setting.digest if setting.increment is None else setting.increment.previous or ""


def search_configurations(
    client: Client,
    configurations: Sequence[Configuration],
    options: SearchOptions,
    store: Store,
    folder: Location,
    progress: ProgressCallback,
) -> Tables:
    """The tables of a search, rows in order of configuration, fold and epoch; cells and checkpoints go to `folder`.

    Stream learners run stage by stage; epoch methods run to the end, since they are compared at convergence, as do
    learners with several parts.
    Configurations that failed, were dropped or stopped early, or are unfinished at the time limit have rows with the
    reason.

    Raises `InputError` if not even one configuration fits in memory, `SparseocoError` for what would stop every block
    (a corrupt shard, a full disk).
    """
    deadline = None if options.time_limit is None else time.monotonic() + options.time_limit
    folds = range(options.folds) if options.folds > 1 else [NO_FOLD]
    settings = [search_setting(options, store, fold) for fold in folds]
    digests = [setting.digest for setting in settings]
    runner = Runner(configurations, options, digests, folder)
    search = _Search(runner, settings, store.n_rows)
    log_event(
        "search", "search started", configurations=len(configurations), folds=options.folds, found=len(runner.cells)
    )
    tracker = ProgressTracker(
        "search",
        search.keys([*search.alive, *search.divided, *search.offline]),
        options.epochs * store.n_rows,
        progress,
    )

    done = True
    for stage, names in search.rounds(plan_stages(options, store.n_rows, max(1, len(search.alive)))):
        work = search.missing(stage, names)
        waiting = {(setting.fold, name) for setting, name, _ in work}
        tracker.reach([key for key in search.keys(names) if key not in waiting], stage.goal.rows_before(store.n_rows))
        if work:
            spread = names is search.offline
            run = run_epoch_jobs if spread else run_jobs
            with runner.running():
                jobs = runner.jobs(client, store, work, resumable=stage.rule != "end", whole_cluster=spread)
                runner.failures |= run(client, jobs, store, runner.folders, tracker, deadline)
        if not search.is_complete(stage, names):
            done = False
        elif names is search.alive:
            tracker.reach(search.keys(search.decide(stage)))
            remove_unneeded(runner.folders.checkpoints, digests, {*search.alive, *search.divided})
    if done:
        remove_folder(runner.folders.checkpoints)
    tables = search.tables(configurations)
    for row in tables["metrics"]:
        if row["status"] in ("diverged", "failed"):
            fields = {name: row[name] for name in ("configuration", "algorithm", "fold", "epoch", "reason")}
            log_event("search", f"configuration {row['status']}", level=logging.WARNING, **fields)
    return tables


class _Ending(NamedTuple):
    """Where a configuration left the search, in all folds, with its status and reason."""

    position: StreamPosition
    status: str
    reason: str


class _Search:
    """The configurations of a search by identity: which continue, and why the others do not.

    `alive` are the stream learners that continue, `divided` those with several parts where a search stops some early:
    they have no weights before the end of an epoch, and run all of them; `offline` are the epoch methods.
    """

    def __init__(self, runner: Runner, settings: Sequence[Setting], n_rows: int) -> None:
        self._runner, self._settings, self._n_rows = runner, settings, n_rows
        online = {name for name, c in runner.configurations.items() if find_algorithm(c.algorithm).online}
        decided = runner.options.halving is not None or runner.options.patience is not None
        self.divided = [name for name, c in runner.configurations.items() if c.parts > 1 and decided]
        self.alive = [name for name in runner.configurations if name in online and name not in self.divided]
        self.offline = [name for name in runner.configurations if name not in online]
        self._endings: dict[str, _Ending] = {}

    def rounds(self, stages: Sequence[Stage]) -> Iterator[tuple[Stage, list[str]]]:
        """Each stage with the configurations that it is for; those that continue end with the first incomplete one."""
        for stage in stages if self.alive else ():
            if stage.rule == "halving" and len(self.alive) == 1:
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
        return all(
            self._runner.cells.at(setting.digest, name, stage.goal) is not None
            for setting in self._settings
            for name in names
            if (setting.fold, name) not in self._runner.failures
        )

    def decide(self, stage: Stage) -> list[str]:
        """End the configurations that do not continue after a stage; returns them."""
        if stage.rule == "end":
            return []
        options = self._runner.options
        at = f"row {stage.goal.position:,}" if stage.rule == "halving" else f"the end of epoch {stage.goal.epoch}"
        rows = {name: self._rows(name, stage.goal) for name in self.alive}
        complete = {name: found for name, found in rows.items() if len(found) == len(self._settings)}
        for name, found in rows.items():
            if name not in complete or any(row["status"] != "ok" for row in found):
                self._endings[name] = _Ending(stage.goal, "dropped", f"dropped at {at}: another fold failed")
        if stage.rule == "halving" and options.halving is not None:
            best = survivors(complete, options.halving.factor, options.selection_metric)
            ending = _Ending(stage.goal, "dropped", f"dropped at {at} by successive halving")
            for name in self.alive:
                if name not in best:
                    self._endings.setdefault(name, ending)
        elif options.patience is not None:
            for name in self.alive:
                since = 0 if name in self._endings else self._epochs_without_improvement(name, stage.goal.epoch)
                if since >= options.patience:
                    reason = f"stopped after epoch {stage.goal.epoch}: none since epoch {stage.goal.epoch - since}"
                    self._endings[name] = _Ending(stage.goal, "stopped", f"{reason} improved it")
        ended = [name for name in self.alive if name in self._endings]
        self.alive = [name for name in self.alive if name not in self._endings]
        log_event("search", "stage finished", epoch=stage.goal.epoch, row=stage.goal.position, left=len(self.alive))
        return ended

    def tables(self, configurations: Sequence[Configuration]) -> Tables:
        """The rows of all tables."""
        tables: Tables = {name: [] for name in SEARCH_TABLES}
        for configuration in configurations:
            name = configuration_id(configuration.algorithm, configuration.parameters, configuration.weighting)
            for setting in self._settings:
                for table, rows in self._tables(name, setting).items():
                    tables[table] += [_with_key(row, table, configuration, setting) for row in rows]
        return tables

    def _tables(self, name: str, setting: Setting) -> Tables:
        """The rows of a configuration in a fold, up to where it ended, failed or was left unfinished."""
        cells, ending = self._runner.cells, self._endings.get(name)
        last = StreamPosition(setting.epochs, self._n_rows) if ending is None else ending.position
        ends = [min(StreamPosition(epoch, self._n_rows), last) for epoch in range(1, last.epoch + 1)]
        parts = []
        for position in ends:
            part = cells.at(setting.digest, name, position)
            outcome: Row = {}
            if part is None:
                reason = self._runner.failures.get((setting.fold, name))
                outcome = {"status": "failed", "reason": reason} if reason else self._unfinished()
                part = cells.last(setting.digest, name, position.epoch) or {"metrics": [{"epoch": position.epoch}]}
            elif ending is not None and position == last and part["metrics"][0]["status"] == "ok":
                outcome = {"status": ending.status, "reason": ending.reason}
            parts.append({**part, "metrics": [part["metrics"][0] | outcome]})
            if outcome:
                break
        rows = {table: [row for part in parts for row in part.get(table, [])] for table in SEARCH_TABLES}
        return rows | {"feature_survival": parts[-1].get("feature_survival", [])}

    def _unfinished(self) -> Row:
        limit = self._runner.options.time_limit
        return {"status": "unfinished", "reason": f"not finished within the time limit of {limit:g} s"}

    def _rows(self, name: str, position: StreamPosition) -> list[Row]:
        """The metrics of a configuration at a position, one row per fold with a cell."""
        found = [self._runner.cells.at(setting.digest, name, position) for setting in self._settings]
        return [tables["metrics"][0] for tables in found if tables is not None]

    def _epochs_without_improvement(self, name: str, epoch: int) -> int:
        ends = [self._rows(name, StreamPosition(e, self._n_rows)) for e in range(1, epoch + 1)]
        options = self._runner.options
        return epochs_without_improvement(ends, options.min_improvement, options.selection_metric)


def _with_key(row: Row, table: str, configuration: Configuration, setting: Setting) -> Row:
    key: Row = {"configuration": configuration.number, "fold": setting.fold}
    if table == "metrics":
        key |= {
            "algorithm": configuration.algorithm,
            "parameters": configuration.parameters_json,
            **configuration.weighting.model_dump(),
            "loss": setting.loss,
            "penalty": setting.penalty,
        }
    return key | row


# ----------------------------------------------------------------------------------------------------------------------
# A chain of increments, learned in order by every configuration of a grid.
#
# A configuration continues from its state at the end of the previous increment. Without one, since it is new in the
# grid or the state was lost, it restarts after the last increment with a state, or from the first increment.


MAX_MARKS = 365  # of the curve of a model: a mark per increment


class IncrementChain:
    """The increments of a store up to version `last`, learned by the configurations of a grid in `folder`.

    The first `decided` of them are learned only if a later one continues from them.
    """

    def __init__(
        self,
        options: SearchOptions,
        store: Location,
        last: int,
        decided: int,
        folder: Location,
        deadline: float | None = None,
    ) -> None:
        if any(configuration.parts > 1 for configuration in options.configurations()):
            raise InputError(
                "Nightly training continues from the state of one learner: it does not take parts.",
                code="unsupported-combination",
            )
        self._options, self._store, self._folder = options, store, folder
        self.plan = IncrementPlan(options, store, last)
        results = read_increment_results(folder)
        if len(results.settings) > last or results.plan != self.plan.identity(len(results.settings)):
            results = EMPTY  # of other options or other documents
        self.plan.resolve(results.settings)
        self._results, self._deadline = results, deadline
        self._runner = Runner(options.configurations(), options, self.plan.digests, folder)
        self._configurations = self._runner.configurations
        states = self._states()
        self._first = {name: self._first_to_learn(name, decided, states) for name in self._configurations}

    @property
    def first(self) -> int:
        """The first increment that has to be learned; one after the last if all have been."""
        return min(self._first.values())

    @property
    def checkpoints(self) -> Location:
        """The folder of the states at the ends of increments."""
        return self._runner.folders.checkpoints

    def learn(self, client: Client, version: int, progress: ProgressCallback) -> bool:
        """Learn an increment, whose predecessors were learned; returns whether anything was left to learn.

        Raises `InputError` if not even one configuration fits in memory, `SparseocoError` at the time limit and for
        what would stop every block (a corrupt shard, a full disk).
        """
        names = [name for name, first in self._first.items() if first <= version]
        names = [name for name in names if (NO_FOLD, name) not in self._runner.failures]
        if not names:
            return False
        failures = self._run(client, version, names, progress)
        if failures:  # promotion is final, so configurations that failed, perhaps for want of memory, are tried again
            retried = [name for _, name in failures]
            for key in failures:
                del self._runner.failures[key]
            self._run(client, version, retried, progress)
        unfinished = [
            name
            for name in names
            if self._metrics(version, name) is None and (NO_FOLD, name) not in self._runner.failures
        ]
        if unfinished:
            raise SparseocoError(
                f"The time limit of {self._options.time_limit:g} s left {plural(len(unfinished), 'configuration')} of "
                f"increment {version} unfinished: run again to resume.",
                code="time-limit",
            )
        return True

    def _run(self, client: Client, version: int, names: list[str], progress: ProgressCallback) -> dict[Key, str]:
        """Learn an increment with these configurations; returns the reasons of failures."""
        setting, store, runner = self.plan.setting(version), increment_store(self._store, version), self._runner
        for folder in runner.folders[:2]:
            make_folder(folder)
        keys = [(NO_FOLD, name) for name in names]
        tracker = ProgressTracker(f"increment {version}", keys, max(store.n_rows, 1), progress)
        work = [(setting, name, (self.plan.end(version),)) for name in names]
        with runner.running():
            jobs = runner.jobs(client, store, work)
            failures = run_jobs(client, jobs, store, runner.folders, tracker, self._deadline)
        runner.failures |= failures
        return failures

    def remove_unneeded(self, version: int) -> None:
        """Remove states that no later increment continues from, after the increments up to `version` are learned."""
        states = self._states()
        needed = [
            state
            for (found, name), state in states.items()
            if name in self._configurations
            and (found >= version or (found == version - 1 and (version, name) not in states))
        ]
        names = {path.name for state in needed for path in (state.path, state.learner)}
        for pattern in ("*.json", "*.learner"):
            for path in list(self.checkpoints.glob(pattern)):
                if path.name not in names:
                    remove_file(path)

    def rows(self, version: int) -> list[Row]:
        """The metrics of every configuration in an increment, in the order of the grid; errors are progressive."""
        found = []
        for name, configuration in self._configurations.items():
            reason = self._runner.failures.get((NO_FOLD, name), "not learned in this increment")
            key = {
                "configuration": configuration.number,
                "algorithm": configuration.algorithm,
                "parameters": configuration.parameters_json,
                **configuration.weighting.model_dump(),
                "documents": self.plan.rows[version - 1],
            }
            found.append((self._metrics(version, name) or {"status": "failed", "reason": reason}) | key)
        return found

    def curve(self, version: int, configuration: int) -> list[Row]:
        """The curve of a configuration's model: means since the first document at the last `MAX_MARKS` increments."""
        name = next(name for name, c in self._configurations.items() if c.number == configuration)
        points, documents, loss = [], 0, 0.0
        error: float | None = 0.0
        for passed in range(1, version + 1):
            row, rows = self._metrics(passed, name), self.plan.rows[passed - 1]
            assert row is not None
            documents += rows
            loss += row["progressive_loss"] * rows
            errors = row["progressive_error"]
            error = None if errors is None or error is None else error + errors * rows
            mean = {
                "progressive_loss": loss / max(documents, 1),
                "progressive_error": None if error is None else error / max(documents, 1),
            }
            points.append({"epoch": passed, "rows": documents, "nonzeros": row["nonzeros"]} | mean)
        return points[-MAX_MARKS:]

    def keep_results(self) -> None:
        """Commit the results of all increments to one file, and remove the cells, after all are learned."""
        last = len(self.plan)
        plan, names = self.plan.identity(last), list(self._configurations)
        self._results = self._results.extended(plan, self.plan.digests, names, self._cell)
        self._results.write(self._folder)
        for path in list(self._runner.folders.cells.glob("*.json")):
            remove_file(path)

    def _metrics(self, version: int, name: str) -> Row | None:
        return self._results.row(version, name) or self._cell(version, name)

    def _cell(self, version: int, name: str) -> Row | None:
        tables = self._runner.cells.at(self.plan.digests[version - 1], name, self.plan.end(version))
        return None if tables is None else tables["metrics"][0]

    def _first_to_learn(self, name: str, decided: int, states: dict[tuple[int, str], Checkpoint]) -> int:
        """The first increment that a configuration has to learn; one after the last if it has learned all."""
        last, known = len(self.plan), self._results.known(name)

        def is_missing(version: int) -> bool:
            """Whether the metrics are missing or, before promotion is decided, the state of a possible model."""
            if version > decided and (version, name) not in states:
                return True
            return not (version <= known.size and known[version - 1]) and self._cell(version, name) is None

        missing = next(filter(is_missing, range(1, last + 1)), last + 1)
        return 1 + max((version for version, found in states if found == name and version < missing), default=0)

    def _states(self) -> dict[tuple[int, str], Checkpoint]:
        """The states at the ends of increments, by version and configuration."""
        versions = {digest: version for version, digest in enumerate(self.plan.digests, 1)}
        found = furthest_checkpoints(self.checkpoints, versions, DamagedError)
        return {
            (versions[setting], name): state
            for (setting, name), state in found.items()
            if state.position == self.plan.end(versions[setting])
        }
