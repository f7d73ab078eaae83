"""The steps of a run file, in order: ingest, search, train, evaluate, score, report."""

from contextlib import AbstractContextManager

from sparseoco.core.errors import InputError
from sparseoco.core.logs import logged_step
from sparseoco.core.progress import ProgressCallback, no_progress
from sparseoco.execution.clusters import shared_cluster
from sparseoco.pipeline.evaluation import TEST, evaluate_model
from sparseoco.pipeline.run_file import RunFile
from sparseoco.pipeline.steps import ingest_texts, score, search, train_best
from sparseoco.report import write_report
from sparseoco.storage.commit import commit_json
from sparseoco.storage.locations import Location, local_work_folder
from sparseoco.storage.locks import exclusive_lock
from sparseoco.store.shards import Store
from sparseoco.text.sources import find_sources
from sparseoco.training.models.model import Model


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
