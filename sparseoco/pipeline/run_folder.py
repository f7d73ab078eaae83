"""The files that describe a run in its folder, run.json and search/best.json, and the run's store."""

import json
from collections.abc import Sequence
from typing import Any

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.search.feature_subset import model_features
from sparseoco.search.selection import choose
from sparseoco.storage.locations import Location, location, relative_path, resolve_against
from sparseoco.store.shards import Store
from sparseoco.store.weighting import Weighting
from sparseoco.training.options import SearchOptions
from sparseoco.training.warm_start import Origin


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
        corpus["features_from"] = model_features(Origin.of(options.features_from), store).description
    return {
        "name": name,
        "seed": options.seed,
        "version": __version__,
        "corpus": corpus,
        "search": options.model_dump(mode="json") | models,
    }


def describe_choice(metrics: Sequence[dict[str, Any]], options: SearchOptions) -> dict[str, Any]:
    """The contents of best.json: the chosen configuration, and the number of unfinished ones.

    Raises `SparseocoError` if no configuration was completed.
    """
    best = choose(metrics, options.select)
    row = next(row for row in metrics if row["configuration"] == best.configuration)
    unfinished = {row["configuration"] for row in metrics if row["status"] == "unfinished"}
    return ({"unfinished": len(unfinished)} if unfinished else {}) | {
        "configuration": best.configuration,
        "algorithm": best.algorithm,
        "parameters": json.loads(best.parameters),
        "weighting": Weighting.of(row).model_dump(mode="json"),
        "epochs": best.epoch,
        "rule": options.select,
        "held_out_error" if options.folds > 1 else "progressive_error": best.error,
        "standard_error": best.standard_error,
        "nonzeros": best.nonzeros,
    }


def open_store(run: Location, corpus: dict[str, Any], folder: Location | None) -> Store:
    """The store of a run, at `folder` or where `corpus` in run.json says.

    Raises `InputError` if it is missing or has changed.
    """
    if folder is None:
        if "folder" not in corpus:
            raise InputError(f"{run}/run.json has no path of the shards: set --store.", code="missing-store")
        folder = resolve_against(run, corpus["folder"])
        if not folder.exists():
            raise InputError(f"The shards of {run} are no longer at {folder}: set --store.", code="missing-store")
    store = Store.open(folder)
    if store.manifest.digest != corpus["store"]:
        raise InputError(
            f"{folder} does not have the shards that {run} was trained on.",
            code="store-changed",
        )
    return store
