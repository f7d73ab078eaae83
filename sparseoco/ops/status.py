"""sparseoco status: what a folder holds and who uses it."""

import json
import os
import platform
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sparseoco.core.errors import InputError, StorageError
from sparseoco.core.formatting import duration, metric_name, metric_with_error, parameters, percent, plural
from sparseoco.learners import without_defaults
from sparseoco.pipeline.nightly.history import left_out, read_deployed, read_history
from sparseoco.pipeline.nightly.page import deployed_line, measured_error
from sparseoco.report.results import RunRecord, read_evaluation
from sparseoco.scoring.manifest import MANIFEST, read_scores
from sparseoco.scoring.parts import PARTS
from sparseoco.search.block_runs import read_state
from sparseoco.search.selection import candidates
from sparseoco.storage.commit import EXPIRY_SECONDS, HEARTBEAT_SECONDS, read_validated
from sparseoco.storage.locations import Location, resolve_against
from sparseoco.storage.tables import Row, read_parquet_file
from sparseoco.store.manifest import latest_manifest
from sparseoco.store.weighting import Weighting
from sparseoco.text.array_files import STAGING
from sparseoco.training.block import Key, read_cells
from sparseoco.training.models import read_description
from sparseoco.training.options import Configuration, SearchOptions, configuration_id
from sparseoco.training.stream import NO_FOLD, StreamPosition, range_rows_of

# ----------------------------------------------------------------------------------------------------------------------
# The nightly increments of a run.


class Increments(NamedTuple):
    """The number of increments, the last, that of the deployed model, when it was rolled back to; a summary; and the
    files that are left out, rows of history-quarantine."""

    total: int
    last: Row
    deployed: Row | None
    rolled_back: str | None
    summary: str
    left_out: list[Row]


def read_increments(folder: Location) -> Increments | None:
    """The increments of a run; None if there are none. Raises `StorageError` for a file that cannot be read."""
    history = read_history(folder, "history")
    if not history:
        return None
    last, deployed = history[-1], read_deployed(folder, history)
    rollback = None if deployed is None else deployed.rollback
    summary = f"{plural(len(history), 'increment')}; the last has {plural(last['documents'], 'document')}"
    if last["error"] is not None:
        summary += f", error of the candidate {percent(last['error'])}"
    if last["deployed_error"] is not None:
        summary += f", of the model of increment {last['deployed']} {percent(last['deployed_error'])}"
    summary += f": {'promoted' if last['promoted'] else 'not promoted'}; {deployed_line(deployed)}"
    summary += f", {measured}" if (measured := measured_error(deployed)) else ""
    rolled_back = None if rollback is None else rollback["time"].isoformat()
    skipped = left_out(read_history(folder, "history-quarantine"))
    summary += f"; {plural(len(skipped), 'unreadable file')} left out" if skipped else ""
    return Increments(len(history), last, None if deployed is None else deployed.row, rolled_back, summary, skipped)


# ----------------------------------------------------------------------------------------------------------------------
# The lock of a folder, and when it was last written: read from the files, without taking the lock.


_OWNER = re.compile(r"process (\d+) on (.+)")


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
    return _locked(lock) if isinstance(lock, Path) else _leased(lock)


def age(paths: Iterable[Location]) -> float | None:
    """Seconds since the last of these files was written; None if there are none."""
    times = [changed for path in paths if (changed := _changed(path)) is not None]
    return max(0.0, time.time() - max(times)) if times else None


def _locked(lock: Path) -> FolderLock | None:
    try:
        owner, status = lock.read_text(errors="replace").strip(), lock.stat()
    except OSError:
        return None
    match = _OWNER.fullmatch(owner)
    if match is None:
        return None
    local = FolderLock(str(lock.parent), owner, max(0.0, time.time() - status.st_mtime), held=True)
    if match[2] != platform.node():
        # Locks of other machines are not visible, and a released lock leaves its file behind.
        return local._replace(held=False)
    return local if _is_locked(status) else None


def _is_locked(status: os.stat_result) -> bool:
    """Whether any process has a lock on that file, by the kernel's list: taking the lock would block others."""
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    return any(
        line.split()[1] == "FLOCK" and line.split()[5].split(":")[2] == str(status.st_ino)
        for line in locks.splitlines()
        if "->" not in line
    )


def _leased(lock: Location) -> FolderLock | None:
    """A lease at a remote URI: held while it is renewed, until it expires."""
    with suppress(OSError, ValueError):
        content = json.loads(lock.read_bytes())
        renewed = _changed(lock)
        if isinstance(content, dict) and renewed is not None:
            since = max(0.0, time.time() - renewed)
            expired = since >= EXPIRY_SECONDS
            seconds = since + HEARTBEAT_SECONDS * int(content.get("heartbeats") or 0)
            return FolderLock(str(lock.parent), str(content.get("owner")), seconds, held=not expired, expired=expired)
    return None


