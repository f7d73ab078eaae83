"""The steps of a run, each a function from paths to paths: ingest, search, train, evaluate, report.

A step that was killed resumes when it is run again: committed work is not repeated. Flows and the command line call
these functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from distributed import Client

from sparseoco.core.errors import InputError
from sparseoco.core.logs import logged_step
from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.optimum import OptimumOptions, run_optimum
from sparseoco.offline.regret.rounds import MARKS
from sparseoco.offline.regret.run import TOL, run_regret
from sparseoco.offline.regret.tables import REGRET, SLOPES
from sparseoco.pipeline.labels import check_labels, check_loss, check_single_label
from sparseoco.pipeline.run_folder import describe_choice, describe_run, open_store
from sparseoco.report import LeaderboardRow, best_of_each, leaderboard_rows, read_results
from sparseoco.report.mixture import write_mixture_page
from sparseoco.report.results import ChoiceRecord, RunRecord
from sparseoco.report.scores import write_scores_page
from sparseoco.scoring.manifest import ScoreManifest
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.score import score as score_corpus
from sparseoco.scoring.scorers import model_versions
from sparseoco.search.feature_subset import feature_subset, model_features
from sparseoco.search.held_out import has_held_out, held_out_blocks, held_out_rules, write_held_out
from sparseoco.search.lambda_max import resolve_relative
from sparseoco.search.mixture_task import train_mixture
from sparseoco.search.model_task import train_model
from sparseoco.search.runner import search_configurations
from sparseoco.storage.commit import commit_json
from sparseoco.storage.locations import Location, local_work_folder, location, resolve_against
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.metrics import SEARCH_TABLES, write_result_table
from sparseoco.storage.validated import read_validated, validated
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions, VocabularyPolicy
from sparseoco.training.block import search_setting
from sparseoco.training.decisions.thresholds import check_has_threshold
from sparseoco.training.folds import check_folds
from sparseoco.training.metrics.scores import store_label_kind
from sparseoco.training.options.configuration import Configuration
from sparseoco.training.options.mixture import MixtureOptions
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.options.selection import AtMost
from sparseoco.training.sizes import check_size
from sparseoco.training.stream import NO_FOLD
from sparseoco.training.warm_start import Origin, check_origin


@logged_step("ingest", "out")
def ingest_texts(
    inputs: list[str],
    out: Location,
    options: TextOptions,
    cluster: ClusterOptions,
    *,
    shard_bytes: int | None = None,
    vocabulary: VocabularyPolicy = "frozen",
    progress: ProgressCallback = no_progress,
) -> Manifest:
    """Raw text to a store of shards at `out`; new inputs add shards and, with ``vocabulary="extend"``, terms."""
    with _cluster(cluster, out) as client:
        return ingest(
            inputs, out, options, client=client, shard_bytes=shard_bytes, vocabulary=vocabulary, progress=progress
        )


@logged_step("search", "out")
def search(
    store_folder: Location,
    out: Location,
    options: SearchOptions,
    cluster: ClusterOptions,
    *,
    name: str = "search",
    progress: ProgressCallback = no_progress,
) -> Location:
    """Run every configuration in every fold; returns the folder of the tables and the best configuration, `out`/search.

    With more than one fold, the best configuration is trained again for its held-out predictions (`held_out.parquet`).
    At the time limit, the best of the finished configurations is chosen; `best.json` then has the number of unfinished
    ones, and another call resumes. Raises `SparseocoError` if no configuration was completed.
    """
    folder = out / "search"
    store, options = _open_store(store_folder, options, out / "model")
    options = options.for_rare_class(store).for_size(store)
    if options.folds > store.n_rows:
        raise InputError(
            f"There are {options.folds:,} folds, more than the {store.n_rows:,} documents of {store.folder}: set folds "
            "(--folds) to fewer.",
            code="too-many-folds",
        )
    if options.threshold_rule is not None:
        check_has_threshold(options.threshold_rule, store.n_outputs, several=store.is_multilabel)
    with _cluster(cluster, out) as client:
        commit_json(out / "run.json", describe_run(name, store, out, options))
        with _features(client, options, store, out, progress) as selected:
            if options.relative_parameters:
                options = resolve_relative(client, selected, options)
                commit_json(out / "run.json", describe_run(name, store, out, options))
            tables = search_configurations(client, options.configurations(), options, selected, folder, progress)
            for table, schema in SEARCH_TABLES.items():
                write_result_table(folder / f"{table}.parquet", tables[table], schema)
            best = describe_choice(tables["metrics"], options, store)
            chosen, epochs = validated(folder / "best.json", best, ChoiceRecord).chosen, best["epochs"]
            has_held_out(folder, held_out_blocks(chosen, options, epochs, selected))  # removes those of another choice
            commit_json(folder / "best.json", best)
            write_held_out(client, chosen, options, epochs, selected, folder, progress)
    return folder


@logged_step("train", "model")
def train(
    store_folder: Location,
    model: Location,
    configuration: Configuration,
    options: SearchOptions,
    cluster: ClusterOptions,
    *,
    epochs: int,
    held_out: Location | None = None,
    progress: ProgressCallback = no_progress,
) -> Location:
    """Train one configuration on all the data; returns the folder of the model.

    `held_out` is the folder of a search with the configuration's held-out predictions: the model is calibrated on them,
    and its threshold chosen. With `select` at most N features, the N strongest are kept.

    With `warm_start`, the same learner on the same features resumes from the model's state as one long run: the rows of
    this call follow those of earlier calls, in document order or, shuffled, in the order of this call's seed, epochs
    counted from 1. Any other learner starts from the model's weights.

    Raises `SparseocoError` if it diverges or cannot be trained.
    """
    store, options = _open_store(store_folder, options, model)
    with _training_cluster(cluster, options, store, model, progress) as (client, selected):
        rules: dict[str, Any] = {}
        if held_out is not None:
            positive = search_setting(options, store, NO_FOLD).positive
            rules = held_out_rules(held_out, store.classes, options.threshold_rule, positive)
        if isinstance(options.select, AtMost):
            rules = {**rules, "at_most": options.select.at_most}
        train_model(client, configuration, options, epochs, selected, model, progress, rules)
    return model


@logged_step("train", "model")
def train_auto(
    store_folder: Location,
    model: Location,
    options: SearchOptions,
    mixing: MixtureOptions,
    cluster: ClusterOptions,
    *,
    epochs: int,
    progress: ProgressCallback = no_progress,
) -> Location:
    """Train the whole grid in one pass and mix it (`sparseoco.Mixture`); returns the report page.

    Raises `InputError` for learners that cannot learn from a stream and for a grid that does not fit in memory,
    `SparseocoError` if every column diverges.
    """
    for name in options.algorithms:
        if not find_algorithm(name).online:
            raise InputError(
                f"{name} makes many passes over the same rows: a mixture is trained in one pass.", code="not-online"
            )
    store, options = _open_store(store_folder, options, model)
    with _training_cluster(cluster, options, store, model, progress) as (client, selected):
        options = resolve_relative(client, selected, options) if options.relative_parameters else options
        train_mixture(client, options, mixing, epochs, selected, model, progress)
    return write_mixture_page(model)


def train_best(
    store_folder: Location, out: Location, cluster: ClusterOptions, *, progress: ProgressCallback = no_progress
) -> Location:
    """Train the best configuration of the search in `out` on all the data; the model goes to `out`/model."""
    best, run = read_validated(out / "search" / "best.json", ChoiceRecord), read_validated(out / "run.json", RunRecord)
    options = _absolute_models(run.options(out / "run.json"), out)
    return train(
        store_folder,
        out / "model",
        best.chosen,
        options,
        cluster,
        epochs=best.epochs,
        held_out=out / "search",
        progress=progress,
    )


@logged_step("score", "out")
def score(
    model: str,
    inputs: Sequence[str],
    out: Location,
    options: ScoreOptions,
    cluster: ClusterOptions,
    *,
    reading: Mapping[str, Any] | None = None,
    progress: ProgressCallback = no_progress,
) -> ScoreManifest:
    """Score the documents of raw text, or of a store, into the folder `out`, and write the page; new inputs add parts.

    `reading` are options of reading that differ from those of the model's own text.

    Raises as `sparseoco.scoring.score.score`, and as `sparseoco.report.scores.write_scores_page`.
    """
    models = model_versions(model, options.also)
    with _cluster(cluster, out) as client:
        manifest = score_corpus(models, inputs, out, options, reading or {}, client=client, progress=progress)
        write_scores_page(out)
        return manifest


@logged_step("optimum", "out")
def optimum(
    store_folder: Location,
    out: Location,
    options: OptimumOptions,
    cluster: ClusterOptions,
    *,
    progress: ProgressCallback = no_progress,
) -> Location:
    """The offline optimum on all the data, for every α; returns the folder of the tables and models, `out`.

    Raises `InputError` if the loss is not defined for the labels, `SparseocoError` if a pass fails.
    """
    store = Store.open(store_folder)
    check_labels(store)
    check_single_label(store, "The optimum")
    options.problem(store.classes)
    with _cluster(cluster, out) as client:
        run_optimum(client, store, out, options, progress)
    return out


@logged_step("regret", "run")
def regret(
    run: Location,
    cluster: ClusterOptions,
    *,
    numbers: Sequence[int] | None = None,
    marks: int = MARKS,
    tol: float = TOL,
    store_folder: Location | None = None,
    progress: ProgressCallback = no_progress,
) -> Location:
    """The regret of a search's configurations along its own stream; returns the folder of the tables, `run`/regret.

    Committed work is not repeated. Raises `InputError` if the run has no results or started from a model, its store is
    missing or has changed, a configuration is unknown, or none has a comparator.

    Parameters
    ----------
    numbers : configurations; by default the best of each algorithm.
    marks : number of rounds at which regret is measured.
    tol : gap of the optima, relative to the objective at w = 0.
    store_folder : the store; by default where the run found it.
    """
    results = read_results(run)
    table, described = leaderboard_rows(results), results.run
    options = _absolute_models(described.options(run / "run.json"), run)
    if options.warm_start is not None:
        raise InputError(
            f"{run} started from a model: regret and its bounds are defined for learners that start from zero.",
            code="unsupported-combination",
        )
    if not 0 < tol < 1:
        raise InputError(f"tol={tol} must be between 0 and 1.", code="invalid-option")
    store = open_store(run, described.corpus, store_folder)
    check_single_label(store, "Regret")
    configurations = _configurations(table, numbers)
    selector = options.features_from
    subset = described.corpus.features_from
    if selector is not None and (subset is None or Origin.of(selector).sha256 != subset.model_sha256):
        raise InputError(
            f"{selector} has been replaced: {run} was trained on the features of the earlier model.",
            code="model-replaced",
        )
    with _training_cluster(cluster, options, store, run, progress) as (client, selected):
        folder = run / "regret"
        rows, ends = run_regret(client, configurations, options, selected, folder / "cells", marks, tol, progress)
        write_result_table(folder / "regret.parquet", rows, REGRET)
        write_result_table(folder / "slopes.parquet", ends, SLOPES)
    return folder


def _open_store(folder: Location, options: SearchOptions, model: Location) -> tuple[Store, SearchOptions]:
    """The store to learn from, and the options for it with absolute paths of the models they name.

    `model` is written to.

    Raises `InputError` for labels or models that do not fit, and for a learner whose state would be too large.
    """
    store = Store.open(folder)
    check_labels(store)
    options = options.for_store(store)
    check_loss(options, store)
    options.check_metric(store_label_kind(store))
    check_folds(store, options.folds_by)
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
    return store, options.model_copy(update={name: origin.model for name, origin in origins.items()})


def _absolute_models(options: SearchOptions, run: Location) -> SearchOptions:
    """The options in a run's run.json, with absolute paths of the models they name."""
    models = {name: str(resolve_against(run, path)) for name, path in options.models.items()}
    return options.model_copy(update=models)


