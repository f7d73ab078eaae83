"""sparseoco status and sparseoco clean: what a folder holds, who uses it, and what no later run needs of it."""

import json
import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from sparseoco.core.errors import DamagedError, InputError, StorageError, unsupported
from sparseoco.core.formatting import duration, metric_name, metric_with_error, parameters, percent, plural
from sparseoco.learners import without_defaults
from sparseoco.pipeline.nightly import records
from sparseoco.report.results import RunRecord, read_evaluation, read_run_record
from sparseoco.scoring.parts import MANIFEST, PARTS, read_scores
from sparseoco.search.selection import candidates
from sparseoco.search.worker import State
from sparseoco.storage import commit
from sparseoco.storage.commit import exclusive_lock
from sparseoco.storage.locations import Location, files_below, local_work_folder, resolve_against
from sparseoco.storage.tables import Row, read_parquet_file
from sparseoco.storage.temporary import TEMPORARY_SECONDS, boot
from sparseoco.store.entries import ShardTable
from sparseoco.store.manifest import Manifest, latest_manifest, read_manifests
from sparseoco.store.weighting import Weighting
from sparseoco.text.array_files import STAGING
from sparseoco.training.block import Key, read_cells
from sparseoco.training.models import read_description
from sparseoco.training.options import Configuration, SearchOptions, configuration_id
from sparseoco.training.stream import NO_FOLD, START, StreamPosition, range_rows_of

# ----------------------------------------------------------------------------------------------------------------------
# The nightly increments of a run.


class Increments(NamedTuple):
    """The number of increments, the last, that of the deployed model, when it was rolled back to; a summary; the files
    that are left out, rows of history-quarantine; and a sentence on the increment that is held."""

    total: int
    last: Row
    deployed: Row | None
    rolled_back: str | None
    summary: str
    left_out: list[Row]
    held: str | None


def read_increments(folder: Location) -> Increments | None:
    """The increments of a run; None if there are none. Raises `StorageError` for a file that cannot be read."""
    history = records.read_history(folder, "history")
    if not history:
        return None
    last, deployed = history[-1], records.read_deployed(folder, history)
    rollback = None if deployed is None else deployed.rollback
    summary = f"{plural(len(history), 'increment')}; the last has {plural(last['documents'], 'document')}"
    if last["error"] is not None:
        summary += f", error of the candidate {percent(last['error'])}"
    if last["deployed_error"] is not None:
        summary += f", of the model of increment {last['deployed']} {percent(last['deployed_error'])}"
    summary += f": {'promoted' if last['promoted'] else 'not promoted'}; {records.deployed_line(deployed)}"
    summary += f", {measured}" if (measured := records.measured_error(deployed)) else ""
    rolled_back = None if rollback is None else rollback["time"].isoformat()
    skipped = records.left_out(records.read_history(folder, "history-quarantine"))
    summary += f"; {plural(len(skipped), 'unreadable file')} left out" if skipped else ""
    row = records.held(folder)
    held = None if row is None else records.held_line(row)
    summary = f"{held}; {summary}" if held else summary
    deployed_row = None if deployed is None else deployed.row
    return Increments(len(history), last, deployed_row, rolled_back, summary, skipped, held)


# ----------------------------------------------------------------------------------------------------------------------
# The lock of a folder, and when it was last written: read from the files, without taking the lock.


_OWNER = re.compile(r"process \d+ on (.+)")


class FolderLock(NamedTuple):
    """The lock of a folder.

    Parameters
    ----------
    folder, owner : str
        The folder, and the process that locked it.
    seconds : float
        Time since it was locked.
    held : bool
        Whether it is known to be held; False if the owner is on another machine, which cannot be checked from here.
    expired : bool
        Whether the owner has not renewed its lease for so long that the next run takes the folder over.
    """

    folder: str
    owner: str
    seconds: float
    held: bool
    expired: bool = False

    @property
    def message(self) -> str:
        """A sentence, without the full stop."""
        if self.held:
            return f"{self.folder} is locked by {self.owner} since {duration(self.seconds)}"
        if self.expired:
            return f"{self.folder} was locked by {self.owner}, which has ended: the next run takes it over"
        return (
            f"{self.folder} was locked by {self.owner}; it cannot be checked from here whether that process is still "
            "running: new files in the folder show that it is"
        )