def _changed(path: Any) -> float | None:
    """When a file was written, in seconds since 1970; None if it does not exist or the store does not say."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return float(path.stat().st_mtime)
    return None


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
        by_status : number of cells by status other than ok: diverged, dropped, stopped, failed, …
        reasons : number of failed cells by reason.
        best : the best configuration so far; compared on `folds` folds with `compared` configurations.
        complete : whether the search's tables are there and complete.
    """
    configurations = options.configurations()
    folds = list(range(options.folds)) if options.folds > 1 else [NO_FOLD]
    names = {configuration.identity: configuration for configuration in configurations}
    n_rows = run.corpus.rows
    goal = StreamPosition(options.epochs, n_rows)
    wanted = search_setting_values(run, options)
    reached: dict[Key, StreamPosition] = {}
    rows: dict[tuple[Key, int], Row] = {}
    for (fold, name), position, row in _results(folder, wanted):
        if name not in names or (position > goal and row is not None):  # of a search of more epochs in the same folder
            continue
        reached[fold, name] = max(min(position, goal), reached.get((fold, name), position))
        if row is not None and position.position == n_rows:
            rows[(fold, name), position.epoch] = row | names[name].columns | {"fold": fold}
    table = _table(folder, configurations, options)
    keyed = [
        ((row["fold"], configuration_id(row["algorithm"], json.loads(row["parameters"]), Weighting.of(row))), row)
        for row in table
    ] + [(key, row) for (key, _), row in rows.items()]
    settled = {key: row for key, row in keyed if row["status"] not in ("ok", "unfinished")}
    keys = [(fold, name) for name in names for fold in folds]
    completed = {key for key in keys if key in settled or reached.get(key) == goal}
    total, begin = options.epochs * n_rows, StreamPosition(1, 0)
    return {
        "cells": len(keys),
        "completed": len(completed),
        "running": sum(key in reached for key in keys if key not in completed),
        "rows": sum(total if key in completed else reached.get(key, begin).rows_before(n_rows) for key in keys),
        "total_rows": total * len(keys),
        "by_status": dict(sorted(Counter(row["status"] for row in settled.values()).items())),
        "reasons": dict(Counter(row["reason"] for row in settled.values() if row["status"] == "failed")),
        "best": best_so_far(table or list(rows.values()), options.selection_metric),
        "complete": bool(table) and all(row["status"] != "unfinished" for row in table),
    }


def search_setting_values(run: RunRecord, options: SearchOptions) -> Row:
    """What the settings of this search's cells have in common, as far as run.json says."""
    range_rows = range_rows_of(options.shuffle, run.corpus.rows, 1)
    return {
        "loss": options.loss,
        "penalty": options.penalty,
        "dtype": options.dtype,
        "folds": options.folds,
        "folds_by": options.folds_by,
        "seed": options.seed,
        "sparseoco": run.version,
        # With features selected by a model, the cells refer to a store derived from this one.
        **({} if options.features_from else {"manifest": run.corpus.store}),
        # The rows of a range depend on the nonzeros of the store.
        **({} if range_rows > 1 else {"range_rows": range_rows}),
    }


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
            block, position = (state := read_state(path))["block"], state["position"]
            if is_of_search(block.setting.model_dump(mode="json"), wanted):
                for key in block.keys:
                    yield key, position, None


def _table(folder: Location, configurations: list[Configuration], options: SearchOptions) -> list[Row]:
    """The metrics of the search, if they exist and are of these configurations."""
    path = folder / "metrics.parquet"
    if not path.exists():
        return []
    rows: list[Row] = read_parquet_file(path).to_pylist()
    wanted = {(c.algorithm, c.parameters_json, c.weighting) for c in configurations}
    found = {(row["algorithm"], row["parameters"], Weighting.of(row)) for row in rows}
    same = found == wanted and {(row["loss"], row["penalty"]) for row in rows} == {(options.loss, options.penalty)}
    return rows if same else []


def best_so_far(rows: Sequence[Row], metric: str) -> Row | None:
    """The best configuration of those that were evaluated on the same folds, and how many they are.

    Folds differ in difficulty, so a configuration is compared only with others on folds that all of them have finished.
    """
    evaluated = [row for row in rows if row["held_out_rows"] is not None]
    folds = comparable_folds(evaluated)
    found = candidates([row for row in evaluated if row["fold"] in folds], metric)
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
        "folds": len(folds),
        "compared": len({candidate.configuration for candidate in found}),
    }


