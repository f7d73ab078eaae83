"""Searches: every configuration in every fold, stage by stage.

Results are committed as cells and identified by their contents. A search that was killed, extended or stopped at its
time limit runs what is missing, and ends with the same tables as one that was not interrupted.

`search_configurations` goes through the `stages`; `Runner` packs missing work into blocks (`packing`) and runs them as
`tasks`; a `worker` runs each block to its milestones (`block_run`, `checkpoints`) and commits cells, from which the
tables are built. Nightly runs use `Runner` for a chain of increments (`chain`).
"""

import logging
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from distributed import Client

from sparseoco.core.logs import log_event
from sparseoco.core.progress import ProgressCallback
from sparseoco.learners import find_algorithm
from sparseoco.search.checkpoints import furthest_checkpoints, remove_unneeded
from sparseoco.search.packing import BlockKey, cluster_capacity, pack
from sparseoco.search.stages import Stage, epochs_without_improvement, full_run, plan_stages, survivors
from sparseoco.search.tasks import ProgressTracker, run_epoch_jobs, run_jobs
from sparseoco.search.worker import Folders
from sparseoco.storage.commit import make_folder, remove_file, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import SEARCH_TABLES, Row
from sparseoco.store.shards import Store
from sparseoco.training.block import Cells, Key, Setting, Tables, configuration_id, search_setting
from sparseoco.training.options.configuration import Configuration
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.stream import NO_FOLD, StreamPosition

Work = Sequence[tuple[Setting, str, tuple[StreamPosition, ...]]]
"""Configurations, by setting and identity, with the milestones at which their cells are missing."""


class Runner:
    """Runs configurations under settings, in blocks on the cluster; results are committed to a folder.

    Parameters
    ----------
    settings : their digests.
    deadline : `time.monotonic()` after which no block is started; None for no limit.

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
        deadline: float | None,
    ) -> None:
        self.options, self._deadline = options, deadline
        self.configurations = {configuration_id(c.algorithm, c.parameters, c.weighting): c for c in configurations}
        self.folders = Folders.of(folder)
        self.cells = Cells(self.folders.cells, settings)
        self.failures: dict[Key, str] = {}

    def run(
        self,
        client: Client,
        store: Store,
        work: Work,
        tracker: ProgressTracker,
        *,
        resumable: bool = True,
        whole_cluster: bool = False,
    ) -> dict[Key, str]:
        """Run `work` on a store; returns the reasons of failures.

        `resumable` as in `run_block`; with `whole_cluster`, one block runs at a time, spread over the cluster. Raises
        `InputError` if not even one configuration fits in memory, `SparseocoError` for what stops every block.
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
        jobs = pack(groups, self.options, store, capacity, resumable=resumable)
        make_folder(self.folders.stop.parent)
        remove_file(self.folders.stop)
        run = run_epoch_jobs if whole_cluster else run_jobs
        failures = run(client, jobs, store, self.folders, tracker, self._deadline)
        self.cells.refresh()
        remove_file(self.folders.stop)
        self.failures |= failures
        return failures


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
    runner = Runner(configurations, options, digests, folder, deadline)
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

    def run(stage: Stage, names: Sequence[str], **options: bool) -> bool:
        work = search.missing(stage, names)
        waiting = {(setting.fold, name) for setting, name, _ in work}
        tracker.reach([key for key in search.keys(names) if key not in waiting], stage.goal.rows_before(store.n_rows))
        if work:
            runner.run(client, store, work, tracker, resumable=stage.rule != "end", **options)
        return search.is_complete(stage, names)

    done = True
    checkpoints = runner.folders.checkpoints
    for stage in plan_stages(options, store.n_rows, len(search.alive)) if search.alive else ():
        if stage.rule == "halving" and len(search.alive) == 1:
            continue
        done = run(stage, search.alive)
        if not done:
            break
        tracker.reach(search.keys(search.decide(stage)))
        remove_unneeded(checkpoints, digests, {*search.alive, *search.divided})
    done = run(full_run(options, store.n_rows), search.divided) and done
    done = run(full_run(options, store.n_rows), search.offline, whole_cluster=True) and done
    if done:
        remove_folder(checkpoints)
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
