"""Rows of the tables that the experiments write, in memory, and means of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]
Records = dict[str, list[Row]]
"""Rows by the name of their table."""


def select(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows with these values.

    >>> select([{"set": "books", "lam": 0.1}, {"set": "dvd", "lam": 0.1}], set="dvd")
    [{'set': 'dvd', 'lam': 0.1}]
    """
    return [row for row in rows if all(row[column] == value for column, value in values.items())]


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """The values of a column, in order of appearance."""
    return list(dict.fromkeys(row[column] for row in rows))


def grouped(rows: Iterable[Row], *columns: str) -> list[list[Row]]:
    """The rows of equal values in these columns, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return list(groups.values())


def column(rows: Iterable[Row], name: str) -> list[Any]:
    """The values of a column."""
    return [row[name] for row in rows]


def as_rows(columns: Mapping[str, Any]) -> list[Row]:
    """The rows of columns, which are arrays or sequences of one length.

    >>> as_rows({"T": [1, 2], "loss": np.array([0.5, 0.25])})
    [{'T': 1, 'loss': 0.5}, {'T': 2, 'loss': 0.25}]
    """
    lists = (values.tolist() if isinstance(values, np.ndarray) else values for values in columns.values())
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def mark_chosen(rows: Sequence[Row], value: str, least: str, mark: str, *groups: str) -> None:
    """Add `chosen` to the rows, whether theirs is, of their group, the value of the least mean at the last mark, and
    `at_edge`, whether that is the least or the largest value: the best may lie beyond it."""
    for group in grouped(rows, *groups):
        last = select(group, **{mark: max(column(group, mark))})
        best = min(grouped(last, value), key=lambda alike: mean(column(alike, least)))[0][value]
        values = sorted(set(column(group, value)))
        for row in group:
            row["chosen"] = row[value] == best
            row["at_edge"] = len(values) > 1 and best in (values[0], values[-1])


def mean_rows(rows: Sequence[Row], by: Sequence[str], means: Sequence[str], errors: Sequence[str] = ()) -> list[Row]:
    """The first row of each group with the means of columns, None where it has none, and the standard errors of some as
    ``NAME_error``."""
    return [
        own[0]
        | {name: None if own[0][name] is None else mean(column(own, name)) for name in means}
        | {f"{name}_error": mean_and_error(column(own, name))[1] for name in errors}
        for own in grouped(rows, *by)
    ]


def extend(records: Records, more: Records) -> None:
    """Append the rows of each table."""
    for name, rows in more.items():
        records.setdefault(name, []).extend(rows)


def mean(values: Iterable[float]) -> float:
    """The mean of one value or more."""
    listed = list(values)
    return float(sum(listed)) / len(listed)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error, of two values or more."""
    average = sum(values) / len(values)
    return average, math.sqrt(sum((value - average) ** 2 for value in values) / (len(values) - 1) / len(values))
