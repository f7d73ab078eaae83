"""The page of a folder of scores: what was scored, how the scores are distributed, and what is kept."""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparseoco.core.formatting import amount, capitalised, integer, percent, plural
from sparseoco.report.html import Plot, plot, render_page
from sparseoco.report.overview import Tile
from sparseoco.report.predictions import PredictionSet, read_prediction_sets
from sparseoco.report.score_figures import (
    documents_by,
    group_colours,
    histogram,
    histogram_figure,
    short_names,
)
from sparseoco.scoring.distribution import OTHERS, read_distribution
from sparseoco.scoring.kept import KeptDescription, read_kept
from sparseoco.scoring.manifest import Listed, ModelEntry, ScoreManifest, read_scores
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.selection import kept_class, kept_model
from sparseoco.storage.commit import commit_bytes, digest_file, read_json
from sparseoco.storage.locations import Location, location
from sparseoco.training.models.description import DESCRIPTION

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


class Keeping(NamedTuple):
    """The kept documents, the model that ranks them, and their class; numbers have none."""

    kept: KeptDescription
    model: ModelEntry
    class_name: str | None

    @classmethod
    def of(cls, kept: KeptDescription, manifest: ScoreManifest) -> "Keeping":
        """The kept documents of a folder of scores."""
        options = ScoreOptions.model_validate(kept.asked)
        model = kept_model(manifest.models, options)
        return cls(kept, model, kept_class(model, options.keep_class))

    @property
    def share(self) -> float:
        """The share of the documents that is kept."""
        return self.kept.rows / self.kept.documents if self.kept.documents else 0.0

    @property
    def border(self) -> str:
        """The border in words."""
        words = "at least" if self.kept.included else "above"
        return f"{self.kept.ranked_by} {words} {amount(self.kept.value)}"


def write_scores_page(folder: Location) -> Location:
    """Write FOLDER/scores.html, unless it is up to date; returns its path.

    Reads the manifest, the distribution, the description of the kept documents and, to say what precision is expected
    of them, the predictions of the model's run on documents that it did not learn from. Equal files give equal bytes.

    Raises `DamagedError` for a file that is missing or corrupt, `StorageError` if one cannot be read or written.
    """
    scores = read_scores(folder)
    assert scores is not None
    kept = read_kept(folder)
    keeping = None if kept is None else Keeping.of(kept, scores.manifest)
    text = render_scores(folder.name, scores, keeping, read_distribution(folder)).encode()
    page = folder / PAGE
    if not page.exists() or page.read_bytes() != text:
        commit_bytes(page, text)
    return page


def render_scores(name: str, scores: Listed, keeping: Keeping | None, distribution: pa.Table) -> str:
    """The page as text."""
    manifest = scores.manifest
    main = _main_column(distribution, keeping, manifest)
    key = "label" if manifest.labelled else "prediction"
    promised = None if keeping is None else promise(keeping)
    found = None if keeping is None or not manifest.labelled else outcome(main, keeping)
    context = {
        "name": name,
        "manifest": manifest,
        "keeping": keeping,
        "tiles": _tiles(manifest, keeping, found),
        "plots": _plots(distribution, main, key, keeping, manifest),
        "key": key,
        "promise": promised,
        "outcome": found,
        "selections": [own for own in (promised, found) if own is not None],
        "classes": documents_by(main, key, ROWS),
        "sources": documents_by(main, "source", ROWS),
        "n_sources": int(pc.count_distinct(main["source"]).as_py()),
    }
    return render_page("scores", context)


def promise(keeping: Keeping) -> Selection | None:
    """What the same share of the documents that the model's run did not learn from is; None if they are not known."""
    folder = location(keeping.model.folder)
    run, path = folder.parent, folder / DESCRIPTION
    if keeping.class_name is None or not keeping.kept.documents or not (run / "run.json").exists():
        return None
    if not path.exists() or digest_file(path) != keeping.model.sha256:
        return None
    classes = keeping.model.classes
    wanted = classes.index(keeping.class_name)
    sets = read_prediction_sets(run, read_json(path), classes, wanted)
    return _best(sets[-1], wanted, keeping.kept) if sets else None