def folder_lock(folder: Location) -> FolderLock | None:
    """The lock of a folder, or None."""
    lock = folder / ".lock"
    with suppress(OSError, ValueError):
        return _locked(lock) if isinstance(lock, Path) else _leased(lock)
    return None


def age(paths: Iterable[Location]) -> float | None:
    """Seconds since the last of these files was written; None if there are none."""
    times = []
    for path in paths:
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(0.0, time.time() - max(times)) if times else None


def _locked(lock: Path) -> FolderLock | None:
    match = _OWNER.fullmatch(lock.read_text(errors="replace").strip())
    if match is None:
        return None
    status = lock.stat()
    # Locks of other machines are not visible, and a released lock leaves its file behind.
    local = match[1] == platform.node()
    if local:
        # Whether any process has a lock on that file, by the kernel's list: taking the lock would block others.
        locks = (line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line)
        inodes = {file.split(":")[2] for _, kind, *_, file, _, _ in locks if kind == "FLOCK"}
        if str(status.st_ino) not in inodes:
            return None
    return FolderLock(str(lock.parent), match[0], max(0.0, time.time() - status.st_mtime), held=local)


def _leased(lock: Location) -> FolderLock | None:
    """A lease at a remote URI: held while it is renewed, until it expires."""
    content, since = json.loads(lock.read_bytes()), age([lock])
    if not isinstance(content, dict) or since is None:
        return None
    expired = since >= commit.EXPIRY_SECONDS
    seconds = since + commit.HEARTBEAT_SECONDS * int(content.get("heartbeats") or 0)
    return FolderLock(str(lock.parent), str(content.get("owner")), seconds, held=not expired, expired=expired)


# ----------------------------------------------------------------------------------------------------------------------
# The progress of a search, from its cells and the checkpoints of its blocks.


def read_search(folder: Location, run: RunRecord, options: SearchOptions) -> Row:
    """The progress of the search in `folder`, whose cells are a configuration in a fold each.

    Raises `StorageError` for corrupt files.

    Parameters
    ----------
    run : RunRecord
        The content of run.json.

    Returns
    -------
    dict
        cells, completed, running : all of them, those that are complete, and those that have started.
        rows, total_rows : rows learned so far and in all, summed over the cells.
        by_status : number of cells by status other than ok: diverged, dropped, failed, …
        reasons : number of failed cells by reason.
        best : the best configuration of the `compared` ones that have finished the same `folds`.
        complete : whether the search's tables are there and complete.
    """
    configurations, n_rows = options.configurations(), run.corpus.rows
    goal = StreamPosition(options.epochs, n_rows)
    folds = range(options.folds) if options.folds > 1 else [NO_FOLD]
    reached = {(fold, each.identity): START for fold in folds for each in configurations}
    of = {each.identity: each.columns for each in configurations}
    rows: dict[tuple[Key, int], Row] = {}
    begun: set[Key] = set()
    for key, position, row in _results(folder, search_setting_values(run, options)):
        if key not in reached or (position > goal and row is not None):  # of a search of more epochs in the same folder
            continue
        begun.add(key)
        reached[key] = max(min(position, goal), reached[key])
        if row is not None and position.position == n_rows:
            rows[key, position.epoch] = row | of[key[1]] | {"fold": key[0]}
    table = _table(folder, configurations, options)
    known = table or list(rows.values())
    settled = {(row["fold"], _identity(row)): row for row in known if row["status"] not in ("ok", "unfinished")}
    reached |= dict.fromkeys(settled, goal)
    completed = {key for key, position in reached.items() if position == goal}
    return {
        "cells": len(reached),
        "completed": len(completed),
        "running": len(begun - completed),
        "rows": sum(position.rows_before(n_rows) for position in reached.values()),
        "total_rows": options.epochs * n_rows * len(reached),
        "by_status": dict(sorted(Counter(row["status"] for row in settled.values()).items())),
        "reasons": dict(Counter(row["reason"] for row in settled.values() if row["status"] == "failed")),
        "best": best_so_far(known, options.selection_metric),
        "complete": bool(table) and all(row["status"] != "unfinished" for row in table),
    }


