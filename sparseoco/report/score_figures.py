"""The histograms of a distribution of scores (see `sparseoco.scoring.distribution`), as stacked bars."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.core.formatting import PERCENT, amount, percent, plural
from sparseoco.report.charts import COLOURS, NEUTRAL, Chart, Level, Series, linear_axis
from sparseoco.scoring.bins import PROBABILITY_BINS
from sparseoco.scoring.distribution import OTHERS

BARS: Final = 64
"""Bars of a histogram, at most."""
TAIL: Final = 0.0005
"""Documents at either end that are drawn within the outermost bars."""
GROUPS: Final = 6
"""Groups of a histogram; of more, the largest, and all others together."""


class Histogram(NamedTuple):
    """Documents by bar and group.

    Parameters
    ----------
    edges : (bars + 1,) increasing.
    names : of the groups, the largest first.
    documents : (groups, bars) int64.
    outside : documents beyond the edges, which are counted in the outermost bars.
    """

    edges: NDArray[np.float64]
    names: list[str]
    documents: NDArray[np.int64]
    outside: int


def histogram(table: pa.Table, key: str, *, probability: bool, border: float | None = None) -> Histogram:
    """The histogram of one column of scores, of at least one document, by the values of `key`.

    That of probabilities goes from 0 to 1; that of other scores has the border, and all documents but the `TAIL`.
    """
    bins = table.group_by([key, "lower", "upper"], use_threads=False).aggregate([("documents", "sum")])
    lower, documents = bins["lower"].to_numpy(), bins["documents_sum"].to_numpy()
    width = float(bins["upper"][0].as_py()) - float(lower[0])
    start = 0.0 if probability else float(lower.min())
    number = np.rint((lower - start) / width).astype(np.int64)
    first, last = (0, PROBABILITY_BINS - 1) if probability else _central(number, documents)
    if border is not None and not probability:
        own = min(max(int((border - start) // width), 0), int(number.max()))
        first, last = min(first, own), max(last, own)
    merged = -(-(last - first + 1) // BARS)
    bars = -(-(last - first + 1) // merged)
    bar = np.clip((number - first) // merged, 0, bars - 1)
    names, group = _groups(bins[key], documents)
    counts = np.zeros((len(names), bars), np.int64)
    np.add.at(counts, (group, bar), documents)
    edges = np.asarray(start + width * (first + merged * np.arange(bars + 1)), np.float64)
    outside = (number < first) | (number >= first + merged * bars)
    return Histogram(edges, names, counts, int(documents[outside].sum()))


def _central(number: NDArray[np.int64], documents: NDArray[np.int64]) -> tuple[int, int]:
    """The first and the last bin of those without `TAIL` of the documents at either end."""
    share = np.cumsum(np.bincount(number, documents)) / documents.sum()
    return int(np.searchsorted(share, TAIL, side="right")), int(np.searchsorted(share, 1 - TAIL))


def _groups(values: pa.ChunkedArray, documents: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """The names of the groups, the largest first, and (rows,) the group of each value."""
    encoded = values.fill_null("").combine_chunks().dictionary_encode()
    names, code = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    sizes = np.bincount(code, documents, minlength=len(names))
    order = sorted(range(len(names)), key=lambda k: (names[k] == OTHERS, -sizes[k], names[k]))
    shown = order if len(order) <= GROUPS and OTHERS not in names else order[: GROUPS - 1]
    place = np.full(len(names), len(shown))
    place[shown] = np.arange(len(shown))
    return [names[k] for k in shown] + [OTHERS] * (len(order) > len(shown)), place[code]


def histogram_figure(
    found: Histogram, name: str, colours: dict[str, str], border: float | None = None, *, probability: bool
) -> Chart:
    """Stacked bars of the share of documents, with the border of what is kept.

    Parameters
    ----------
    name : str
        What the score is.
    colours : dict
        Of groups, by name.
    border : float, optional
    probability : bool
        Whether the score is a probability, which is drawn in per cent.
    """
    scale = 100.0 if probability else 1.0
    edges, total = scale * found.edges, int(found.documents.sum())
    middle, width = (edges[:-1] + edges[1:]) / 2, float(edges[1] - edges[0])
    tops = 100 * np.cumsum(found.documents, axis=0) / total
    text = (lambda value: f"{value:.4g}") if probability else amount
    unit = PERCENT if probability else ""
    series = []
    for k, group in enumerate(found.names):
        base = tops[k - 1] if k else np.zeros(len(middle))
        labels = [
            f"{text(low)} to {text(high)}{unit}\n{plural(int(n), 'document')}, {percent(n / total)}"
            for low, high, n in zip(edges, edges[1:], found.documents[k], strict=False)
        ]
        series.append(
            Series(
                group or "no class",
                middle.tolist(),
                [float(y) if n else None for y, n in zip(tops[k], found.documents[k], strict=True)],
                colours.get(group, NEUTRAL),
                dash="",
                bars=0.92 * width,
                base=base.tolist(),
                heading=group,
                labels=labels,
            )
        )
    levels = [] if border is None else [Level(scale * border, "kept from here", vertical=True)]
    x = linear_axis(f"{name}{', %' if probability else ''}", [], low=float(edges[0]), high=float(edges[-1]))
    y = linear_axis("documents, %", [float(tops.max())], zero=True)
    return Chart(x, y, series, levels, height=340)


def group_colours(*groups: Sequence[Any]) -> dict[str, str]:
    """A colour for each name, the same in all figures of a page."""
    names = list(dict.fromkeys(name for own in groups for name in own if name != OTHERS))
    return {name: COLOURS[k % (len(COLOURS) - 1)] for k, name in enumerate(names)}


def short_names(paths: Sequence[str]) -> list[str]:
    """Paths without the folders that they have in common.

    >>> short_names(["/in/a/x.jsonl", "/in/b/x.jsonl"]), short_names(["/in/a"])
    (['a/x.jsonl', 'b/x.jsonl'], ['a'])
    """
    parts = [path.split("/") for path in paths]
    folders = zip(*(own[:-1] for own in parts), strict=False)
    common = sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, folders))
    return ["/".join(own[common:]) for own in parts]


def documents_by(table: pa.Table, key: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Documents and kept documents of one column of scores by a key, the most documents first, at most `limit` rows."""
    found = table.group_by([key], use_threads=False).aggregate([("documents", "sum"), ("kept", "sum")])
    found = found.rename_columns([key, "documents", "kept"]).sort_by([("documents", "descending"), (key, "ascending")])
    return list(found.slice(0, limit).to_pylist())
