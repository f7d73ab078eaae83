"""Options of searches in tests."""

from typing import Any

from sparseoco.training.options import SearchOptions

COUNTS = {"tf": "count", "idf": False, "norm": "none"}


def plain_search(**values: Any) -> SearchOptions:
    """A search of one pass over the counts as they are, with logistic loss, unless `values` say otherwise."""
    return SearchOptions.model_validate({"loss": "logistic", "epochs": 1, "features": COUNTS} | values)
