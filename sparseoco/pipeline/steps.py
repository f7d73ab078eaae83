"""The steps of a run, each a function from paths to paths, and those of a run file in order."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from distributed import Client

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.logs import ProgressCallback, logged_step, no_progress
from sparseoco.execution.clusters import ClusterOptions, connect, shared_cluster
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.optimum import OPTIMUM_FOLDER, run_optimum
from sparseoco.offline.options import OptimumOptions
from sparseoco.offline.regret.bounds import MARKS
from sparseoco.offline.regret.run import TOL, run_regret
from sparseoco.offline.regret.tables import REGRET, SLOPES
from sparseoco.pipeline.evaluation import TEST, check_labels, check_loss, check_single_label, evaluate_model
from sparseoco.pipeline.run_file import RunFile
from sparseoco.report import LeaderboardRow, best_of_each, leaderboard_rows, read_results, write_report
from sparseoco.report.mixture import write_mixture_page
from sparseoco.report.results import ChoiceRecord, CorpusRecord, RunRecord
from sparseoco.report.scores import write_scores_page
from sparseoco.scoring.manifest import SCORES_FOLDER, ScoreManifest
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import model_versions
from sparseoco.scoring.score import score as score_corpus
from sparseoco.search.mixture_task import train_mixture
from sparseoco.search.models import (
    feature_subset,
    has_held_out,
    held_out_blocks,
    held_out_rules,
    model_features,
    train_model,
    write_held_out,
)
from sparseoco.search.packing import resolve_relative
from sparseoco.search.runner import search_configurations
from sparseoco.search.selection import describe_choice
from sparseoco.storage.commit import commit_json, read_validated, validated
from sparseoco.storage.locations import Location, local_work_folder, location, relative_path, resolve_against
from sparseoco.storage.locks import FolderKind, exclusive_lock
from sparseoco.storage.tables import SEARCH_TABLES, write_result_table
from sparseoco.store.manifest import STORE_FOLDER, Manifest
from sparseoco.store.shards import Store
from sparseoco.text.folders import check_apart
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions, VocabularyPolicy
from sparseoco.text.sources import find_sources
from sparseoco.training.block import search_setting
from sparseoco.training.decisions import check_has_threshold
from sparseoco.training.folds import check_folds
from sparseoco.training.metrics import store_label_kind
from sparseoco.training.models import MODEL_FOLDER, Model
from sparseoco.training.options import AtMost, Configuration, MixtureOptions, SearchOptions, resolve
from sparseoco.training.stream import NO_FOLD
from sparseoco.training.validation import check_size
from sparseoco.training.warm_start import Origin, check_origin

# ----------------------------------------------------------------------------------------------------------------------
# The file that describes a run in its folder, run.json, and the run's store.


RUN_FOLDER = FolderKind(
    "a run",
    ("run.json", "promoted.json"),
    (
        *("shards", "search", "model", "evaluation.json", "test.parquet", "report", "regret", "scores"),
        *("nightly", "models", "history*.parquet", "nightly.html"),
        "docstrings.jsonl",  # the corpus of the demonstration
    ),
)


def describe_run(name: str, store: Store, out: Location, options: SearchOptions) -> dict[str, Any]:
    """The contents of run.json: the store, its classes and text options, the options; paths relative to `out`."""
    models = {option: relative_path(location(path), out) for option, path in options.models.items()}
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
        "search": options.model_dump(mode="json") | models,
    }


def open_store(run: Location, corpus: CorpusRecord, folder: Location | None) -> Store:
    """The store of a run, at `folder` or where `corpus` in run.json says.

    Raises `InputError` if it is missing or has changed.
    """
    if folder is None:
        if corpus.folder is None:
            raise InputError(f"{run}/run.json has no path of the shards: set --store.", code="missing-store")
        folder = resolve_against(run, corpus.folder)
        if not folder.exists():
            raise InputError(f"The shards of {run} are no longer at {folder}: set --store.", code="missing-store")
    store = Store.open(folder)
    if store.manifest.digest != corpus.store:
        raise InputError(
            f"{folder} does not have the shards that {run} was trained on.",
            code="store-changed",
        )
    return store


# ----------------------------------------------------------------------------------------------------------------------
# The steps of a run, each a function from paths to paths: ingest, search, train, evaluate, report.
#
# A step that was killed resumes when it is run again: committed work is not repeated. Flows and the command line call
# these functions.


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
    with _cluster(cluster, out, STORE_FOLDER) as client:
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
    store = Store.open(store_folder)
    options = with_models(options_for_search(store, options), store, out / "model")
    with _cluster(cluster, out, RUN_FOLDER) as client:
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
    with _training_cluster(cluster, options, store, model, progress, MODEL_FOLDER) as (client, selected):
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
    with _training_cluster(cluster, options, store, model, progress, MODEL_FOLDER) as (client, selected):
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

    Raises `InputError` for inputs or options that cannot be used, `StorageError` for files.
    """
    check_apart(out, inputs, TextOptions.of(dict(reading or {})))
    models = model_versions(model, options.also)
    with _cluster(cluster, out, SCORES_FOLDER) as client:
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
    store.check_outside(out)
    check_labels(store)
    check_single_label(store, "The optimum")
    options.problem(store.classes)
    with _cluster(cluster, out, OPTIMUM_FOLDER) as client:
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
    if marks != MARKS and not any(find_algorithm(each.algorithm).online for each in configurations):
        raise InputError(
            "marks are rounds of a stream, and no learner here learns from one.", code="unsupported-combination"
        )
    with _training_cluster(cluster, options, store, run, progress) as (client, selected):
        folder = run / "regret"
        rows, ends = run_regret(client, configurations, options, selected, folder / "cells", marks, tol, progress)
        write_result_table(folder / "regret.parquet", rows, REGRET)
        write_result_table(folder / "slopes.parquet", ends, SLOPES)
    return folder


