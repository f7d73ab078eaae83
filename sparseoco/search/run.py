"""A search and a training from a store to their files: tables, choice, held-out predictions, model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy  # loads scipy.sparse when it is used
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import DamagedError, InputError, SparseocoError, unsupported
from sparseoco.core.logs import RowsCallback, progress_of
from sparseoco.execution.clusters import Call, TaskError, TaskPool, remove_damaged
from sparseoco.kernels.order import sample_rows
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.epochs import EpochTask, epoch_metrics, run_epoch_block
from sparseoco.offline.cluster.passes import read_rows
from sparseoco.search import worker
from sparseoco.search.packing import Job, cluster_capacity, configurations_at_once, resolve_relative
from sparseoco.search.runner import ProgressTracker, run_jobs, search_configurations, search_deadline
from sparseoco.search.selection import Leading, candidates, default_grids, describe_choice, has_unfinished, wider_grids
from sparseoco.storage import commit
from sparseoco.storage.locations import Location, location, relative_path, resolve_against
from sparseoco.storage.tables import Row, parquet_writer, read_parquet_file, write_parquet, write_result_table
from sparseoco.store import terms
from sparseoco.store.corpus import Corpus, worker_corpus
from sparseoco.store.shards import Session, Store, store_reference
from sparseoco.training import decisions
from sparseoco.training.block import (
    Block,
    FeatureGroups,
    Origin,
    check_folds,
    check_origin,
    fold_order,
    resume_learner,
    search_setting,
    search_settings,
)
from sparseoco.training.decisions import ROWS
from sparseoco.training.learner import Learner
from sparseoco.training.metrics import held_out_chunks, store_label_kind
from sparseoco.training.models import STATE, VOCABULARY, amend_model, write_model
from sparseoco.training.options import AtMost, Configuration, SearchOptions, resolve
from sparseoco.training.search_tables import SEARCH_TABLES
from sparseoco.training.stream import NO_FOLD, StreamPosition, order_name
from sparseoco.training.validation import check_labels, check_loss, check_size

# ----------------------------------------------------------------------------------------------------------------------
# The options of a search or a training for a store, and the models that they name.


def fitting_options(store: Store, options: SearchOptions, *, search: bool = False) -> SearchOptions:
    """The options with the defaults for a store. Raises `InputError` for labels or columns that do not fit."""
    check_labels(store)
    options = resolve(options, store, search=search)
    check_loss(options, store)
    options.check_metric(store_label_kind(store))
    check_folds(store, options.folds_by)
    return options


def options_for_search(store: Store, options: SearchOptions) -> SearchOptions:
    """The options with the defaults of a search for a store. Raises `InputError` for what does not fit."""
    options = fitting_options(store, options, search=True)
    if options.folds > store.n_rows:
        raise InputError(
            f"There are {options.folds:,} folds, more than the {store.n_rows:,} documents of {store.folder}: set folds "
            "(--folds) to fewer.",
            code="too-many-folds",
        )
    if options.threshold is not None and store.n_classes is None:
        raise unsupported(f"threshold {options.threshold} is of classes, and the labels are numbers.")
    if options.threshold_rule is not None:
        decisions.check_has_threshold(options.threshold_rule, store.n_outputs, several=store.is_multilabel)
    return options


def with_models(options: SearchOptions, store: Store, model: Location) -> SearchOptions:
    """The options with absolute paths of what they name; `model` is written to.

    Raises `InputError` for models that do not fit, and for a learner whose state would be too large.
    """
    store.check_outside(model)
    origins = {name: Origin.of(path) for name, path in options.models.items()}
    for origin in origins.values():
        if location(origin.model) == model.resolve():
            raise InputError(
                f"{model} cannot start from itself: if the run stops, the model is lost. Choose another --out.",
                code="invalid-warm-start",
            )
    if "warm_start" in origins:
        check_origin(origins["warm_start"], store, options.features.weightings)
    selector = origins.get("features_from")
    n_features = store.n_features if selector is None else model_features(selector, store).features.size
    for algorithm in options.algorithms:
        check_size(algorithm, n_features)
    absolute = {name: origin.model for name, origin in origins.items()}
    if (groups := FeatureGroups.of(options.feature_groups)) is not None:
        absolute["feature_groups"] = groups.source
        groups.check(store)
    return options.model_copy(update=absolute)


def absolute_models(options: SearchOptions, run: Location) -> SearchOptions:
    """The options in a run's run.json, with absolute paths of what they name."""
    paths = {name: str(resolve_against(run, path)) for name, path in options.paths.items()}
    return options.model_copy(update=paths)


