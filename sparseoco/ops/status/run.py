"""What a run has come to, step by step, told from its folder alone, whoever works there or does not any more."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from sparseoco.core.errors import InputError, StorageError
from sparseoco.ops.status.holding import Hold, age, hold_on
from sparseoco.ops.status.nights import Nights, look_at_nights
from sparseoco.ops.status.searching import Searched
from sparseoco.ops.status.searching import look_at as look_at_search
from sparseoco.report.wording import parameters, percent, plural
from sparseoco.storage.commit import read_json
from sparseoco.storage.locations import Location, resolve_against
from sparseoco.store.manifest import latest_manifest
from sparseoco.training.options import SearchOptions

DONE, BEGUN, NOTHING = "done", "begun", "not begun"


class Step(NamedTuple):
    """A step of a run: done, begun or not begun, and what there is of it in words and figures."""

    name: str
    state: str
    sentence: str
    figures: dict[str, Any]


class Status(NamedTuple):
    """A run as its files show it; `seconds` have gone by since the last of them was written."""

    run: str
    name: str | None
    version: str | None
    holds: list[Hold]
    seconds: float | None
    steps: list[Step]
    nights: Nights | None
    errors: list[str]
    rerun: str

    @property
    def under_way(self) -> bool:
        """Whether somebody is seen to work on it."""
        return any(hold.sure for hold in self.holds)

    @property
    def ended(self) -> bool:
        """Whether nobody works on it and nothing is left to do, so far as its files tell."""
        return not self.under_way and all(step.state == DONE for step in self.steps if step.name != "evaluate")


def read_status(folder: Location) -> Status:
    """What a folder of a run, of shards or of a model has come to. Reads only.

    Raises `InputError` where it is none of them, `StorageError` for files that are damaged.
    """
    described = read_json(folder / "run.json") if (folder / "run.json").exists() else None
    store = _store(folder, described)
    nights = look_at_nights(folder)
    found, searched = _searched(folder, described)
    failed = {} if searched is None else searched.reasons
    model = folder if (folder / "model.json").exists() else folder / "model"
    ingested = _ingest(store)
    version = ingested.figures.get("version", 0)
    train = _train(model) or _train_by_night(folder, nights, version)
    steps = [ingested, found, train, _evaluate(folder), _report(folder)]
    holds = [hold for place in (store, folder, model) if (hold := hold_on(place)) is not None]
    if not holds and all(step.state == NOTHING for step in steps) and nights is None:
        raise InputError(f"{folder} holds nothing of a run: neither shards nor a search, a model or a lock.")
    if described is None and steps[1].state == NOTHING:
        steps = [step for step in steps if step.state != NOTHING] or steps
    return Status(
        run=str(folder),
        name=None if described is None else described["name"],
        version=None if described is None else described["version"],
        holds=list(dict.fromkeys(holds)),
        seconds=age(_written(folder, store, version, model)),
        steps=steps,
        nights=nights,
        errors=[f"{reason} ({plural(cells, 'cell')})" for reason, cells in failed.items()],
        rerun=_rerun(steps, searched, nights, any(hold.sure for hold in holds)),
    )


def _store(folder: Location, described: Mapping[str, Any] | None) -> Location:
    """The folder of a run's shards."""
    if described is not None and "folder" in described["corpus"]:
        return resolve_against(folder, described["corpus"]["folder"])
    return folder if latest_manifest(folder) is not None else folder / "shards"


def _ingest(store: Location) -> Step:
    manifest = latest_manifest(store)
    staged = sum(1 for _ in (store / ".staging").glob("*/*.piece"))
    written = sum(1 for _ in (store / ".staging").glob("*/*.shard.json"))
    figures: dict[str, Any] = {"store": str(store), "staged": staged, "written": written}
    more = f"{plural(staged, 'piece')} of new text counted, {written:,} of them written" if staged else ""
    if manifest is None:
        return Step("ingest", BEGUN if staged else NOTHING, more, figures)
    figures |= {
        "version": manifest.version,
        "rows": manifest.rows,
        "features": manifest.features.count,
        "shards": len(manifest.shards),
        "classes": len(manifest.labels.classes),
        "set_aside": manifest.quarantined_rows,
    }
    aside = f", {plural(manifest.quarantined_rows, 'row')} set aside" if manifest.quarantined_rows else ""
    sentence = (
        f"{plural(manifest.rows, 'document')}, {plural(manifest.features.count, 'feature')} in "
        f"{plural(len(manifest.shards), 'shard')}{aside} (version {manifest.version})"
    )
    return Step("ingest", BEGUN if staged else DONE, f"{sentence}; {more}" if more else sentence, figures)


