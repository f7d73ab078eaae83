"""Sparse online learning over large text corpora: raw text to Parquet shards to models to reports."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("sparseoco")

from sparseoco.errors import InputError, SparseocoError, StorageError
from sparseoco.learner import Learner
from sparseoco.metrics import read_metrics
from sparseoco.mixture import Mixture
from sparseoco.model import Model
from sparseoco.optimum import Optimum, offline_optimum
from sparseoco.shards import Store, read_shards
from sparseoco.tables import Table, read_table, standardise

if TYPE_CHECKING:
    from sparseoco.estimators import SparseOnlineClassifier, SparseOnlineRegressor

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


def __getattr__(name: str) -> Any:
    if name in ("SparseOnlineClassifier", "SparseOnlineRegressor"):
        from sparseoco import estimators  # loads scikit-learn, which takes longer than all the rest

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
