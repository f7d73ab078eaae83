"""The distribution of scores, by bins."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.errors import DamagedError
from sparseoco.scoring import parts as scored
from sparseoco.scoring.kept import KeptDescription, Ranking, class_ranking
from sparseoco.storage.commit import digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.storage.tables import read_parquet_file, write_parquet
from sparseoco.text.passes import TextJob

# ----------------------------------------------------------------------------------------------------------------------
# Counts of documents in bins of equal width, which can be merged in any order: the result depends on all values alone.
#
# Probabilities have `PROBABILITY_BINS` bins. Other scores have bins from i · 2^k to (i + 1) · 2^k with the smallest
# scale k for which at most `MAX_BINS` bins contain all values: counts at a finer scale are merged to a coarser one
# exactly.


PROBABILITY_BINS: Final = 50
MAX_BINS: Final = 256
KEYS: Final = ("source", "prediction", "label", "bin")
BINS_SCHEMA: Final = pa.schema(
    {
        "source": pa.int64(),
        "prediction": pa.string(),
        "label": pa.string(),
        "bin": pa.int64(),
        "documents": pa.int64(),
        "kept": pa.int64(),
    }
)
_EDGES: Final = np.arange(PROBABILITY_BINS + 1) / PROBABILITY_BINS
_LARGEST: Final = 2.0**1023  # larger and infinite values count as it: bounds are finite
_PRECISION: Final = 52  # bits of i: floor(value / 2^k) is exact
_SMALLEST: Final = 2.0**-12  # of smaller values alone, bins are no finer


class BinCounts(NamedTuple):
    """Documents of each source, predicted class, label and bin, and those that are kept: a table of `BINS_SCHEMA`."""

    scale: int
    table: pa.Table


def bin_numbers(values: NDArray[np.float64], *, probability: bool) -> tuple[int, NDArray[np.int64]]:
    """The scale for some values, at least one, and (rows,) the number i of the bin of each."""
    if probability:
        return 0, np.searchsorted(_EDGES[1:-1], values, side="right").astype(np.int64)
    values = np.clip(values, -_LARGEST, _LARGEST)
    ends = np.array([values.min(), values.max()])
    scale = int(np.frexp(max(np.abs(ends).max(), _SMALLEST))[1]) - _PRECISION
    while np.ptp(_floor(ends, scale)) >= MAX_BINS:
        scale += 1
    return scale, _floor(values, scale)


def bin_bounds(numbers: NDArray[np.int64], scale: int, *, probability: bool) -> tuple[NDArray[np.float64], ...]:
    """(rows,): the lower and upper bounds of bins."""
    if probability:
        return _EDGES[numbers], _EDGES[numbers + 1]
    return np.ldexp(numbers.astype(np.float64), scale), np.ldexp(numbers + 1.0, scale)


def merge_counts(counts: Sequence[BinCounts]) -> BinCounts:
    """The sum of counts, at least one."""
    scale = max(found.scale for found in counts)
    table = _added(pa.concat_tables([_coarser(found.table, scale - found.scale) for found in counts]))
    numbers = table["bin"].to_numpy()
    low, high, shift = int(numbers.min()), int(numbers.max()), 0
    while (high >> shift) - (low >> shift) >= MAX_BINS:
        shift += 1
    return BinCounts(scale + shift, _added(_coarser(table, shift)) if shift else table)


def _floor(values: NDArray[np.float64], scale: int) -> NDArray[np.int64]:
    """floor(value / 2^scale), also where the quotient underflows."""
    numbers = np.floor(np.ldexp(values, -scale))
    return np.where(values < 0, np.minimum(numbers, -1), numbers).astype(np.int64)


def _coarser(table: pa.Table, shift: int) -> pa.Table:
    """Counts whose scale is larger by `shift`."""
    if not shift:
        return table
    numbers = table["bin"].to_numpy() >> min(shift, 63)
    return table.set_column(table.column_names.index("bin"), "bin", pa.array(numbers))


def _added(table: pa.Table) -> pa.Table:
    """One row for each of `KEYS`."""
    sums = [(name, "sum") for name in ("documents", "kept")]
    found = table.group_by(list(KEYS), use_threads=False).aggregate(sums)
    return found.rename_columns([name.removesuffix("_sum") for name in found.column_names]).select(BINS_SCHEMA.names)


# ----------------------------------------------------------------------------------------------------------------------
# The distribution of the scores, by source, predicted class and true label, and what of it is kept.
#
# FOLDER/distribution.parquet
#
# model, column  string, the model, and the score in words, such as `probability of spam`
# source         string, path of the input; `all others` for those beyond the `MAX_SOURCES` with the most documents
# prediction     string, predicted class; of label sets, whether the shown class is predicted; null for numbers
# label          string, likewise, if documents were scored with their labels; otherwise null
# lower, upper   float64, bounds of a bin: lower <= score < upper, except that a probability of 1 is in the last bin
# documents      int64
# kept           int64, those of them that are kept; null if documents are not selected
#
# The scores of a model are its probabilities, without them margins: of the class that is kept, of the positive class
#     of
# two, or otherwise of the class that has the largest one; and the scores that decide what is kept.


DISTRIBUTION: Final = "distribution.parquet"
DISTRIBUTION_SCHEMA: Final = pa.schema(
    {
        "model": pa.string(),
        "column": pa.string(),
        "source": pa.string(),
        "prediction": pa.string(),
        "label": pa.string(),
        "lower": pa.float64(),
        "upper": pa.float64(),
        "documents": pa.int64(),
        "kept": pa.int64(),
    }
)
MAX_SOURCES: Final = 1000
OTHERS: Final = "all others"
"""The name of all other sources: the size of the file does not grow with their number."""
TOGETHER: Final = 64
"""Counts of tasks that are summed together: all are not in memory."""
_INPUTS: Final = b"sparseoco"
"""The key of the metadata: the digests of what was counted, as JSON."""


class ShownScore(NamedTuple):
    """A score of documents by a model.

    Parameters
    ----------
    model : str
    prefix : str
        Of the columns of the model.
    name : str
        The score in words.
    rankings : tuple of Ranking
        The columns of which it is the largest value.
    probability : bool
    class_name : str or None
        Its class, if it is of one.
    label_sets : bool
    """

    model: str
    prefix: str
    name: str
    rankings: tuple[Ranking, ...]
    probability: bool
    class_name: str | None
    label_sets: bool

    def values(self, table: pa.Table) -> NDArray[np.float64]:
        """(rows,): the score of documents."""
        columns = [ranking.values(table[ranking.column]) for ranking in self.rankings]
        return np.asarray(np.max(columns, axis=0), np.float64)

    def names(self, classes: pa.ChunkedArray) -> pa.Array:
        """(rows,): the predicted classes or labels of documents, as in the file."""
        found = classes.combine_chunks()
        if not self.label_sets:
            return pa.nulls(len(found), pa.string()) if pa.types.is_floating(found.type) else found.cast(pa.string())
        if self.class_name is None:
            return pa.nulls(len(found), pa.string())
        given = np.zeros(len(found), np.bool_)
        hits = pc.equal(found.flatten(), self.class_name)
        given[pc.list_parent_indices(found).filter(hits).to_numpy()] = True
        names = pc.if_else(pa.array(given), self.class_name, f"not {self.class_name}")
        return pc.if_else(found.is_valid(), names, None)


def shown_scores(manifest: scored.ScoreManifest, kept: KeptDescription | None) -> list[ShownScore]:
    """The scores whose distribution is counted."""
    wanted = None if kept is None else kept.class_name
    scores = []
    for model in manifest.models:
        name = wanted if wanted in model.classes else model.positive_class
        kind = "probability" if model.probabilities else "margin"
        names = (name,) if name is not None or not model.classes else model.classes  # the largest of all classes
        rankings = tuple(class_ranking(manifest.models, model, kind, own) for own in names)
        words = rankings[0].ranked_by if len(rankings) == 1 else f"largest {kind}"
        prefix = scored.column_prefix(model.name, len(manifest.models))
        shown = ShownScore(model.name, prefix, words, rankings, model.probabilities, name, model.label_sets)
        scores.append(shown)
        if kept is not None and model == manifest.models[0] and (kept.ranking,) != shown.rankings:
            probability = model.probabilities and kept.ranked_by.startswith("probability")
            scores.append(shown._replace(name=kept.ranked_by, rankings=(kept.ranking,), probability=probability))
    return scores


def write_distribution(job: TextJob, scores: scored.Listed, kept: KeptDescription | None) -> None:
    """Write the distribution, unless it is that of these scores and kept documents already.

    Raises `DamagedError` for a part that is missing or corrupt, `StorageError` for a file that cannot be written.
    """
    manifest, path = scores.manifest, job.out / DISTRIBUTION
    inputs = {"scores": manifest.digest, "kept": None if kept is None else digest_value(kept.model_dump(mode="json"))}
    try:
        metadata = read_parquet_file(path).schema.metadata if path.exists() else None
    except DamagedError:
        metadata = None  # it is written again
    if json.loads((metadata or {}).get(_INPUTS, b"null")) == inputs:
        return
    shown = shown_scores(manifest, kept)
    totals: list[list[BinCounts]] = [[] for _ in shown]
    parts, sources = _of_largest_sources(scores)
    for found in scored.over_parts(job, parts, "distribution", count_scores, shown, kept, manifest.labelled):
        for total, counts in zip(totals, found, strict=False):  # nothing is found in parts without documents
            total.append(counts)
            if len(total) == TOGETHER:
                total[:] = [merge_counts(total)]
    tables = [
        _described(score, merge_counts(total), sources, selected=kept is not None)
        for score, total in zip(shown, totals, strict=True)
        if total
    ]
    table = pa.concat_tables([DISTRIBUTION_SCHEMA.empty_table(), *tables])
    write_parquet(path, table.replace_schema_metadata({_INPUTS: json.dumps(inputs).encode()}))


def _of_largest_sources(scores: scored.Listed) -> tuple[scored.PartTable, pa.Array]:
    """The parts, by the positions of their sources in an array of names, in which all but the largest are one."""
    rows = scores.sources.column("rows")
    chosen = np.sort(np.argsort(-rows, kind="stable")[:MAX_SOURCES])
    place = np.full(rows.size, chosen.size)
    place[chosen] = np.arange(chosen.size)
    names = scores.sources.table["path"].take(pa.array(chosen)).to_pylist()
    table = scores.parts.table
    sources = pa.array(place[scores.parts.column("source")], pa.int64())
    parts = scored.PartTable(table.set_column(table.column_names.index("source"), "source", sources))
    return parts, pa.array([*names, OTHERS], pa.string())


def read_distribution(folder: Location) -> pa.Table:
    """The distribution of a folder of scores. Raises `StorageError`."""
    return read_parquet_file(folder / DISTRIBUTION)


def count_scores(
    out: str, parts: list[scored.PartEntry], shown: list[ShownScore], selected: KeptDescription | None, labelled: bool
) -> list[BinCounts]:
    """The counts of the documents of some parts, for each of the shown scores; empty if there are no documents."""
    columns = {ranking.column for score in shown for ranking in score.rankings} | ({"label"} if labelled else set())
    columns |= {f"{score.prefix}prediction" for score in shown}
    if selected is not None:
        columns.add(selected.column)
    found = []
    for part in parts:
        if part.rows:
            table = scored.read_part(location(out) / scored.PARTS / part.file, sorted(columns))
            kept = np.zeros(part.rows, np.bool_)
            if selected is not None:
                kept = selected.keeps(selected.values(table[selected.column]))
            found.append([count_bins(score, table, part.source, kept) for score in shown])
    return [merge_counts(own) for own in zip(*found, strict=True)]


def count_bins(score: ShownScore, table: pa.Table, source: int, kept: NDArray[np.bool_]) -> BinCounts:
    """The counts of documents, at least one, of one source."""
    scale, numbers = bin_numbers(score.values(table), probability=score.probability)
    labels = score.names(table["label"]) if "label" in table.column_names else pa.nulls(len(table), pa.string())
    predictions, ones = score.names(table[f"{score.prefix}prediction"]), np.ones(len(table), np.int64)
    columns = [np.full(len(table), source), predictions, labels, numbers, ones, kept.astype(np.int64)]
    return BinCounts(scale, _added(pa.table([pa.array(column) for column in columns], schema=BINS_SCHEMA)))


def _described(score: ShownScore, counts: BinCounts, sources: pa.Array, *, selected: bool) -> pa.Table:
    """Counts as rows of the file, in the order of sources, classes and bins."""
    table = counts.table.sort_by([(name, "ascending") for name in KEYS])
    lower, upper = bin_bounds(table["bin"].to_numpy(), counts.scale, probability=score.probability)
    columns = {
        "model": pa.repeat(score.model, len(table)),
        "column": pa.repeat(score.name, len(table)),
        "source": sources.take(table["source"]),
        "prediction": table["prediction"],
        "label": table["label"],
        "lower": pa.array(lower),
        "upper": pa.array(upper),
        "documents": table["documents"],
        "kept": table["kept"] if selected else pa.nulls(len(table), pa.int64()),
    }
    return pa.table(columns, schema=DISTRIBUTION_SCHEMA)
