"""What a run's folder says of the run: run.json, search/best.json, and where its shards are."""

import json
from collections.abc import Sequence
from typing import Any

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.search.feature_subset import model_features
from sparseoco.search.selection import choose
from sparseoco.storage.locations import Location, location, relative_path, resolve_against
from sparseoco.store.shards import Store
from sparseoco.training.options import MODELS, SearchOptions
from sparseoco.training.warm_start import Origin


def describe_run(name: str, store: Store, out: Location, options: SearchOptions) -> dict[str, Any]:
    """What run.json says: the store, its classes and its text, and the options; paths are relative to `out`."""
    labels, kept = store.manifest.labels, options.features_from
    described = options.model_dump(mode="json")
    for model in MODELS:
        if described[model] is not None:
            described[model] = relative_path(location(described[model]), out)
    return {
        "name": name,
        "seed": options.seed,
        "version": __version__,
        "corpus": {
            "store": store.manifest.digest,
            "folder": relative_path(store.folder, out),
            "rows": store.n_rows,
            "nonzeros": store.manifest.nonzeros,
            "features": store.n_features,
            "classes": [entry.model_dump(mode="json") for entry in labels.classes],
            "text": store.manifest.options,
        }
        | ({} if kept is None else {"features_from": model_features(Origin.of(kept), store).description}),
        "search": described,
    }


def describe_choice(metrics: Sequence[dict[str, Any]], options: SearchOptions) -> dict[str, Any]:
    """What best.json says: the configuration that the search chose, and how many it left unfinished.

    Raises `SparseocoError` if no configuration came through.
    """
    best = choose(metrics, options.select)
    unfinished = {row["configuration"] for row in metrics if row["status"] == "unfinished"}
    return ({"unfinished": len(unfinished)} if unfinished else {}) | {
        "configuration": best.configuration,
        "algorithm": best.algorithm,
        "parameters": json.loads(best.parameters),
        "epochs": best.epoch,
        "rule": options.select,
        "held_out_error" if options.folds > 1 else "progressive_error": best.error,
        "standard_error": best.standard_error,
        "nonzeros": best.nonzeros,
    }


def store_of(run: Location, corpus: dict[str, Any], folder: Location | None) -> Store:
    """The store a run was made from, where `corpus` of its run.json has it or at `folder`.

    Raises `InputError` where it is not found or has changed.
    """
    if folder is None:
        if "folder" not in corpus:
            raise InputError(f"{run} does not say where its shards are: name them with --store.")
        folder = resolve_against(run, corpus["folder"])
        if not folder.exists():
            raise InputError(f"The shards of {run} are not at {folder} any more: name them with --store.")
    store = Store.open(folder)
    if store.manifest.digest != corpus["store"]:
        raise InputError(
            f"{folder} does not hold the shards that {run} was made from: they have changed since, or others."
        )
    return store
