"""The page of a scored corpus."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.core.formatting import PERCENT, amount, capitalised, integer, percent, plural
from sparseoco.report.charts import COLOURS, NEUTRAL, Chart, Level, Plot, Series, linear_axis, plot, render_page
from sparseoco.report.page import Tile
from sparseoco.report.predictions import read_prediction_sets
from sparseoco.report.results import ModelRecord
from sparseoco.scoring.distribution import OTHERS, PROBABILITY_BINS, read_distribution
from sparseoco.scoring.kept import KeptDescription, read_kept
from sparseoco.scoring.parts import ModelEntry, ScoreManifest, read_scores
from sparseoco.storage.commit import commit_bytes, digest_file, read_validated
from sparseoco.storage.locations import Location, location
from sparseoco.training.models import DESCRIPTION

# ----------------------------------------------------------------------------------------------------------------------
# The histograms of a distribution of scores (see `sparseoco.scoring.distribution`), as stacked bars.


BARS: Final = 64
"""Bars of a histogram, at most."""
GROUPS: Final = 6
"""Groups of a histogram; of more, the largest, and all others together."""


class Histogram(NamedTuple):
    """Documents by bar and group.

    Parameters
    ----------
    edges : (bars + 1,) increasing.
    names : of the groups, the largest first.
    documents : (groups, bars) int64.
    probability : whether the score is a probability, which is drawn in per cent.
    """

    edges: NDArray[np.float64]
    names: list[str]
    documents: NDArray[np.int64]
    probability: bool


def histogram(table: pa.Table, key: str, *, probability: bool) -> Histogram:
    """The histogram of one column of scores, of at least one document, by the values of `key`.

    That of probabilities goes from 0 to 1; that of other scores has all documents.
    """
    bins = table.group_by([key, "lower", "upper"], use_threads=False).aggregate([("documents", "sum")])
    lower, documents = bins["lower"].to_numpy(), bins["documents_sum"].to_numpy()
    width = float(bins["upper"][0].as_py()) - float(lower[0])
    start = 0.0 if probability else float(lower.min())
    number = np.rint((lower - start) / width).astype(np.int64)
    last = PROBABILITY_BINS - 1 if probability else int(number.max())
    merged = -(-(last + 1) // BARS)
    bars = -(-(last + 1) // merged)
    # The groups by name, the largest first, and the group of each row.
    encoded = bins[key].fill_null("").combine_chunks().dictionary_encode()
    names, code = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    sizes = np.bincount(code, documents, minlength=len(names))
    order = sorted(range(len(names)), key=lambda k: (names[k] == OTHERS, -sizes[k], names[k]))
    shown = order if len(order) <= GROUPS and OTHERS not in names else order[: GROUPS - 1]
    group = np.full(len(names), len(shown))
    group[shown] = np.arange(len(shown))
    names = [names[k] for k in shown] + [OTHERS] * (len(order) > len(shown))
    counts = np.zeros((len(names), bars), np.int64)
    np.add.at(counts, (group[code], number // merged), documents)
    edges = np.asarray(start + width * merged * np.arange(bars + 1), np.float64)
    return Histogram(edges, names, counts, probability)


def histogram_figure(found: Histogram, name: str, colours: dict[str, str], border: float | None = None) -> Chart:
    """Stacked bars of the share of documents, with the border of what is kept.

    Parameters
    ----------
    name : str
        What the score is.
    colours : dict
        Of groups, by name.
    border : float, optional
    """
    scale = 100.0 if found.probability else 1.0
    edges, total = scale * found.edges, int(found.documents.sum())
    middle, width = (edges[:-1] + edges[1:]) / 2, float(edges[1] - edges[0])
    tops = 100 * np.cumsum(found.documents, axis=0) / total
    text = (lambda value: f"{value:.4g}") if found.probability else amount
    unit = PERCENT if found.probability else ""
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
    x = linear_axis(f"{name}{', %' if found.probability else ''}", [], low=float(edges[0]), high=float(edges[-1]))
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


# ----------------------------------------------------------------------------------------------------------------------
# The page of a folder of scores: what was scored, how the scores are distributed, and what is kept.


PAGE: Final = "scores.html"
ROWS: Final = 50
"""Sources, or classes, in a table, at most."""


class Selection(NamedTuple):
    """What is kept of documents whose classes are known.

    Parameters
    ----------
    name : what the documents are.
    documents, wanted : all documents, and those of the class that is kept.
    kept, hits : likewise, of the kept ones.
    """

    name: str
    documents: int
    wanted: int
    kept: int
    hits: int

    @property
    def precision(self) -> float | None:
        """The share of the wanted documents among the kept ones."""
        return self.hits / self.kept if self.kept else None

    @property
    def recall(self) -> float | None:
        """The share of the kept documents among the wanted ones."""
        return self.hits / self.wanted if self.wanted else None

    @property
    def interval(self) -> str:
        """The 95 % confidence interval of the precision, Wilson's."""
        if not self.kept:
            return ""
        from scipy.stats import binomtest  # takes a second to import

        found = binomtest(self.hits, self.kept).proportion_ci(method="wilson")
        return f"{percent(float(found.low))} to {percent(float(found.high))}"


