"""The report of a run."""

import json
import math
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.formatting import (
    capitalised,
    duration,
    integer,
    metric_figures,
    metric_name,
    metric_with_error,
    metric_with_interval,
    percent,
    plural,
)
from sparseoco.report import figures, predictions
from sparseoco.report.charts import Chart, draw_plots, render_page, styles
from sparseoco.report.predictions import PredictionSet
from sparseoco.report.results import (
    LeaderboardRow,
    Results,
    best_of_each,
    check_results,
    leaderboard_rows,
    pareto_front,
    read_mistake_texts,
    read_results,
    trains_on_all_documents,
    write_leaderboard,
)
from sparseoco.search.selection import mean_error
from sparseoco.storage.commit import commit_bytes, exclusive_lock
from sparseoco.storage.locations import Location, location
from sparseoco.storage.tables import Row
from sparseoco.training import metrics
from sparseoco.training.options import METRICS

# ----------------------------------------------------------------------------------------------------------------------
# How good the chosen model is: held-out and test metrics side by side, and precision and recall of every class.


def held_out_metric(results: Results, name: str) -> tuple[float, float | None] | None:
    """A metric of the chosen configuration at its epoch: the mean over folds and its standard error."""
    column = f"held_out_{name}"
    if results.best is None or column not in results.metrics.column_names:
        return None
    chosen = results.best.configuration, results.best.epochs
    rows = results.metrics.select(["configuration", "epoch", column]).to_pylist()
    values = [row[column] for row in rows if (row["configuration"], row["epoch"]) == chosen]
    if not values or any(value is None or not math.isfinite(value) for value in values):
        return None
    return _mean(values)


