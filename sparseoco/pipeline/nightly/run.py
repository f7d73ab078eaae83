"""A nightly run: take in the files that are new, judge and learn what they hold, decide who serves, tell.

Every step leaves files named by what they depend on, and a night counts as over when it is in the history: a run that
was killed at any moment is run again, goes on from there and ends with the same files.
"""

import time
from contextlib import ExitStack
from logging import WARNING
from typing import Any, NamedTuple

from distributed import Client

from sparseoco.core.errors import FolderInUseError, InputError, SparseocoError
from sparseoco.core.logs import log_event, logged_step
from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.execution.clusters import connect
from sparseoco.learners import find_algorithm
from sparseoco.pipeline.nightly.deciding import Choice, Decision, candidate, decide
from sparseoco.pipeline.nightly.judging import Look, leave_model, look
from sparseoco.pipeline.nightly.learning import Nights
from sparseoco.pipeline.nightly.page import write_nights_page
from sparseoco.pipeline.nightly.records import add_night, model_of, promote, read_rows, serving, timing
from sparseoco.pipeline.run_file import RunFile
from sparseoco.pipeline.steps import check_labels
from sparseoco.search.increments import StateLostError
from sparseoco.storage.commit import exclusive_lock
from sparseoco.storage.locations import Location, is_inside, local_work_folder, location
from sparseoco.store.manifest import Manifest, latest_manifest, read_manifest
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest, new_sources
from sparseoco.text.sources import find_sources
from sparseoco.training.block import Block
from sparseoco.training.sizes import check_size
from sparseoco.training.warm_start import Origin, check_origin

Row = dict[str, Any]

MOST_LOST = 20  # states set aside in one run: more is no accident


class Outcome(NamedTuple):
    """What a run did: the rows of the nights it added to the history, the page, or a sentence why there are none."""

    nights: list[Row]
    page: Location | None
    sentence: str


@logged_step("nightly", "run")
def run_nightly(run: RunFile, *, if_running: str | None = None, progress: ProgressCallback = no_progress) -> Outcome:
    """Take in the files that are new among the inputs of a run file, learn them and decide which model serves.

    if_running  "wait" for another run in the same folder to end, or "end" at once; as in the run file by default

    Raises `InputError` for inputs or options that cannot be taken, `SparseocoError` for what cannot be done.
    """
    _check(run)
    wait = (if_running or run.nightly.if_running) == "wait"
    try:
        with ExitStack() as held:
            for folder in dict.fromkeys((run.out.resolve(), run.store.resolve())):  # they may be one
                held.enter_context(exclusive_lock(folder, wait=wait))
            return _go_on(run, progress)
    except FolderInUseError as error:
        return Outcome([], None, f"Nothing was done: {error}")


def _check(run: RunFile) -> None:
    """Raises `InputError` for a search that cannot go on from night to night. Looks at the run file alone."""
    for name in run.search.algorithms:
        algorithm = find_algorithm(name)
        if not algorithm.online:
            raise InputError(
                f"{name} goes through the same documents again and again: it cannot go on from night to night. Name "
                "learners of a stream in [search.algorithms]."
            )
        if algorithm.driver == "dense" and run.ingest.vocabulary == "extend" and run.ingest.hash_bits is None:
            raise InputError(
                f'{name} touches all features in every round, so that none can be added: set vocabulary = "frozen" or '
                "hash_bits in [ingest]."
            )
    if run.search.warm_start is not None and is_inside(location(run.search.warm_start), run.out):
        raise InputError(
            f"warm_start names {run.search.warm_start}, which is in the run's own folder: nights cannot begin from a "
            "model that has learned the documents they are judged by. Name one of another run's, or choose another out."
        )
    if run.search.features_from is not None:
        raise InputError("features_from takes features out of a store as it is: nights, which add to it, take all.")


def _go_on(run: RunFile, progress: ProgressCallback) -> Outcome:
    manifest, history = latest_manifest(run.store), read_rows(run.out, "history")
    known = len(history)
    _check_history(run, manifest, history)
    is_new = manifest is None or has_new_files(run, manifest)
    if manifest is not None and not is_new and known == manifest.version:
        return Outcome([], follow(run, history), f"Nothing new: all files are learned, up to night {known}.")
    with connect(run.cluster, local_work_folder(run.out) / ".scratch") as client:
        if is_new:
            _take_in(run, client, progress)
        last = _check_store(run)
        deadline = None if run.search.time_limit is None else time.monotonic() + run.search.time_limit
        history = _learn_again(run, client, last, deadline, progress)
    return Outcome(history[known:], follow(run, history), "")


def _learn_again(
    run: RunFile, client: Client, last: int, deadline: float | None, progress: ProgressCallback
) -> list[Row]:
    """As `_learn`; where a state is gone or damaged, the nights that lead there are learned anew."""
    lost = 0
    while True:
        try:
            return _learn(run, client, last, deadline, progress)
        except StateLostError as error:
            lost += 1
            if lost > MOST_LOST:
                raise
            log_event("nightly", "state lost", level=WARNING, reason=str(error))


def _learn(run: RunFile, client: Client, last: int, deadline: float | None, progress: ProgressCallback) -> list[Row]:
    """Learn what is left of all nights and decide those that are not decided yet; gives the history."""
    history = read_rows(run.out, "history")
    nights = Nights(run.search, run.store, last, len(history), run.out / "nightly")
    for version in range(1, last + 1):
        started = time.monotonic()
        learned = nights.learn(client, version, deadline, progress)
        if version > len(history):
            history = [*history, _decide(run, client, nights, version, history, started)]
            follow(run, history)
        if learned:
            nights.clear(version)
    return history


