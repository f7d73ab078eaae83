"""Panels of prices, or of price relatives, from CSV or Parquet files: one column per stock, one row per period."""

import re
from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.papers.tables import MISSING, column_numbers, is_number, read_columns

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


def read_panel(
    path: str | Path,
    *,
    dates: str | None = None,
    header: bool | None = None,
    from_one: bool = False,
) -> Panel:
    """Read the returns of a panel of prices or of relatives, price over the price of the row before.

    They are relatives if the values are near 1 and not more alike from one row to the next than at large:
    (Σ (log v_t − log v_{t−1})² exceeds Σ (log v_t − mean)²) in the median column.

    Parameters
    ----------
    path : str or Path
        As in `read_table`. Rows are in order of time, or in the reverse order if their dates are.
    dates : str, optional
        The column that is not a stock; by default the first one if it has dates (of Parquet, 2019-01-31, 20190131,
        31.1.2019 and the like) or the numbers of the rows.
    header : bool, optional
        Whether the first line of a CSV names the columns; by default if a cell of it is neither a number nor a date, or
        the first is empty.
    from_one : bool
        The price before the first row is 1 in every column.

    Returns
    -------
    Panel
        Returns of the columns without a missing value.

    Raises
    ------
    InputError
        Naming the column of a value that is not a number greater than 0, one that does not
        exist, or dates that are not in order; or if fewer than two stocks or rounds are left.
    StorageError
        If the file cannot be read.
    """
    file = Path(path)
    columns = read_columns(file, _has_names if header is None else header)
    if dates is None:
        first, cells = next(iter(columns.items()))
        dates = first if _are_dates(cells) else None
    elif dates not in columns:
        raise InputError(f"{file} has no column {dates!r}.", code="unknown-column")
    order = slice(None) if dates is None else _time_order(file, dates, columns.pop(dates))
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
    if (numbers <= 0).any():
        row = int(np.flatnonzero(numbers <= 0)[0]) + 1
        raise InputError(
            f"{file}, row {row}, column {name!r}: a price or relative must be greater than 0.", code="invalid-price"
        )
    return numbers


def _too_small(file: Path) -> InputError:
    return InputError(
        f"{file} has fewer than two stocks with a value in every row, or fewer than two rounds.", code="too-small"
    )


def _has_names(cells: Sequence[str]) -> bool:
    """Whether a line of cells names the columns."""
    stripped = [cell.strip() for cell in cells]
    return stripped[0] == "" or not all(cell in MISSING or is_number(cell) or _is_date(cell) for cell in stripped)


def _is_date(cell: str) -> bool:
    return DATE.fullmatch(cell) is not None


def _are_dates(cells: pa.Array) -> bool:
    """Whether a column has dates, or counts the rows from 0 or 1."""
    if pa.types.is_temporal(cells.type):
        return True
    texts = [str(cell) for cell in cells.to_pylist()]
    if all(_is_date(text) for text in texts):
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
    if all(before < after for before, after in pairwise(times)):
        return slice(None)
    if all(before > after for before, after in pairwise(times)):
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