def search_setting_values(run: RunRecord, options: SearchOptions) -> Row:
    """What the settings of this search's cells have in common, as far as run.json says."""
    names = ("loss", "penalty", "dtype", "folds", "folds_by", "seed")
    values: Row = {name: getattr(options, name) for name in names} | {"sparseoco": run.version}
    if not options.features_from:  # otherwise the cells refer to a store derived from this one
        values["manifest"] = run.corpus.store
    range_rows = range_rows_of(options.shuffle, run.corpus.rows, 1)
    if range_rows <= 1:  # the rows of a range depend on the nonzeros of the store
        values["range_rows"] = range_rows
    return values


def is_of_search(setting: Mapping[str, Any], wanted: Row) -> bool:
    """Whether a cell or a checkpoint of this setting is of the search with these values."""
    return all(setting.get(key) == value for key, value in wanted.items())


def _results(folder: Location, wanted: Row) -> Iterator[tuple[Key, StreamPosition, Row | None]]:
    """Fold and configuration and position of the cells of this search, with the row of their metrics, and of the
    checkpoints of its blocks, which have none."""
    for _, cell in read_cells(sorted((folder / "cells").glob("*.json"))):
        if cell is None or not is_of_search(cell["setting"], wanted):  # corrupt, of another version or another search
            continue
        for result in cell["results"]:
            name = configuration_id(result["algorithm"], result["parameters"], result["weighting"])
            yield (cell["setting"]["fold"], name), StreamPosition(*cell["position"]), result["tables"]["metrics"][0]
    for path in sorted((folder / "checkpoints").glob("*.json")):
        with suppress(StorageError):  # it may be replaced by a later one meanwhile
            block, position = (state := commit.read_validated(path, State))["block"], state["position"]
            if is_of_search(block.setting.model_dump(mode="json"), wanted):
                for key in block.keys:
                    yield key, position, None


def _table(folder: Location, configurations: list[Configuration], options: SearchOptions) -> list[Row]:
    """The metrics of the search, if they exist and are of these configurations."""
    path = folder / "metrics.parquet"
    if not path.exists():
        return []
    rows: list[Row] = read_parquet_file(path).to_pylist()
    same = {(row["loss"], row["penalty"]) for row in rows} == {(options.loss, options.penalty)}
    return rows if same and set(map(_identity, rows)) == {each.identity for each in configurations} else []


def _identity(row: Row) -> str:
    """The identity of the configuration of a row; its number depends on the order in which they were named."""
    return configuration_id(row["algorithm"], json.loads(row["parameters"]), Weighting.of(row))


def best_so_far(rows: Sequence[Row], metric: str) -> Row | None:
    """The best of the configurations that have finished every fold in which any of them has, and how many they are."""
    evaluated = [row for row in rows if row["held_out_rows"] is not None]
    found = candidates(evaluated, metric)
    if not found:
        return None
    first = found[0]
    weighting = Weighting.of(next(row for row in evaluated if row["configuration"] == first.configuration))
    return {
        "configuration": first.configuration,
        "algorithm": first.algorithm,
        "parameters": json.loads(first.parameters),
        "weighting": weighting.label,
        "epoch": first.epoch,
        "metric": metric,
        "value": first.value(metric),
        "error": first.error,
        "nonzeros": round(first.nonzeros),
        "folds": len({row["fold"] for row in evaluated}),
        "compared": len({candidate.configuration for candidate in found}),
    }


# ----------------------------------------------------------------------------------------------------------------------
# The progress of a run, step by step, read from its folder.


DONE, STARTED, NOT_STARTED = "done", "started", "not started"


class Step(NamedTuple):
    """A step of a run: done, started or not started, with a summary and its figures."""

    name: str
    state: str = NOT_STARTED
    summary: str = ""
    figures: Mapping[str, Any] = {}


class Status(NamedTuple):
    """A run as its files show it; `seconds` since the last of them was written."""

    run: str
    locks: list[FolderLock]
    seconds: float | None
    steps: list[Step]
    name: str | None = None
    increments: Increments | None = None
    errors: Sequence[str] = ()

    @property
    def under_way(self) -> bool:
        """Whether a process is known to work on it."""
        return any(lock.held for lock in self.locks)

    @property
    def ended(self) -> bool:
        """Whether no process works on it and nothing is left to do, as far as its files show."""
        return not self.under_way and all(step.state == DONE for step in self.steps if step.name != "evaluate")


