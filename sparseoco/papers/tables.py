"""Dense tables of numbers, and panels of prices, from CSV or Parquet files."""

import csv
import math
import re
import reprlib
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

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
        Numbers, or indices into `classes`.
    classes : tuple of str
        The names of the classes; empty if labels are numbers.
    """

    features: NDArray[np.float64]
    names: tuple[str, ...]
    labels: NDArray[np.float64]
    classes: tuple[str, ...]


def read_table(
    path: str | Path, *, target: str, labels: Literal["classes", "numbers"] = "classes", leave_out: Sequence[str] = ()
) -> Table:
    """Read a table of numbers.

    Parameters
    ----------
    path : str or Path
        A Parquet file (by its suffix), or else CSV, which may be compressed (.gz, .bz2, .zst); in .tsv, tabs separate
        the cells. Its first line names the columns if no cell of it is a number.
    target : str
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
    columns = read_columns(file, lambda cells: not any(map(is_number, cells)))
    for name in (*leave_out, target):
        if name not in columns:
            raise InputError(
                f"{file} has no column {name!r}; it has {_shown_names(list(columns))}.", code="unknown-column"
            )
    features = [name for name in columns if name != target and name not in leave_out]
    if not features:
        raise InputError(f"{file} has no column of features.", code="no-features")
    for name in (*features, target):
        missing = "the value is missing. Leave out rows with missing values, or the column."
        _check_cells(file, name, columns[name], _empty(columns[name]), missing, code="missing-value")
    if not len(columns[target]):
        raise InputError(f"{file} has no rows.", code="no-rows")
    matrix = np.column_stack([column_numbers(file, name, columns[name]) for name in features])
    if labels == "numbers":
        return Table(matrix, tuple(features), column_numbers(file, target, columns[target]), ())
    return Table(matrix, tuple(features), *_classes(file, target, columns[target]))


def standardise(table: Table) -> Table:
    """The table with features scaled to mean 0 and population standard deviation 1; a constant column becomes 0.

    Raises `InputError` for a column whose numbers are too large to be squared and summed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = table.features.mean(axis=0), table.features.std(axis=0)
    for name, infinite in zip(table.names, np.isinf(mean) | np.isinf(deviation), strict=True):
        if infinite:
            raise InputError(f"Column {name!r} cannot be standardised: its numbers are too large.", code="overflow")
    # Not by the deviation: the mean of equal numbers may differ from them by rounding.
    constant = (table.features == table.features[0]).all(axis=0)
    mean[constant], deviation[constant] = table.features[0, constant], 1.0
    return table._replace(features=(table.features - mean) / deviation)


def read_columns(file: Path, has_names: Callable[[Sequence[str]], bool]) -> dict[str, pa.Array]:
    """Columns by name as Arrow arrays; those of a CSV are strings, without spaces around them.

    `has_names` says of the cells of the first line of a CSV whether they name the columns.
    """
    try:
        table = pq.read_table(file) if file.suffix == ".parquet" else _read_csv(file, has_names)
    except pa.ArrowInvalid as error:
        raise _invalid(file, str(error).splitlines()[0]) from error
    except OSError as error:
        raise storage_error(error, file) from error
    names = table.column_names
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(f"{file} has two columns {repeated!r}.", code="duplicate-column")
    return {name: table[name].combine_chunks() for name in names}


def _read_csv(file: Path, has_names: Callable[[Sequence[str]], bool]) -> pa.Table:
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
    header = has_names(first)
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
    problem = "{cell} is not a finite number. Leave out the column if it has words."
    _check_cells(file, name, cells, ~(np.isfinite(values) | (missing & allow_missing)), problem, code="not-a-number")
    return values


def _check_cells(file: Path, name: str, cells: pa.Array, bad: NDArray[np.bool_], problem: str, *, code: str) -> None:
    """Raise `InputError` if cells of a column are bad, with the first of them."""
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        shown = problem.format(cell=reprlib.repr(cells[row].as_py()))
        raise InputError(f"{file}, row {row + 1}, column {name!r}: {shown}", code=code)


def _classes(file: Path, name: str, column: pa.Array) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Indices of classes, and their names in order."""
    words = [str(cell) for cell in column.to_pylist()]
    names = sorted(set(words))
    if all(map(is_number, names)):
        names.sort(key=float)
    if len(names) < 2:
        raise InputError(
            f"{file}: column {name!r} is {reprlib.repr(names[0])} in every row; there must be two or more classes.",
            code="one-class",
        )
    indices = pc.index_in(pa.array(words), pa.array(names)).to_numpy()
    return indices.astype(np.float64), tuple(names)


def _invalid(file: Path, problem: str) -> InputError:
    return InputError(f"{file} cannot be read as a table: {problem}", code="invalid-table")