def comparable_folds(rows: Iterable[Row]) -> set[int]:
    """The folds to compare configurations on: those with the most results of configurations that have all of them."""
    of: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        of[row["configuration"]].add(row["fold"])
    counts = Counter(fold for folds in of.values() for fold in folds)
    ordered = sorted(counts, key=lambda fold: (-counts[fold], fold))
    choices = [set(ordered[: size + 1]) for size in range(len(ordered))]
    return max(
        choices, key=lambda folds: (len(folds) * sum(folds <= own for own in of.values()), len(folds)), default=set()
    )


# ----------------------------------------------------------------------------------------------------------------------
# The progress of a run, step by step, read from its folder.


DONE, STARTED, NOT_STARTED = "done", "started", "not started"
RUNNING = "It is running: the same command would report that and exit."


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
    rerun: str
    name: str | None = None
    version: str | None = None
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
    described = read_validated(folder / "run.json", RunRecord) if (folder / "run.json").exists() else None
    store = _store(folder, described)
    increments = read_increments(folder)
    search = _search(folder, described)
    model = folder if (folder / "model.json").exists() else folder / "model"
    ingested = _ingest(store)
    version = ingested.figures.get("version", 0)
    steps = [ingested, search, _train(folder, model, increments, version), _evaluate(folder), _report(folder)]
    locks = [lock for path in dict.fromkeys((store, folder, model)) if (lock := folder_lock(path)) is not None]
    if not locks and all(step.state == NOT_STARTED for step in steps) and increments is None:
        raise InputError(
            f"{folder} is not a folder of a run: it has no shards, search, model or lock.", code="not-a-run"
        )
    if described is None and steps[1].state == NOT_STARTED:
        steps = [step for step in steps if step.state != NOT_STARTED] or steps
    return Status(
        run=str(folder),
        locks=locks,
        seconds=age(_written(folder, store, version, model)),
        steps=steps,
        rerun=_rerun(steps, search.figures, increments, any(lock.held for lock in locks)),
        name=None if described is None else described.name,
        version=None if described is None else described.version,
        increments=increments,
        errors=[f"{reason} ({plural(cells, 'cell')})" for reason, cells in search.figures.get("reasons", {}).items()],
    )


def _scores_status(folder: Location, parts: list[Location]) -> Status:
    """The progress of scores: the parts that are written, and those that the manifest lists."""
    scores, lock = read_scores(folder), folder_lock(folder)
    summary = f"{plural(len(parts), 'part')} written"
    if scores is not None:
        summary = f"{plural(scores.manifest.rows, 'document')} scored, {plural(scores.manifest.n_parts, 'part')}"
    state = STARTED if scores is None or len(parts) > scores.manifest.n_parts else DONE
    again = "scores new inputs, or reports that there are none" if state == DONE else "resumes"
    return Status(
        run=str(folder),
        locks=[lock] if lock is not None else [],
        seconds=age([folder / MANIFEST, *parts]),
        steps=[Step("score", state, summary, {"parts": len(parts)})],
        rerun=RUNNING if lock is not None and lock.held else f"The same command {again}.",
        version=None if scores is None else scores.manifest.sparseoco,
    )


def _store(folder: Location, described: RunRecord | None) -> Location:
    """The folder of a run's shards."""
    if described is not None and described.corpus.folder is not None:
        return resolve_against(folder, described.corpus.folder)
    return folder if latest_manifest(folder) is not None else folder / "shards"


def _ingest(store: Location) -> Step:
    manifest = latest_manifest(store)
    staged, written = (sum(1 for _ in (store / STAGING).glob(f"*/*.{kind}")) for kind in ("counts", "shard"))
    figures: dict[str, Any] = {"store": str(store), "staged": staged, "written": written}
    more = f"{plural(staged, 'part')} of new text counted, {written:,} of them written" if staged else ""
    if manifest is None:
        return Step("ingest", STARTED if staged else NOT_STARTED, more, figures)
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
    return Step("ingest", STARTED if staged else DONE, f"{summary}; {more}" if more else summary, figures)