def read_status(folder: Location) -> Status:
    """The progress of a run, or of a folder of shards, of a model or of scores. Reads only.

    Raises `InputError` if the folder is none of them, `StorageError` for corrupt files.
    """
    if folder.is_file():
        raise InputError(f"{folder} is a file: name the folder of a run.", code="not-a-run")
    parts = list((folder / PARTS).glob("*.parquet"))
    if parts or (folder / MANIFEST).exists():
        return _scores_status(folder, parts)
    described = read_run_record(folder) if (folder / "run.json").exists() else None
    store = _store(folder, described)
    increments = read_increments(folder)
    model = folder if (folder / "model.json").exists() else folder / "model"
    ingested = _ingest(store)
    version = ingested.figures.get("version", 0)
    search = _search(folder, described)
    steps = [ingested, search, _train(folder, model, increments, version), _evaluate(folder)]
    page = folder / "report" / "report.html"
    steps.append(Step("report", DONE, str(page)) if page.exists() else Step("report"))
    locks = [lock for path in dict.fromkeys((store, folder, model)) if (lock := folder_lock(path)) is not None]
    if not locks and all(step.state == NOT_STARTED for step in steps) and increments is None:
        raise InputError(
            f"{folder} is not a folder of a run: it has no shards, search, model or lock.", code="not-a-run"
        )
    if described is None:
        steps = [step for step in steps if step.state != NOT_STARTED] or steps
    reasons = search.figures.get("reasons", {})
    return Status(
        run=str(folder),
        locks=locks,
        seconds=age(_written(folder, store, version, model)),
        steps=steps,
        name=None if described is None else described.name,
        increments=increments,
        errors=[f"{reason} ({plural(cells, 'cell')})" for reason, cells in reasons.items()],
    )


def _scores_status(folder: Location, parts: list[Location]) -> Status:
    """The progress of scores: the parts that are written, and those that the manifest lists."""
    scores, lock = read_scores(folder), folder_lock(folder)
    summary = f"{plural(len(parts), 'part')} written"
    if scores is not None:
        summary = f"{plural(scores.manifest.rows, 'document')} scored, {plural(scores.manifest.n_parts, 'part')}"
    state = STARTED if scores is None or len(parts) > scores.manifest.n_parts else DONE
    return Status(
        run=str(folder),
        locks=[lock] if lock is not None else [],
        seconds=age([folder / MANIFEST, *parts]),
        steps=[Step("score", state, summary, {"parts": len(parts)})],
    )


def _store(folder: Location, described: RunRecord | None) -> Location:
    """The folder of a run's shards."""
    if described is not None and described.corpus.folder is not None:
        return resolve_against(folder, described.corpus.folder)
    return folder if latest_manifest(folder) is not None else folder / "shards"


def _ingest(store: Location) -> Step:
    manifest = latest_manifest(store)
    staged = sum(1 for _ in (store / STAGING).glob("*/*.counts"))
    figures: dict[str, Any] = {"store": str(store), "staged": staged}
    counted = f"{plural(staged, 'part')} of new text counted"
    if manifest is None:
        return Step("ingest", STARTED, counted, figures) if staged else Step("ingest", figures=figures)
    figures |= {
        "version": manifest.version,
        "rows": manifest.rows,
        "features": manifest.features.count,
        "shards": manifest.n_shards,
        "classes": len(manifest.labels.classes),
        "quarantined": manifest.quarantined_rows,
    }
    quarantined = f", {plural(manifest.quarantined_rows, 'row')} quarantined" if manifest.quarantined_rows else ""
    summary = (
        f"{plural(manifest.rows, 'document')}, {plural(manifest.features.count, 'feature')} in "
        f"{plural(manifest.n_shards, 'shard')}{quarantined} (version {manifest.version})"
    )
    return (
        Step("ingest", STARTED, f"{summary}; {counted}", figures) if staged else Step("ingest", DONE, summary, figures)
    )


