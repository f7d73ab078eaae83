"""The steps of a run, each a function from paths to paths, and those of a run file in order."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from distributed import Client

from sparseoco.core.logs import logged_step
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.pipeline.evaluation import run_evaluate
from sparseoco.pipeline.explanation import write_mistakes
from sparseoco.pipeline.run_file import RunFile
from sparseoco.report.page import write_report
from sparseoco.report.results import as_configuration, read_choice, read_run_record
from sparseoco.report.scores import write_scores_page
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import SCORES_FOLDER, ScoreManifest, model_entries
from sparseoco.scoring.score import ScoreRun
from sparseoco.search import run as search_run
from sparseoco.storage.commit import FolderKind, exclusive_lock
from sparseoco.storage.locations import Location, local_work_folder
from sparseoco.store.manifest import STORE_FOLDER, Manifest
from sparseoco.store.shards import Session, Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions, VocabularyPolicy
from sparseoco.text.sources import check_apart, find_sources
from sparseoco.training.models import MODEL_FOLDER
from sparseoco.training.options import Configuration, SearchOptions

# ----------------------------------------------------------------------------------------------------------------------
# The folder of a run.


RUN_FOLDER = FolderKind(
    "a run",
    ("run.json", "promoted.json"),
    (
        *("shards", "search", "model", "evaluation.json", "test.parquet", "report", "regret", "scores"),
        *("nightly", "models", "history*.parquet", "nightly.html"),
        "docstrings.jsonl",  # the corpus of the demonstration
    ),
)


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
) -> Manifest:
    """Raw text to a store of shards at `out`; new inputs add shards and, with ``vocabulary="extend"``, terms."""
    with folder_cluster(cluster, out, STORE_FOLDER) as client:
        return ingest(inputs, out, options, client=client, shard_bytes=shard_bytes, vocabulary=vocabulary)


@logged_step("search", "out")
def search(
    store_folder: Location, out: Location, options: SearchOptions, cluster: ClusterOptions, *, name: str = "search"
) -> Location:
    """Run every configuration in every fold; returns the folder of the tables and the best configuration, `out`/search.

    With more than one fold, the best configuration is trained again for its held-out predictions (`held_out.parquet`).
    At the time limit, the best of the finished configurations is chosen; `best.json` then has the number of unfinished
    ones, and another call resumes. Raises `SparseocoError` if no configuration was completed.
    """
    store = Store.open(store_folder)
    options = search_run.with_models(search_run.options_for_search(store, options), store, out / "model")
    with folder_cluster(cluster, out, RUN_FOLDER) as client:
        search_run.search_store(Session(client, store), name, options, out)
    return out / "search"


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
) -> Location:
    """Train one configuration on all the data; returns the folder of the model.

    `held_out` is the folder of a search with the configuration's held-out predictions: the model is calibrated on them,
    and its threshold chosen. With `select` at most N features, the N strongest are kept.

    With `warm_start`, the same learner on the same features resumes from the model's state as one long run: the rows of
    this call follow those of earlier calls, in document order or, shuffled, in the order of this call's seed, epochs
    counted from 1. Any other learner starts from the model's weights.

    Raises `SparseocoError` if it diverges or cannot be trained.
    """
    store = Store.open(store_folder)
    options = search_run.with_models(search_run.fitting_options(store, options), store, model)
    with (
        folder_cluster(cluster, model, MODEL_FOLDER) as client,
        search_run.selected_features(Session(client, store), options, model) as selected,
    ):
        rules = search_run.rules_of_search(held_out, options, store)
        options = options.model_copy(update={"epochs": epochs})
        search_run.train_model(selected, configuration, options, model, rules)
    return model


def train_best(store_folder: Location, out: Location, cluster: ClusterOptions) -> Location:
    """Train the best configuration of the search in `out` on all the data; the model goes to `out`/model."""
    best, run = read_choice(out), read_run_record(out)
    options = search_run.absolute_models(run.options(out / "run.json"), out)
    return train(
        store_folder,
        out / "model",
        as_configuration(best),
        options,
        cluster,
        epochs=best.epochs,
        held_out=out / "search",
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
) -> ScoreManifest:
    """Score the documents of raw text, or of a store, into the folder `out`, and write the page; new inputs add parts.

    `reading` are options of reading that differ from those of the model's own text.

    Raises `InputError` for inputs or options that cannot be used, `StorageError` for files.
    """
    check_apart(out, inputs, TextOptions.of(dict(reading or {})))
    models = model_entries(model, options.also)
    with folder_cluster(cluster, out, SCORES_FOLDER) as client:
        run = ScoreRun(models, inputs, out, options, reading or {})
        manifest = run.score(client=client)
        write_scores_page(out)
        return manifest


@contextmanager
def folder_cluster(cluster: ClusterOptions, folder: Location, *kinds: FolderKind) -> Iterator[Client]:
    """A client of the cluster, with an exclusive lock on the folder that it works in, which is of these kinds."""
    with exclusive_lock(folder, *kinds), connect(cluster, local_work_folder(folder) / ".scratch") as client:
        yield client


# ----------------------------------------------------------------------------------------------------------------------
# The steps of a run file, in order: ingest, search, train, evaluate, score, report.


@logged_step("ingest", "run")
def run_ingest(run: RunFile) -> Location:
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
    )
    return run.store


@logged_step("search", "run")
def run_search(run: RunFile) -> Location:
    """The search step of a run file; returns the folder of its tables."""
    return search(run.store, run.out, run.search, run.cluster, name=run.name)


@logged_step("train", "run")
def run_train(run: RunFile) -> Location:
    """The train step of a run file: the best configuration on all data; returns the model."""
    return train_best(run.store, run.out, run.cluster)


@logged_step("score", "run")
def run_score(run: RunFile) -> Location | None:
    """The score step of a run file: the model on the corpus of `[score]`; returns the folder of the scores.

    None without that table. The model is that of the run, or the deployed one of nightly runs.
    """
    if run.score is None:
        return None
    reading = {"where": run.score.where}
    score(str(run.out), run.score.inputs, run.scores, run.score.options, run.cluster, reading=reading)
    return run.scores


@logged_step("report", "run")
def run_report(run: RunFile) -> Location:
    """The report step of a run file; returns the page."""
    with exclusive_lock(run.out):
        write_mistakes(run)
    return write_report(run.out)


STEPS = {
    "ingest": run_ingest,
    "search": run_search,
    "train": run_train,
    "evaluate": run_evaluate,
    "score": run_score,
    "report": run_report,
}


def run_all(run: RunFile) -> Location:
    """Every step in order; returns the report page."""
    for name, step in STEPS.items():
        if name != "score" or run.score is not None:
            result = step(run)
    assert result is not None
    return result