def _open_store(folder: Location, options: SearchOptions, model: Location) -> tuple[Store, SearchOptions]:
    """The store to learn from, and the options for it. Raises `InputError` for what does not fit."""
    store = Store.open(folder)
    return store, with_models(_options_for(store, options), store, model)


def _options_for(store: Store, options: SearchOptions, *, search: bool = False) -> SearchOptions:
    """The options with the defaults for a store. Raises `InputError` for labels or columns that do not fit."""
    check_labels(store)
    options = resolve(options, store, search=search)
    check_loss(options, store)
    options.check_metric(store_label_kind(store))
    check_folds(store, options.folds_by)
    return options


def options_for_search(store: Store, options: SearchOptions) -> SearchOptions:
    """The options with the defaults of a search for a store. Raises `InputError` for what does not fit."""
    options = _options_for(store, options, search=True)
    if options.folds > store.n_rows:
        raise InputError(
            f"There are {options.folds:,} folds, more than the {store.n_rows:,} documents of {store.folder}: set folds "
            "(--folds) to fewer.",
            code="too-many-folds",
        )
    if options.threshold is not None and store.n_classes is None:
        raise InputError(
            f"threshold {options.threshold} is of classes, and the labels are numbers.", code="unsupported-combination"
        )
    if options.threshold_rule is not None:
        check_has_threshold(options.threshold_rule, store.n_outputs, several=store.is_multilabel)
    return options


def with_models(options: SearchOptions, store: Store, model: Location) -> SearchOptions:
    """The options with absolute paths of the models they name; `model` is written to.

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
    return options.model_copy(update={name: origin.model for name, origin in origins.items()})


def _absolute_models(options: SearchOptions, run: Location) -> SearchOptions:
    """The options in a run's run.json, with absolute paths of the models they name."""
    models = {name: str(resolve_against(run, path)) for name, path in options.models.items()}
    return options.model_copy(update=models)