def _search(folder: Location, described: RunRecord | None) -> Step:
    if described is None:
        return Step("search")
    search = read_search(folder / "search", described, described.options(folder / "run.json"))
    parts = [f"{search['completed']:,} of {plural(search['cells'], 'cell')} completed"]
    if search["running"]:
        parts.append(f"{search['running']:,} begun")
    parts += [f"{n:,} {status}" for status, n in search["by_status"].items()]
    summary = f"{', '.join(parts)}; {percent(search['rows'] / max(search['total_rows'], 1))} of the rows learned"
    best = search["best"]
    if best is not None:
        summary += (
            f"; best so far of {plural(best['compared'], 'configuration')} over the same "
            f"{plural(best['folds'], 'fold')}: {_learner(best)} ({best['weighting']}), "
            f"{metric_name(best['metric'])} {metric_with_error(best['metric'], best['value'], None)}"
        )
    return Step("search", DONE if search["complete"] else STARTED, summary, search)


def _train(folder: Location, model: Location, increments: Increments | None, ingested: int) -> Step:
    """The model of a run; or nightly training: `ingested` increments have their shards, those in the history are
    complete."""
    if (model / "model.json").exists():
        described = read_description(model)
        figures = {name: described.get(name) for name in ("algorithm", "parameters", "nonzeros")}
        weighting = commit.validated(model / "model.json", described.get("weighting", {}), Weighting).label
        summary = f"{_learner(described)} ({weighting}), {plural(described['nonzeros'], 'nonzero weight')}"
        return Step("train", DONE, summary, figures | {"model": str(model)})
    completed = 0 if increments is None else increments.total
    if completed < ingested and (completed or any((folder / "nightly" / "checkpoints").glob("*.json"))):
        figures = {"increments": ingested, "completed": completed}
        return Step("train", STARTED, f"nightly: {completed:,} of {plural(ingested, 'increment')} completed", figures)
    if increments is not None and increments.deployed is not None:
        return Step("train", DONE, "nightly")
    return Step("train")


def _learner(of: Mapping[str, Any]) -> str:
    return f"{of['algorithm']} {parameters(without_defaults(of['algorithm'], of['parameters']))}"


def _evaluate(folder: Location) -> Step:
    evaluation = read_evaluation(folder / "evaluation.json")
    if evaluation is None:
        return Step("evaluate")
    name, value = ("rmse", evaluation.rmse) if evaluation.error is None else ("error", evaluation.error)
    measured = f"{metric_name(name)} {metric_with_error(name, value, None)}"
    summary = f"test {measured} on {plural(evaluation.rows, 'document')}"
    return Step("evaluate", DONE, summary, {name: value, "rows": evaluation.rows})


def _written(folder: Location, store: Location, version: int, model: Location) -> list[Location]:
    """The files that change as the run progresses."""
    names = (
        "run.json",
        "evaluation.json",
        "history.parquet",
        "promoted.json",
        "search/best.json",
        "report/report.html",
    )
    paths = [*(folder / name for name in names), store / f"manifest-{version:08d}.json", model / "model.json"]
    for parent in ("search/cells", "search/checkpoints", "nightly/checkpoints"):
        paths += (folder / parent).glob("*.json")
    return [*paths, *(store / STAGING).glob("*/*.counts")]


# ----------------------------------------------------------------------------------------------------------------------
# Removing what no later run needs from a folder of a run or of shards.


_DATA_FILE = re.compile(r"(shard|shards|sources|vocabulary|names|frequencies|quarantine)-[0-9a-f]{24}\.parquet")


class _Setting(BaseModel):
    """The setting of a cell or of a block."""

    setting: dict[str, Any] = {}


class _State(_Setting):
    """What is read of a cell, or of a checkpoint, which has a block."""

    block: _Setting | None = None
    learner: str | None = None


KNOWN = ("run.json", "history.parquet", "model.json")
"""Files of a folder of a run, of nightly runs or of a model."""


class Removed(NamedTuple):
    """What was removed, or would be: the kind, the number of files, and their size in bytes."""

    kind: str
    files: int
    bytes: int


class _Unneeded(NamedTuple):
    """A model, a folder or files that may go, and the call that removes it."""

    kind: str
    files: list[tuple[Location, int]]
    remove: Callable[[], None]


