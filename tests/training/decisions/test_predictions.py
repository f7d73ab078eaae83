"""Tables of predictions are read as they were written, and only by models of their classes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparseoco.core.errors import DamagedError
from sparseoco.storage.tables import write_parquet
from sparseoco.training.decisions import Predictions, predictions_table, read_predictions
from tests.support.errors import raises_code

IDS = pa.array(["a", "b", "c"])
THREE = ["x", "y", "z"]
CASES = {
    "two classes": (["n", "y"], np.array([1, 0, 1], np.int32), 1),
    "three classes": (THREE, np.array([2, 0, 1], np.int32), 3),
    "several labels": (THREE, np.array([[True, False, True], [False] * 3, [False, True, False]]), 3),
    "numbers": ([], np.array([0.5, -1.0, 2.0]), 1),
}


@pytest.mark.parametrize("folds", [None, np.array([0, 1, 1], np.int32)])
@pytest.mark.parametrize("case", CASES)
def test_a_table_is_read_as_it_was_written(case: str, folds: np.ndarray | None, tmp_path: Path) -> None:
    classes, labels, outputs = CASES[case]
    margins = np.random.default_rng(0).normal(size=(3, outputs))
    write_parquet(tmp_path / "p.parquet", predictions_table(Predictions(IDS, folds, labels, margins), classes))
    found = read_predictions(tmp_path / "p.parquet", classes)
    assert found.ids.equals(IDS)
    assert (found.folds is None) == (folds is None)
    assert found.folds is None or (found.folds == folds).all()
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(found.margins, margins)


@pytest.mark.parametrize("classes", [["n"], THREE, ["n", "m"]])
def test_a_table_of_other_classes_is_refused(classes: list[str], tmp_path: Path) -> None:
    written = Predictions(IDS, None, np.array([0, 1, 1], np.int32), np.ones((3, 1)))
    write_parquet(tmp_path / "p.parquet", predictions_table(written, ["n", "y"]))
    with raises_code("corrupt-file", "p.parquet", kind=DamagedError):
        read_predictions(tmp_path / "p.parquet", classes)


def test_a_file_that_is_no_table_of_finite_margins_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    path.write_bytes(b"PAR1")
    with raises_code("corrupt-file", path, kind=DamagedError):
        read_predictions(path, ["n", "y"])
    write_parquet(path, pa.table({"margin": [1.0]}))
    with raises_code("corrupt-file", path, kind=DamagedError):
        read_predictions(path, ["n", "y"])
    written = Predictions(IDS, None, np.array([0, 1, 1], np.int32), np.array([[1.0], [np.nan], [0.0]]))
    write_parquet(path, predictions_table(written, ["n", "y"]))
    with raises_code("corrupt-file", path, kind=DamagedError):
        read_predictions(path, ["n", "y"])