# ----------------------------------------------------------------------------------------------------------------------
# The files of a search: run.json, the tables, the choice, and its predictions of held-out documents.


def search_store(session: Session, name: str, options: SearchOptions, out: Location) -> None:
    """Run every configuration in every fold and choose one; all files are written to the folder of the run, `out`.

    Raises `SparseocoError` if no configuration was completed.
    """

    def record(options: SearchOptions) -> SearchOptions:
        commit.commit_json(out / "run.json", describe_run(name, session.store, out, options))
        return options

    record(options)
    with selected_features(session, options, out) as selected:
        if options.relative_parameters:
            options = record(resolve_relative(selected, options))
        folder, deadline, defaults = out / "search", search_deadline(options), default_grids(options)
        tables, tried = search_configurations(selected, options, folder, deadline), options
        while candidates(tables["metrics"], options.selection_metric) and not has_unfinished(tables["metrics"]):
            leading = Leading.of(tables["metrics"], options)
            tried = wider_grids(options, defaults, leading)
            if tried is options:
                break
            wider = search_configurations(selected, record(tried), folder, deadline)
            if not has_unfinished(wider["metrics"]) and not Leading.of(wider["metrics"], tried).improves_on(leading):
                record(options)
                break
            options, tables = tried, wider
        for table, schema in SEARCH_TABLES.items():
            write_result_table(folder / f"{table}.parquet", tables[table], schema)
        best = describe_choice(tables["metrics"], options, session.store, defaults, tried)
        (chosen,) = (each for each in options.configurations() if each.number == best["configuration"])
        options = options.model_copy(update={"epochs": best["epochs"]})
        settings = search_settings(options, selected.store) if options.folds > 1 else ()
        blocks = [Block.of(setting, [chosen]) for setting in settings]
        has_held_out(folder, blocks)  # removes those of another choice
        commit.commit_json(folder / "best.json", best)
        write_held_out(selected, blocks, folder)


def describe_run(name: str, store: Store, out: Location, options: SearchOptions) -> dict[str, Any]:
    """The contents of run.json: the store, its classes and text options, the options; paths relative to `out`."""
    paths = {option: relative_path(location(path), out) for option, path in options.paths.items()}
    corpus = {
        "store": store.manifest.digest,
        "folder": relative_path(store.folder, out),
        "rows": store.n_rows,
        "nonzeros": store.manifest.nonzeros,
        "features": store.n_features,
        "classes": [entry.model_dump(mode="json") for entry in store.manifest.labels.classes],
        "text": store.manifest.options,
    }
    if options.features_from is not None:
        origin = Origin.of(options.features_from)
        same = {"same_documents": origin.open().has_learned(store)}
        corpus["features_from"] = model_features(origin, store).description | same
    return {
        "name": name,
        "seed": options.seed,
        "version": __version__,
        "corpus": corpus,
        "search": options.model_dump(mode="json") | paths,
    }


def rules_of_search(folder: Location | None, options: SearchOptions, store: Store) -> dict[str, Any]:
    """How the model of all the data predicts, by the held-out predictions in the folder of a search if there is one."""
    rules: dict[str, Any] = {}
    if folder is not None:
        positive = search_setting(options, store, NO_FOLD).positive
        if store.classes and (folder / FILE).exists():
            found = decisions.read_predictions(folder / FILE, store.classes)
            rules = decisions.decision_rules(found.margins, found.labels, options.threshold_rule, positive)
    if isinstance(options.select, AtMost):
        rules = {**rules, "at_most": options.select.at_most}
    return rules


# ----------------------------------------------------------------------------------------------------------------------
# Feature subsets on the cluster: the features with nonzero weights in a model (see `sparseoco.store.terms`).
#
# Each shard is a task, a pure function of its paths, so it may run twice; a killed run resumes with the shards that
#     are
# written.


