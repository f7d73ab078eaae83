"""The steps of a run, each a function from paths to paths: ingest, search, train, evaluate, report.

A step can be run alone, killed and run again; what is committed is found and not done twice. Flows and the command
line call these and nothing below them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from distributed import Client

from sparseoco.core.errors import InputError
from sparseoco.core.logs import logged_step
from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.execution.clusters import ClusterOptions, connect, shared_cluster
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.optimum import OptimumOptions, run_optimum
from sparseoco.offline.regret.rounds import MARKS
from sparseoco.offline.regret.run import TOL, run_regret
from sparseoco.offline.regret.tables import REGRET, SLOPES
from sparseoco.pipeline.evaluation import evaluate_model
from sparseoco.pipeline.run_file import RunFile
from sparseoco.pipeline.run_folder import describe_choice, describe_run, store_of
from sparseoco.report import LeaderboardRow, best_of_each, leaderboard_rows, read_results, write_report
from sparseoco.report.mixture import write_mixture_page
from sparseoco.search.feature_subset import feature_subset, model_features
from sparseoco.search.mixture_task import train_mixture
from sparseoco.search.model_task import train_model
from sparseoco.search.runner import run_search as run_search_on
from sparseoco.storage.commit import commit_json, exclusive_lock, read_json
from sparseoco.storage.locations import Location, local_work_folder, location, resolve_against
from sparseoco.storage.metrics import SEARCH_TABLES, write_result_table
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import Policy, TextOptions
from sparseoco.text.sources import find_sources
from sparseoco.training.model import Model
from sparseoco.training.options import MODELS, Configuration, MixtureOptions, SearchOptions
from sparseoco.training.sizes import check_size
from sparseoco.training.warm_start import Origin, check_origin


@logged_step("ingest", "out")
def ingest_texts(
    inputs: list[str],
    out: Location,
    options: TextOptions,
    cluster: ClusterOptions,
    *,
    shard_bytes: int,
    vocabulary: Policy = "frozen",
    progress: ProgressCallback = no_progress,
) -> Manifest:
    """Raw text to a store of shards at `out`; what is there already is kept, new inputs add shards, and terms to the
    vocabulary where that is to be extended."""
    with exclusive_lock(out), connect(cluster, local_work_folder(out) / ".scratch") as client:
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
    """Every configuration over every fold; tables and the choice go to `out`/search. Gives that folder.

    Where the time limit came first, what is there is chosen from, `best.json` says how many configurations were left,
    and another call goes on with them. Raises `SparseocoError` if no configuration came through.
    """
    folder = out / "search"
    store = Store.open(store_folder)
    check_labels(store)
    options = _from_models(options, store, out / "model")
    configurations = options.configurations()
    with exclusive_lock(out):
        with connect(cluster, local_work_folder(out) / ".scratch") as client:
            commit_json(out / "run.json", describe_run(name, store, out, options))
            with _features(client, options, store, out, progress) as learned:
                tables = run_search_on(client, configurations, options, learned, folder, progress)
        for table, schema in SEARCH_TABLES.items():
            write_result_table(folder / f"{table}.parquet", tables[table], schema)
        commit_json(folder / "best.json", describe_choice(tables["metrics"], options))
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
    progress: ProgressCallback = no_progress,
) -> Location:
    """Learn one configuration on all the data; gives the folder of the model.

    Begun from a model (`warm_start`) of the same learner on the same features, it goes on from its state as one long
    run would: the rows of this call come after those of the calls before, in the order of documents or, shuffled, in
    the order that seed and epoch, from 1, give in this call. Any other learner begins from the model's weights.

    Raises `SparseocoError` if it diverges or cannot be trained.
    """
    store = Store.open(store_folder)
    check_labels(store)
    options = _from_models(options, store, model)
    with (
        exclusive_lock(model),
        connect(cluster, local_work_folder(model) / ".scratch") as client,
        _features(client, options, store, model, progress) as learned,
    ):
        train_model(client, configuration, options, epochs, learned, model, progress)
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
    """Learn the whole grid of the options in one go and mix it (`sparseoco.Mixture`); gives the page that shows how it
    went, in the folder of the model.

    Raises `InputError` for learners that do not learn from a stream or a grid that does not fit in memory,
    `SparseocoError` if every column diverges.
    """
    store = Store.open(store_folder)
    check_labels(store)
    for name in options.algorithms:
        if not find_algorithm(name).online:
            raise InputError(f"{name} goes through the same rows again and again: a mixture is made in one pass.")
    options = _from_models(options, store, model)
    with (
        exclusive_lock(model),
        connect(cluster, local_work_folder(model) / ".scratch") as client,
        _features(client, options, store, model, progress) as learned,
    ):
        train_mixture(client, options, mixing, epochs, learned, model, progress)
    return write_mixture_page(model)


def train_best(
    store_folder: Location, out: Location, cluster: ClusterOptions, *, progress: ProgressCallback = no_progress
) -> Location:
    """Learn the configuration that the search in `out` chose on all the data, into `out`/model."""
    best, run = (read_json(path) for path in (out / "search" / "best.json", out / "run.json"))
    options = SearchOptions.model_validate(run["search"])
    options = _beside(options, out)
    chosen = Configuration(number=best["configuration"], algorithm=best["algorithm"], parameters=best["parameters"])
    return train(store_folder, out / "model", chosen, options, cluster, epochs=best["epochs"], progress=progress)


@logged_step("optimum", "out")
def optimum(
    store_folder: Location,
    out: Location,
    options: OptimumOptions,
    cluster: ClusterOptions,
    *,
    progress: ProgressCallback = no_progress,
) -> Location:
    """The offline optimum on all the data, for every α: tables and a model each in `out`. Gives that folder.

    Raises `InputError` where the loss does not fit the labels, `SparseocoError` if a pass cannot be run.
    """
    store = Store.open(store_folder)
    if store.manifest.labels.kind == "classes" or store.n_rows == 0:
        check_labels(store)
    options.problem(store.classes)
    with exclusive_lock(out), connect(cluster, local_work_folder(out) / ".scratch") as client:
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
    """The regret of a search's configurations along its own stream, to `run`/regret; gives that folder.

    `numbers` are those of configurations, by default the best of each algorithm; `marks` the rounds at which regret is
    looked at; `tol` the gap of the optima, relative to the objective at w = 0. The store is where the run has it from,
    or at `store_folder`. What is done is found and not done again.

    Raises `InputError` where the run holds no results or began from a model, its store is not found or has changed,
    a number is not one of its configurations', or none has anything to be compared with.
    """
    table = leaderboard_rows(read_results(run))
    described = read_json(run / "run.json")
    options = _beside(SearchOptions.model_validate(described["search"]), run)
    if options.warm_start is not None:
        raise InputError(f"{run} began from a model: regret and its bounds are of learners that begin from nothing.")
    if not 0 < tol < 1:
        raise InputError(f"tol={tol} must be between 0 and 1.")
    store = store_of(run, described["corpus"], store_folder)
    configurations = _asked_for(table, numbers)
    kept = options.features_from
    if kept is not None and Origin.of(kept).sha256 != described["corpus"]["features_from"]["model_sha256"]:
        raise InputError(
            f"{kept} has been replaced: {run} was trained on the features of the earlier model.", code="model-replaced"
        )
    with (
        exclusive_lock(run),
        connect(cluster, local_work_folder(run) / ".scratch") as client,
        _features(client, options, store, run, progress) as learned,
    ):
        folder = run / "regret"
        rows, ends = run_regret(client, configurations, options, learned, folder / "cells", marks, tol, progress)
        write_result_table(folder / "regret.parquet", rows, REGRET)
        write_result_table(folder / "slopes.parquet", ends, SLOPES)
    return folder


@logged_step("ingest", "run")
def run_ingest(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """The ingest step of a run file; gives the store. What will be evaluated must be there before the work begins."""
    if run.evaluate is not None and run.evaluate.inputs is not None:
        find_sources(list(run.evaluate.inputs), run.ingest.text)
    ingest_texts(
        list(run.ingest.inputs),
        run.store,
        run.ingest.text,
        run.cluster,
        shard_bytes=run.ingest.shard_bytes,
        vocabulary=run.ingest.vocabulary,
        progress=progress,
    )
    return run.store


@logged_step("search", "run")
def run_search(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """The search step of a run file; gives the folder of its tables."""
    return search(run.store, run.out, run.search, run.cluster, name=run.name, progress=progress)


@logged_step("train", "run")
def run_train(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """The train step of a run file: the best configuration on all data; gives the model."""
    return train_best(run.store, run.out, run.cluster, progress=progress)


@logged_step("evaluate", "run")
def run_evaluate(run: RunFile, progress: ProgressCallback = no_progress) -> Location | None:
    """The evaluate step of a run file: the model on text it has not seen; gives the result, if it was asked for."""
    if run.evaluate is None:
        return None
    inputs = run.evaluate.inputs if run.evaluate.inputs is not None else run.ingest.inputs
    model = Model(run.out / "model")
    with exclusive_lock(run.out), exclusive_lock(run.out / "model"):
        result = evaluate_model(model, list(inputs), where=run.evaluate.where, progress=progress)
        commit_json(run.out / "evaluation.json", result)
    return run.out / "evaluation.json"


@logged_step("report", "run")
def run_report(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """The report step of a run file; gives the page."""
    return write_report(run.out)


STEPS = {"ingest": run_ingest, "search": run_search, "train": run_train, "evaluate": run_evaluate, "report": run_report}


def one_cluster(run: RunFile) -> AbstractContextManager[None]:
    """Steps of a run that are taken in here share its jobs or pods, where it has such."""
    return shared_cluster(run.cluster, local_work_folder(run.out) / ".scratch")


def run_all(run: RunFile, progress: ProgressCallback = no_progress) -> Location:
    """Every step in order; gives the page of the report."""
    with one_cluster(run):
        for step in STEPS.values():
            result = step(run, progress)
    assert result is not None
    return result


def _from_models(options: SearchOptions, store: Store, model: Location) -> SearchOptions:
    """The options with the whole paths of the models to begin from or to take features from, which were looked at.

    Raises `InputError` too where a learner is asked for that keeps too much of so many features.
    """
    origins = {name: Origin.of(folder) for name in MODELS if (folder := getattr(options, name)) is not None}
    for origin in origins.values():
        if location(origin.model) == model.resolve():
            raise InputError(
                f"{model} cannot start from itself: a run that is stopped would lose it. Choose another --out.",
                code="invalid-warm-start",
            )
    if "warm_start" in origins:
        check_origin(origins["warm_start"], store)
    kept = origins.get("features_from")
    n_features = store.n_features if kept is None else model_features(kept, store).features.size
    for algorithm in options.algorithms:
        check_size(algorithm, n_features)
    return options.model_copy(update={name: origin.model for name, origin in origins.items()})


def _beside(options: SearchOptions, run: Location) -> SearchOptions:
    """The options of a run as it keeps them, its models' paths made whole."""
    models = {
        name: str(resolve_against(run, folder)) for name in MODELS if (folder := getattr(options, name)) is not None
    }
    return options.model_copy(update=models)


