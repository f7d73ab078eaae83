"""One nightly run, and rollbacks."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from logging import WARNING
from typing import NamedTuple

from distributed import Client

from sparseoco.core.errors import FolderInUseError, HeldError, InputError, SparseocoError, StorageError, unsupported
from sparseoco.core.formatting import plural
from sparseoco.core.logs import log_event, logged_step
from sparseoco.execution.clusters import connect
from sparseoco.learners import find_algorithm
from sparseoco.pipeline.nightly import evaluation, guard, records
from sparseoco.pipeline.run_file import HeldDecision, RunFile, name_keys
from sparseoco.pipeline.steps import RUN_FOLDER
from sparseoco.search.increments import IncrementChain
from sparseoco.search.runner import search_deadline
from sparseoco.search.worker import StateLostError
from sparseoco.storage.commit import exclusive_lock
from sparseoco.storage.locations import Location, is_inside, local_work_folder, location
from sparseoco.storage.tables import Row
from sparseoco.store.manifest import STORE_FOLDER, Manifest, read_manifest
from sparseoco.store.shards import Store
from sparseoco.store.weighting import Weighting
from sparseoco.text.ingest import ingest
from sparseoco.text.passes import new_sources
from sparseoco.text.sources import Source, find_sources
from sparseoco.training.block import Block, Origin, check_origin
from sparseoco.training.models import Model
from sparseoco.training.options import resolve
from sparseoco.training.validation import check_labels, check_loss, check_size

# ----------------------------------------------------------------------------------------------------------------------
# Nightly runs: ingest new files, evaluate the deployed model on them, learn them, decide on a promotion.
#
# What is learned is in files named by what it depends on, and an increment is done when it is in the history. A run
# that was killed at any moment resumes when it is run again, and ends with the same files.


MAX_LOST_STATES = 20  # in one run; more point to a fault of the storage
MAX_UNREADABLE = 100  # in one run, which begins the ingest again for each; more point to a fault of the delivery


class NightlyResult(NamedTuple):
    """The rows that a run added to the history, the page, and a message if there are no rows.

    `left_out` has the rows of history-quarantine of the files that are left out because they could not be read.
    """

    increments: list[Row]
    page: Location | None
    message: str
    left_out: Sequence[Row] = ()


@logged_step("nightly", "run")
def run_nightly(run: RunFile, held: HeldDecision | None = None) -> NightlyResult:
    """Ingest the new files among the inputs of a run file, learn them and decide which model is deployed.

    With `held`, the increment that is held is accepted or discarded first.

    Raises
    ------
    InputError : for inputs or options that are not supported, or a decision where no increment is held.
    HeldError : if the increment is unlike those before, or an earlier one is held: nothing has learned it.
    SparseocoError : for what cannot be done.
    """
    _check_options(run)
    wait = run.nightly.if_running == "wait"
    try:
        with ExitStack() as locks:
            for folder in dict.fromkeys((run.out.resolve(), run.store.resolve())):  # they may be the same
                kinds = [RUN_FOLDER] * (folder == run.out.resolve()) + [STORE_FOLDER] * (folder == run.store.resolve())
                locks.enter_context(exclusive_lock(folder, *kinds, wait=wait))
            settled = "" if held is None else guard.settle(run, held)
            try:
                found = _run(run)
            except HeldError:  # also if a call was killed before it could publish it
                publish(run, records.read_history(run.out, "history"))
                raise
            return found._replace(message=" ".join(filter(None, (settled, found.message))))
    except FolderInUseError as error:
        return NightlyResult([], None, f"Nothing was done: {error}")


def _check_options(run: RunFile) -> None:
    """Raises `InputError` for a search that cannot be continued from increment to increment."""
    for name in run.search.algorithms:
        algorithm = find_algorithm(name)
        if not algorithm.online:
            raise InputError(
                f"{name} makes many passes over the same documents: it cannot continue from increment to increment. "
                "Use stream learners in [search.algorithms].",
                code="not-online",
            )
        if algorithm.touches_all_features and run.ingest.vocabulary == "extend" and run.ingest.hash_bits is None:
            raise InputError(
                f'{name} updates all features in every round, so none can be added: set vocabulary = "frozen" or '
                "hash_bits in [ingest].",
                code="fixed-features",
            )
    if run.search.warm_start is not None and is_inside(location(run.search.warm_start), run.out):
        raise InputError(
            f"warm_start is {run.search.warm_start}, in the run's own folder: increments cannot start from a model "
            "that has learned the documents they are evaluated on. Use a model of another run, or another out.",
            code="invalid-warm-start",
        )
    if run.search.relative_parameters:
        raise unsupported(
            "Values relative to λ_max depend on the documents, which change from increment to increment: give numbers, "
            "such as those in run.json of a search."
        )
    if run.search.feature_groups is not None:
        raise unsupported("feature_groups are groups of the features of a fixed store: nightly runs extend it.")
    if run.search.features_from is not None:
        raise unsupported(
            "features_from selects features of a fixed store: nightly runs, which extend it, use all of them."
        )


def _run(run: RunFile) -> NightlyResult:
    if (row := records.held(run.out)) is not None:
        raise guard.held_error(row)
    store, history = Store.find(run.store), records.read_history(run.out, "history")
    known = len(history)
    _check_history(run, store, history)
    quarantine, new = _find_new(run, store)
    records.write_quarantine(run.out, quarantine)
    if store is not None and not new and known == store.manifest.version:
        _keep_results(run, store)
        skipped = records.left_out(quarantine)
        files = "all files that can be read are" if skipped else "all files are"
        message = f"Nothing new: {files} learned, up to increment {known}."
        return NightlyResult([], publish(run, history), message, skipped)
    with connect(run.cluster, local_work_folder(run.out) / ".scratch") as client:
        if store is None or new:
            store = _ingest(run, client, store, quarantine, new)
        _check_store(run, store)
        deadline = search_deadline(run.search)
        lost = 0
        while True:
            try:
                history = _learn(run, client, store, deadline)
                break
            except StateLostError as error:  # its increment is learned again
                lost += 1
                if lost > MAX_LOST_STATES:
                    raise
                log_event("nightly", "checkpoint lost", level=WARNING, reason=str(error))
    page = publish(run, history)
    if run.nightly.keep_models is not None:
        for model in records.unneeded_models(run.out, history, run.nightly.keep_models):
            records.remove_model(model)
    quarantine = records.read_history(run.out, "history-quarantine")
    return NightlyResult(history[known:], page, "", records.left_out(quarantine))


def _find_new(run: RunFile, store: Store | None) -> tuple[list[Row], list[Source]]:
    """The rows of history-quarantine, and the sources that are neither in the store nor left out.

    A file is new again when it has changed since it was left out, or `max_bad_rows` has. Rows of an increment whose
    ingest was not committed are dropped: it decides again. Raises `InputError` if a file that was ingested has changed.
    """
    options, version = run.ingest.text, 0 if store is None else store.manifest.version
    found = find_sources(list(run.ingest.inputs), options, may_be_empty=store is not None)
    versions = {source.absolute: records.source_key(source, options) for source in found}
    quarantine = [
        row if row["until"] is not None or row["key"] == versions.get(row["file"]) else row | {"until": version}
        for row in records.read_history(run.out, "history-quarantine")
        if row["increment"] <= version or row["code"] == "held"
    ]
    skipped = {row["file"] for row in records.left_out(quarantine)}
    return quarantine, new_sources([source for source in found if source.absolute not in skipped], options, store)


def _ingest(
    run: RunFile, client: Client, store: Store | None, quarantine: Sequence[Row], new: Sequence[Source]
) -> Store:
    """Ingest the new files, without those that cannot be read.

    These are recorded before the ingest without them is committed. Raises `InputError` if no new file can be read.
    """
    unreadable = list[Row]()
    first: InputError | None = None
    while True:
        records.write_quarantine(run.out, [*quarantine, *unreadable])
        try:
            manifest = ingest(
                list(run.ingest.inputs),
                run.store,
                run.ingest.text,
                client=client,
                shard_bytes=run.ingest.shard_bytes,
                vocabulary=run.ingest.vocabulary,
                left_out={row["file"] for row in records.left_out([*quarantine, *unreadable])},
            )
            return Store(run.store, manifest)
        except InputError as error:
            first = first or error
            source = next((source for source in new if source.path == error.source), None)
            if source is None or len(unreadable) == MAX_UNREADABLE:
                raise
            new = [other for other in new if other is not source]
            if not any(other.bytes for other in new):
                records.write_quarantine(run.out, quarantine)
                raise first from None
            reason = name_keys(str(error))
            increment = 1 + (0 if store is None else store.manifest.version)
            unreadable.append(records.left_out_row(source, run.ingest.text, increment, error.code, reason))
            log_event("nightly", "file left out", level=WARNING, file=source.path, code=error.code, reason=reason)


def _learn(run: RunFile, client: Client, store: Store, deadline: float | None) -> list[Row]:
    """Learn what is missing of all increments and decide the new ones; returns the history."""
    history, last = records.read_history(run.out, "history"), store.manifest.version
    run = run.model_copy(update={"search": resolve(run.search, store)})
    check_loss(run.search, store)
    chain = IncrementChain(run.search, run.store, last, len(history), run.out / "nightly", deadline)
    for version in range(min(chain.first, len(history) + 1), last + 1):
        started, undecided = time.monotonic(), version > len(history)
        if undecided:
            arrival, deployed = _measure(run, client, version, history)
            guard.check(run, arrival, history)
        learned = chain.learn(client, version)
        if undecided:
            _decide(run, client, chain, arrival, deployed, started)
            history = records.read_history(run.out, "history")
            if version < last:  # the last one is published at the end of the run
                publish(run, history)
        if learned or chain.first > version:  # learned now, or by a run that was stopped before it removed them
            chain.remove_unneeded(version)
    chain.keep_results()
    return history


def _keep_results(run: RunFile, store: Store) -> None:
    """Do what is left of the last increment if a run was stopped after its decision: remove states, commit results."""
    folder, last = run.out / "nightly", store.manifest.version
    if any((folder / "cells").glob("*.json")):
        chain = IncrementChain(resolve(run.search, store), run.store, last, last, folder)
        if chain.first > last:
            chain.remove_unneeded(last)
            chain.keep_results()


def _check_history(run: RunFile, store: Store | None, history: Sequence[Row]) -> None:
    """Raises `InputError` if the increments of the history are not those of the store."""
    if history and (
        store is None
        or len(history) > store.manifest.version
        or read_manifest(run.store, len(history)).digest != history[-1]["store"]
    ):
        raise InputError(
            f"The increments in {run.out} were not learned from the shards in {run.store}: choose another out.",
            code="store-changed",
        )


def _check_store(run: RunFile, store: Store) -> None:
    """Raises `InputError` if the store cannot be learned."""
    if len(store.classes) == 1:
        raise InputError(
            f"The first increment has one class only ({store.classes[0]}): list all classes that may come in [ingest], "
            f"classes = […], remove {run.store}, and run again.",
            code="one-class",
        )
    check_labels(store)
    if run.search.warm_start is not None:
        check_origin(Origin.of(run.search.warm_start), store, run.search.features.weightings)
    for name in run.search.algorithms:
        check_size(name, store.n_features)


def _measure(run: RunFile, client: Client, version: int, history: Sequence[Row]) -> tuple[guard.Arrival, int | None]:
    """An increment before it is learned, and the increment of the deployed model."""
    deployed = records.read_deployed(run.out, history)
    model = None if deployed is None else records.increment_model(run.out, deployed.increment)
    if model is not None:
        evaluation.check_deployed(model)
    measured = evaluation.evaluate_increment(client, run.store, version, model)
    previous = None if version == 1 else read_manifest(run.store, version - 1)
    arrival = guard.Arrival(read_manifest(run.store, version), previous, measured)
    return arrival, None if deployed is None else deployed.increment


def _decide(
    run: RunFile,
    client: Client,
    chain: IncrementChain,
    arrival: guard.Arrival,
    deployed: int | None,
    started: float,
) -> None:
    """Decide an increment after learning: write the model if it is promoted, then the tables.

    `deployed` is the increment of the deployed model.
    """
    manifest, previous, measured = arrival
    version, model = manifest.version, None if deployed is None else records.increment_model(run.out, deployed)
    row = _counts(arrival) | {
        "deployed": deployed,
        "margin": run.nightly.margin,
        "confidence": run.nightly.confidence,
    }
    rows = chain.rows(version)
    classes: Sequence[Row] = ()
    if not row["documents"]:
        decision = records.Decision(False, "the new files contain no documents")
    else:
        names = ("deployed_error", "expected_error", "expected_spread", "deployed_loss", "deployed_rmse")
        row |= {name: getattr(measured, name) for name in names}
        metric = run.search.metric or ("error" if manifest.labels.classes else "loss")
        window = range(max(1, version + 1 - run.nightly.window), version + 1)
        try:
            candidate = records.choose_candidate(
                [chain.rows(increment) for increment in window], run.search.select, metric
            )
        except SparseocoError as error:
            decision = records.Decision(False, str(error))
        else:
            block = Block.of(chain.setting(version), [candidate.configuration])
            if metric == "loss":  # that of the two models may differ
                metric = "log_loss" if manifest.labels.classes else "rmse"
            learned = evaluation.Candidate.of(block, run.store, chain.checkpoints)
            comparison = evaluation.compare_increment(client, learned, model, metric, run.nightly.confidence)
            classes = comparison.classes
            decision = records.decide(
                comparison,
                deployed=deployed is not None,
                margin=run.nightly.margin,
                confidence=run.nightly.confidence,
            )
            row |= _candidate_columns(candidate, comparison)
            if decision.promoted:
                curve, folder = chain.curve(version, row["configuration"]), records.increment_model(run.out, version)
                evaluation.write_candidate(client, learned, folder, run.search, curve)
    row |= {"increment": version, "promoted": decision.promoted, "reason": decision.reason}
    tables = {
        "history-configurations": rows,
        "history-classes": _class_rows(manifest, previous, classes),
        "history-timings": [records.timing(time.monotonic() - started)],
        "history": [row],
    }
    records.add_increment(run.out, version, tables)


def _counts(arrival: guard.Arrival) -> Row:
    """The columns of the history on documents, features and words."""
    manifest, previous, measured = arrival
    row: Row = {
        "documents": arrival.documents,
        "features": manifest.features.count,
        "store": manifest.digest,
        "unknown_to_deployed": arrival.unknown,
    }
    if manifest.features.kind == "vocabulary":
        row["new_terms"] = manifest.features.count - (previous.features.count if previous else 0)
        if previous is not None:
            row["dropped_terms"] = arrival.dropped
            words = arrival.dropped + measured.words
            row["unknown_share"] = arrival.dropped / words if words else None
    return row


def _candidate_columns(candidate: records.WindowCandidate, comparison: evaluation.Comparison) -> Row:
    own = candidate.row
    compared = ("metric", "value", "deployed_value", "difference", "low", "high")
    identity = ("configuration", "algorithm", "parameters", *Weighting.model_fields)
    return {name: own[name] for name in (*identity, "nonzeros")} | {
        "window": candidate.window,
        "window_error": candidate.window_error,
        "error": own["progressive_error"],
        "loss": own["progressive_loss"],
        **{name: getattr(comparison, name) for name in compared},
    }


def _class_rows(manifest: Manifest, previous: Manifest | None, measured: Sequence[Row]) -> list[Row]:
    known = {} if previous is None else {entry.name: entry.rows for entry in previous.labels.classes}
    by_class = {row["class"]: row for row in measured}
    return [
        {"class": entry.name, "documents": entry.rows - known.get(entry.name, 0)} | by_class.get(entry.name, {})
        for entry in manifest.labels.classes
    ]


def publish(run: RunFile, history: Sequence[Row]) -> Location:
    """Bring promoted.json and the page, which is returned, up to date with the history and the rollbacks."""
    records.write_promoted(run.out, records.read_deployed(run.out, history))
    return records.write_nightly_page(run.out, run.name)


# ----------------------------------------------------------------------------------------------------------------------
# Rolling back to the model of an earlier increment, until the next promotion.
#
# The rollback is committed first, then promoted.json and the page are written. If the command is killed in between,
# the same command writes them.


LISTED = 10  # increments named in an error


@logged_step("rollback", "run")
def roll_back(run: RunFile, increment: int) -> NightlyResult:
    """Deploy the model of an earlier increment; nothing is ingested or learned.

    Raises
    ------
    InputError : for an increment without a model.
    StorageError : for a model that is missing or corrupt.
    FolderInUseError : if another run uses the folder and is not waited for.
    """
    # Before the lock, which creates a missing folder.
    _find(run.out, records.read_history(run.out, "history"), increment)
    with exclusive_lock(run.out.resolve(), wait=run.nightly.if_running == "wait"):
        history = records.read_history(run.out, "history")
        row = _find(run.out, history, increment)
        _check_model(run.out, increment)
        deployed = records.read_deployed(run.out, history)
        replaced = increment if deployed is None else deployed.increment
        if replaced == increment:
            return NightlyResult([], publish(run, history), f"The model of increment {increment} is already deployed.")
        records.add_rollback(run.out, increment, history)
        log_event("nightly", "rolled back", increment=increment, instead_of=replaced)
        message = (
            f"Rolled back from the model of increment {replaced} to that of increment {increment}: {row['algorithm']} "
            f"({records.parameters_label(row)}), {plural(row['nonzeros'], 'nonzero weight')}."
        )
        return NightlyResult([], publish(run, history), message)


def _find(run: Location, history: Sequence[Row], increment: int) -> Row:
    """The row of an increment. Raises `InputError` if it has no model."""
    chosen = records.promoted(history)
    if increment in chosen:
        return history[increment - 1]
    if not chosen:
        raise InputError(f"No increment in {run} has a model to roll back to.", code="no-model")
    last = ", ".join(str(n) for n in chosen[-LISTED:] if (records.increment_model(run, n) / "model.json").exists())
    listed = f"{'the last of them ' if len(chosen) > LISTED else ''}{last or 'none'}"
    reason = "it was not promoted" if 1 <= increment <= len(history) else f"the last increment is {len(history)}"
    raise InputError(
        f"Increment {increment} in {run} has no model: {reason}. Increments with a model: {listed}.", code="no-model"
    )


def _check_model(run: Location, increment: int) -> None:
    """Raises `StorageError` if the model of an increment is missing or corrupt."""
    folder = records.increment_model(run, increment)
    if not (folder / "model.json").exists():
        raise StorageError(
            f"The model of increment {increment} is missing: {folder} has no model.json.", code="missing-model"
        )
    Model(folder)