@contextmanager
def selected_features(session: Session, options: SearchOptions, folder: Location) -> Iterator[Session]:
    """The session or, if the options name a model, one with a store of the features with nonzero weights in it.

    That store is written to a folder in `folder`, which the workers must see and which is removed at the end. If a run
    was killed or failed, the next one uses what it has written. Raises `InputError` if the model has other features
    than the store, `StorageError` for a corrupt shard or a full disk.
    """
    if options.features_from is None:
        yield session
        return
    client, store = session
    subset = model_features(Origin.of(options.features_from), store)
    folder = folder.resolve() / ".features"
    target = folder / commit.digest_value([store.manifest.digest, subset.model_sha256])[:32]
    pool, count = TaskPool(client, "The feature subset could not be written"), store.n_shards
    remove_damaged(pool, target)
    commit.make_folder(target)
    terms.write_feature_subset(subset, target)
    calls: dict[str, Call] = {str(shard): (_cut_shard_task, target, shard) for shard in range(count)}
    for error in pool.run_all(calls, progress_of("features", count)).values():
        raise error
    yield session._replace(store=terms.commit_feature_subset(subset, target))
    commit.remove_folder(folder)


def model_features(origin: Origin, store: Store) -> terms.FeatureSubset:
    """The features of a store with a nonzero weight in a model, for any class.

    Raises `InputError` if the model has other features than the store, or all its weights are 0.
    """
    model = origin.open()
    if model.description.get("features_sha256") != store.features_digest():
        raise InputError(
            f"{model.folder} was not trained on the features of {store.folder}: features can only be selected by a "
            "model of the same vocabulary or the same hash.",
            code="features-differ",
        )
    if not model.feature_ids.size:
        raise InputError(f"All weights of {model.folder} are 0: there is no feature to train on.", code="no-features")
    return terms.FeatureSubset(store, model.feature_ids, origin.sha256)


def _cut_shard_task(folder: Location, shard: int) -> None:
    subset = terms.read_feature_subset(folder)
    assert subset is not None
    terms.cut_shard(subset, shard, folder)


# ----------------------------------------------------------------------------------------------------------------------
# Training one configuration on all data: a stream learner in one task, an epoch method spread over the cluster.


def train_model(
    session: Session, configuration: Configuration, options: SearchOptions, model: Location, rules: dict[str, Any]
) -> None:
    """Train one configuration on all the data for `options.epochs`; its model is written to the folder `model`.

    `rules` are entries of its description that say how predictions are made of margins.

    Raises `InputError` if it does not fit in memory, `SparseocoError` if it cannot be trained, with the reason.
    """
    options = options.model_copy(update={"halving": None})
    block = Block.of(search_setting(options, session.store, NO_FOLD), [configuration])
    configurations_at_once(block, options, session.store, cluster_capacity(session, options))
    train_block(session, block, model, rules)


def train_block(session: Session, block: Block, model: Location, rules: dict[str, Any]) -> None:
    """Train a block of one configuration and write its model to the folder `model`, unless it is already there.

    A stream learner is trained by one task; parts and epoch methods are spread over the cluster, with their states in a
    folder of the model that is removed at the end. Raises `InputError`
    if it does not fit in memory, `SparseocoError` if it cannot be trained.
    """
    if model_is_complete(model, block.digest, block.setting.epochs, at_most=rules.get("at_most")):
        amend_model(model, rules)
        return
    work = model.resolve() / ".work"
    client, store = session
    with trackers(session, [block], "train") as tracker:
        states = spread_blocks(tracker, [block], work, "Training failed")
        arguments = block, model.resolve(), rules, states.get(block.digest)
        try:
            TaskPool(client, "Training failed").call(write_block, worker.Site(store_reference(store)), *arguments)
        except SparseocoError as error:
            if error.code == "diverged":
                commit.remove_folder(work)  # it would diverge again
            raise
        commit.remove_folder(work)


@contextmanager
def trackers(session: Session, blocks: Sequence[Block], step: str) -> Iterator[ProgressTracker]:
    """Track the progress of blocks of as many epochs, as their tasks report it; with the context they end."""
    keys = [key for block in blocks for key in block.keys]
    tracker = ProgressTracker(session, step, keys, blocks[0].setting.epochs * session.store.n_rows)
    tracker.blocks = {block.digest: block for block in blocks}
    with tracker.reports():
        yield tracker
        tracker.reach(keys)