def clean(folder: Location, *, keep_models: int | None = None, dry_run: bool = False) -> list[Removed]:
    """Remove what neither a later run, a rollback within the retention, a resumed run nor a report reads.

    A killed call leaves a folder that every command reads as before; the next call removes the rest.

    Parameters
    ----------
    folder : Location
        The folder of a run, of nightly runs or of shards. A store elsewhere, which others may use, stays as it is.
    keep_models : int, optional
        Of nightly runs, keep the models of this many promotions and the deployed one; by default all.
    dry_run : bool
        Remove nothing.

    Returns
    -------
    list of Removed
        One for each kind of which there is something.

    Raises
    ------
    FolderInUseError
        If a run uses the folder.
    InputError
        If it is no folder of a run or of shards.
    StorageError
        For a manifest or a table that is corrupt: then nothing is removed.
    """
    store = folder if latest_manifest(folder) is not None else folder / "shards"
    manifest = latest_manifest(store)
    if manifest is None and not any((folder / name).exists() for name in KNOWN):
        raise InputError(f"{folder} is not a folder of a run or of shards.", code="not-a-run")
    if keep_models is not None and not records.read_history(folder, "history"):
        raise unsupported(f"{folder} has no nightly runs, whose models --keep-models is of.")
    with ExitStack() as locks:
        for own in dict.fromkeys((folder, store) if manifest is not None else (folder,)):
            locks.enter_context(exclusive_lock(own.resolve()))
        found = list(_unneeded(folder, store, keep_models))
        removed: dict[str, Removed] = {}
        for entry in found:
            if not dry_run:
                entry.remove()
            before = removed.get(entry.kind, Removed(entry.kind, 0, 0))
            size = sum(size for _, size in entry.files)
            removed[entry.kind] = Removed(entry.kind, before.files + len(entry.files), before.bytes + size)
    return list(removed.values())


def _unneeded(folder: Location, store: Location, keep_models: int | None) -> Iterator[_Unneeded]:
    """Everything that may go; it is found before anything is removed."""
    manifest, history = latest_manifest(store), records.read_history(folder, "history")
    for model in records.unneeded_models(folder, history, keep_models):
        yield _Unneeded("models", files_below(model), partial(records.remove_model, model))
    if (folder / "run.json").exists():
        yield from _of_other_settings(folder)
    if manifest is not None:
        folders = [place / STAGING for place in dict.fromkeys((store, local_work_folder(store)))]
        staging = [path for place in folders if place.exists() for path in sorted(place.iterdir())]
        # Those that were made before this machine was started, and not by another one that is working.
        here = [path for path in staging if isinstance(path, Path) and path.name not in (boot(), "shared")]
        earlier = [path for path in here if path.stat().st_mtime < time.time() - TEMPORARY_SECONDS]
        for own in earlier:
            yield _Unneeded("staging files of an earlier boot", files_below(own), partial(commit.remove_folder, own))
        if len(earlier) == len(staging):  # otherwise a killed ingest may use them when it resumes
            listed = _listed(store, manifest)
            for path, size in files_below(store, recursive=False):
                if _DATA_FILE.fullmatch(path.name) and path.name not in listed:
                    yield _Unneeded("data files that no manifest lists", [(path, size)], partial(_remove, path))


def _of_other_settings(folder: Location) -> Iterator[_Unneeded]:
    """Cells and checkpoints of the search that another grid, seed or version of the package has left."""
    run = read_run_record(folder)
    wanted = search_setting_values(run, run.options(folder / "run.json"))
    for kind in ("cells", "checkpoints"):
        files = {path.name: (path, size) for path, size in files_below(folder / "search" / kind, recursive=False)}
        for path, size in files.values():
            if path.suffix != ".json":
                continue
            with suppress(DamagedError):  # a search removes it
                state = commit.read_validated(path, _State)
                setting = (state.block or state).setting
                if not is_of_search(setting, wanted):
                    own = [(path, size)] + ([files[state.learner]] if state.learner in files else [])
                    removing = partial(_remove, *(path for path, _ in own))
                    yield _Unneeded("cells and checkpoints of other settings", own, removing)


def _listed(store: Location, last: Manifest) -> set[str]:
    """The names of the files that the manifests of a store list: later versions have all shards of earlier ones."""
    names = set(ShardTable.of_version(store, last).table["file"].to_pylist())
    for manifest in read_manifests(store, last.version):
        listed = manifest.shard_listing, manifest.source_listing, manifest.frequencies
        entries = *listed, *manifest.features.files, *manifest.quarantine
        names |= {entry.file for entry in entries if entry is not None}
    return names


def _remove(*paths: Location) -> None:
    for path in paths:
        commit.remove_file(path)