def _mean(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean over folds, and its standard error unless there is one fold only."""
    return math.fsum(values) / len(values), mean_error(values) if len(values) > 1 else None


def at_threshold(sets: Sequence[PredictionSet]) -> dict[str, tuple[float, float | None]]:
    """The metrics of the held-out predictions at the model's threshold, as `held_out_metric`: error, F1 and others.

    Empty if the threshold is 0, at which the search has measured them.
    """
    found = sets[0] if sets else None
    if found is None or found.found.folds is None or not found.cut.any():
        return {}
    kind = metrics.label_kind(len(found.classes), label_sets=found.several)
    rows = []
    for fold in np.unique(found.found.folds):
        own = found.found.folds == fold
        wrong = found.found.labels[own] != found.predicted[own]
        error = float(wrong.any(axis=1).mean()) if found.several else None
        rows.append(metrics.count_metrics(found.counts(own), kind, found.positive, error=error))
    return {name: _mean([row[name] for row in rows]) for name in rows[0]}


def baseline_error(results: Results) -> float | None:
    """Error of always predicting the largest class of the corpus, or no label; None if it is not known."""
    if results.several:
        found = held_out_metric(results, "majority_error")
        return None if found is None else found[0]
    rows = [record.rows for record in results.run.corpus.classes]
    return metrics.majority_error(rows) if sum(rows) else None


def test_metric(results: Results, name: str) -> float | None:
    """A metric of the model on the test set."""
    if results.evaluation is None:
        return None
    recorded = results.evaluation.model_dump()
    value = recorded.get(name, (recorded.get("metrics") or {}).get(name))
    return float(value) if isinstance(value, int | float) else None


def test_interval(results: Results, name: str) -> tuple[float, float] | None:
    """The 95 % confidence interval of a metric on the test set."""
    return None if results.evaluation is None else results.evaluation.intervals.get(name)


def metric_rows(results: Results, sets: Sequence[PredictionSet]) -> list[Row]:
    """Every metric that was measured on the chosen model, the one it was selected by first; at its threshold.

    As text: on held-out folds, on the test set, and of a model without features.
    """
    selected, positive = results.metric, predictions.positive_index(results)
    sizes = [record.rows for record in results.run.corpus.classes]
    rows, thresholded = [], at_threshold(sets)
    for name in sorted(METRICS, key=lambda name: (name != selected, name != "error")):
        held_out, test = thresholded.get(name) or held_out_metric(results, name), test_metric(results, name)
        if name == "loss" or (held_out is None and test is None):
            continue
        rows.append(
            {
                "label": metric_name(name),
                "held_out": metric_with_error(name, *(held_out or (None, None))),
                "test": metric_with_interval(name, test, test_interval(results, name)),
                "baseline": metric_with_error(name, _baseline(results, name, sizes, positive, sets), None),
                "selected": name == selected,
            }
        )
    return rows


def _baseline(
    results: Results, name: str, sizes: Sequence[int], positive: int, sets: Sequence[PredictionSet]
) -> float | None:
    """A metric of a model without features, which predicts the largest class, of several labels none, or the mean."""
    if results.numbers:
        return predictions.mean_baseline(sets).get(name) if sets else None
    if not results.several:
        return metrics.baseline(name, sizes, positive)
    if name == "error":
        return baseline_error(results)
    return {"roc_auc": 0.5, "f1_macro": 0.0, "f1_micro": 0.0, "f1_weighted": 0.0}.get(name)


def class_table(results: Results, sets: Sequence[PredictionSet]) -> tuple[list[str], list[tuple[str, list[Row]]]]:
    """The names of the sets, the test set first; each class with its documents, precision, recall and F1 on them.

    Of more than two classes those with the least F1 on the first set come first.
    """
    columns: dict[str, list[Row]] = {}
    if results.evaluation is not None:
        columns["test"] = [{"rows": 0} | of.model_dump() for of in results.evaluation.classes]
    for found in sets:
        if found.classes and found.name not in columns:
            columns[found.name] = metrics.metrics_by_class(found.classes, found.counts())
    names = [record.name for record in results.run.corpus.classes]
    complete = {name: scores for name, scores in columns.items() if len(scores) == len(names)}
    table = [(name, [scores[k] for scores in complete.values()]) for k, name in enumerate(names)]
    if len(names) > 2 and complete:
        table.sort(key=lambda row: row[1][0]["f1"])
    return list(complete), table if complete else []


FEW: Final = 30
"""Documents of a slice below which its figures say little."""


def slice_tables(results: Results, name: str) -> list[tuple[str, list[Row]]]:
    """For each field with slices its values, the worst by a metric first: documents, that metric, and the error.

    A slice is `worse` if the interval of its metric leaves out that of all test documents, and is on the worse side.
    """
    evaluation = results.evaluation
    whole, greater = test_metric(results, name), METRICS[name].greater_is_better
    tables: dict[str, list[Row]] = {}
    for own in evaluation.slices if evaluation is not None else ():
        measured = own.model_dump()
        value, interval = measured.get(name), own.intervals.get(name)
        worse = whole is not None and interval is not None and (interval[1] < whole if greater else interval[0] > whole)
        row = {
            "value": "without a value" if own.value is None else own.value,
            "rows": own.rows,
            "few": own.rows < FEW,
            "worse": worse,
            "measured": metric_with_interval(name, value, interval),
            "error": metric_with_interval("error", measured.get("error"), own.intervals.get("error")),
            "cost": math.inf if value is None else -value if greater else value,
        }
        tables.setdefault(own.field, []).append(row)
    return [(field, sorted(rows, key=lambda row: row["cost"])[::-1]) for field, rows in tables.items()]


# ----------------------------------------------------------------------------------------------------------------------
# The head of the report: what was learned from what, its error and sparsity, compared with the majority class.


class Tile(NamedTuple):
    """A figure and its label."""

    value: str
    label: str


class Overview(NamedTuple):
    """Two paragraphs and the key figures."""

    headline: str
    detail: str
    tiles: list[Tile]


_RULES: Final = {
    "best": "the configuration with the best {metric}",
    "one-standard-error": "the sparsest configuration within one standard error of the best {metric}",
    "at-most": "the configuration with the best {metric} of those with few enough features",
}


def overview(results: Results, table: list[LeaderboardRow], sets: Sequence[PredictionSet] = ()) -> Overview:
    """Text and tiles for a run, also for one in which no configuration could be chosen; `sets` are its predictions."""
    corpus, chosen = results.run.corpus, next((row for row in table if row.chosen), None)
    tried = f"{plural(len(table), 'configuration')} of {plural(len({row.algorithm for row in table}), 'algorithm')}"
    effort = [
        Tile(integer(len(table)), "configurations tried"),
        Tile(duration(sum(row.seconds or 0.0 for row in table)), "total training time"),
    ]
    if chosen is None or chosen.value is None:
        finished = sum(row.rank is not None for row in table)
        headline = f"No model was trained: {finished or 'none'} of {tried} finished, and none was chosen."
        detail = f"The corpus has {_size(results)}. The reasons are listed below."
        return Overview(headline, detail, effort)

    majority = baseline_error(results)
    tiles, measured = _tiles(results, chosen, sets)
    lead = [f"{chosen.algorithm}, trained on {_size(results)}: {', '.join(measured)}."]
    sentences = [f"Parameters: {chosen.label}."]
    if majority is not None:
        tested = results.evaluation.majority_error if results.evaluation else None
        own = "" if tested is None else f" ({percent(tested)} on the test documents)"
        lead.append(f"Always predicting {results.simplest} has an error of {percent(majority)}{own}.")
        tiles.append(Tile(percent(majority), f"error of always predicting {results.simplest}"))
    if results.numbers and sets:
        mean = metric_with_error("rmse", predictions.mean_baseline(sets)["rmse"], None)
        lead.append(f"Always predicting the mean has an RMSE of {mean}.")
        tiles.append(Tile(mean, "RMSE of always predicting the mean"))
    if results.weights is not None:
        used = len(results.weights["feature_id"].unique())
        share = percent(used / corpus.features if corpus.features else None)
        lead.append(f"The model uses {integer(used)} of {plural(corpus.features, 'feature')} ({share}).")
        weights = f": {plural(len(results.weights), 'weight')} in all" if len(results.weights) > used else ""
        sentences.append(f"A feature is used if its weight is not zero for every class{weights}.")
        if not chosen.weighting.is_identity and chosen.weighting.label not in chosen.label:
            sentences.append(f"Weighting of terms: {chosen.weighting.label}.")
        if corpus.features_from is not None:
            sentences.append(
                f"Training was restricted to {integer(corpus.features_from.features)} features selected by a model."
            )
        tiles.append(Tile(integer(used), f"of {plural(corpus.features, 'feature')} used ({share})"))
    if sets and sets[0].threshold:
        sentences.append(f"Threshold: {sets[0].threshold}.")
    rule = _RULES[results.best.rule if results.best else "best"].format(metric=metric_name(results.metric))
    sentences.append(f"The model is {rule}, of {tried}.")
    notes = [f"Note: {note}." for note in (results.best.notes if results.best else ())]
    if results.best is not None and not results.best.beats_baseline and notes:
        lead, notes = [notes[0], *lead], notes[1:]
    lead = [*_warnings(results), *lead]
    return Overview(" ".join(lead), " ".join([*sentences, *notes]), tiles + effort)


def _warnings(results: Results) -> list[str]:
    """Sentences on the classes that are never predicted, and one if the test documents are not new."""
    names = [record.name for record in results.run.corpus.classes]
    found = {"test documents": results.evaluation.never_predicted if results.evaluation else ()}
    missing = [names[k] for k in (results.model or {}).get("never_predicted", ()) if k < len(names)]
    found["held-out documents" if results.held_out else "documents that were not learned yet"] = tuple(missing)
    sentences = [metrics.never_predicted_sentence(of, documents) for documents, of in found.items() if of]
    if results.evaluation and results.evaluation.trained_on:
        sentences.append(metrics.trained_on_sentence(results.evaluation.trained_on))
    return [f"{capitalised(sentence)}." for sentence in sentences]


def _tiles(results: Results, chosen: LeaderboardRow, sets: Sequence[PredictionSet]) -> tuple[list[Tile], list[str]]:
    """What was measured, as tiles and for the headline.

    The test error and the error that was selected by, of numbers the test RMSE; and the metric that configurations are
    ranked by, unless it is the error.
    """
    evaluation, name = results.evaluation, results.metric
    tiles: list[Tile] = []
    sentences: list[str] = []
    if results.numbers:
        rmse = test_metric(results, "rmse")
        sentences += (
            [] if rmse is None else [f"test RMSE {metric_with_interval('rmse', rmse, test_interval(results, 'rmse'))}"]
        )
    else:
        own = at_threshold(sets).get("error", (chosen.error, chosen.standard_error))
        kind, error = "progressive validation error", metric_with_error("error", *own)
        if results.held_out:
            kind = "held-out error"
        elif trains_on_all_documents(chosen.algorithm):
            kind = "training error"
        if evaluation is not None:
            tested, within = percent(evaluation.error), _within(results, "error")
            tiles.append(Tile(tested, f"test error, {plural(evaluation.rows, 'document')}{within}"))
            sentences.append(f"test error {tested}{within}")
        tiles.append(Tile(error, kind))
        sentences.append(f"{kind} {error}")
    if name != "error":
        value = test_metric(results, name)
        if value is not None:
            tiles.append(
                Tile(metric_with_error(name, value, None), f"test {metric_name(name)}{_within(results, name)}")
            )
        tiles.append(Tile(chosen.measured, f"{metric_name(name)}, selected by"))
        kind = "held-out " if results.numbers or results.held_out else ""
        sentences.append(f"{kind}{metric_name(name)} {chosen.measured}")
    return tiles, sentences


def _within(results: Results, name: str) -> str:
    """The interval of a metric on the test set, as an addition to it."""
    interval = test_interval(results, name)
    return "" if interval is None else f" (95 % interval {' to '.join(metric_figures(name, *interval))})"


def _size(results: Results) -> str:
    corpus = results.run.corpus
    if results.numbers:
        return f"{plural(corpus.rows, 'document')} with numbers"
    return f"{plural(corpus.rows, 'document')} in {plural(len(corpus.classes), 'class', 'classes')}"


# ----------------------------------------------------------------------------------------------------------------------
# The report in a few lines of Markdown, for places that show no HTML page.


def summary_markdown(run: Location) -> str:
    """Headline, the best of each algorithm and the strongest features of each class."""
    results = read_results(run)
    table = leaderboard_rows(results)
    head = overview(results, table, predictions.prediction_sets(run, results))
    lines = [f"# {plain(results.run.name)}", "", plain(head.headline), "", plain(head.detail), ""]
    measure = "held-out error" if results.metric == "error" else metric_name(results.metric)
    lines += [f"| rank | algorithm | parameters | {measure} | features |", "|--:|---|---|--:|--:|"]
    for s in best_of_each(table):
        cells = (s.rank, plain(s.algorithm), plain(s.label), s.measured, integer(s.size))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    panels = figures.strongest(results.weights, results.run.corpus.classes, 8)
    if panels:
        lines += ["", "| class | strongest features |", "|---|---|"]
        lines += [f"| {plain(p.name)} | {', '.join(plain(f['feature']) for f in p.features) or '–'} |" for p in panels]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text from data, so that neither Markdown nor HTML finds anything to act on."""
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~$-])", r"\\\1", text)


