"""The model's features: their number, and the strongest of each class."""

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparseoco.report.results import ClassRecord, Results

MAX_CLASSES: Final = 30


class Feature(NamedTuple):
    """A feature with a positive weight for a class; `share` is its weight divided by the largest in the panel."""

    name: str
    weight: float
    share: float
    occurrences: int
    documents: int


class Panel(NamedTuple):
    """The strongest features of one class."""

    name: str
    rows: int
    features: list[Feature]


def used_features(weights: pa.Table) -> int:
    """The number of distinct features with a nonzero weight."""
    return int(pc.count_distinct(weights["feature_id"]).as_py())


def strongest(results: Results, limit: int) -> list[Panel]:
    """One panel per class, in class order, for the `MAX_CLASSES` largest classes.

    Two classes share one column of weights: negative ones indicate the first class.
    """
    weights, classes = results.weights, results.run.corpus.classes
    if weights is None:
        return []
    if len(classes) == 2:
        return [_panel(classes[0], weights, -1, limit), _panel(classes[1], weights, 1, limit)]
    largest = sorted(range(len(classes)), key=lambda k: (-classes[k].rows, k))[:MAX_CLASSES]
    columns = weights["class"]
    return [_panel(classes[k], weights.filter(pc.equal(columns, classes[k].name)), 1, limit) for k in sorted(largest)]


def _panel(of: ClassRecord, weights: pa.Table, sign: int, limit: int) -> Panel:
    strength = pc.multiply(weights["weight"], float(sign))
    weights = weights.append_column("strength", strength).filter(pc.greater(strength, 0.0))
    rows = weights.sort_by([("strength", "descending"), ("feature_id", "ascending")]).slice(0, limit).to_pylist()
    widest = rows[0]["strength"] if rows else 1.0
    features = [Feature(r["feature"], r["weight"], r["strength"] / widest, r["count"], r["documents"]) for r in rows]
    return Panel(of.name, of.rows, features)
