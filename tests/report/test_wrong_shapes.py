"""JSON files of another shape, whose checksum matches: one error that names the file, or a value that is not used."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparseoco.core.errors import SparseocoError
from sparseoco.ops.status import read_status
from sparseoco.report.results import read_results
from sparseoco.store.shards import Store
from sparseoco.text.options import TextOptions
from sparseoco.training.models import Model, write_model
from tests.report.synthetic import write_run
from tests.support.stores import make_store
from tests.support.wrong_shapes import checksummed, reshaped

DEEP = b"[" * 3000 + b"]" * 3000
SHAPES = [DEEP, b'{"a": ' + DEEP + b"}", b"[1, 1e999]", b"3", b"{}", *map(checksummed, ({}, {"a": [[]]}, {"name": 1}))]
TRIALS = 40


def check_shapes(path: Path, read: Callable[[], Any]) -> None:
    """`read` succeeds or raises an error of ours for every shape; for a file that has nothing it names the file."""
    choose, content = random.Random(0), path.read_bytes()
    for data in (*SHAPES, *(reshaped(content, choose)[0] for _ in range(TRIALS))):
        path.write_bytes(data)
        message = _message(read)
        assert data not in SHAPES or (message is not None and path.name in message)
    path.write_bytes(content)


def _message(read: Callable[[], Any]) -> str | None:
    try:
        read()
    except SparseocoError as error:
        return str(error)
    return None


@pytest.mark.fault(57)
def test_files_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", evaluated=True)
    for name in ("run.json", "search/best.json", "evaluation.json"):
        check_shapes(run / name, lambda: read_results(run))
    (run / "model" / "model.json").unlink()
    for name in ("run.json", "evaluation.json"):
        check_shapes(run / name, lambda: read_status(run))


@pytest.mark.fault(57)
def test_model_json(tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store"))
    store.manifest.options.update(TextOptions().plain())
    model = tmp_path / "model"
    write_model(model, np.ones((store.n_features, 1)), store, {"algorithm": "none", "parameters": {}}, [])
    check_shapes(model / "model.json", lambda: Model(model).predict(["t0"]))
    check_shapes(model / "model.json", lambda: read_status(model))
