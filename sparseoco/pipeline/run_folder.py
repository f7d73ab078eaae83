"""The files that describe a run in its folder, run.json and search/best.json, and the run's store."""

import json
import math
from collections.abc import Sequence
from typing import Any

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.report.results import CorpusRecord
from sparseoco.search.feature_subset import model_features
from sparseoco.search.selection import Candidate, candidates, choose, fold_values, grid_edges
from sparseoco.storage.locations import Location, location, relative_path, resolve_against
from sparseoco.storage.metric_names import METRICS
from sparseoco.storage.outputs import FolderKind
from sparseoco.store.shards import Store
from sparseoco.store.weighting import Weighting
from sparseoco.training.block import positive_class
from sparseoco.training.metrics.scores import baseline
from sparseoco.training.models.model import Model
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.options.selection import AtMost
from sparseoco.training.warm_start import Origin

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


def describe_choice(metrics: Sequence[dict[str, Any]], options: SearchOptions, store: Store) -> dict[str, Any]:
    """The contents of best.json: the chosen configuration, notes on the choice, and the number of unfinished ones.

    Raises `SparseocoError` if no configuration was completed.
    """
    metric = options.selection_metric
    best = choose(metrics, options.select, metric)
    leader = candidates(metrics, metric)[0]
    row = next(row for row in metrics if row["configuration"] == best.configuration)
    unfinished = {row["configuration"] for row in metrics if row["status"] == "unfinished"}
    of_leader = Weighting.of(next(row for row in metrics if row["configuration"] == leader.configuration))
    alike = [c for c in options.configurations() if (c.algorithm, c.weighting) == (leader.algorithm, of_leader)]
    grid = [c.parameters for c in alike]
    edges = [] if options.samples is not None else grid_edges(json.loads(leader.parameters), grid)
    reference = baseline_value(metrics, leader, metric, store, options.positive_class)
    least = leader.cost + leader.standard_error
    sign = -1 if METRICS[metric].greater_is_better else 1
    beaten = reference is None or least < sign * reference
    return ({"unfinished": len(unfinished)} if unfinished else {}) | {
        "configuration": best.configuration,
        "algorithm": best.algorithm,
        "parameters": json.loads(best.parameters),
        "weighting": Weighting.of(row).model_dump(mode="json"),
        "epochs": best.epoch,
        "rule": "at-most" if isinstance(options.select, AtMost) else options.select,
        "at_most": options.select.at_most if isinstance(options.select, AtMost) else None,
        "metric": metric,
        "value": best.value(metric),
        "standard_error": best.standard_error,
        "held_out_error" if options.folds > 1 else "progressive_error": best.error,
        "nonzeros": best.nonzeros,
        "features": best.features,
        "baseline": reference,
        "beats_baseline": beaten,
        "notes": ([] if beaten else [_not_beaten(metric, leader.value(metric), reference, store)])
        + _optimistic(options, store)
        + _too_many_features(best, options)
        + [f"{leader.algorithm}: {edge.sentence}" for edge in edges],
    }


def _optimistic(options: SearchOptions, store: Store) -> list[str]:
    """A note on a search that a model of the same documents has chosen the features or the start of."""
    named = [name for name, path in options.models.items() if Model(path).has_learned(store)]
    if not named:
        return []
    return [
        f"the held-out figures are optimistic: the model of {' and '.join(named)} was trained on these documents, also "
        "on those that the folds hold out"
    ]


def _too_many_features(best: Candidate, options: SearchOptions) -> list[str]:
    if not isinstance(options.select, AtMost) or best.features <= options.select.at_most:
        return []
    wanted = options.select.at_most
    return [
        f"no configuration has at most {wanted:,} features: the one with the fewest, {best.features:,.0f}, is cut to "
        f"its {wanted:,} strongest; a larger lam may be better"
    ]


def baseline_value(
    metrics: Sequence[dict[str, Any]], leader: Candidate, metric: str, store: Store, positive: str | None
) -> float | None:
    """The metric of always predicting the largest class, no label or the mean of numbers; None if it is not known."""
    rows = [row for row in metrics if (row["configuration"], row["epoch"]) == (leader.configuration, leader.epoch)]
    labels = store.manifest.labels
    if labels.kind == "numbers":
        # R² = 1 − (rmse / rmse of the mean)².
        pairs = [(row["held_out_rmse"], row["held_out_r2"]) for row in rows if row.get("held_out_r2") is not None]
        if not pairs or metric not in ("r2", "rmse"):
            return None
        means = [rmse / math.sqrt(1 - r2) for rmse, r2 in pairs if r2 < 1]
        return 0.0 if metric == "r2" else math.fsum(means) / len(means) if means else None
    shares = fold_values(rows, "majority_error")
    if metric == "error" and shares:
        return math.fsum(shares) / len(shares)
    if labels.kind == "multi":
        return {"roc_auc": 0.5, "f1_macro": 0.0, "f1_micro": 0.0, "f1_weighted": 0.0}.get(metric)
    counts = [entry.rows for entry in labels.classes]
    return baseline(metric, counts, positive_class(labels.classes, positive))


def _not_beaten(metric: str, value: float, reference: float | None, store: Store) -> str:
    others = {"numbers": "the mean", "multi": "no label", "classes": "the largest class"}
    other = others[store.manifest.labels.kind]
    return (
        f"no configuration beats always predicting {other} by more than a standard error: {metric} {value:.4g} against "
        f"{reference:.4g}"
    )


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