def write_scores_page(folder: Location) -> Location:
    """Write FOLDER/scores.html, unless it is up to date; returns its path.

    Reads the manifest, the distribution, the description of the kept documents and, to say what precision is expected
    of them, the predictions of the model's run on documents that it did not learn from. Equal files give equal bytes.

    Raises `DamagedError` for a file that is missing or corrupt, `StorageError` if one cannot be read or written.
    """
    scores = read_scores(folder)
    assert scores is not None
    kept = read_kept(folder)
    manifest, distribution = scores.manifest, read_distribution(folder)
    # The score that decides what is kept, or the first one: its rows count every document once.
    first = distribution["column"][0].as_py() if len(distribution) else ""
    main = _column(distribution, manifest.models[0].name, first if kept is None else kept.ranked_by)
    key = "label" if manifest.labelled else "prediction"
    promised = None if kept is None else promise(kept, manifest.models[0])
    found = None if kept is None or not manifest.labelled else outcome(main, kept)
    context = {
        "name": folder.name,
        "manifest": manifest,
        "kept": kept,
        "tiles": _tiles(manifest, kept, found),
        "plots": _plots(distribution, main, kept, manifest),
        "key": key,
        "promise": promised,
        "outcome": found,
        "selections": [own for own in (promised, found) if own is not None],
        "classes": documents_by(main, key, ROWS),
        "sources": documents_by(main, "source", ROWS),
        "n_sources": int(pc.count_distinct(main["source"]).as_py()),
    }
    text, page = render_page("scores", context).encode(), folder / PAGE
    if not page.exists() or page.read_bytes() != text:
        commit_bytes(page, text)
    return page


def promise(kept: KeptDescription, model: ModelEntry) -> Selection | None:
    """What the same share of the documents that the model's run did not learn from is; None if they are not known."""
    folder = location(model.folder)
    run, path = folder.parent, folder / DESCRIPTION
    if kept.class_name is None or not kept.documents or not (run / "run.json").exists():
        return None
    if not path.exists() or digest_file(path) != model.sha256:
        return None
    classes = model.classes
    wanted = classes.index(kept.class_name)
    sets = read_prediction_sets(run, read_validated(path, ModelRecord), classes, wanted)
    if not sets:
        return None
    # The documents with the best scores, as large a share as is kept, and those that tie with the last of them.
    found = sets[-1]
    scores, truth = found.score(wanted), found.truth(wanted)
    rows = -(-kept.rows * found.rows // kept.documents)
    chosen = scores >= np.sort(scores)[::-1][rows - 1] if rows else np.zeros(found.rows, np.bool_)
    hits = int((chosen & truth).sum())
    return Selection(f"{found.name} documents of the run", found.rows, int(truth.sum()), int(chosen.sum()), hits)


def outcome(main: pa.Table, kept: KeptDescription) -> Selection | None:
    """What is kept of the scored documents with labels, from the distribution of one score; None if there are none."""
    rows = [row for row in documents_by(main, "label") if row["label"] is not None]
    if kept.class_name is None or not rows:
        return None
    wanted = [row for row in rows if row["label"] == kept.class_name]
    documents, chosen = (sum(row[name] for row in rows) for name in ("documents", "kept"))
    right, hits = (sum(row[name] for row in wanted) for name in ("documents", "kept"))
    return Selection("scored documents with labels", documents, right, chosen, hits)


def _column(distribution: pa.Table, model: str, column: str) -> pa.Table:
    return distribution.filter((pc.field("model") == model) & (pc.field("column") == column))


def _plots(distribution: pa.Table, main: pa.Table, kept: KeptDescription | None, manifest: ScoreManifest) -> list[Plot]:
    """The histograms: of the score that decides by class and by source, then of the other ones by class."""
    if not main.num_rows:
        return []
    shown = distribution.select(["model", "column"]).group_by(["model", "column"], use_threads=False).aggregate([])
    names = [(row["model"], row["column"]) for row in shown.to_pylist()]
    own = main["model"][0].as_py(), main["column"][0].as_py()
    names.sort(key=lambda name: name != own)
    key, words = ("label", "label") if manifest.labelled else ("prediction", "predicted class")
    classes = sorted(name for name in distribution[key].unique().to_pylist() if name is not None)
    border = None if kept is None else kept.value
    plots = []
    for k, (model, column) in enumerate(names):
        title = capitalised(column)
        title += f", model {model}" if len(manifest.models) > 1 else ""
        table, level = _column(distribution, model, column), border if (model, column) == own else None
        plots.append(_plot(f"score{k}", f"{title}, by {words}", table, key, group_colours(classes), level))
        if k == 0 and manifest.n_sources > 1:
            plots.append(_plot("sources", f"{title}, by source", table, "source", {}, level))
    return plots


def _plot(name: str, title: str, table: pa.Table, key: str, colours: dict[str, str], border: float | None) -> Plot:
    """A histogram; that by source has colours of its own."""
    column = table["column"][0].as_py()
    probability = column.split(" of ")[0] in ("probability", "largest probability")
    found = histogram(table, key, probability=probability)
    if key == "source":
        named = [name for name in found.names if name != OTHERS]
        found = found._replace(names=[*short_names(named), *found.names[len(named) :]])
        colours = group_colours(found.names)
    return plot(name, title, histogram_figure(found, column, colours, border))


def _tiles(manifest: ScoreManifest, kept: KeptDescription | None, found: Selection | None) -> list[Tile]:
    tiles = [Tile(integer(manifest.rows), "documents scored")]
    if kept is not None:
        tiles.append(Tile(integer(kept.rows), f"documents kept, {percent(kept.share)}"))
    if found is not None and found.precision is not None:
        tiles += [
            Tile(percent(found.precision), "precision among the kept documents"),
            Tile(percent(found.wanted / found.documents), "share of that class in all documents"),
        ]
    tiles.append(Tile(integer(manifest.n_sources), "source" if manifest.n_sources == 1 else "sources"))
    tiles.append(Tile(integer(manifest.quarantined_rows), "malformed rows left out"))
    return tiles
