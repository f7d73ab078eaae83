"""Tables of predictions on documents that a model has not learned: `search/held_out.parquet` and `test.parquet`.

id       string
fold     int32, of held-out documents only
label    string, the name of the class; a list of names for several labels per document; a float64 for numbers
margin   float64; of more than two classes a column for each, `margin CLASS`
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import DamagedError
from sparseoco.storage.locations import Location
from sparseoco.storage.parquet import read_parquet_file


class Predictions(NamedTuple):
    """The columns of a table of predictions.

    Parameters
    ----------
    ids : of the documents.
    folds : (rows,) int32, or None.
    labels : (rows,) class indices or numbers, or (rows, classes) booleans for several labels per document.
    margins : (rows, outputs) float64.
    """

    ids: pa.StringArray
    folds: NDArray[np.int32] | None
    labels: NDArray[Any]
    margins: NDArray[np.float64]


def class_columns(kind: str, classes: Sequence[str], outputs: int) -> list[str]:
    """The names of columns with one value per output, such as margins."""
    return [kind] if outputs == 1 else [f"{kind} {name}" for name in classes]


def predictions_table(found: Predictions, classes: Sequence[str]) -> pa.Table:
    """The table of predictions; without `classes`, labels are numbers."""
    columns: dict[str, Any] = {"id": found.ids.cast(pa.string())}
    if found.folds is not None:
        columns["fold"] = pa.array(found.folds, pa.int32())
    columns["label"] = named_labels(found.labels, classes)
    names = class_columns("margin", classes, found.margins.shape[1])
    columns |= {
        name: pa.array(np.ascontiguousarray(column, np.float64))
        for name, column in zip(names, found.margins.T, strict=True)
    }
    return pa.table(columns)


def named_labels(labels: NDArray[Any], classes: Sequence[str]) -> pa.Array:
    """Labels as in `Predictions`, with the names of their classes."""
    if not classes:
        return pa.array(np.asarray(labels, np.float64))
    names = pa.array(classes, pa.string())
    if labels.ndim == 1:
        return names.take(pa.array(labels, pa.int32()))
    rows, numbers = np.nonzero(labels)
    offsets = np.searchsorted(rows, np.arange(len(labels) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(numbers)))


def is_predictions(path: Location) -> bool:
    """Whether a file is a table of predictions, of any model."""
    with suppress(DamagedError):
        first, *names = (name for name in read_parquet_file(path).column_names if name != "fold")
        return [first, *names[:1]] == ["id", "label"] and all(name.startswith("margin") for name in names[1:])
    return False


def read_predictions(path: Location, classes: Sequence[str]) -> Predictions:
    """Read a table of predictions of a model of these classes; none for numbers.

    Raises
    ------
    DamagedError
        If the file is not such a table, or of a model of other classes.
    StorageError
        If it is missing or cannot be read.
    """
    table = read_parquet_file(path)
    names = [name for name in table.column_names if name.startswith("margin")]
    try:
        if names != class_columns("margin", classes, len(names)):
            raise ValueError
        margins = np.stack([table[name].cast(pa.float64()).to_numpy() for name in names], axis=1)
        if not np.isfinite(margins).all():
            raise ValueError
        return Predictions(
            table["id"].combine_chunks(),
            table["fold"].to_numpy() if "fold" in table.column_names else None,
            numbered_labels(table["label"].combine_chunks(), classes),
            margins,
        )
    except (KeyError, ValueError, pa.ArrowException) as error:
        raise _corrupt(path) from error


def numbered_labels(labels: pa.Array, classes: Sequence[str]) -> NDArray[Any]:
    """Labels as in `Predictions`: class indices, booleans or, without classes, numbers.

    Raises `ValueError` for a label that is not one of the classes, or missing.
    """
    if not classes:
        return np.asarray(labels.cast(pa.float64()).to_numpy(zero_copy_only=False))
    several = pa.types.is_list(labels.type)
    found = pc.index_in(labels.flatten() if several else labels, pa.array(classes, pa.string()))
    if found.null_count or labels.null_count:
        raise ValueError
    numbers = found.to_numpy(zero_copy_only=False)
    if not several:
        return np.asarray(numbers)
    truth = np.zeros((len(labels), len(classes)), np.bool_)
    truth[np.repeat(np.arange(len(labels)), labels.value_lengths().to_numpy(zero_copy_only=False)), numbers] = True
    return truth


def _corrupt(path: Location) -> DamagedError:
    return DamagedError(f"{path} is corrupt or of another model: run again.", code="corrupt-file")