# ----------------------------------------------------------------------------------------------------------------------
# The report page: leaderboard, figures and text in one self-contained HTML file.


CONFIGURATIONS: Final = 100
"""Configurations in a table, at most; a search may have thousands."""
FRONT: Final = 12
"""Configurations of the front in its table."""
CLASSES: Final = 200
"""Classes in a table, at most."""
STRONGEST: Final = 15
"""Features shown of each class, unless the run file says otherwise; ten where there are many classes."""


def write_report(run: Location) -> Location:
    """Write RUN/report/leaderboard.parquet and RUN/report/report.html; returns the page's path.

    Reads RUN's files; the same files give the same bytes. Raises
    `InputError` when RUN holds no results, `FolderInUseError` while another process works there and `StorageError` when
    a file cannot be read or written.
    """
    run = location(run)
    check_results(run)
    with exclusive_lock(run):
        results = read_results(run)
        table = leaderboard_rows(results)
        write_leaderboard(run / "report" / "leaderboard.parquet", table)
        page = run / "report" / "report.html"
        commit_bytes(page, render(results, table, run).encode())
    return page


def render(results: Results, table: list[LeaderboardRow], run: Location) -> str:
    """The page as text; predictions are read from `run`."""
    sets = predictions.prediction_sets(run, results)
    measured_sets, class_scores = class_table(results, sets)
    best, chosen = best_of_each(table), next((row for row in table if row.chosen), None)
    shown = [*best, *([chosen] if chosen and chosen not in best else [])]
    online = [row for row in shown if not trains_on_all_documents(row.algorithm)]
    # Of one algorithm, the front says more than its best configuration alone.
    front = [row for row in reversed(_front(table)) if row not in shown] if len(best) == 1 else []
    style = styles(s.algorithm for s in table)
    baseline = baseline_error(results)
    classes = results.run.corpus.classes
    tested = results.metric if test_metric(results, results.metric) is not None else "error" if classes else "rmse"
    measure = "loss" if results.numbers else "validation error"
    measured = figures.regret_lines(results, table)
    lines, epochs = [line for line in measured if not line.epochs], [line for line in measured if line.epochs]
    curves = figures.curves_figure(results, [*online, *(front if online else [])], style)
    sparsity = figures.sparsity_figure(results, table, style, baseline)
    density = figures.density_figure(results, [*shown, *front], style)
    streams, passes = any(line.marks for line in lines), any(line.marks for line in epochs)
    charts: dict[str, tuple[str, Chart] | None] = {
        "curves": (f"Progressive {measure} against documents seen", curves),
        "sparsity": (f"{capitalised(metric_name(results.metric))} against features used", sparsity),
        "density": ("Share of nonzero weights by document frequency", density),
        "growth": ("Regret against documents seen", figures.growth_figure(lines, style)) if streams else None,
        "suboptimality": ("Objective above the optimum against passes", figures.suboptimality_figure(epochs, style))
        if passes
        else None,
    }
    context = {
        "results": results,
        "overview": overview(results, table, sets),
        "classes": classes,
        "largest": max((of.rows for of in classes), default=0),
        "table": table,
        "shown": shown,
        "front": _front(table),
        "trained_on": sorted({s.algorithm for s in shown} - {s.algorithm for s in online}),
        "unfinished": [s for s in table if s.rank is None],
        "style": style,
        "greater_is_better": METRICS[results.metric].greater_is_better,
        "limit": CONFIGURATIONS,
        "class_limit": CLASSES,
        "plots": draw_plots(charts) if any(s.rank is not None for s in table) else {},
        "has_curves": results.curves.num_rows > 0 and bool(online),
        "has_density": results.feature_survival.num_rows > 0,
        "regret": lines,
        "epochs": epochs,
        "weighted": any("h_t" in (line.end["objective"] or "") for line in lines),
        "metrics": metric_rows(results, sets),
        "measured_sets": measured_sets,
        "class_scores": class_scores,
        "sets": sets,
        "positive": classes[sets[0].positive].name if sets and classes else "",
        "thresholded": bool(at_threshold(sets)),
        "predicted": draw_plots(_prediction_charts(sets)),
        "confusion": confusion(results, sets),
        "thresholds": predictions.threshold_rows(sets) if sets else [],
        "slider": json.dumps(predictions.threshold_counts(sets)),
        "slices": slice_tables(results, tested),
        "slice_metric": tested,
        "texts": read_mistake_texts(run),
        "mistakes": [(found, predictions.mistakes(found)) for found in sets if found.classes],
        "residuals": [(found, predictions.residuals(found)) for found in sets if not found.classes],
        "panels": figures.strongest(results.weights, classes, STRONGEST if len(classes) <= 4 else 10),
        "two_classes": results.weights is not None and figures.share_column(results.weights, classes),
        "max_classes": figures.MAX_CLASSES,
        "facts": _facts(results),
        "run_json": json.dumps(results.run.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False),
    }
    return render_page("page", context)


