"""Sparse online learning over large text corpora: raw text to Parquet shards to models to reports."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparseoco.errors import InputError, SparseocoError, StorageError
    from sparseoco.estimators import SparseOnlineClassifier, SparseOnlineRegressor
    from sparseoco.learner import Learner
    from sparseoco.metrics import read_metrics
    from sparseoco.mixture import Mixture
    from sparseoco.model import Model
    from sparseoco.optimum import Optimum, offline_optimum
    from sparseoco.shards import Store, read_shards
    from sparseoco.tables import Table, read_table, standardise

    __version__: str

__all__ = [
    "InputError",
    "Learner",
    "Mixture",
    "Model",
    "Optimum",
    "SparseOnlineClassifier",
    "SparseOnlineRegressor",
    "SparseocoError",
    "StorageError",
    "Store",
    "Table",
    "__version__",
    "offline_optimum",
    "read_metrics",
    "read_shards",
    "read_table",
    "standardise",
]


_MODULES = {
    "errors": ("InputError", "SparseocoError", "StorageError"),
    "estimators": ("SparseOnlineClassifier", "SparseOnlineRegressor"),
    "learner": ("Learner",),
    "metrics": ("read_metrics",),
    "mixture": ("Mixture",),
    "model": ("Model",),
    "optimum": ("Optimum", "offline_optimum"),
    "shards": ("Store", "read_shards"),
    "tables": ("Table", "read_table", "standardise"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """What is exported is loaded when it is asked for: numba and scikit-learn take a second each."""
    if name == "__version__":
        from importlib.metadata import version

        return version("sparseoco")
    if name in _HOMES:
        return getattr(import_module(f"sparseoco.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
