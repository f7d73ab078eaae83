"""The progress of a run, step by step, read from its folder."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import metric_name, metric_with_error, parameters, percent, plural
from sparseoco.learners import without_defaults
from sparseoco.ops.status.increments import Increments, read_increments
from sparseoco.ops.status.locks import FolderLock, age, folder_lock
from sparseoco.ops.status.search import SearchProgress, read_search
from sparseoco.report.results import RunRecord, read_evaluation
from sparseoco.scoring.manifest import MANIFEST, read_scores
from sparseoco.scoring.parts import PARTS
from sparseoco.storage.locations import Location, resolve_against
from sparseoco.storage.validated import read_validated
from sparseoco.store.manifest import latest_manifest
from sparseoco.store.weighting import Weighting
from sparseoco.training.models.description import read_description

DONE, STARTED, NOT_STARTED = "done", "started", "not started"
RUNNING = "It is running: the same command would report that and exit."


class Step(NamedTuple):
    """A step of a run: done, started or not started, with a summary and its figures."""

    name: str
    state: str
    summary: str
    figures: dict[str, Any]


class Status(NamedTuple):
    """A run as its files show it; `seconds` since the last of them was written."""

    run: str
    name: str | None
    version: str | None
    locks: list[FolderLock]
    seconds: float | None
    steps: list[Step]
    increments: Increments | None
    errors: list[str]
    rerun: str

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
    search_step, search = _search(folder, described)
    failed = {} if search is None else search.reasons
    model = folder if (folder / "model.json").exists() else folder / "model"
    ingested = _ingest(store)
    version = ingested.figures.get("version", 0)
    train = _train(model) or _nightly_train(folder, increments, version)
    steps = [ingested, search_step, train, _evaluate(folder), _report(folder)]
    locks = [lock for path in (store, folder, model) if (lock := folder_lock(path)) is not None]
    if not locks and all(step.state == NOT_STARTED for step in steps) and increments is None:
        raise InputError(
            f"{folder} is not a folder of a run: it has no shards, search, model or lock.", code="not-a-run"
        )
    if described is None and steps[1].state == NOT_STARTED:
        steps = [step for step in steps if step.state != NOT_STARTED] or steps
    return Status(
        run=str(folder),
        name=None if described is None else described.name,
        version=None if described is None else described.version,
        locks=list(dict.fromkeys(locks)),
        seconds=age(_written(folder, store, version, model)),
        steps=steps,
        increments=increments,
        errors=[f"{reason} ({plural(cells, 'cell')})" for reason, cells in failed.items()],
        rerun=_rerun(steps, search, increments, any(lock.held for lock in locks)),
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
        name=None,
        version=None if scores is None else scores.manifest.sparseoco,
        locks=[lock] if lock is not None else [],
        seconds=age([folder / MANIFEST, *parts]),
        steps=[Step("score", state, summary, {"parts": len(parts)})],
        increments=None,
        errors=[],
        rerun=RUNNING if lock is not None and lock.held else f"The same command {again}.",
    )


def _store(folder: Location, described: RunRecord | None) -> Location:
    """The folder of a run's shards."""
    if described is not None and described.corpus.folder is not None:
        return resolve_against(folder, described.corpus.folder)
    return folder if latest_manifest(folder) is not None else folder / "shards"


def _ingest(store: Location) -> Step:
    manifest = latest_manifest(store)
    staged = sum(1 for _ in (store / ".staging").glob("*/*.counts"))
    written = sum(1 for _ in (store / ".staging").glob("*/*.shard"))
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


def _search(folder: Location, described: RunRecord | None) -> tuple[Step, SearchProgress | None]:
    if described is None:
        return Step("search", NOT_STARTED, "", {}), None
    search = read_search(folder / "search", described, described.options(folder / "run.json"))
    share = search.rows / max(search.total_rows, 1)
    parts = [f"{search.completed:,} of {plural(search.cells, 'cell')} completed"]
    if search.running:
        parts.append(f"{search.running:,} begun")
    parts += [f"{n:,} {status}" for status, n in search.by_status.items()]
    summary = ", ".join(parts) + f"; {percent(share)} of the rows learned"
    if search.best is not None:
        best = search.best
        value = metric_with_error(best["metric"], best["value"], None)
        summary += (
            f"; best so far of {plural(best['compared'], 'configuration')} over the same "
            f"{plural(best['folds'], 'fold')}: "
            f"{_learner(best['algorithm'], best['parameters'])} ({best['weighting']}), "
            f"{metric_name(best['metric'])} {value}"
        )
    return Step("search", DONE if search.complete else STARTED, summary, search._asdict()), search


