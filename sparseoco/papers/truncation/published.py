"""The methods and printed results of Oiwa, Matsushima and Nakagawa, 2012 (STDA) and 2011 (SGFT)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparseoco.storage.toml_files import read_toml


class PrintedResult(NamedTuple):
    """A cell of a table: error and sparsity, per cent, and the deviation of the error if it is printed."""

    error: float
    sparsity: float
    deviation: float | None = None


class PrintedTable(NamedTuple):
    """A table of a paper: by set of documents, then by method."""

    name: str
    title: str
    methods: tuple[str, ...]
    results: Mapping[str, Mapping[str, PrintedResult]]


STDA_1, STDA_2, STDA_INF = "STDA p = 1", "STDA p = 2", "STDA p = ∞"
BY_FEATURE: Final = ", by feature"
RDA, FOBOS, SG_L1, CUMULATIVE = "RDA", "FOBOS", "SG-L1", "SG-L1, cumulative"
SGFT_1, SGFT_2, SGFT_3, SGFT_INF = "SGFT p = 1", "SGFT p = 2", "SGFT p = 3", "SGFT p = ∞"
SGFT_CUMULATIVE: Final = "SGFT p = 2, cumulative"
OTHER_GAMMAS: Final = ("STDA p = ∞, γ = 0.1", "STDA p = ∞, γ = 10")
NOT_PRINTED: Final = {
    "Not printed: the cumulative forms of §4, on two classes, not of all words": (SGFT_CUMULATIVE, CUMULATIVE),
    "Not printed: β_t = γ√t with other γ, on all sets but those of all words": OTHER_GAMMAS,
}
"""Methods that the papers mention and that their tables do not have: the forms that §4 of 2011 derives, and those of
§V-A of 2012 with β_t ∝ √t."""
UNPRINTED: Final = frozenset(method for methods in NOT_PRINTED.values() for method in methods)
"""They run neither on all words of reviews nor on more than two classes, which take most of the time."""


def _result(cell: Sequence[float]) -> PrintedResult:
    """From (error, sparsity), or, as in 2011, (precision, deviation, sparsity)."""
    if len(cell) == 2:
        return PrintedResult(*cell)
    precision, deviation, sparsity = cell
    return PrintedResult(round(100 - precision, 2), sparsity, deviation)


def _table(table: dict[str, Any]) -> PrintedTable:
    methods = tuple(table["methods"])
    results = {
        data_set: dict(zip(methods, map(_result, cells), strict=True)) for data_set, cells in table["rows"].items()
    }
    return PrintedTable(table["name"], table["title"], methods, results)


_PRINTED = read_toml(Path(__file__).with_name("published.toml"))
STDA_TABLES: Final = tuple(map(_table, _PRINTED["stda"]))
SGFT_TABLES: Final = tuple(map(_table, _PRINTED["sgft"]))
SAMPLES: Final[dict[str, list[tuple[str, int]]]] = _PRINTED["samples"]
"""Table V of 2012, by method: features and their occurrences."""
