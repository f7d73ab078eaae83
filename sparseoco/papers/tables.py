"""Tables that the experiments write: their columns, and their rows in memory."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sparseoco.storage.toml_files import read_toml

Row = dict[str, Any]
Records = dict[str, list[Row]]
"""Rows by the name of their table."""

_STRING, _FLOAT = "string", "float64"
CLAIM_TABLES: Final = {
    "claims": dict.fromkeys(("claim", "paper", "where", "here", "holds"), _STRING),
    "comparisons": {
        **dict.fromkeys(("claim", "where", "what"), _STRING),
        "pairs": "int64",
        **dict.fromkeys(("difference", "low", "high", "margin"), _FLOAT),
        "percent": "bool",
        "p": _FLOAT,
        "holds": _STRING,
    },
}
"""Columns of the tables that all experiments have; `p` is with Holm's correction."""


def read_schemas(module_file: str) -> dict[str, pa.Schema]:
    """The schemas in the tables.toml next to a module, and those of the claims."""
    tables = read_toml(Path(module_file).with_name("tables.toml")) | CLAIM_TABLES
    return {
        name: pa.schema([(column, pa.type_for_alias(kind)) for column, kind in columns.items()])
        for name, columns in tables.items()
    }


def select(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows with these values.

    >>> select([{"set": "books", "lam": 0.1}, {"set": "dvd", "lam": 0.1}], set="dvd")
    [{'set': 'dvd', 'lam': 0.1}]
    """
    return [row for row in rows if all(row[column] == value for column, value in values.items())]


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """The values of a column, in order of appearance."""
    return list(dict.fromkeys(row[column] for row in rows))


def extend(records: Records, more: Records) -> None:
    """Append the rows of each table."""
    for name, rows in more.items():
        records.setdefault(name, []).extend(rows)