def _prediction_charts(sets: list[PredictionSet]) -> dict[str, tuple[str, Chart] | None]:
    """The figures of predictions; None for those that the run has no predictions for."""
    charts: dict[str, tuple[str, Chart] | None] = dict.fromkeys(
        ("roc", "precision", "reliability", "threshold", "numbers")
    )
    if sets and not sets[0].classes:
        charts["numbers"] = ("Predicted against true numbers", predictions.numbers_figure(sets[-1]))
    elif sets:
        charts["roc"] = ("ROC curves", predictions.roc_figure(sets))
        charts["precision"] = ("Precision against recall", predictions.precision_recall_figure(sets))
        charts["reliability"] = ("Reliability of probabilities", predictions.reliability_figure(sets))
        if len(sets[0].classes) == 2 and not sets[0].several:
            charts["threshold"] = ("Precision and recall by threshold", predictions.threshold_figure(sets[0]))
    return charts


class Confusion(NamedTuple):
    """Documents by true and predicted class, `counts` by true class."""

    title: str
    names: list[str]
    counts: list[list[int]]
    pairs: list[tuple[str, str, int, float]]
    """Of more than two classes those confused most: true and predicted class, documents, their share of the former."""


PAIRS: Final = 10


def confused_pairs(names: Sequence[str], counts: NDArray[np.int64]) -> list[tuple[str, str, int, float]]:
    """The pairs of classes with most documents of the one predicted as the other, at most `PAIRS`.

    >>> confused_pairs(["a", "b", "c"], np.array([[6, 2, 0], [0, 7, 0], [3, 0, 3]]))
    [('c', 'a', 3, 0.5), ('a', 'b', 2, 0.25)]
    """
    wrong = counts * (1 - np.eye(len(names), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[: PAIRS if len(names) > 2 else 0]
    places = zip(*(of.tolist() for of in np.unravel_index(order, wrong.shape)), strict=True)
    return [
        (names[i], names[j], int(wrong[i, j]), float(wrong[i, j] / counts[i].sum())) for i, j in places if wrong[i, j]
    ]


def confusion(results: Results, sets: list[PredictionSet]) -> Confusion | None:
    """The confusion of the test documents or, without them, of those of the last set; None for several labels."""
    single = [found for found in sets if found.classes and not found.several]
    if results.evaluation is not None and results.evaluation.confusion:
        kind, names = "test", [of.name for of in results.evaluation.classes]
        counts = np.array(results.evaluation.confusion)
    elif single:
        kind, names, counts = single[-1].name, list(single[-1].classes), predictions.confusion(single[-1])
    else:
        return None
    pairs = confused_pairs(names, counts)
    names, counts = predictions.merged_confusion(names, counts)
    return Confusion(f"Confusion of the {kind} documents", names, counts.tolist(), pairs)


def _front(table: list[LeaderboardRow]) -> list[LeaderboardRow]:
    """The Pareto front, sparsest first; of a long one some that are evenly spread, with both ends."""
    front = pareto_front(table)
    if len(front) <= FRONT:
        return front
    return [front[round(k * (len(front) - 1) / (FRONT - 1))] for k in range(FRONT)]


def _facts(results: Results) -> dict[str, str]:
    """How the run was made, as far as its files say."""
    facts = {"sparseoco": results.run.version, "seed": str(results.run.seed)}
    facts["SHA-256 of the shards' manifest"] = results.run.corpus.store
    provenance = (results.model or {}).get("provenance", {})
    if "sources_sha256" in provenance:
        facts[f"SHA-256 of the digests of {plural(provenance['sources'], 'raw file')}"] = provenance["sources_sha256"]
    return facts