def _searched(folder: Location, described: Mapping[str, Any] | None) -> tuple[Step, Searched | None]:
    if described is None:
        return Step("search", NOTHING, "", {}), None
    try:
        options = SearchOptions.model_validate(described["search"])
    except ValidationError as error:
        raise StorageError(f"{folder / 'run.json'} is not what this version writes: search again.") from error
    found = look_at_search(folder / "search", described, options)
    share = found.rows / max(found.rows_wanted, 1)
    parts = [f"{found.ended:,} of {plural(found.wanted, 'cell')} ended"]
    if found.under_way:
        parts.append(f"{found.under_way:,} under way")
    parts += [f"{n:,} {status}" for status, n in found.by_status.items()]
    sentence = ", ".join(parts) + f"; {percent(share)} of the rows learned"
    if found.best is not None:
        best = found.best
        sentence += (
            f"; best so far: {best['algorithm']} {parameters(best['parameters'])}, error {percent(best['error'])}"
        )
    step = Step("search", DONE if found.complete else BEGUN, sentence, found._asdict())
    return step, found


def _train(model: Location) -> Step | None:
    """The model of a run; None where there is none."""
    if not (model / "model.json").exists():
        return None
    told = read_json(model / "model.json")
    figures = {name: told.get(name) for name in ("algorithm", "parameters", "nonzeros")}
    sentence = f"{told['algorithm']} {parameters(told['parameters'])}, {plural(told['nonzeros'], 'nonzero weight')}"
    return Step("train", DONE, sentence, figures | {"model": str(model)})


def _train_by_night(folder: Location, nights: Nights | None, taken_in: int) -> Step:
    """What is learned by night: `taken_in` nights have their shards, those in the history are decided."""
    decided = 0 if nights is None else nights.nights
    if decided < taken_in and (decided or any(_checkpoints(folder / "nightly"))):
        figures = {"nights": taken_in, "decided": decided}
        return Step("train", BEGUN, f"by night: {decided:,} of {plural(taken_in, 'night')} decided", figures)
    if nights is not None and nights.serving is not None:
        return Step("train", DONE, "by night", {})
    return Step("train", NOTHING, "", {})


def _checkpoints(folder: Location) -> Iterator[Location]:
    """The states of blocks of a search, or of nights, that are kept in case they die."""
    return (folder / "checkpoints").glob("*.json")


def _evaluate(folder: Location) -> Step:
    if not (folder / "evaluation.json").exists():
        return Step("evaluate", NOTHING, "", {})
    told = read_json(folder / "evaluation.json")
    sentence = f"error {percent(told['error'])} on {plural(told['rows'], 'document')} it has not seen"
    return Step("evaluate", DONE, sentence, {"error": told["error"], "rows": told["rows"]})


def _report(folder: Location) -> Step:
    page = folder / "report" / "report.html"
    return Step("report", DONE, str(page), {}) if page.exists() else Step("report", NOTHING, "", {})


def _written(folder: Location, store: Location, version: int, model: Location) -> list[Location]:
    """Files that are written when something of the run is."""
    places = [store / f"manifest-{version:08d}.json", model / "model.json"]
    places += [
        folder / name
        for name in ("run.json", "evaluation.json", "history.parquet", "history-rollbacks.parquet", "promoted.json")
    ]
    places += [folder / "search" / "best.json", folder / "report" / "report.html"]
    for place, pattern in ((folder / "search" / "cells", "*.json"), (store / ".staging", "*/*.piece")):
        places += place.glob(pattern)
    return [*places, *_checkpoints(folder / "search"), *_checkpoints(folder / "nightly")]


def _rerun(steps: list[Step], searched: Searched | None, nights: Nights | None, held: bool) -> str:
    """What the same command would do now."""
    if held:
        return "It is under way: the same command would say so and end."
    train = next((step for step in steps if step.name == "train"), None)
    if train is not None and train.state == BEGUN:
        night = train.figures["decided"] + 1
        return f"The same command goes on with night {night}, which is taken in, and with files that have come since."
    if nights is not None:
        return "The same command takes in the files that have come since, or says that there are none."
    if searched is not None and searched.complete and searched.lost == searched.wanted:
        return "No configuration came through the search: the same command would say so again. Change its grid."
    if [(step.name, step.state) for step in steps] == [("ingest", DONE)]:
        return "The shards are there: the same command finds them and does only what comes after them."
    first = next((step for step in steps if step.state != DONE and step.name != "evaluate"), None)
    if first is None:
        evaluated = any(step.name == "evaluate" and step.state == DONE for step in steps)
        again = "evaluates and writes" if evaluated else "writes"
        return f"All is there: the same command finds it and only {again} the report again."
    if first.name == "search" and searched is not None:
        left = plural(searched.wanted - searched.ended, "cell")
        return (
            f"The same command goes on with the search: {left} to go."
            if searched.wanted > searched.ended
            else ("The same command puts the search's tables together and goes on from there.")
        )
    verb = "goes on" if first.state == BEGUN else "begins"
    return f"The same command {verb} with the step {first.name}; what stands above is found and not done again."
