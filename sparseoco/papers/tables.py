"""Dense tables of numbers from CSV or Parquet files."""

import csv
import math
from collections.abc import Callable, Sequence
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
from sparseoco.storage.locations import storage_error

MAX_ROW_BYTES = 1 << 26
MISSING: Final = ("", "?", "NA", "N/A", "NaN", "nan", "null")
"""Cells without a value."""


class Table(NamedTuple):
    """Rows of numbers with their labels.

    Attributes
    ----------
    features : (rows, d) float64
        Finite.
    names : tuple of str
        The names of the columns.
    labels : (rows,) float64
        Numbers, or indices into `classes`; zeros without a target.
    classes : tuple of str
        The names of the classes; empty if labels are numbers.
    """

    features: NDArray[np.float64]
    names: tuple[str, ...]
    labels: NDArray[np.float64]
    classes: tuple[str, ...]

    @property
    def rows(self) -> csr_matrix:
        """The features as `Learner.partial_fit` takes them."""
        return csr_matrix(self.features)


class Scaling(NamedTuple):
    """x ↦ (x − mean)/deviation by column; the deviation of a constant column is 1, so it is scaled to 0."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    constant: tuple[str, ...]

    def apply(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """(rows, d) float64: features scaled as those of the standardised table."""
        return (features - self.mean) / self.deviation


def read_table(
    path: str | Path,
    *,
    target: str | None = None,
    labels: Literal["classes", "numbers"] = "classes",
    leave_out: Sequence[str] = (),
) -> Table:
    """Read a table of numbers.

    Parameters
    ----------
    path : str or Path
        A Parquet file (by its suffix), or else CSV, which may be compressed (.gz, .bz2, .zst); in .tsv, tabs separate
        the cells. Its first line names the columns if no cell of it is a number.
    target : str, optional
        The column of labels. Without a header, columns are named 1, 2, 3, …
    labels : {"classes", "numbers"}
        Whether labels are classes (words or numbers, in numeric order if all are numbers, or else in alphabetical
        order) or numbers to predict.
    leave_out : sequence of str
        Columns that are not features.

    Returns
    -------
    Table
        Features, names, labels and classes.

    Raises
    ------
    InputError
        Naming the row and column of a cell that is missing (`MISSING`, or null) or not a finite number, the line with
        another number of cells, or the column that does not exist.
    StorageError
        If the file cannot be read.
    """
    file = Path(path)
    columns = read_columns(file, no_number)
    for name in (*leave_out, *([] if target is None else [target])):
        if name not in columns:
            raise InputError(
                f"{file} has no column {name!r}; it has {_shown_names(list(columns))}.", code="unknown-column"
            )
    if target in leave_out:
        raise InputError(f"{file}: column {target!r} is the target and cannot be left out.", code="invalid-option")
    features = [name for name in columns if name != target and name not in leave_out]
    if not features:
        raise InputError(f"{file} has no column of features.", code="no-features")
    used = [*features, *([] if target is None else [target])]
    rows = np.arange(len(columns[used[0]]))
    for name in used:
        empty = _empty(columns[name])
        if empty.any():
            row = int(np.flatnonzero(empty)[0]) + 1
            raise InputError(
                f"{file}, row {row}, column {name!r}: the value is missing. Leave out rows with missing values, or the "
                "column.",
                code="missing-value",
            )
    if not len(rows):
        raise InputError(f"{file} has no rows.", code="no-rows")
    matrix = np.column_stack([column_numbers(file, name, columns[name]) for name in features])
    values = np.zeros(len(rows))
    classes: tuple[str, ...] = ()
    if target is not None and labels == "numbers":
        values = column_numbers(file, target, columns[target])
    elif target is not None:
        values, classes = _classes(file, target, columns[target])
    return Table(matrix, tuple(features), values, classes)


def standardise(table: Table) -> tuple[Table, Scaling]:
    """Scale features to mean 0 and standard deviation 1.

    Parameters
    ----------
    table : Table
        The table; a constant column becomes 0.

    Returns
    -------
    table : Table
        The table with scaled features.
    scaling : Scaling
        Means, population standard deviations, and the names of the constant columns.

    Raises
    ------
    InputError
        For a column whose numbers are too large to be squared and summed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = table.features.mean(axis=0), table.features.std(axis=0)
    for name, infinite in zip(table.names, np.isinf(mean) | np.isinf(deviation), strict=True):
        if infinite:
            raise InputError(f"Column {name!r} cannot be standardised: its numbers are too large.", code="overflow")
    # Not by the deviation: the mean of equal numbers may differ from them by rounding.
    constant = (table.features == table.features[0]).all(axis=0)
    mean[constant], deviation[constant] = table.features[0, constant], 1.0
    names = tuple(name for name, same in zip(table.names, constant, strict=True) if same)
    scaling = Scaling(mean, deviation, names)
    return table._replace(features=scaling.apply(table.features)), scaling


def no_number(cells: Sequence[str]) -> bool:
    """Whether no cell of a line is a finite number."""
    return not any(is_number(cell) for cell in cells)


