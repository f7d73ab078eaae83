"""A block of columns: configurations of one algorithm that share a stream, run by one Dask task.

A block belongs to a fold. The examples of that fold are only predicted; all others are predicted and learned from.
The task is a pure function of its description: its result is a file named by the description's digest, so running it
again, here or elsewhere, gives the same file or finds it there.
"""

import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from sparseoco import __version__
from sparseoco.cluster.corpus import Corpus, open_corpus
from sparseoco.commit import commit_json, digest_value, read_json
from sparseoco.drivers.order import epoch_rows, fold_rows
from sparseoco.errors import SparseocoError
from sparseoco.learner import Learner, Progress
from sparseoco.model import write_model
from sparseoco.shards import Store

Report = Callable[[int], None]
Tables = dict[str, list[dict[str, Any]]]
"""Rows of the tables of a search (see `sparseoco.metrics`) for one configuration and fold, without their numbers."""

CHUNK_ROWS = 4096
MARKS = 20
PROGRESS_SECONDS = 0.5
NO_FOLD = -1


class _Description(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @cached_property
    def digest(self) -> str:
        """A name for it: equal descriptions have equal ones."""
        return digest_value(self.model_dump(mode="json"))[:32]


class Setting(_Description):
    """All that decides a configuration's result besides itself. `manifest` is the digest of the store's manifest."""

    manifest: str
    loss: str
    penalty: str
    dtype: str
    fold: int  # held out; −1 for none
    folds: int
    epochs: int
    seed: int
    shuffle: bool
    sparseoco: str = __version__


class Block(_Description):
    """Configurations of one algorithm under one setting. How they are grouped does not change their results."""

    setting: Setting
    algorithm: str
    configurations: tuple[dict[str, Any], ...]


def cell_path(folder: Path, block: Block) -> Path:
    """Where a block's result goes: named by the setting, so that results of any grouping are found, and the block."""
    return folder / f"{block.setting.digest}-{block.digest}.json"


def run_block(block: Block, store: Store, cell: Path, scratch: Path, report: Report) -> None:
    """Run a block and commit its tables to `cell` (JSON), unless they are there already.

    `report` is told, now and then, how many examples have gone by. Raises `StorageError` for a shard that cannot be
    trusted or a disk that is full.
    """
    if cell.exists():
        return
    _, tables = _run(block, store, scratch, report)
    results = [
        {"algorithm": block.algorithm, "parameters": parameters, "tables": rows}
        for parameters, rows in zip(block.configurations, tables, strict=True)
    ]
    commit_json(cell, {"setting": block.setting.model_dump(mode="json"), "results": results})


def train_block(block: Block, store: Store, model: Path, scratch: Path, report: Report) -> None:
    """Run a block of one configuration and commit its model to the folder `model`, unless it is there already.

    Raises as `run_block`, and `SparseocoError` if the configuration diverges.
    """
    if (model / "model.json").exists() and read_json(model / "model.json").get("block") == block.digest:
        return
    learner, (tables,) = _run(block, store, scratch, report)
    (parameters,) = block.configurations
    if learner.diverged[0]:
        raise SparseocoError(
            f"{block.algorithm} diverged at row {learner.diverged[0]:,} with {parameters}: choose a smaller step."
        )
    settings = block.setting.model_dump(mode="json", include={"loss", "penalty", "dtype", "epochs", "seed", "shuffle"})
    description = {"algorithm": block.algorithm, "parameters": parameters, "block": block.digest, **settings}
    write_model(model, learner.weights_of(0), store, description, _training_curve(tables))


def _run(block: Block, store: Store, scratch: Path, report: Report) -> tuple[Learner, list[Tables]]:
    """All epochs of a block; gives the learner and each configuration's tables."""
    setting = block.setting
    corpus = open_corpus(store, scratch)
    learner = Learner(
        block.algorithm,
        loss=setting.loss,
        penalty=setting.penalty,
        grid=block.configurations,
        n_features=store.n_features,
        n_classes=max(2, len(store.classes)),
        dtype=setting.dtype,
    )
    tables: list[Tables] = [{"metrics": [], "curves": [], "kept": [], "timings": []} for _ in block.configurations]
    for epoch in range(1, setting.epochs + 1):
        started = time.monotonic()
        before = learner.progress
        for _ in _learn(learner, corpus, setting, epoch, report):
            _append(tables, "curves", _curve_rows(learner))
        held_out = _evaluate(learner, corpus, setting)
        _append(tables, "metrics", _metric_rows(learner, epoch, before, *held_out))
        seconds = (time.monotonic() - started) / len(tables)
        _append(tables, "timings", [{"epoch": epoch, "seconds": seconds}] * len(tables))
    for bin_rows in _kept_rows(learner, store.document_frequencies()):
        _append(tables, "kept", bin_rows)
    return learner, tables


def _append(tables: list[Tables], name: str, rows: list[dict[str, Any]]) -> None:
    for own, row in zip(tables, rows, strict=True):
        own[name].append(row)


def _learn(learner: Learner, corpus: Corpus, setting: Setting, epoch: int, report: Report) -> Iterator[None]:
    """One epoch over all but the held-out fold; yields at each mark."""
    marks = set(_marks(corpus.n_rows))
    stops = sorted(marks | set(range(CHUNK_ROWS, corpus.n_rows, CHUNK_ROWS)))
    start, told = 0, time.monotonic()
    for stop in stops:
        rows = epoch_rows(setting.seed, epoch, setting.shuffle, corpus.n_rows, start, stop, setting.fold, setting.folds)
        learner.learn_rows(*corpus.gather(rows))
        if stop in marks:
            yield
        start = stop
        if time.monotonic() - told > PROGRESS_SECONDS:
            report((epoch - 1) * corpus.n_rows + stop)
            told = time.monotonic()


def _marks(n_rows: int) -> list[int]:
    """Positions in an epoch where the curves are read: even in the logarithm, the last row among them."""
    if n_rows == 0:
        return []
    spread = np.geomspace(min(50, n_rows), n_rows, MARKS)
    return sorted({round(float(position)) for position in spread} | {n_rows})


def _evaluate(learner: Learner, corpus: Corpus, setting: Setting) -> tuple[int, NDArray[np.float64], NDArray[np.int64]]:
    """(rows, loss sums, error counts) over the held-out fold, under the weights as they are."""
    size = len(learner.configurations)
    losses, errors, n_rows = np.zeros(size), np.zeros(size, dtype=np.int64), 0
    if setting.fold != NO_FOLD:
        for start in range(0, corpus.n_rows, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, corpus.n_rows)
            rows = fold_rows(setting.seed, start, stop, setting.fold, setting.folds)
            learner.evaluate(*corpus.gather(rows), losses, errors)
            n_rows += rows.size
    return n_rows, losses, errors


def _curve_rows(learner: Learner) -> list[dict[str, Any]]:
    rows, losses, errors = learner.progress
    return [
        {"rows": rows, "progressive_loss": float(loss) / max(rows, 1), "progressive_error": int(error) / max(rows, 1)}
        for loss, error in zip(losses, errors, strict=True)
    ]


def _metric_rows(
    learner: Learner,
    epoch: int,
    before: Progress,
    held_out_rows: int,
    held_out_loss: NDArray[np.float64],
    held_out_errors: NDArray[np.int64],
) -> list[dict[str, Any]]:
    now = learner.progress
    learned = max(now.rows - before.rows, 1)
    nonzeros, diverged = learner.nonzeros(), learner.diverged
    return [
        {
            "epoch": epoch,
            "rows": now.rows,
            "progressive_loss": float((now.loss_sum[i] - before.loss_sum[i]) / learned),
            "progressive_error": float((now.error_count[i] - before.error_count[i]) / learned),
            "held_out_rows": held_out_rows,
            "held_out_loss": float(held_out_loss[i] / held_out_rows) if held_out_rows else None,
            "held_out_error": float(held_out_errors[i] / held_out_rows) if held_out_rows else None,
            "nonzeros": int(nonzeros[i]),
            "status": "diverged" if diverged[i] else "ok",
            "reason": f"diverged at row {diverged[i]:,}" if diverged[i] else "",
        }
        for i in range(len(nonzeros))
    ]


def _kept_rows(learner: Learner, frequencies: NDArray[np.int64]) -> Iterator[list[dict[str, Any]]]:
    """Nonzero weights by how many documents their feature is in: 1, 2–3, 4–7, …; features in none are left out."""
    bins = np.frexp(frequencies.astype(np.float64))[1].astype(np.int64)  # 0 for 0, 1 for 1, 2 for 2–3, …
    features = np.bincount(bins)
    kept = learner.nonzeros(bins=bins)
    for b in range(1, features.size):
        if features[b]:
            frequency = {"documents_from": 2 ** (b - 1), "documents_to": 2**b - 1, "features": int(features[b])}
            yield [{**frequency, "kept": int(count)} for count in kept[b]]


def _training_curve(tables: Tables) -> list[dict[str, Any]]:
    """The marks with their epoch and, at its end, the nonzeros beside them."""
    ends = {row["rows"]: row for row in tables["metrics"]}
    return [
        {
            **mark,
            "epoch": min(end["epoch"] for rows, end in ends.items() if mark["rows"] <= rows),
            "nonzeros": ends[mark["rows"]]["nonzeros"] if mark["rows"] in ends else None,
        }
        for mark in tables["curves"]
    ]
