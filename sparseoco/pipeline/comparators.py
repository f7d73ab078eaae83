"""The steps optimum and regret: the best fixed weights on the same data, and how a search compares with them."""

from collections.abc import Sequence

from sparseoco.core.errors import InputError, unsupported
from sparseoco.core.logs import logged_step
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.passes import OPTIMUM_FOLDER, run_optimum
from sparseoco.offline.optimum import OptimumProblem
from sparseoco.offline.regret.bounds import MARKS, REGRET, SLOPES
from sparseoco.offline.regret.run import TOL, Regret
from sparseoco.pipeline.steps import folder_cluster
from sparseoco.report.results import (
    CorpusRecord,
    LeaderboardRow,
    as_configuration,
    best_of_each,
    leaderboard_rows,
    read_results,
)
from sparseoco.search.run import absolute_models, selected_features
from sparseoco.storage.locations import Location, resolve_against
from sparseoco.storage.tables import write_result_table
from sparseoco.store.shards import Session, Store
from sparseoco.training.block import Origin
from sparseoco.training.options import Configuration, OptimumOptions
from sparseoco.training.validation import check_labels, check_single_label


@logged_step("optimum", "out")
def optimum(store_folder: Location, out: Location, options: OptimumOptions, cluster: ClusterOptions) -> Location:
    """The offline optimum on all the data, for every α; returns the folder of the tables and models, `out`.

    Raises `InputError` if the loss is not defined for the labels, `SparseocoError` if a pass fails.
    """
    store = Store.open(store_folder)
    store.check_outside(out)
    check_labels(store)
    check_single_label(store, "The optimum")
    OptimumProblem.of(options, store.n_classes)
    with folder_cluster(cluster, out, OPTIMUM_FOLDER) as client:
        run_optimum(Session(client, store), out, options)
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
    options = absolute_models(described.options(run / "run.json"), run)
    if options.warm_start is not None:
        raise unsupported(
            f"{run} started from a model: regret and its bounds are defined for learners that start from zero."
        )
    if not 0 < tol < 1:
        raise InputError(f"tol={tol} must be between 0 and 1.", code="invalid-option")
    store = _run_store(run, described.corpus, store_folder)
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
        raise unsupported("marks are rounds of a stream, and no learner here learns from one.")
    with (
        folder_cluster(cluster, run) as client,
        selected_features(Session(client, store), options, run) as selected,
    ):
        folder = run / "regret"
        rows, ends = Regret(selected, options, folder / "cells", marks, tol).measure(configurations)
        write_result_table(folder / "regret.parquet", rows, REGRET)
        write_result_table(folder / "slopes.parquet", ends, SLOPES)
    return folder


def _run_store(run: Location, corpus: CorpusRecord, folder: Location | None) -> Store:
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


def _configurations(table: Sequence[LeaderboardRow], numbers: Sequence[int] | None) -> list[Configuration]:
    """The configurations with these numbers, or the best of each algorithm."""
    known = {row.configuration: as_configuration(row) for row in table}
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