def _best(found: PredictionSet, wanted: int, kept: KeptDescription) -> Selection:
    """The documents with the best scores, as large a share as is kept, and those that tie with the last of them."""
    scores, truth = found.score(wanted), found.truth(wanted)
    rows = -(-kept.rows * found.rows // kept.documents)
    chosen = scores >= np.sort(scores)[::-1][rows - 1] if rows else np.zeros(found.rows, np.bool_)
    hits = int((chosen & truth).sum())
    return Selection(f"{found.name} documents of the run", found.rows, int(truth.sum()), int(chosen.sum()), hits)


def outcome(main: pa.Table, keeping: Keeping) -> Selection | None:
    """What is kept of the scored documents with labels, from the distribution of one score; None if there are none."""
    rows = [row for row in documents_by(main, "label") if row["label"] is not None]
    if keeping.class_name is None or not rows:
        return None
    wanted = [row for row in rows if row["label"] == keeping.class_name]
    documents, kept = (sum(row[name] for row in rows) for name in ("documents", "kept"))
    right, hits = (sum(row[name] for row in wanted) for name in ("documents", "kept"))
    return Selection("scored documents with labels", documents, right, kept, hits)


def _main_column(distribution: pa.Table, keeping: Keeping | None, manifest: ScoreManifest) -> pa.Table:
    """The rows of the score that decides what is kept, or of the first one: they count every document once."""
    if keeping is not None:
        return _column(distribution, keeping.model.name, keeping.kept.ranked_by)
    first = distribution.slice(0, 1).to_pylist()
    return _column(distribution, manifest.models[0].name, first[0]["column"] if first else "")


def _column(distribution: pa.Table, model: str, column: str) -> pa.Table:
    return distribution.filter((pc.field("model") == model) & (pc.field("column") == column))


def _plots(
    distribution: pa.Table, main: pa.Table, key: str, keeping: Keeping | None, manifest: ScoreManifest
) -> list[Plot]:
    """The histograms: of the score that decides by class and by source, then of the other ones by class."""
    if not main.num_rows:
        return []
    shown = distribution.select(["model", "column"]).group_by(["model", "column"], use_threads=False).aggregate([])
    names = [(row["model"], row["column"]) for row in shown.to_pylist()]
    own = main["model"][0].as_py(), main["column"][0].as_py()
    names.sort(key=lambda name: name != own)
    classes = sorted(name for name in distribution[key].unique().to_pylist() if name is not None)
    border = None if keeping is None else keeping.kept.value
    plots = []
    for k, (model, column) in enumerate(names):
        title = capitalised(column)
        title += f", model {model}" if len(manifest.models) > 1 else ""
        table, level = _column(distribution, model, column), border if (model, column) == own else None
        words = "label" if key == "label" else "predicted class"
        plots.append(_plot(f"score{k}", f"{title}, by {words}", table, key, group_colours(classes), level))
        if k == 0 and manifest.n_sources > 1:
            plots.append(_plot("sources", f"{title}, by source", table, "source", None, level))
    return plots


def _plot(
    name: str, title: str, table: pa.Table, key: str, colours: dict[str, str] | None, border: float | None
) -> Plot:
    column = table["column"][0].as_py()
    probability = column.split(" of ")[0] in ("probability", "largest probability")
    found = histogram(table, key, probability=probability, border=border)
    if key == "source":
        named = [name for name in found.names if name != OTHERS]
        found = found._replace(names=[*short_names(named), *found.names[len(named) :]])
    colours = group_colours(found.names) if colours is None else colours
    more = f" (outermost bars: with {plural(found.outside, 'document')} beyond them)" if found.outside else ""
    chart = histogram_figure(found, column, colours, border, probability=probability)
    return plot(name, f"{title}{more}", chart)


def _tiles(manifest: ScoreManifest, keeping: Keeping | None, found: Selection | None) -> list[Tile]:
    tiles = [Tile(integer(manifest.rows), "documents scored")]
    if keeping is not None:
        kept = keeping.kept
        tiles.append(Tile(integer(kept.rows), f"documents kept, {percent(keeping.share)}"))
    if found is not None and found.precision is not None:
        tiles += [
            Tile(percent(found.precision), "precision among the kept documents"),
            Tile(percent(found.wanted / found.documents), "share of that class in all documents"),
        ]
    tiles.append(Tile(integer(manifest.n_sources), "source" if manifest.n_sources == 1 else "sources"))
    tiles.append(Tile(integer(manifest.quarantined_rows), "malformed rows left out"))
    return tiles