def _features(
    client: Client, options: SearchOptions, store: Store, folder: Location, progress: ProgressCallback
) -> AbstractContextManager[Store]:
    """The store, or the features of it that the options ask for, made in the folder."""
    origin = None if options.features_from is None else Origin.of(options.features_from)
    return feature_subset(client, store, origin, folder / ".features", progress)


def check_labels(store: Store) -> None:
    """Raises `InputError` for a store without classes to tell apart."""
    if store.n_rows == 0:
        raise InputError(f"{store.folder} holds no documents: there is nothing to learn from.")
    if store.manifest.labels.kind != "classes":
        raise InputError(f"{store.folder} has numbers for labels: a search for classes needs classes.")
    if not store.classes:
        raise InputError(f"{store.folder} has no labels: there is nothing to learn.")
    if len(store.classes) < 2:
        raise InputError(f"{store.folder} has one class only ({store.classes[0]}): there is nothing to tell apart.")


def _asked_for(table: Sequence[LeaderboardRow], numbers: Sequence[int] | None) -> list[Configuration]:
    """The configurations of these numbers; or the best of each algorithm."""
    known = {
        standing.configuration: Configuration(
            number=standing.configuration, algorithm=standing.algorithm, parameters=standing.parameters
        )
        for standing in table
    }
    for number in numbers or ():
        if number not in known:
            raise InputError(f"There is no configuration {number}: they are numbered 0 to {max(known)}.")
    if numbers:
        return [known[number] for number in dict.fromkeys(numbers)]
    chosen = [known[standing.configuration] for standing in best_of_each(table)]
    if not chosen:
        raise InputError("No configuration came through: there is no regret to show.")
    return chosen
