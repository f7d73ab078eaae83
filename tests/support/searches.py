"""Searches in tests: their options, and their tasks in this process."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distributed import Client

from sparseoco.core.logs import RowsCallback
from sparseoco.learners import find_algorithm
from sparseoco.search.runner import search_configurations, search_deadline
from sparseoco.search.worker import BlockRun
from sparseoco.store.corpus import Corpus
from sparseoco.store.shards import Session, Store
from sparseoco.training.block import Block, search_setting
from sparseoco.training.options import Configuration, SearchOptions
from sparseoco.training.stream import NO_FOLD, StreamPosition

TablesOf = Callable[[Path, str, SearchOptions], dict[str, Any]]
"""Runs a search of a store in the folder of this name: its tables."""
COUNTS = {"tf": "count", "idf": False, "norm": "none"}


def plain_search(**values: Any) -> SearchOptions:
    """A search of one pass over the counts as they are, with logistic loss, unless `values` say otherwise."""
    plain = {"loss": "logistic", "epochs": 1, "features": COUNTS, "dtype": "float64"}
    return SearchOptions.model_validate(plain | values)


def configuration(algorithm: str, **parameters: Any) -> Configuration:
    """A configuration with these parameters, others by default."""
    return Configuration(number=0, algorithm=algorithm, parameters=find_algorithm(algorithm).configuration(parameters))


def block_of(options: SearchOptions, store: Store, fold: int = NO_FOLD) -> Block:
    """All configurations of a search, of one algorithm, in a fold."""
    return Block.of(search_setting(options, store, fold), options.configurations())


def search_tables(client: Client, store: Path, folder: Path, options: SearchOptions) -> dict[str, Any]:
    """The tables of a search, but for its timings."""
    tables = search_configurations(Session(client, Store.open(store)), options, folder, search_deadline(options))
    del tables["timings"]
    return tables


def metrics_row(configuration: int, fold: int, error: float, nonzeros: int = 5, **changes: Any) -> dict[str, Any]:
    """A row of the metrics of a search."""
    row = {"configuration": configuration, "algorithm": "fobos", "parameters": "{}", **COUNTS, "fold": fold, "epoch": 1}
    row |= {"rows": 80, "progressive_error": error, "held_out_rows": 20, "held_out_error": error}
    return row | {"nonzeros": nonzeros, "status": "ok", "reason": ""} | changes


def cells(folder: Path) -> dict[str, int]:
    """The cells of a search, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "cells").iterdir()}


def site(
    store: Store, scratch: Path, report: RowsCallback = lambda rows: None, stopped: Callable[[], bool] = lambda: False
) -> Any:
    """The site of tasks that run in this process."""
    return SimpleNamespace(open=lambda blocks: (store, scratch, report, stopped))


def learn_up_to(run: BlockRun, corpus: Corpus, goal: StreamPosition) -> None:
    """Learn the rows of a block up to a position."""
    for _ in run.learn(corpus, goal):
        pass