def spread_blocks(tracker: ProgressTracker, blocks: list[Block], work: Location, failure: str) -> dict[str, Location]:
    """Train blocks of one configuration that one task cannot train: with several parts, and of epoch methods.

    Returns the folders of their states by the digest of the block; a block without one is trained where it is used.
    Raises `TaskError`, which begins with `failure`, `InputError` and `SparseocoError`.
    """
    if not blocks or (blocks[0].parts == 1 and find_algorithm(blocks[0].algorithm).online):
        return {}
    session = tracker.session
    if blocks[0].parts > 1:
        epochs, folders = range(1, blocks[0].setting.epochs + 1), worker.Folders.of(work)
        milestones = tuple(StreamPosition(epoch, session.store.n_rows) for epoch in epochs)
        waiting = [block for block in blocks if worker.reached_position(folders.checkpoints, block) < milestones[-1]]
        jobs = [Job(block, milestones, resumable=False) for block in waiting]
        for reason in run_jobs(tracker, jobs, folders, deadline=None).values():
            raise TaskError(failure, reason)
        return {block.digest: work for block in blocks}
    for block in blocks:  # one at a time, since each is spread over the cluster
        cells, report = work / block.digest / "cells", partial(tracker.reach, block.keys)
        run_epoch_block(session, block, cells, work, report, resumable=True)
    return {block.digest: work / block.digest for block in blocks}


def train_here(run: worker.BlockRun, corpus: Corpus, report: RowsCallback) -> list[Row]:
    """Train a block of one configuration to the end of its epochs; returns its curve."""
    curve: list[Row] = []
    for epoch in range(1, run.block.setting.epochs + 1):
        for position in run.learn(corpus, StreamPosition(epoch, corpus.n_rows)):
            report(position.rows_before(corpus.n_rows))
        curve += [{**point, "epoch": epoch, "nonzeros": None} for point in run.curves[0]]
        curve[-1]["nonzeros"] = int(run.learner.nonzeros()[0])
    return curve


class FinalState(NamedTuple):
    """One configuration at the end of its epochs.

    Weights (features, outputs), intercepts (1, outputs), the learner unless it is of an epoch method, and the metrics
    of the epochs.
    """

    weights: NDArray[Any]
    intercepts: NDArray[Any]
    learner: Learner | None
    metrics: list[dict[str, Any]]


def read_final(block: Block, store: Store, state: Location) -> FinalState:
    """The end of the epochs of one configuration, from a folder of `spread_blocks`."""
    rows = epoch_metrics(state / "cells", block, store)
    if block.parts > 1:
        end = StreamPosition(block.setting.epochs, store.n_rows)
        run = worker.load_checkpoint(worker.Folders.of(state).checkpoints, block, end)
        assert run is not None
        return FinalState(run.learner.weights_of(0), run.learner.intercepts(), run.learner, rows)
    problem = EpochTask(block, store_reference(store)).problem
    weights = np.array(read_rows(state / f"epoch-{block.setting.epochs}.npy", problem.outputs))
    return FinalState(*problem.split(weights), None, rows)


def write_block(site: worker.Site, block: Block, out: Location, rules: dict[str, Any], state: Location | None) -> None:
    """Commit the model of a block of one configuration, trained here or in the folder `state`, to `out`: a task.

    The model of parts has the probabilities of `rules` or of the loss: no part predicts enough rows for a calibration.

    Raises `StorageError` for a corrupt shard or a full disk, `SparseocoError` if the configuration diverges.
    """
    store, scratch, report, _ = site.open([block])
    setting, described, saved = block.setting, describe_block(block), None
    if state is None:
        corpus = worker.block_corpus(block, store, scratch)
        saved = worker.new_learner(block, store)
        if setting.origin is not None:
            saved, described["warm_start"] = resume_learner(setting.origin, saved, store)
        run = worker.BlockRun(block, saved, saved.progress)
        recorder = None if "calibration" in rules else decisions.MarginRecorder.of_first_pass(saved, corpus.n_rows)
        run.recorder = recorder
        curve = train_here(run, corpus, report)
        if row := int(saved.diverged[0]):
            raise _diverged(block, f"diverged at row {row:,}")
        described |= {} if recorder is None else recorder.rules()
        weights, intercepts = saved.weights_of(0), saved.intercepts()
    else:
        weights, intercepts, learner, rows = read_final(block, store, state)
        if rows[-1]["status"] != "ok":
            raise _diverged(block, rows[-1]["reason"])
        curve = [{name: row[name] for name in CURVE_COLUMNS} for row in rows]
        described |= {} if learner is None else {"rounds": learner.rounds}
    kept = at_most_features(weights, block, store, rules.get("at_most"))
    if setting.feature_groups is not None:
        described["feature_groups"] = setting.feature_groups.described(store, kept)
    curve[-1]["nonzeros"] = int(np.count_nonzero(kept))
    saved = saved if kept is weights else None  # a state has the weights that were left out
    own = intercepts[0] if block.intercept else None
    write_model(out, kept, store, described | rules, curve, saved, intercepts=own)