def read_columns(file: Path, header: bool | Callable[[Sequence[str]], bool]) -> dict[str, pa.Array]:
    """Columns by name as Arrow arrays; those of a CSV are strings, without spaces around them.

    Parameters
    ----------
    file : Path
        As in `read_table`.
    header : bool or callable
        Whether the first line of a CSV names the columns, or a function of its cells that decides.

    Raises
    ------
    InputError, StorageError
        As `read_table`.
    """
    try:
        parquet = file.suffix == ".parquet"
        table = pq.read_table(file) if parquet else _read_csv(file, header)
    except pa.ArrowInvalid as error:
        raise _invalid(file, str(error).splitlines()[0]) from error
    except OSError as error:
        raise storage_error(error, file) from error
    names = table.column_names
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(f"{file} has two columns {repeated!r}.", code="duplicate-column")
    return {name: table[name].combine_chunks() for name in names}


def _read_csv(file: Path, header: bool | Callable[[Sequence[str]], bool]) -> pa.Table:
    """A CSV as stripped strings; without a header, columns are named 1, 2, 3, …"""
    delimiter = "\t" if ".tsv" in file.suffixes else ","
    with pa.input_stream(file) as stream:
        data = stream.read()
    if not data.strip():
        raise InputError(f"{file} is empty.", code="no-rows")
    if data.lstrip().startswith((b"{", b"[")):  # its text would be the names of columns
        raise InputError(f"{file} is JSON, not CSV or Parquet.", code="unknown-format")
    try:
        first = next(csv.reader([data.split(b"\n", 1)[0].decode("utf-8-sig").strip("\r")], delimiter=delimiter))
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text.", code="encoding") from error
    except csv.Error as error:
        raise _invalid(file, f"its first line has a {error}.") from error
    if not first:
        raise _invalid(file, "its first line is empty.")
    if callable(header):
        header = header(first)
    names = [cell.strip() if header else str(position) for position, cell in enumerate(first, start=1)]
    invalid: list[pa.csv.InvalidRow] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    columns = [f"{position}:{name}" for position, name in enumerate(names)]  # unique, unlike the names
    # In one thread, so that the number of an invalid row is known; as strings, so that an invalid cell can be shown.
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        pa.csv.ReadOptions(use_threads=False, block_size=MAX_ROW_BYTES, column_names=columns, skip_rows=int(header)),
        pa.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=skip, newlines_in_values=True),
        pa.csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string())),
    )
    if invalid:
        row = invalid[0]
        raise InputError(
            f"{file}, line {row.number}: {row.actual_columns} cells, but the first line has {row.expected_columns}.",
            code="wrong-number-of-cells",
        )
    return pa.table([pc.utf8_trim_whitespace(column) for column in table.columns], names=names)


def _empty(column: pa.Array) -> NDArray[np.bool_]:
    """Which cells have no value."""
    if pa.types.is_floating(column.type):
        empty = pc.is_null(column, nan_is_null=True)
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        empty = pc.or_kleene(pc.is_null(column), pc.is_in(column, pa.array(MISSING, column.type)))
    else:
        empty = pc.is_null(column)
    return np.asarray(empty.fill_null(True).to_numpy(zero_copy_only=False), bool)


def column_numbers(file: Path, name: str, cells: pa.Array, allow_missing: bool = False) -> NDArray[np.float64]:
    """Cells of a column as finite numbers, or NaN where they may be missing.

    Raises `InputError` for another cell, with the row and the name of the column.
    """
    missing = _empty(cells)
    try:
        values = np.asarray(pc.cast(cells, pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    except pa.ArrowNotImplementedError:
        raise InputError(
            f"{file}: column {name!r} has type {cells.type}, not numbers: leave it out.", code="not-a-number"
        ) from None
    except pa.ArrowInvalid:  # a word, or a number in Python's syntax alone
        values = np.array([float(cell) if is_number(cell) else np.nan for cell in cells.to_pylist()])
    bad = np.flatnonzero(~(np.isfinite(values) | (missing & allow_missing)))
    if len(bad):
        first = int(bad[0])
        raise InputError(
            f"{file}, row {first + 1}, column {name!r}: {_short(cells[first].as_py())} is not a finite "
            "number. Leave out the column if it has words.",
            code="not-a-number",
        )
    return values


def _classes(file: Path, name: str, column: pa.Array) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Indices of classes, and their names in order."""
    words = [str(cell) for cell in column.to_pylist()]
    names = sorted(set(words))
    if all(is_number(word) for word in names):
        names.sort(key=float)
    if len(names) < 2:
        raise InputError(
            f"{file}: column {name!r} is {_short(names[0])} in every row; there must be two or more classes.",
            code="one-class",
        )
    index = {word: k for k, word in enumerate(names)}
    return np.array([index[word] for word in words], np.float64), tuple(names)


def _invalid(file: Path, problem: str) -> InputError:
    return InputError(f"{file} cannot be read as a table: {problem}", code="invalid-table")


def is_number(cell: Any) -> bool:
    """Whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except (TypeError, ValueError):
        return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _shown_names(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")
