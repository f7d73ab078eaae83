"""The model's features: their number, and the strongest of each class."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparseoco.report.results import ClassRecord

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
    features: list[Feature]


def used_features(weights: pa.Table) -> int:
    """The number of distinct features with a nonzero weight."""
    return int(pc.count_distinct(weights["feature_id"]).as_py())


def strongest(weights: pa.Table | None, classes: Sequence[ClassRecord], limit: int) -> list[Panel]:
    """One panel per class, in class order, for the `MAX_CLASSES` largest classes; none without weights.

    Of two classes that share a column, negative weights indicate the first. Numbers have one column, whose features
    raise or lower the prediction.
    """
    if weights is None:
        return []
    if not classes:
        return [_panel("raise the prediction", weights, 1, limit), _panel("lower the prediction", weights, -1, limit)]
    if share_column(weights, classes):
        return [_panel(classes[0].name, weights, -1, limit), _panel(classes[1].name, weights, 1, limit)]
    largest = sorted(range(len(classes)), key=lambda k: (-classes[k].rows, k))[:MAX_CLASSES]
    columns, names = weights["class"], [classes[k].name for k in sorted(largest)]
    return [_panel(name, weights.filter(pc.equal(columns, name)), 1, limit) for name in names]


def share_column(weights: pa.Table, classes: Sequence[ClassRecord]) -> bool:
    """Whether two classes share one column of weights, which is listed under the second: not if they are labels."""
    return len(classes) == 2 and classes[0].name not in weights["class"].unique().to_pylist()


def _panel(name: str, weights: pa.Table, sign: int, limit: int) -> Panel:
    strength = pc.multiply(weights["weight"], float(sign))
    weights = weights.append_column("strength", strength).filter(pc.greater(strength, 0.0))
    rows = weights.sort_by([("strength", "descending"), ("feature_id", "ascending")]).slice(0, limit).to_pylist()
    widest = rows[0]["strength"] if rows else 1.0
    features = [Feature(r["feature"], r["weight"], r["strength"] / widest, r["count"], r["documents"]) for r in rows]
    return Panel(name, features)
