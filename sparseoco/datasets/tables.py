"""Tables of numbers, CSV or Parquet → a dense matrix, its columns' names, labels."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import storage_error

ROW_BYTES = 1 << 26  # that a row may have
MISSING: Final = ("", "?", "NA", "N/A", "NaN", "nan", "null")
"""Words that say that a cell has no value."""


class Table(NamedTuple):
    """Rows of numbers with their labels.

    features : (rows, d) float64, finite, but for NaN where missing cells were asked to be kept; names : of its columns;
    labels : (rows,) float64, numbers or indices into `classes`, and zeros where no column is the target; classes : in
    the order of their indices, empty where labels are numbers; left_out : rows (from 1, as in the file) that had
    missing cells and are not there.
    """

    features: NDArray[np.float64]
    names: tuple[str, ...]
    labels: NDArray[np.float64]
    classes: tuple[str, ...]
    left_out: tuple[int, ...]

    @property
    def rows(self) -> csr_matrix:
        """The features as `Learner.partial_fit` takes them."""
        return csr_matrix(self.features)


class Scaling(NamedTuple):
    """x ↦ (x − mean)/deviation, column by column; where a column is constant, deviation is 1 and it becomes 0."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    constant: tuple[str, ...]

    def apply(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """(rows, d) on the scale of the table this was made from."""
        return (features - self.mean) / self.deviation


def read_table(
    path: str | Path,
    *,
    target: str | None = None,
    labels: Literal["classes", "numbers"] = "classes",
    leave_out: Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    missing: Literal["error", "leave-out", "nan"] = "error",
) -> Table:
    """Read a table of numbers.

    Parameters
    ----------
    path : a Parquet file (by its suffix), else CSV, which may be compressed (.gz, .bz2, .zst).
    target : the column of labels; of a file without a header, columns are called 1, 2, 3, … by their place.
    labels : whether labels are classes (words or numbers; in order of numbers if all are, else of the alphabet) or
        numbers to be predicted.
    leave_out : columns that are not features.
    header : whether the first line of a CSV names the columns; by default, if no cell of it is a number.
    delimiter : between cells; by default a tab for .tsv, else a comma.
    missing : what becomes of a row with a missing cell (`MISSING`, or null): it is an error, it is left out, or ("nan")
        the cell is NaN where it is a feature's.

    Raises `InputError` naming the row and the column of a cell that is not a finite number, the line that has another
    number of cells, the column that does not exist; `StorageError` where the file cannot be read.
    """
    file = Path(path)
    columns = _read(file, header, delimiter)
    for name in (*leave_out, *([] if target is None else [target])):
        if name not in columns:
            raise InputError(f"{file} has no column {name!r}; it has {_listed(list(columns))}.")
    if target in leave_out:
        raise InputError(f"{file}: column {target!r} is the target, and cannot be left out.")
    features = [name for name in columns if name != target and name not in leave_out]
    if not features:
        raise InputError(f"{file} has no column left to learn from.")
    used = [*features, *([] if target is None else [target])]
    absent = np.zeros(len(columns[used[0]]), bool)
    for name in used:
        empty = _empty(columns[name])
        if missing == "error" and empty.any():
            row = int(np.flatnonzero(empty)[0]) + 1
            raise InputError(
                f"{file}, row {row}, column {name!r}: the value is missing. Leave out rows with missing values, or the "
                "column."
            )
        absent |= empty & (missing != "nan" or name == target)
    rows = np.flatnonzero(~absent)
    if not len(rows):
        raise InputError(f"{file} has no rows{' without a missing value' if absent.any() else ''}.")
    matrix = np.column_stack([_numbers(file, name, columns[name], rows, missing == "nan") for name in features])
    answers = np.zeros(len(rows))
    classes: tuple[str, ...] = ()
    if target is not None and labels == "numbers":
        answers = _numbers(file, target, columns[target], rows)
    elif target is not None:
        answers, classes = _classes(file, target, columns[target].take(pa.array(rows)))
    return Table(matrix, tuple(features), answers, classes, tuple(int(row) + 1 for row in np.flatnonzero(absent)))


def standardise(table: Table) -> tuple[Table, Scaling]:
    """The table with mean 0 and deviation 1 in every column of features (population formulas), and how it came to be.

    A constant column becomes 0 everywhere, and `Scaling.constant` names it.

    Raises `InputError` for a column whose numbers are too large to be squared and summed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = table.features.mean(axis=0), table.features.std(axis=0)
    for name, infinite in zip(table.names, np.isinf(mean) | np.isinf(deviation), strict=True):
        if infinite:
            raise InputError(f"Column {name!r} cannot be standardised: its numbers are too large.")
    # The mean of equal numbers may differ from them by rounding: what is constant is decided by the numbers.
    constant = (table.features == table.features[0]).all(axis=0)
    mean[constant], deviation[constant] = table.features[0, constant], 1.0
    names = tuple(name for name, same in zip(table.names, constant, strict=True) if same)
    scaling = Scaling(mean, deviation, names)
    return table._replace(features=scaling.apply(table.features)), scaling


def _read(file: Path, header: bool | None, delimiter: str | None) -> dict[str, Any]:
    """Columns by name, each an Arrow array: of words where the file is CSV."""
    try:
        parquet = file.suffix == ".parquet"
        table = pq.read_table(file) if parquet else _read_words(file, header, _delimiter(file, delimiter))
    except pa.ArrowInvalid as error:
        raise InputError(f"{file} cannot be read as a table: {str(error).splitlines()[0]}") from error
    except OSError as error:
        raise storage_error(error, file) from error
    names = table.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{file} has two columns {twice!r}.")
    return {name: table[name].combine_chunks() for name in names}


def _delimiter(file: Path, delimiter: str | None) -> str:
    if delimiter is None:
        return "\t" if ".tsv" in file.suffixes else ","
    if len(delimiter) != 1:
        raise InputError(f"delimiter={delimiter!r} must be one character.")
    return delimiter


def _read_words(file: Path, header: bool | None, delimiter: str) -> pa.Table:
    """A CSV as trimmed words; columns without a header are named 1, 2, 3, …"""
    with pa.input_stream(file) as stream:
        data = stream.read()
    if not data.strip():
        raise InputError(f"{file} is empty.")
    try:
        first = next(csv.reader([data.split(b"\n", 1)[0].decode("utf-8-sig").strip("\r")], delimiter=delimiter))
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text.") from error
    except csv.Error as error:
        raise InputError(f"{file} cannot be read as a table: its first line has a {error}.") from error
    if not first:
        raise InputError(f"{file}: the first line is empty, where names or cells should be.")
    if header is None:
        header = not any(_is_number(cell) for cell in first)
    names = [cell.strip() if header else str(place) for place, cell in enumerate(first, start=1)]
    wrong: list[pa.csv.InvalidRow] = []

    def refuse(row: pa.csv.InvalidRow) -> str:
        wrong.append(row)
        return "skip"

    # In one thread, so that the number of a bad row is known; as words, so that a bad cell can be told.
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        pa.csv.ReadOptions(use_threads=False, block_size=ROW_BYTES, column_names=_unique(names), skip_rows=int(header)),
        pa.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=refuse, newlines_in_values=True),
        pa.csv.ConvertOptions(column_types=dict.fromkeys(_unique(names), pa.string())),
    )
    if wrong:
        row = wrong[0]
        raise InputError(
            f"{file}, line {row.number}: {row.actual_columns} cells, where the first line has {row.expected_columns}."
        )
    return pa.table([pc.utf8_trim_whitespace(column) for column in table.columns], names=names)


def _empty(column: pa.Array) -> NDArray[np.bool_]:
    """Where a cell has no value."""
    if pa.types.is_floating(column.type):
        empty = pc.is_null(column, nan_is_null=True)
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        empty = pc.or_kleene(pc.is_null(column), pc.is_in(column, pa.array(MISSING, column.type)))
    else:
        empty = pc.is_null(column)
    return np.asarray(empty.fill_null(True).to_numpy(zero_copy_only=False), bool)


def _numbers(
    file: Path, name: str, column: pa.Array, rows: NDArray[np.int64], gaps: bool = False
) -> NDArray[np.float64]:
    """Cells as finite numbers, of these rows; with `gaps` missing ones are NaN."""
    cells = column.take(pa.array(rows))
    absent = _empty(cells)
    try:
        values = np.asarray(pc.cast(cells, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    except pa.ArrowNotImplementedError:
        raise InputError(f"{file}: column {name!r} holds {cells.type}, not numbers: leave it out.") from None
    except pa.ArrowInvalid:  # a word, or a number as only Python writes it
        values = np.array([float(cell) if _is_number(cell) else np.nan for cell in cells.to_pylist()])
    bad = np.flatnonzero(~(np.isfinite(values) | (absent & gaps)))
    if len(bad):
        place = int(bad[0])
        raise InputError(
            f"{file}, row {int(rows[place]) + 1}, column {name!r}: {_short(cells[place].as_py())} is not a finite "
            "number. Leave out the column if it holds words."
        )
    return values


def _classes(file: Path, name: str, column: pa.Array) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Indices of classes, and their names in order."""
    words = [str(cell) for cell in column.to_pylist()]
    names = sorted(set(words))
    if all(_is_number(word) for word in names):
        names.sort(key=float)
    if len(names) < 2:
        raise InputError(f"{file}: column {name!r} is {_short(names[0])} in every row; classes must be two or more.")
    place = {word: index for index, word in enumerate(names)}
    return np.array([place[word] for word in words], np.float64), tuple(names)


def _is_number(cell: Any) -> bool:
    """Whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except (TypeError, ValueError):
        return False


def _unique(names: list[str]) -> list[str]:
    """Names to read columns by, however they are called in the file."""
    return [f"{place}:{name}" for place, name in enumerate(names)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")
