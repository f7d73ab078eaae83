"""Sparse online learning over large text corpora: raw text to Parquet shards to models to reports."""

from importlib.metadata import version

__version__ = version("sparseoco")

from sparseoco.errors import InputError, SparseocoError, StorageError
from sparseoco.learner import Learner
from sparseoco.metrics import read_metrics
from sparseoco.model import Model
from sparseoco.shards import Store, read_shards

__all__ = [
    "InputError",
    "Learner",
    "Model",
    "SparseocoError",
    "StorageError",
    "Store",
    "__version__",
    "read_metrics",
    "read_shards",
]
