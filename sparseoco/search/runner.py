"""A search: every (configuration, fold), stage by stage; who goes on is decided here, from what all have come to.

Results are kept as cells and found again by what they are, so a search that was killed, grew or ran out of time runs
what is missing, and ends with the tables of one that was never disturbed.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distributed import Client

from sparseoco.core.logs import log_event
from sparseoco.core.progress import ProgressCallback
from sparseoco.learners import find_algorithm
from sparseoco.search.milestones import Folders
from sparseoco.search.packing import Capacity, Pack, cluster_capacity, pack
from sparseoco.search.stages import Stage, epochs_without_improvement, full_run, plan_stages, survivors
from sparseoco.search.states import held_together, remove_states
from sparseoco.search.tasks import ProgressTracker, run_epoch_jobs, run_jobs
from sparseoco.storage.commit import make_folder, remove_file, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import SEARCH_TABLES
from sparseoco.store.shards import Store
from sparseoco.training.block import NO_FOLD, Cells, Key, Setting, StreamPosition, Tables, configuration_id
from sparseoco.training.options import Configuration, SearchOptions
from sparseoco.training.warm_start import Origin


def run_search(
    client: Client,
    configurations: Sequence[Configuration],
    options: SearchOptions,
    store: Store,
    folder: Location,
    progress: ProgressCallback,
) -> Tables:
    """The tables of a search, rows in order of configuration, fold and epoch; cells and states are kept in `folder`.

    Learners of a stream go stage by stage; epoch methods run whole, for they are judged by where they settle. What
    cannot be run, was dropped, stopped early or left when the time was over becomes rows with the reason.

    Raises `InputError` if not even one configuration fits in memory, `SparseocoError` for what would stop every block
    (a damaged shard, a full disk).
    """
    deadline = None if options.time_limit is None else time.monotonic() + options.time_limit
    search = _Search(configurations, options, store, folder)
    make_folder(search.folders.stop.parent)
    remove_file(search.folders.stop)
    search.cells.refresh()
    log_event(
        "search", "search begun", configurations=len(configurations), folds=options.folds, found=len(search.cells)
    )
    room = cluster_capacity(client, options, store)
    meter = ProgressTracker(
        "search", search.keys([*search.alive, *search.whole]), options.epochs * store.n_rows, progress
    )

    def finish(stage: Stage, names: Sequence[str], run: Callable[..., dict[Key, str]], room: Capacity) -> bool:
        jobs = pack(search.missing(stage, names), options, store, room, resumable=stage.rule != "end")
        waiting = {key for job in jobs for key in job.block.keys}
        meter.reach([key for key in search.keys(names) if key not in waiting], stage.goal.rows_before(store.n_rows))
        search.failures |= run(client, jobs, store, search.folders, meter, deadline)
        search.cells.refresh()
        return search.complete(stage, names)

    done = True
    for stage in plan_stages(options, store.n_rows, len(search.alive)) if search.alive else ():
        if stage.rule == "halving" and len(search.alive) == 1:
            continue
        done = finish(stage, search.alive, run_jobs, room)
        if not done:
            break
        meter.reach(search.keys(search.decide(stage)))
        remove_states(search.folders.states, search.settings, set(search.alive))
    one_by_one = room._replace(tasks=1)
    done = finish(full_run(options, store.n_rows), search.whole, run_epoch_jobs, one_by_one) and done
    if done:
        remove_folder(search.folders.states)
    remove_file(search.folders.stop)
    tables = search.tables(configurations)
    for row in tables["metrics"]:
        if row["status"] in ("diverged", "failed"):
            fields = {name: row[name] for name in ("configuration", "algorithm", "fold", "epoch", "reason")}
            log_event("search", f"configuration {row['status']}", level=logging.WARNING, **fields)
    return tables


def search_setting(options: SearchOptions, store: Store, fold: int) -> Setting:
    """What decides the results of all configurations in a fold."""
    return Setting(
        manifest=store.manifest.digest,
        loss=options.loss,
        penalty=options.penalty,
        dtype=options.dtype,
        fold=fold,
        folds=options.folds if fold != NO_FOLD else 1,
        epochs=options.epochs,
        seed=options.seed,
        shuffle=options.shuffle,
        origin=None if options.warm_start is None else Origin.of(options.warm_start),
    )


class _Ending(NamedTuple):
    """Where a configuration was taken out in all folds, and what is said of it there where it was well."""

    place: StreamPosition
    status: str
    reason: str


class _Search:
    """What has been found, who is still in the search, by name, and why the others are not.

    `alive` are learners of a stream that were not taken out; `whole`, epoch methods, run whole.
    """

    def __init__(
        self, configurations: Sequence[Configuration], options: SearchOptions, store: Store, folder: Location
    ) -> None:
        self._options, self._n_rows = options, store.n_rows
        self._configurations = {configuration_id(c.algorithm, c.parameters): c for c in configurations}
        online = {name for name, c in self._configurations.items() if find_algorithm(c.algorithm).online}
        self.alive = [name for name in self._configurations if name in online]
        self.whole = [name for name in self._configurations if name not in online]
        folds = range(options.folds) if options.folds > 1 else [NO_FOLD]
        self.settings = [search_setting(options, store, fold) for fold in folds]
        self.folders = Folders.of(folder)
        self.cells = Cells(self.folders.cells, self.settings)
        self.failures: dict[Key, str] = {}
        self._endings: dict[str, _Ending] = {}

    def keys(self, names: Sequence[str]) -> list[Key]:
        """These configurations in every fold."""
        return [(setting.fold, name) for name in names for setting in self.settings]

    def missing(self, stage: Stage, names: Sequence[str]) -> dict[Pack, list[Configuration]]:
        """What a stage still needs of these configurations, by what can be run together."""
        held = held_together(self.folders.states, self.settings)
        packs: dict[Pack, list[Configuration]] = {}
        for setting in self.settings:
            for name in names:
                milestones = tuple(
                    milestone for milestone in stage.milestones if self.cells.at(setting.fold, name, milestone) is None
                )
                if milestones and (setting.fold, name) not in self.failures:
                    chosen = self._configurations[name]
                    key = Pack.of(setting, milestones, held.get((setting.fold, name)), chosen)
                    packs.setdefault(key, []).append(chosen)
        return packs

    def complete(self, stage: Stage, names: Sequence[str]) -> bool:
        """Whether these configurations, but for those that failed, have come to the end of a stage."""
        wanted = [key for key in self.keys(names) if key not in self.failures]
        return all(self.cells.at(*key, stage.goal) is not None for key in wanted)

    def decide(self, stage: Stage) -> list[str]:
        """Take out those that do not go on after a stage, and give them."""
        if stage.rule == "end":
            return []
        at = f"row {stage.goal.position:,}" if stage.rule == "halving" else f"the end of epoch {stage.goal.epoch}"
        rows = {name: self._rows(name, stage.goal) for name in self.alive}
        whole = {name: found for name, found in rows.items() if len(found) == len(self.settings)}
        for name, found in rows.items():
            if name not in whole or any(row["status"] != "ok" for row in found):
                self._endings[name] = _Ending(stage.goal, "dropped", f"dropped at {at}: another fold broke off")
        if stage.rule == "halving" and self._options.halving is not None:
            best = survivors(whole, self._options.halving.factor)
            for name in self.alive:
                if name not in best:
                    ending = _Ending(stage.goal, "dropped", f"dropped at {at} by successive halving")
                    self._endings.setdefault(name, ending)
        elif self._options.patience is not None:
            for name in self.alive:
                since = 0 if name in self._endings else self._epochs_without_improvement(name, stage.goal.epoch)
                if since >= self._options.patience:
                    reason = f"stopped after epoch {stage.goal.epoch}: none since epoch {stage.goal.epoch - since}"
                    self._endings[name] = _Ending(stage.goal, "stopped", f"{reason} improved it")
        gone = [name for name in self.alive if name in self._endings]
        self.alive = [name for name in self.alive if name not in self._endings]
        log_event("search", "stage ended", epoch=stage.goal.epoch, row=stage.goal.position, left=len(self.alive))
        return gone

    def tables(self, configurations: Sequence[Configuration]) -> Tables:
        """The rows of all tables."""
        tables: Tables = {name: [] for name in SEARCH_TABLES}
        for configuration in configurations:
            name = configuration_id(configuration.algorithm, configuration.parameters)
            for setting in self.settings:
                for table, rows in self._tables_of(name, setting).items():
                    tables[table] += [_numbered(row, table, configuration, setting) for row in rows]
        return tables

    def _tables_of(self, name: str, setting: Setting) -> Tables:
        """The rows of a configuration in a fold, up to where it was taken out, failed or was left."""
        ending = self._endings.get(name)
        last = StreamPosition(setting.epochs, self._n_rows) if ending is None else ending.place
        ends = [min(StreamPosition(epoch, self._n_rows), last) for epoch in range(1, last.epoch + 1)]
        parts = []
        for place in ends:
            part = self.cells.at(setting.fold, name, place)
            mark: dict[str, Any] = {}
            if part is None:
                reason = self.failures.get((setting.fold, name))
                mark = {"status": "failed" if reason else "unfinished", "reason": reason or _late(self._options)}
                part = self.cells.furthest(setting.fold, name, place.epoch) or {"metrics": [{"epoch": place.epoch}]}
            elif ending is not None and place == last and part["metrics"][0]["status"] == "ok":
                mark = {"status": ending.status, "reason": ending.reason}
            parts.append({**part, "metrics": [part["metrics"][0] | mark]})
            if mark:
                break
        rows = {table: [row for part in parts for row in part.get(table, [])] for table in SEARCH_TABLES}
        return rows | {"kept": parts[-1].get("kept", [])}

    def _rows(self, name: str, place: StreamPosition) -> list[dict[str, Any]]:
        """The rows of the metrics of a configuration at a place, a fold each, of the folds that have one."""
        found = [self.cells.at(setting.fold, name, place) for setting in self.settings]
        return [tables["metrics"][0] for tables in found if tables is not None]

    def _epochs_without_improvement(self, name: str, epoch: int) -> int:
        ends = [self._rows(name, StreamPosition(e, self._n_rows)) for e in range(1, epoch + 1)]
        return epochs_without_improvement(ends, self._options.min_improvement)


def _late(options: SearchOptions) -> str:
    return f"not finished within the time limit of {options.time_limit:g} s"


def _numbered(row: dict[str, Any], table: str, configuration: Configuration, setting: Setting) -> dict[str, Any]:
    key: dict[str, Any] = {"configuration": configuration.number, "fold": setting.fold}
    if table == "metrics":
        key |= {
            "algorithm": configuration.algorithm,
            "parameters": configuration.parameters_json,
            "loss": setting.loss,
            "penalty": setting.penalty,
        }
    return key | row
