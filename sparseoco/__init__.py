"""Sparse online learning over large text corpora: raw text to Parquet shards to models to reports."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparseoco.core.errors import InputError, SparseocoError, StorageError
    from sparseoco.estimators import SparseOnlineClassifier, SparseOnlineRegressor
    from sparseoco.interface import Comparison, Evaluation, Explanations, Model, Run, ScoredCorpus, run, score
    from sparseoco.offline.epochs import fit_epochs
    from sparseoco.offline.optimum import Optimum, offline_optimum
    from sparseoco.store.shards import Store, read_shards
    from sparseoco.training.learner import Learner
    from sparseoco.training.search_tables import read_metrics

    __version__: str

__all__ = [
    "Comparison",
    "Evaluation",
    "Explanations",
    "InputError",
    "Learner",
    "Model",
    "Optimum",
    "Run",
    "ScoredCorpus",
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
    "run",
    "score",
]


_MODULES = {
    "core.errors": ("InputError", "SparseocoError", "StorageError"),
    "estimators": ("SparseOnlineClassifier", "SparseOnlineRegressor"),
    "offline.epochs": ("fit_epochs",),
    "offline.optimum": ("Optimum", "offline_optimum"),
    "store.shards": ("Store", "read_shards"),
    "interface": ("Comparison", "Evaluation", "Explanations", "Model", "Run", "ScoredCorpus", "run", "score"),
    "training.learner": ("Learner",),
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
    return sorted(__all__)
