"""The features of mistakes: what in a document spoke most for the wrong answer, read from the store by id.

Only names of features and numbers are shown, no text of documents.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparseoco.core.errors import SparseocoError
from sparseoco.report.predictions import Mistake, PredictionSet, mistakes
from sparseoco.report.results import Results
from sparseoco.storage.locations import Location, resolve_against
from sparseoco.store.shards import Store
from sparseoco.store.term_weights import term_weights
from sparseoco.store.weighting import COUNTS, Weighting

FEATURES: Final = 5
MAX_DOCUMENTS: Final = 500_000
"""Documents of a store whose ids are searched; of larger ones the features of mistakes are not shown."""


class Contribution(NamedTuple):
    """What a feature of a document adds to the margin of the wrong answer over the true one."""

    feature: str
    value: float


class ExplainedMistake(NamedTuple):
    """A mistake and its strongest features; none if the document was not found."""

    mistake: Mistake
    features: list[Contribution]


def explained_mistakes(run: Location, results: Results, found: PredictionSet) -> list[ExplainedMistake]:
    """The most confident mistakes on a set; those on held-out documents with their features, if the store is there."""
    wrong = mistakes(found)
    rows = _store_rows(run, results, [mistake.id for mistake in wrong]) if found.name == "held-out" else {}
    return [
        ExplainedMistake(mistake, _contributions(results, found, mistake, *rows[mistake.id]))
        if mistake.id in rows
        else ExplainedMistake(mistake, [])
        for mistake in wrong
    ]


def _store_rows(run: Location, results: Results, ids: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Features and values of documents by id; none without a store or a model, or if the store has changed."""
    folder = results.run.corpus.folder
    if results.weights is None or folder is None or not ids:
        return {}
    try:
        store = Store.open(resolve_against(run, folder))
        if store.manifest.digest != results.run.corpus.store or store.n_rows > MAX_DOCUMENTS:
            return {}
        return _find_rows(store, (results.model or {}).get("weighting") or COUNTS, ids)
    except SparseocoError:  # moved, or being replaced: the page does without
        return {}


def _find_rows(store: Store, weighting: Weighting, ids: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    wanted = set(ids)
    rows: dict[str, tuple[Any, Any]] = {}
    weights = term_weights(store, weighting)
    for shard in range(store.n_shards):
        listed = store.ids(shard)
        places = np.flatnonzero(pc.is_in(listed.cast(pa.string()), pa.array(sorted(wanted))).to_numpy(False))
        if not places.size:
            continue
        read = store.read(shard)
        for place in places.tolist():
            own = slice(read.indptr[place], read.indptr[place + 1])
            indices, counts = read.indices[own], read.counts[own]
            values = weights.values(np.array([0, len(indices)]), indices, counts)
            rows.setdefault(str(listed[place]), (indices, values))
        wanted -= rows.keys()
        if not wanted:
            break
    return rows


def _contributions(
    results: Results, found: PredictionSet, mistake: Mistake, indices: Any, values: Any
) -> list[Contribution]:
    """The features with the largest contributions to the wrong answer, those that spoke for the true one left out."""
    assert results.weights is not None
    weights = results.weights.filter(pc.is_in(results.weights["feature_id"], pa.array(indices, pa.int64())))
    value = dict(zip(indices.tolist(), values.tolist(), strict=True))
    outputs = found.found.margins.shape[1]
    sums: dict[int, float] = {}
    names: dict[int, str] = {}
    for row in weights.to_pylist():
        if outputs == 1:
            sign = 1.0 if mistake.output == 1 else -1.0
        elif found.several:
            sign = (row["class"] == found.classes[mistake.output]) * (1.0 if mistake.answer == row["class"] else -1.0)
        else:
            sign = float(row["class"] == mistake.answer) - float(row["class"] == mistake.truth)
        feature = row["feature_id"]
        names[feature] = row["feature"]
        sums[feature] = sums.get(feature, 0.0) + sign * row["weight"] * value[feature]
    strongest = sorted(sums, key=lambda feature: (-sums[feature], feature))[:FEATURES]
    return [Contribution(names[feature], sums[feature]) for feature in strongest if sums[feature] > 0]
