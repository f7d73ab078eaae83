"""The terms of features: from the vocabulary, or of hashed features from the files of their names."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NAMES = pa.schema({"feature": pa.int64(), "term": pa.string(), "count": pa.int64(), "documents": pa.int64()})


def describe_terms(parts: Iterable[pa.Table], features: NDArray[np.int64]) -> pa.Table:
    """The rows of features, in their order, in the parts of a vocabulary."""
    found, rows = [NAMES.empty_table()], []
    for part in parts:
        known = part["feature"].to_numpy()
        places = np.searchsorted(known, features)
        own = np.flatnonzero(np.append(known, -1)[places] == features)
        found.append(part.take(pa.array(places[own])))
        rows.append(own)
    order = np.argsort(np.concatenate([np.empty(0, np.int64), *rows]), kind="stable")
    return pa.concat_tables(found, promote_options="permissive").take(pa.array(order))


def describe_hashed(names: pa.Table, features: NDArray[np.int64]) -> pa.Table:
    """A row for each hashed feature, in their order; see `Store.describe`."""
    by_term = names.group_by(["feature", "term"]).aggregate([("count", "sum"), ("documents", "sum")])
    ordered = by_term.sort_by([("feature", "ascending"), ("count_sum", "descending"), ("term", "ascending")])
    grouped = ordered.group_by("feature", use_threads=False).aggregate(
        [("term", "first"), ("term", "count"), ("count_sum", "sum"), ("documents_sum", "sum")]
    )
    rows = {row["feature"]: row for row in grouped.to_pylist()}
    named = []
    for feature in features.tolist():
        row = rows.get(feature)
        others = "" if row is None or row["term_count"] == 1 else f" (+{row['term_count'] - 1} more)"
        named.append(
            {
                "feature": feature,
                "term": "" if row is None else row["term_first"] + others,
                "count": 0 if row is None else row["count_sum_sum"],
                "documents": 0 if row is None else row["documents_sum_sum"],
            }
        )
    return pa.Table.from_pylist(named, schema=NAMES)
