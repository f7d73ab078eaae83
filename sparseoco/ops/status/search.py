"""The progress of a search, from its cells and the checkpoints of its blocks."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sparseoco.core.errors import StorageError
from sparseoco.report.results import RunRecord
from sparseoco.search.checkpoints import read_state
from sparseoco.search.selection import candidates
from sparseoco.storage.locations import Location
from sparseoco.storage.metrics import Row
from sparseoco.storage.parquet import read_parquet_file
from sparseoco.store.weighting import Weighting
from sparseoco.training.block import Key, configuration_id, read_cells, result_id
from sparseoco.training.options.configuration import Configuration
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.orders import range_rows_of
from sparseoco.training.stream import NO_FOLD, StreamPosition


class SearchProgress(NamedTuple):
    """The progress of a search; a cell is a configuration in a fold.

    Parameters
    ----------
    cells, completed, running : int
        All cells, those that are complete, and those that have started.
    rows, total_rows : int
        Rows learned so far and in all, summed over the cells.
    by_status : dict
        Number of cells by status other than ok: diverged, dropped, stopped, failed, …
    reasons : dict
        Number of failed cells by reason.
    best : dict or None
        The best configuration so far; compared on `folds` folds with `compared` configurations.
    complete : bool
        Whether the search's tables are there and complete.
    """

    cells: int
    completed: int
    running: int
    rows: int
    total_rows: int
    by_status: dict[str, int]
    reasons: dict[str, int]
    best: Row | None
    complete: bool

    @property
    def lost(self) -> int:
        """Cells without a result."""
        return self.by_status.get("diverged", 0) + self.by_status.get("failed", 0)


def read_search(folder: Location, run: RunRecord, options: SearchOptions) -> SearchProgress:
    """The progress of the search in `folder`; `run` is the content of run.json.

    Raises `StorageError` for corrupt files.
    """
    configurations = options.configurations()
    folds = list(range(options.folds)) if options.folds > 1 else [NO_FOLD]
    names = {configuration_id(c.algorithm, c.parameters, c.weighting): c for c in configurations}
    n_rows = run.corpus.rows
    goal = StreamPosition(options.epochs, n_rows)
    reached: dict[Key, StreamPosition] = {}
    rows: dict[tuple[Key, int], Row] = {}
    for fold, name, position, row in _cells(folder / "cells", search_setting_values(run, options), names):
        if position > goal:  # of a search of more epochs in the same folder
            continue
        reached[fold, name] = max(position, reached.get((fold, name), position))
        if position.position == n_rows:
            rows[(fold, name), position.epoch] = _row(row, names[name], fold)
    for key, position in _checkpoints(folder / "checkpoints", run, options, names).items():
        reached[key] = min(goal, max(position, reached.get(key, position)))
    table = _table(folder, configurations, options)
    settled = {
        (row["fold"], configuration_id(row["algorithm"], json.loads(row["parameters"]), Weighting.of(row))): row
        for row in table
        if row["status"] not in ("ok", "unfinished")
    }
    settled |= {key: row for (key, _), row in rows.items() if row["status"] != "ok"}
    keys = [(fold, name) for name in names for fold in folds]
    completed = [key for key in keys if key in settled or reached.get(key) == goal]
    total = options.epochs * n_rows
    return SearchProgress(
        cells=len(keys),
        completed=len(completed),
        running=sum(key in reached for key in keys if key not in set(completed)),
        rows=sum(
            total if key in completed else reached.get(key, StreamPosition(1, 0)).rows_before(n_rows) for key in keys
        ),
        total_rows=total * len(keys),
        by_status=dict(sorted(Counter(row["status"] for row in settled.values()).items())),
        reasons=dict(Counter(row["reason"] for row in settled.values() if row["status"] == "failed")),
        best=best_so_far(table or list(rows.values()), options.selection_metric),
        complete=bool(table) and all(row["status"] != "unfinished" for row in table),
    )


def search_setting_values(run: RunRecord, options: SearchOptions) -> Row:
    """What the settings of this search's cells have in common, as far as run.json says."""
    range_rows = range_rows_of(options.shuffle, run.corpus.rows, 1)
    return {
        "loss": options.loss,
        "penalty": options.penalty,
        "dtype": options.dtype,
        "folds": options.folds,
        "folds_by": options.folds_by,
        "seed": options.seed,
        "sparseoco": run.version,
        # With features selected by a model, the cells refer to a store derived from this one.
        **({} if options.features_from else {"manifest": run.corpus.store}),
        # The rows of a range depend on the nonzeros of the store.
        **({} if range_rows > 1 else {"range_rows": range_rows}),
    }