def is_number(cell: Any) -> bool:
    """Whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except (TypeError, ValueError):
        return False


def _shown_names(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")


# ----------------------------------------------------------------------------------------------------------------------
# Panels of prices, or of price relatives: one column per stock, one row per period.


Values = Literal["prices", "relatives"]

DATE: Final = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?")
"""A date in figures, with or without a time."""
NEAR_ONE: Final = 2.0
"""Relatives have a median within this factor of 1."""


class Panel(NamedTuple):
    """Returns of stocks.

    Parameters
    ----------
    returns : (rounds, stocks) float64
        Price over the price of the row before, less 1.
    stocks : tuple of str
        The columns without a missing value.
    incomplete : tuple of str
        The columns that are left out because a value is missing.
    values : {"prices", "relatives"}
        What the file has.
    """

    returns: NDArray[np.float64]
    stocks: tuple[str, ...]
    incomplete: tuple[str, ...]
    values: Values


def read_panel(path: str | Path, *, from_one: bool = False) -> Panel:
    """Read the returns of a panel of prices or of relatives, price over the price of the row before.

    They are relatives if the values are near 1 and not more alike from one row to the next than at large:
    (Σ (log v_t − log v_{t−1})² exceeds Σ (log v_t − mean)²) in the median column.

    Parameters
    ----------
    path : str or Path
        As in `read_table`. The first column is no stock if it has dates (of Parquet, 2019-01-31, 20190131, 31.1.2019
        and the like) or the numbers of the rows. Rows are in order of time, or in the reverse order if dates are.
    from_one : bool
        The price before the first row is 1 in every column.

    Returns
    -------
    Panel
        Returns of the columns without a missing value.

    Raises
    ------
    InputError
        Naming the column of a value that is not a number greater than 0, or dates that are not in order; or if fewer
        than two stocks or rounds are left.
    StorageError
        If the file cannot be read.
    """
    file = Path(path)
    columns = read_columns(file, _has_names)
    first, cells = next(iter(columns.items()))
    order = _time_order(file, first, columns.pop(first)) if _are_dates(cells) else slice(None)
    stocks = {name: _positive(file, name, column) for name, column in columns.items()}
    complete = [name for name, numbers in stocks.items() if np.isfinite(numbers).all()]
    if len(complete) < 2 or len(stocks[complete[0]]) < 2:
        raise _too_small(file)
    matrix = np.column_stack([stocks[name] for name in complete])[order]
    found: Values = "relatives" if _are_relatives(matrix) else "prices"
    if found == "prices":
        prices = np.vstack([np.ones(matrix.shape[1]), matrix]) if from_one else matrix
        matrix = prices[1:] / prices[:-1]
        if len(matrix) < 2:
            raise _too_small(file)
    return Panel(matrix - 1, tuple(complete), tuple(name for name in stocks if name not in complete), found)


def _positive(file: Path, name: str, column: pa.Array) -> NDArray[np.float64]:
    """The numbers of a column; NaN where one is missing."""
    numbers = column_numbers(file, name, column, allow_missing=True)
    _check_cells(file, name, column, numbers <= 0, "a price or relative must be greater than 0.", code="invalid-price")
    return numbers


def _too_small(file: Path) -> InputError:
    return InputError(
        f"{file} has fewer than two stocks with a value in every row, or fewer than two rounds.", code="too-small"
    )


def _has_names(cells: Sequence[str]) -> bool:
    """Whether a line of cells names the columns."""
    stripped = [cell.strip() for cell in cells]
    return stripped[0] == "" or not all(cell in MISSING or is_number(cell) or DATE.fullmatch(cell) for cell in stripped)


def _are_dates(cells: pa.Array) -> bool:
    """Whether a column has dates, or counts the rows from 0 or 1."""
    if pa.types.is_temporal(cells.type):
        return True
    texts = [str(cell) for cell in cells.to_pylist()]
    if all(DATE.fullmatch(text) for text in texts):
        return True
    if not all(text.isascii() and text.isdigit() for text in texts):
        return False
    numbers = [int(text) for text in texts]
    if numbers in (list(range(len(texts))), list(range(1, len(texts) + 1))):
        return True
    return all(len(text) == 8 and _is_day(text) for text in texts)


def _is_day(text: str) -> bool:
    """Whether eight figures are a year, month and day."""
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def _time_order(file: Path, name: str, cells: pa.Array) -> slice:
    """The rows in order of time, as far as dates that begin with the year tell."""
    texts = [str(cell) for cell in cells.to_pylist()]
    if not all(re.match(r"\d{4}", text) for text in texts):
        return slice(None)
    times = [tuple(int(figure) for figure in re.findall(r"\d+", text)) for text in texts]
    rising = sorted(set(times))
    if times == rising:
        return slice(None)
    if times == rising[::-1]:
        return slice(None, None, -1)
    raise InputError(
        f"{file}: the dates in column {name!r} are neither all rising nor all falling.", code="unordered-dates"
    )


def _are_relatives(matrix: NDArray[np.float64]) -> bool:
    """Whether values are relatives, not prices: see `read_panel`."""
    if not 1 / NEAR_ONE < np.median(matrix) < NEAR_ONE:
        return False
    logs = np.log(matrix)
    at_large = ((logs - logs.mean(axis=0)) ** 2).sum(axis=0)
    steps = (np.diff(logs, axis=0) ** 2).sum(axis=0)
    varying = at_large > 0
    return bool(varying.any() and np.median(steps[varying] / at_large[varying]) > 1)
