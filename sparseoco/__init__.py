"""Sparse online learning over large text corpora: raw text to Parquet shards to models to reports."""

from importlib.metadata import version

__version__ = version("sparseoco")