@contextmanager
def _cluster(cluster: ClusterOptions, folder: Location, *kinds: FolderKind) -> Iterator[Client]:
    """A client of the cluster, with an exclusive lock on the folder that it works in, which is of these kinds."""
    with exclusive_lock(folder, *kinds), connect(cluster, local_work_folder(folder) / ".scratch") as client:
        yield client


@contextmanager
def _training_cluster(
    cluster: ClusterOptions,
    options: SearchOptions,
    store: Store,
    folder: Location,
    progress: ProgressCallback,
    *kinds: FolderKind,
) -> Iterator[tuple[Client, Store]]:
    """As `_cluster`, with the store or the subset of its features that the options select."""
    with _cluster(cluster, folder, *kinds) as client, _features(client, options, store, folder, progress) as selected:
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


# ----------------------------------------------------------------------------------------------------------------------
# The steps of a run file, in order: ingest, search, train, evaluate, score, report.


@logged_step("ingest", "run")
def run_ingest(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """The ingest step of a run file; returns the store. Files to evaluate on are looked up first."""
    if run.evaluate.inputs is not None:
        find_sources(list(run.evaluate.inputs), run.ingest.text)
    ingest_texts(
        list(run.ingest.inputs),
        run.store,
        run.text,
        run.cluster,
        shard_bytes=run.ingest.shard_bytes,
        vocabulary=run.ingest.vocabulary,
        progress=progress,
    )
    return run.store


@logged_step("search", "run")
def run_search(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """The search step of a run file; returns the folder of its tables."""
    return search(run.store, run.out, run.search, run.cluster, name=run.name, progress=progress)


@logged_step("train", "run")
def run_train(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """The train step of a run file: the best configuration on all data; returns the model."""
    return train_best(run.store, run.out, run.cluster, progress=progress)


@logged_step("evaluate", "run")
def run_evaluate(run: RunFile, progress: ProgressCallback = no_progress) -> Location | None:
    """The evaluate step of a run file: the model on unseen text; returns the path of the result.

    None if the run file asks for no test set (``holdout = 0``).
    """
    options, evaluate = run.text, run.evaluate
    if not evaluate.names_test_set and not options.holdout:
        return None
    inputs = evaluate.inputs if evaluate.inputs is not None else run.ingest.inputs
    where = evaluate.where if evaluate.names_test_set else options.where
    path = run.out / "evaluation.json"
    model = Model(run.out / "model")
    with exclusive_lock(run.out), exclusive_lock(run.out / "model"):
        try:
            result = evaluate_model(
                model,
                list(inputs),
                where,
                progress,
                run.out / TEST,
                holdout=options.holdout,
                ingested=Store.find(run.store),
            )
        except InputError as error:
            if evaluate.names_test_set or error.code != "no-documents":
                raise
            return None  # a corpus so small that none was withheld
        commit_json(path, result)
    return path


@logged_step("score", "run")
def run_score(run: RunFile, progress: ProgressCallback = no_progress) -> Location | None:
    """The score step of a run file: the model on the corpus of `[score]`; returns the folder of the scores.

    None without that table. The model is that of the run, or the deployed one of nightly runs.
    """
    if run.score is None:
        return None
    reading = {"where": run.score.where}
    score(
        str(run.out), run.score.inputs, run.scores, run.score.options, run.cluster, reading=reading, progress=progress
    )
    return run.scores


@logged_step("report", "run")
def run_report(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """The report step of a run file; returns the page."""
    return write_report(run.out)


STEPS = {
    "ingest": run_ingest,
    "search": run_search,
    "train": run_train,
    "evaluate": run_evaluate,
    "score": run_score,
    "report": run_report,
}


def one_cluster(run: RunFile) -> AbstractContextManager[None]:
    """A context in which all steps share the jobs or pods of the run's cluster, if it has any."""
    return shared_cluster(run.cluster, local_work_folder(run.out) / ".scratch")


def run_all(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """Every step in order; returns the report page."""
    with one_cluster(run):
        for name, step in STEPS.items():
            if name != "score" or run.score is not None:
                result = step(run, progress)
    assert result is not None
    return result