def at_most_features(weights: NDArray[Any], block: Block, store: Store, at_most: int | None) -> NDArray[Any]:
    """The weights of the strongest features, at most so many; the same array if there are no more.

    A model of all the data may use more features than those of the folds that it was chosen by. The strength of feature
    j is ‖w_j‖²·Σ_t x_tj², its part in the margins, squared and summed over classes and rows, if features were
    uncorrelated. The sum of the squares of its values is estimated by its documents and its idf.
    """
    if at_most is None or np.count_nonzero(weights.any(axis=1)) <= at_most:
        return weights
    idf = terms.term_weights(store, block.weighting).idf if block.weighting.idf else 1.0
    squares = store.document_frequencies().astype(np.float64) * np.square(idf)
    strength = np.square(weights.astype(np.float64)).sum(axis=1) * squares
    kept = np.argsort(-strength, kind="stable")[:at_most]
    fewer = np.zeros_like(weights)
    fewer[kept] = weights[kept]
    return fewer


CURVE_COLUMNS = ("epoch", "rows", "progressive_loss", "progressive_error", "nonzeros")


def _diverged(block: Block, reason: str) -> SparseocoError:
    smaller = "step" if find_algorithm(block.algorithm).online else "R"
    message = f"{block.algorithm} {reason} with {block.configurations[0]}: choose a smaller {smaller}."
    return SparseocoError(message, code="diverged")


def model_is_complete(model: Location, block: str, epochs: int, *, at_most: int | None = None) -> bool:
    """Whether the folder `model` has the complete model of a block, given by its digest, after this many epochs.

    `at_most` is the number of features that it was restricted to.
    """
    with suppress(DamagedError):  # missing or corrupt: it is written again
        described = commit.read_json(model / "model.json")
        if tuple(described.get(name) for name in ("block", "epochs", "at_most")) != (block, epochs, at_most):
            return False
        # A run of another block may have been killed while replacing these files.
        parts = ("weights.parquet", "weights_sha256"), (VOCABULARY, "vocabulary_sha256"), (STATE, "learner_sha256")
        return all(commit.digest_file(model / name) == described[key] for name, key in parts if key in described)
    return False


def describe_block(block: Block) -> dict[str, Any]:
    """The block of one configuration in the description of the model trained by it."""
    (parameters,) = block.configurations
    described = {"algorithm": block.algorithm, "parameters": parameters, "block": block.digest}
    names = {"loss", "penalty", "class_weights", "positive", "dtype", "epochs", "seed", "range_rows"}
    described |= block.setting.model_dump(mode="json", include=names)
    shuffle = order_name(block.setting.range_rows)
    return described | {"shuffle": shuffle, "weighting": block.weighting.model_dump(mode="json")}


# ----------------------------------------------------------------------------------------------------------------------
# Held-out predictions of the chosen configuration: `held_out.parquet` in the folder of a search.
#
# A search keeps the metrics of a configuration, not its predictions. For the chosen one, a task per fold trains it
#     again
# on the other folds, with the bits it had in the search, and writes its margins on the held-out documents (see
# `sparseoco.training.decisions`), a row group per fold. Calibrations, thresholds and curves are made from
# them. Of a large corpus they are a sample, drawn by a hash of the numbers of the documents.
#
# Each task commits a file, so that a run that was killed makes only what is missing; the bytes do not depend on
#     shards,
# threads and workers.


FILE = "held_out.parquet"
MARGINS = 10_000_000
"""Margins in the file at most, about; there are `ROWS` documents or, with more than 100 classes, fewer."""
IDENTITY = b"sparseoco"
"""The key in the file's metadata of what it was made from."""