def _train(model: Location) -> Step | None:
    """The model of a run, or None."""
    if not (model / "model.json").exists():
        return None
    described = read_description(model)
    figures = {name: described.get(name) for name in ("algorithm", "parameters", "nonzeros")}
    nonzeros = plural(described["nonzeros"], "nonzero weight")
    weighting = Weighting.model_validate(described.get("weighting", {})).label
    summary = f"{_learner(described['algorithm'], described['parameters'])} ({weighting}), {nonzeros}"
    return Step("train", DONE, summary, figures | {"model": str(model)})


def _learner(name: str, values: Mapping[str, Any]) -> str:
    return f"{name} {parameters(without_defaults(name, values))}"


def _nightly_train(folder: Location, increments: Increments | None, ingested: int) -> Step:
    """Nightly training: `ingested` increments have their shards, those in the history are complete."""
    completed = 0 if increments is None else increments.total
    if completed < ingested and (completed or any(_checkpoints(folder / "nightly"))):
        figures = {"increments": ingested, "completed": completed}
        return Step("train", STARTED, f"nightly: {completed:,} of {plural(ingested, 'increment')} completed", figures)
    if increments is not None and increments.deployed is not None:
        return Step("train", DONE, "nightly", {})
    return Step("train", NOT_STARTED, "", {})


def _checkpoints(folder: Location) -> Iterator[Location]:
    """Checkpoints of the blocks of a search or of increments."""
    return (folder / "checkpoints").glob("*.json")


def _evaluate(folder: Location) -> Step:
    evaluation = read_evaluation(folder / "evaluation.json")
    if evaluation is None:
        return Step("evaluate", NOT_STARTED, "", {})
    name, value = ("rmse", evaluation.rmse) if evaluation.error is None else ("error", evaluation.error)
    measured = f"{metric_name(name)} {metric_with_error(name, value, None)}"
    summary = f"test {measured} on {plural(evaluation.rows, 'document')}"
    return Step("evaluate", DONE, summary, {name: value, "rows": evaluation.rows})


def _report(folder: Location) -> Step:
    page = folder / "report" / "report.html"
    return Step("report", DONE, str(page), {}) if page.exists() else Step("report", NOT_STARTED, "", {})


def _written(folder: Location, store: Location, version: int, model: Location) -> list[Location]:
    """The files that change as the run progresses."""
    paths = [store / f"manifest-{version:08d}.json", model / "model.json"]
    paths += [
        folder / name
        for name in ("run.json", "evaluation.json", "history.parquet", "history-rollbacks.parquet", "promoted.json")
    ]
    paths += [folder / "search" / "best.json", folder / "report" / "report.html"]
    for parent, pattern in ((folder / "search" / "cells", "*.json"), (store / ".staging", "*/*.counts")):
        paths += parent.glob(pattern)
    return [*paths, *_checkpoints(folder / "search"), *_checkpoints(folder / "nightly")]


def _rerun(steps: list[Step], search: SearchProgress | None, increments: Increments | None, locked: bool) -> str:
    """What the same command would do now."""
    if locked:
        return RUNNING
    train = next((step for step in steps if step.name == "train"), None)
    if train is not None and train.state == STARTED:
        increment = train.figures["completed"] + 1
        return f"The same command resumes with increment {increment}, which is ingested, and then with new files."
    if increments is not None:
        return "The same command ingests new files, or reports that there are none."
    if search is not None and search.complete and search.lost == search.cells:
        return "All configurations of the search failed, and the same command would fail again: change the grid."
    if [(step.name, step.state) for step in steps] == [("ingest", DONE)]:
        return "The shards are complete: the same command reuses them."
    first = next((step for step in steps if step.state != DONE and step.name != "evaluate"), None)
    if first is None:
        evaluated = any(step.name == "evaluate" and step.state == DONE for step in steps)
        again = "evaluates and writes the report" if evaluated else "writes the report"
        return f"The run is complete: the same command only {again} again."
    if first.name == "search" and search is not None:
        left = search.cells - search.completed
        if left:
            return f"The same command resumes the search: {plural(left, 'cell')} to go."
        return "The same command writes the tables of the search and continues."
    verb = "resumes" if first.state == STARTED else "starts"
    return f"The same command {verb} the step {first.name} and reuses the steps above."
