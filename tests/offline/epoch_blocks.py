"""Blocks of epoch methods, and running them on a cluster."""

from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from sparseoco.learners import find_algorithm
from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.cluster.epochs import begin, run_epoch_block
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, Cells, Setting
from sparseoco.training.stream import NO_FOLD, StreamPosition
from tests.support.stores import make_store, with_columns

DEALT = {"estimate": "corrected", "placement": "dealt", "parts": 3}
CLASS_WEIGHTS = (0.5, 2.25)
CAO_RCD_GRID = [
    {"alpha": alpha, "R": R, "rounds": 150, "predict_gradient": "last"} for alpha, R in ((0.5, 0.3), (5.0, 1.0))
]


def caos_erm_grid(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"alpha": alpha, "R": R, **parameters} for alpha, R in ((1.0, 0.3), (5.0, 1.0))]


def epoch_block(
    store: Store,
    name: str,
    grid: list[dict[str, Any]],
    *,
    epochs: int,
    fold: int = NO_FOLD,
    loss: str = "logistic",
    penalty: str = "l1",
    class_weights: tuple[float, ...] | None = None,
    intercept: bool = False,
) -> Block:
    setting = Setting(
        manifest=store.manifest.digest,
        loss=loss,
        penalty=penalty,
        dtype="float32",
        fold=fold,
        folds=4 if fold != NO_FOLD else 1,
        epochs=epochs,
        seed=5,
        range_rows=1,
        class_weights=class_weights,
        intercept=intercept,
    )
    definition = find_algorithm(name).under(find_penalty(penalty))
    configurations = tuple(definition.configuration(entry) for entry in grid)
    return Block(setting=setting, algorithm=name, configurations=configurations)


def weighted_store(folder: Path) -> tuple[Store, np.ndarray]:
    """A store whose documents have weights, some of them 0, and the weights times those of `CLASS_WEIGHTS`."""
    (folder / "weighted").mkdir(parents=True)
    store = Store.open(with_columns(make_store(folder / "plain"), folder / "weighted"))
    return store, np.array(CLASS_WEIGHTS)[store.labels()] * (np.arange(store.n_rows) % 4) / 2


def run_block(client: Client, block: Block, store: Store, folder: Path) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The final weights, intercepts included, and the tables of each configuration and epoch."""
    reported: list[int] = []
    assert run_epoch_block(client, block, store, folder / "cells", folder / "work", reported.append, resumable=True)
    assert reported == [store.n_rows * epoch for epoch in range(1, block.setting.epochs + 1)]
    cells = Cells(folder / "cells", [block.setting.digest])
    ends = [StreamPosition(epoch, store.n_rows) for epoch in range(1, block.setting.epochs + 1)]
    tables = [cells.at(block.setting.digest, name, end) for name in block.identities for end in ends]
    assert all(own is not None for own in tables)
    return begin(client, block, store, folder / "work" / block.digest).weights(), tables  # type: ignore[return-value]


def metrics(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [own["metrics"][0] for own in tables]


def without_timings(folder: Path) -> dict[str, Any]:
    cells = {path.name: read_json(path) for path in folder.glob("*.json")}
    for cell in cells.values():
        for result in cell["results"]:
            assert result["tables"].pop("timings")[0]["seconds"] > 0
    return cells
