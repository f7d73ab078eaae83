"""The strongest features of a class."""

import pyarrow as pa

from sparseoco.report.figures import share_column, strongest
from sparseoco.report.results import ClassRecord

CLASSES = [ClassRecord(name="sea", rows=3), ClassRecord(name="wood", rows=4)]


def table(*rows: tuple[str, str, float]) -> pa.Table:
    features, classes, weights = zip(*rows, strict=True)
    columns = {"feature_id": range(len(rows)), "feature": features, "class": classes, "weight": weights}
    return pa.table(columns | {"count": [1] * len(rows), "documents": [1] * len(rows)})


def test_two_classes_share_a_column() -> None:
    weights = table(("moss", "wood", 2.0), ("tide", "wood", -1.0))
    assert share_column(weights, CLASSES)
    panels = strongest(weights, CLASSES, 5)
    assert [(p.name, [f.name for f in p.features]) for p in panels] == [("sea", ["tide"]), ("wood", ["moss"])]


def test_two_labels_have_a_column_each() -> None:
    weights = table(("tide", "sea", 2.0), ("moss", "sea", -3.0), ("moss", "wood", 1.0), ("tide", "wood", -4.0))
    assert not share_column(weights, CLASSES)
    panels = strongest(weights, CLASSES, 5)
    assert [(p.name, [f.name for f in p.features]) for p in panels] == [("sea", ["tide"]), ("wood", ["moss"])]