def _search(folder: Location, described: RunRecord | None) -> Step:
    if described is None:
        return Step("search")
    search = read_search(folder / "search", described, described.options(folder / "run.json"))
    share = search["rows"] / max(search["total_rows"], 1)
    parts = [f"{search['completed']:,} of {plural(search['cells'], 'cell')} completed"]
    if search["running"]:
        parts.append(f"{search['running']:,} begun")
    parts += [f"{n:,} {status}" for status, n in search["by_status"].items()]
    summary = ", ".join(parts) + f"; {percent(share)} of the rows learned"
    best = search["best"]
    if best is not None:
        value = metric_with_error(best["metric"], best["value"], None)
        summary += (
            f"; best so far of {plural(best['compared'], 'configuration')} over the same "
            f"{plural(best['folds'], 'fold')}: "
            f"{_learner(best['algorithm'], best['parameters'])} ({best['weighting']}), "
            f"{metric_name(best['metric'])} {value}"
        )
    return Step("search", DONE if search["complete"] else STARTED, summary, search)


def _train(folder: Location, model: Location, increments: Increments | None, ingested: int) -> Step:
    """The model of a run; or nightly training: `ingested` increments have their shards, those in the history are
    complete."""
    if (model / "model.json").exists():
        described = read_description(model)
        figures = {name: described.get(name) for name in ("algorithm", "parameters", "nonzeros")}
        nonzeros = plural(described["nonzeros"], "nonzero weight")
        weighting = Weighting.model_validate(described.get("weighting", {})).label
        summary = f"{_learner(described['algorithm'], described['parameters'])} ({weighting}), {nonzeros}"
        return Step("train", DONE, summary, figures | {"model": str(model)})
    completed = 0 if increments is None else increments.total
    if completed < ingested and (completed or any((folder / "nightly" / "checkpoints").glob("*.json"))):
        figures = {"increments": ingested, "completed": completed}
        return Step("train", STARTED, f"nightly: {completed:,} of {plural(ingested, 'increment')} completed", figures)
    if increments is not None and increments.deployed is not None:
        return Step("train", DONE, "nightly")
    return Step("train")


def _learner(name: str, values: Mapping[str, Any]) -> str:
    return f"{name} {parameters(without_defaults(name, values))}"


def _evaluate(folder: Location) -> Step:
    evaluation = read_evaluation(folder / "evaluation.json")
    if evaluation is None:
        return Step("evaluate")
    name, value = ("rmse", evaluation.rmse) if evaluation.error is None else ("error", evaluation.error)
    measured = f"{metric_name(name)} {metric_with_error(name, value, None)}"
    summary = f"test {measured} on {plural(evaluation.rows, 'document')}"
    return Step("evaluate", DONE, summary, {name: value, "rows": evaluation.rows})


def _report(folder: Location) -> Step:
    page = folder / "report" / "report.html"
    return Step("report", DONE, str(page)) if page.exists() else Step("report")


def _written(folder: Location, store: Location, version: int, model: Location) -> list[Location]:
    """The files that change as the run progresses."""
    names = ("run.json", "evaluation.json", "history.parquet", "history-rollbacks.parquet", "promoted.json")
    paths = [folder / name for name in (*names, "search/best.json", "report/report.html")]
    paths += [store / f"manifest-{version:08d}.json", model / "model.json"]
    for parent in ("search/cells", "search/checkpoints", "nightly/checkpoints"):
        paths += (folder / parent).glob("*.json")
    return [*paths, *(store / STAGING).glob("*/*.counts")]


def _rerun(steps: list[Step], search: Mapping[str, Any], increments: Increments | None, locked: bool) -> str:
    """What the same command would do now."""
    if locked:
        return RUNNING
    train = next((step for step in steps if step.name == "train"), None)
    if train is not None and train.state == STARTED:
        increment = train.figures["completed"] + 1
        return f"The same command resumes with increment {increment}, which is ingested, and then with new files."
    if increments is not None:
        return "The same command ingests new files, or reports that there are none."
    by_status = search.get("by_status", {})
    without_result = by_status.get("diverged", 0) + by_status.get("failed", 0)
    if search and search["complete"] and without_result == search["cells"]:
        return "All configurations of the search failed, and the same command would fail again: change the grid."
    if [(step.name, step.state) for step in steps] == [("ingest", DONE)]:
        return "The shards are complete: the same command reuses them."
    first = next((step for step in steps if step.state != DONE and step.name != "evaluate"), None)
    if first is None:
        evaluated = any(step.name == "evaluate" and step.state == DONE for step in steps)
        again = "evaluates and writes the report" if evaluated else "writes the report"
        return f"The run is complete: the same command only {again} again."
    if first.name == "search" and search:
        left = search["cells"] - search["completed"]
        if left:
            return f"The same command resumes the search: {plural(left, 'cell')} to go."
        return "The same command writes the tables of the search and continues."
    verb = "resumes" if first.state == STARTED else "starts"
    return f"The same command {verb} the step {first.name} and reuses the steps above."
