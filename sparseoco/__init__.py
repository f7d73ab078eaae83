"""Sparse online learning over large text corpora: raw text to Parquet shards to models to reports."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparseoco.core.errors import InputError, SparseocoError, StorageError
    from sparseoco.estimators import SparseOnlineClassifier, SparseOnlineRegressor
    from sparseoco.offline.epochs import fit_epochs
    from sparseoco.offline.optimum import Optimum, offline_optimum
    from sparseoco.store.shards import Store, read_shards
    from sparseoco.training.learner import Learner
    from sparseoco.training.models import Model
    from sparseoco.training.search_tables import read_metrics

    __version__: str

__all__ = [
    "InputError",
    "Learner",
    "Model",
    "Optimum",
    "SparseOnlineClassifier",
    "SparseOnlineRegressor",
    "SparseocoError",
    "StorageError",
    "Store",
    "__version__",
    "fit_epochs",
    "offline_optimum",
    "read_metrics",
    "read_shards",
]


_MODULES = {
    "core.errors": ("InputError", "SparseocoError", "StorageError"),
    "estimators": ("SparseOnlineClassifier", "SparseOnlineRegressor"),
    "offline.epochs": ("fit_epochs",),
    "offline.optimum": ("Optimum", "offline_optimum"),
    "store.shards": ("Store", "read_shards"),
    "training.learner": ("Learner",),
    "training.models": ("Model",),
    "training.search_tables": ("read_metrics",),
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