def _check_history(run: RunFile, manifest: Manifest | None, history: list[Row]) -> None:
    """Raises `InputError` where the nights of the history are not those of the store."""
    if history and (
        manifest is None
        or len(history) > manifest.version
        or read_manifest(run.store, len(history)).digest != history[-1]["store"]
    ):
        raise InputError(
            f"The nights in {run.out} were not learned from the shards in {run.store}: choose another out."
        )


def has_new_files(run: RunFile, manifest: Manifest) -> bool:
    """Whether there are files among the inputs that the store has not taken in.

    Raises `InputError` if one that it has taken in has changed since.
    """
    options = run.ingest.text
    return bool(new_sources(find_sources(list(run.ingest.inputs), options, may_be_empty=True), options, manifest))


def _take_in(run: RunFile, client: Client, progress: ProgressCallback) -> None:
    ingest(
        list(run.ingest.inputs),
        run.store,
        run.ingest.text,
        client=client,
        shard_bytes=run.ingest.shard_bytes,
        vocabulary=run.ingest.vocabulary,
        progress=progress,
    )


def _check_store(run: RunFile) -> int:
    """The newest version of the store, what is to be learned from it being looked at. Raises `InputError`."""
    store = Store.open(run.store)
    if len(store.classes) == 1:
        raise InputError(
            f"The first night has one class only ({store.classes[0]}): name all that may come in [ingest], classes = "
            f"[…], remove {run.store}, and run again."
        )
    check_labels(store)
    if run.search.warm_start is not None:
        check_origin(Origin.of(run.search.warm_start), store)
    for name in run.search.algorithms:
        check_size(name, store.n_features)
    return store.manifest.version


def _decide(run: RunFile, client: Client, nights: Nights, version: int, history: list[Row], started: float) -> Row:
    """Decide a night that was learned: leave the model that is promoted, then the night's rows; gives the history's."""
    served = serving(history, read_rows(run.out, "history-choices"))
    champion = None if served is None else served.night
    model = None if champion is None else model_of(run.out, champion)
    seen = look(client, run.store, version, model, run.out / "nightly" / "looks")
    row = _counted(run.store, version, seen) | {
        "champion": champion,
        "champion_error": seen.error,
        "champion_loss": seen.loss,
        "margin": run.nightly.margin,
    }
    rows = nights.rows(version)
    choice: Choice | None = None
    if not row["documents"]:
        decision = Decision(False, "the new files hold no documents")
        row |= {"champion_error": None, "champion_loss": None}
    else:
        first = max(1, version + 1 - run.nightly.window)
        try:
            choice = candidate([nights.rows(night) for night in range(first, version + 1)], run.search.select)
            decision = decide(choice.row["progressive_error"], seen.error, run.nightly.margin)
        except SparseocoError as error:
            decision = Decision(False, str(error))
    if choice is not None:
        row |= _chosen(choice, seen)
        if decision.promoted:
            _leave(run, client, nights, version, choice)
    row |= {"night": version, "promoted": decision.promoted, "why": decision.why}
    tables = {
        "history-configurations": rows,
        "history-classes": _class_mix(run.store, version),
        "history-timings": [timing(time.monotonic() - started)],
        "history": [row],
    }
    add_night(run.out, version, tables)
    return read_rows(run.out, "history")[-1]


def _leave(run: RunFile, client: Client, nights: Nights, version: int, choice: Choice) -> None:
    """Leave the model of a candidate, its curve with a mark a night."""
    name, parameters = choice.row["algorithm"], choice.parameters
    setting = nights.planned[version - 1].setting
    block = Block(setting=setting, algorithm=name, configurations=(parameters,))
    curve = nights.curve(version, choice.row["configuration"])
    leave_model(client, block, run.store, nights.folders.states, model_of(run.out, version), run.search.seed, curve)


def _counted(store: Location, version: int, seen: Look) -> Row:
    """What a night brought: documents, features, words."""
    manifest, before = read_manifest(store, version), _before(store, version)
    row: Row = {
        "documents": manifest.rows - (before.rows if before else 0),
        "features": manifest.features.count,
        "new_terms": None,
        "dropped_terms": None,
        "unknown_share": None,
        "store": manifest.digest,
    }
    if manifest.features.kind == "vocabulary":
        row["new_terms"] = manifest.features.count - (before.features.count if before else 0)
        if before is not None:
            dropped = manifest.dropped_terms - before.dropped_terms
            row["dropped_terms"] = dropped
            row["unknown_share"] = dropped / (dropped + seen.words) if dropped + seen.words else None
    return row


def _chosen(choice: Choice, seen: Look) -> Row:
    own = choice.row
    error = own["progressive_error"]
    return {
        "configuration": own["configuration"],
        "algorithm": own["algorithm"],
        "parameters": own["parameters"],
        "nonzeros": own["nonzeros"],
        "window": choice.window,
        "window_error": choice.window_error,
        "error": error,
        "loss": own["progressive_loss"],
        "difference": None if seen.error is None else error - seen.error,
    }


def _class_mix(store: Location, version: int) -> list[Row]:
    before = _before(store, version)
    seen = {} if before is None else {entry.name: entry.rows for entry in before.labels.classes}
    return [
        {"class": entry.name, "documents": entry.rows - seen.get(entry.name, 0)}
        for entry in read_manifest(store, version).labels.classes
    ]


def _before(store: Location, version: int) -> Manifest | None:
    return None if version == 1 else read_manifest(store, version - 1)


def follow(run: RunFile, history: list[Row]) -> Location:
    """Let what others read follow the history and what was chosen: which model serves, and the page, which is given."""
    promote(run.out, serving(history, read_rows(run.out, "history-choices")))
    return write_nights_page(run.out, run.name)