@contextmanager
def _cluster(cluster: ClusterOptions, folder: Location) -> Iterator[Client]:
    """A client of the cluster, with an exclusive lock on the folder that it works in."""
    with exclusive_lock(folder), connect(cluster, local_work_folder(folder) / ".scratch") as client:
        yield client


@contextmanager
def _training_cluster(
    cluster: ClusterOptions, options: SearchOptions, store: Store, folder: Location, progress: ProgressCallback
) -> Iterator[tuple[Client, Store]]:
    """As `_cluster`, with the store or the subset of its features that the options select."""
    with _cluster(cluster, folder) as client, _features(client, options, store, folder, progress) as selected:
        yield client, selected


def _features(
    client: Client, options: SearchOptions, store: Store, folder: Location, progress: ProgressCallback
) -> AbstractContextManager[Store]:
    """The store or the subset of its features that the options select, written to the folder."""
    origin = None if options.features_from is None else Origin.of(options.features_from)
    return feature_subset(client, store, origin, folder / ".features", progress)


def _configurations(table: Sequence[LeaderboardRow], numbers: Sequence[int] | None) -> list[Configuration]:
    """The configurations with these numbers, or the best of each algorithm."""
    known = {
        row.configuration: Configuration(
            number=row.configuration, algorithm=row.algorithm, parameters=row.parameters, weighting=row.weighting
        )
        for row in table
    }
    for number in numbers or ():
        if number not in known:
            raise InputError(
                f"There is no configuration {number}: they are numbered 0 to {max(known)}.",
                code="unknown-configuration",
            )
    if numbers:
        return [known[number] for number in dict.fromkeys(numbers)]
    chosen = [known[row.configuration] for row in best_of_each(table)]
    if not chosen:
        raise InputError("The search completed no configuration: there is no regret to measure.", code="no-candidate")
    return chosen
