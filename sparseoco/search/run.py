"""A search from a store to the files of its results: options that fit the store, and what is written of the choice."""

from contextlib import AbstractContextManager
from typing import Any

from distributed import Client

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.logs import ProgressCallback
from sparseoco.search.models import (
    feature_subset,
    has_held_out,
    held_out_blocks,
    held_out_rules,
    model_features,
    write_held_out,
)
from sparseoco.search.packing import resolve_relative
from sparseoco.search.runner import search_configurations
from sparseoco.search.selection import describe_choice
from sparseoco.storage.commit import commit_json
from sparseoco.storage.locations import Location, location, relative_path, resolve_against
from sparseoco.storage.tables import write_result_table
from sparseoco.store.shards import Store
from sparseoco.training.block import search_setting
from sparseoco.training.decisions import check_has_threshold
from sparseoco.training.folds import check_folds
from sparseoco.training.metrics import store_label_kind
from sparseoco.training.options import AtMost, SearchOptions, resolve
from sparseoco.training.search_tables import SEARCH_TABLES
from sparseoco.training.stream import NO_FOLD
from sparseoco.training.validation import check_labels, check_loss, check_size
from sparseoco.training.warm_start import Origin, check_origin

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


def absolute_models(options: SearchOptions, run: Location) -> SearchOptions:
    """The options in a run's run.json, with absolute paths of the models they name."""
    models = {name: str(resolve_against(run, path)) for name, path in options.models.items()}
    return options.model_copy(update=models)


def selected_features(
    client: Client, options: SearchOptions, store: Store, folder: Location, progress: ProgressCallback
) -> AbstractContextManager[Store]:
    """The store or the subset of its features that the options select, written to the folder."""
    origin = None if options.features_from is None else Origin.of(options.features_from)
    return feature_subset(client, store, origin, folder / ".features", progress)


# ----------------------------------------------------------------------------------------------------------------------
# The files of a search: run.json, the tables, the choice, and its predictions of held-out documents.


def search_store(
    client: Client, name: str, store: Store, options: SearchOptions, out: Location, progress: ProgressCallback
) -> None:
    """Run every configuration in every fold and choose one; all files are written to the folder of the run, `out`.

    Raises `SparseocoError` if no configuration was completed.
    """
    commit_json(out / "run.json", describe_run(name, store, out, options))
    with selected_features(client, options, store, out, progress) as selected:
        if options.relative_parameters:
            options = resolve_relative(client, selected, options)
            commit_json(out / "run.json", describe_run(name, store, out, options))
        folder = out / "search"
        tables = search_configurations(client, options, selected, folder, progress)
        for table, schema in SEARCH_TABLES.items():
            write_result_table(folder / f"{table}.parquet", tables[table], schema)
        best = describe_choice(tables["metrics"], options, store)
        (chosen,) = (each for each in options.configurations() if each.number == best["configuration"])
        blocks = held_out_blocks(chosen, options.model_copy(update={"epochs": best["epochs"]}), selected)
        has_held_out(folder, blocks)  # removes those of another choice
        commit_json(folder / "best.json", best)
        write_held_out(client, blocks, selected, folder, progress)


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


def rules_of_search(folder: Location | None, options: SearchOptions, store: Store) -> dict[str, Any]:
    """How the model of all the data predicts, by the held-out predictions in the folder of a search if there is one."""
    rules: dict[str, Any] = {}
    if folder is not None:
        positive = search_setting(options, store, NO_FOLD).positive
        rules = held_out_rules(folder, store.classes, options.threshold_rule, positive)
    if isinstance(options.select, AtMost):
        rules = {**rules, "at_most": options.select.at_most}
    return rules