def write_held_out(session: Session, blocks: list[Block], folder: Location) -> None:
    """Write the held-out predictions of a configuration, unless they are there; blocks have it in each fold.

    Raises `SparseocoError` if a task fails.
    """
    if not blocks or has_held_out(folder, blocks):
        return
    work, failure = (folder / "held_out").resolve(), "The held-out documents could not be predicted"
    commit.make_folder(work)
    parts = {block.digest: work / f"{block.digest}-{block.setting.epochs}.parquet" for block in blocks}
    pool = TaskPool(session.client, failure)
    remove_damaged(pool, work)
    with trackers(session, blocks, "predictions") as tracker:
        missing = [block for block in blocks if not parts[block.digest].exists()]
        states = spread_blocks(tracker, missing, work, failure)
        site = worker.Site(store_reference(session.store))
        pool.map(write_fold, [(site, b, parts[b.digest], states.get(b.digest)) for b in missing])
    pool.call(_unite_task, list(parts.values()), (folder / FILE).resolve(), _identity(blocks))
    commit.remove_folder(work)


def has_held_out(folder: Location, blocks: list[Block]) -> bool:
    """Whether the held-out predictions in the folder of a search are those of these blocks; others are removed."""
    path = folder / FILE
    if not path.exists():
        return False
    with suppress(DamagedError):
        found = read_parquet_file(path).schema.metadata or {}
        if blocks and found.get(IDENTITY) == _identity(blocks).encode():
            return True
    commit.remove_file(path)
    return False


def _identity(blocks: list[Block]) -> str:
    return commit.digest_value([[block.digest for block in blocks], blocks[0].setting.epochs, ROWS, MARGINS])


def _ids(store: Store, rows: NDArray[np.int64]) -> pa.StringArray:
    """The ids of documents by number, increasing; those of a feature subset are in its source."""
    subset = terms.read_feature_subset(store.folder)
    source = store if subset is None else subset.source
    offsets = source.shards.row_offsets
    cuts = np.searchsorted(rows, offsets)
    parts: list[pa.Array] = [pa.array([], pa.string())]
    for shard in np.flatnonzero(np.diff(cuts)).tolist():
        own = rows[cuts[shard] : cuts[shard + 1]] - offsets[shard]
        parts.append(source.ids(shard).take(pa.array(own)).cast(pa.string()))
    return pa.concat_arrays(parts)


def write_fold(site: worker.Site, block: Block, path: Location, state: Location | None) -> None:
    """Commit the predictions of the documents of the held-out fold that are in the sample: a task.

    The learner is trained here or in the folder `state`. There is nothing to do if the predictions exist.
    """
    store, _, report, _ = site.open([block])
    if path.exists():
        return
    setting = block.setting
    dtype = setting.dtype if find_algorithm(block.algorithm).online else "float64"  # that of the weights
    corpus = worker_corpus(store, block.weighting, dtype)
    learner: Learner | None
    if state is None:
        run = worker.BlockRun.new(block, store)
        train_here(run, corpus, report)
        learner = run.learner
    else:
        weights, intercepts, learner, _ = read_final(block, store, state)

    share = min(1.0, min(ROWS, MARGINS / max(len(store.classes), 1)) / max(store.n_rows, 1))
    numbers, labels, margins = [], [], []
    for held_out in held_out_chunks(fold_order(setting, corpus), store.n_rows):
        numbers.append(sample_rows(setting.seed, held_out, share))
        batch = corpus.gather(numbers[-1])
        labels.append(batch.labels)
        if learner is not None:
            margins.append(learner.margins(batch.indptr, batch.indices, batch.values)[:, 0])
        else:
            data = np.asarray(batch.values, np.float64), batch.indices, batch.indptr
            matrix = scipy.sparse.csr_matrix(data, shape=(len(batch.labels), len(weights)))
            margins.append(np.asarray(matrix @ weights + intercepts))
    rows = np.concatenate(numbers)
    folds = np.full(rows.size, setting.fold, np.int32)
    found = decisions.Predictions(_ids(store, rows), folds, np.concatenate(labels), np.concatenate(margins))
    write_parquet(path, decisions.predictions_table(found, store.classes))


def _unite_task(parts: list[Location], path: Location, identity: str) -> None:
    """Commit one file with a row group for each part."""
    first, *others = parts
    table = read_parquet_file(first).replace_schema_metadata({IDENTITY: identity})
    with parquet_writer(path, table.schema) as writer:
        writer.write_table(table)
        for part in others:
            writer.write_table(read_parquet_file(part).cast(table.schema))