def _cells(
    folder: Location, wanted: Row, names: Mapping[str, Configuration]
) -> Iterator[tuple[int, str, StreamPosition, Row]]:
    """(fold, configuration, position, row of the metrics) of the cells of this search."""
    for _, cell in read_cells(sorted(folder.glob("*.json"))):
        if cell is None:  # corrupt, or of another version
            continue
        if any(cell["setting"].get(key) != value for key, value in wanted.items()):
            continue
        for result in cell["results"]:
            name = result_id(result)
            if name in names:
                yield cell["setting"]["fold"], name, StreamPosition(*cell["position"]), result["tables"]["metrics"][0]


def _checkpoints(
    folder: Location, run: RunRecord, options: SearchOptions, names: Mapping[str, Configuration]
) -> dict[Key, StreamPosition]:
    """The positions of the checkpoints of blocks."""
    wanted = search_setting_values(run, options)
    found: dict[Key, StreamPosition] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            state = read_state(path)
        except StorageError:
            continue  # replaced by a later one meanwhile
        block, position = state["block"], state["position"]
        setting = block.setting.model_dump(mode="json")
        if any(setting.get(key) != value for key, value in wanted.items()):
            continue
        for parameters in block.configurations:
            key = block.setting.fold, configuration_id(block.algorithm, parameters, block.weighting)
            if key[1] in names:
                found[key] = max(position, found.get(key, position))
    return found


def _table(folder: Location, configurations: list[Configuration], options: SearchOptions) -> list[Row]:
    """The metrics of the search, if they exist and are of these configurations."""
    path = folder / "metrics.parquet"
    if not path.exists():
        return []
    rows: list[Row] = read_parquet_file(path).to_pylist()
    wanted = {(c.algorithm, c.parameters_json, c.weighting) for c in configurations}
    found = {(row["algorithm"], row["parameters"], Weighting.of(row)) for row in rows}
    same = found == wanted and {(row["loss"], row["penalty"]) for row in rows} == {(options.loss, options.penalty)}
    return rows if same else []


def _row(row: Row, configuration: Configuration, fold: int) -> Row:
    return row | {
        "configuration": configuration.number,
        "algorithm": configuration.algorithm,
        "parameters": configuration.parameters_json,
        **configuration.weighting.model_dump(),
        "fold": fold,
    }


def best_so_far(rows: Sequence[Row], metric: str) -> Row | None:
    """The best configuration of those that were evaluated on the same folds, and how many they are.

    Folds differ in difficulty, so a configuration is compared only with others on folds that all of them have finished.
    """
    evaluated = [row for row in rows if row["held_out_rows"] is not None]
    folds = comparable_folds(evaluated)
    found = candidates([row for row in evaluated if row["fold"] in folds], metric)
    if not found:
        return None
    first = found[0]
    weighting = Weighting.of(next(row for row in evaluated if row["configuration"] == first.configuration))
    return {
        "configuration": first.configuration,
        "algorithm": first.algorithm,
        "parameters": json.loads(first.parameters),
        "weighting": weighting.label,
        "epoch": first.epoch,
        "metric": metric,
        "value": first.value(metric),
        "error": first.error,
        "nonzeros": round(first.nonzeros),
        "folds": len(folds),
        "compared": len({candidate.configuration for candidate in found}),
    }


def comparable_folds(rows: Iterable[Row]) -> set[int]:
    """The folds to compare configurations on: those with the most results of configurations that have all of them."""
    of: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        of[row["configuration"]].add(row["fold"])
    counts = Counter(fold for folds in of.values() for fold in folds)
    ordered = sorted(counts, key=lambda fold: (-counts[fold], fold))
    choices = [set(ordered[: size + 1]) for size in range(len(ordered))]
    return max(
        choices, key=lambda folds: (len(folds) * sum(folds <= own for own in of.values()), len(folds)), default=set()
    )
