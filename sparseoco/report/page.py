"""The report page: leaderboard, figures and text in one self-contained HTML file."""

import json
from typing import Final

from sparseoco.core.formatting import capitalised, metric_name, plural
from sparseoco.report.charts import styles
from sparseoco.report.curves import (
    confusion_figure,
    numbers_figure,
    precision_recall_figure,
    reliability_figure,
    roc_figure,
    threshold_figure,
)
from sparseoco.report.features import MAX_CLASSES, share_column, strongest
from sparseoco.report.figures import curves_figure, density_figure, sparsity_figure
from sparseoco.report.html import Plot, plot, render_page
from sparseoco.report.leaderboard import (
    LeaderboardRow,
    best_of_each,
    best_of_parts,
    chosen_row,
    leaderboard_rows,
    pareto_front,
    trains_on_all_documents,
    write_leaderboard,
)
from sparseoco.report.mistakes import explained_mistakes
from sparseoco.report.overview import overview
from sparseoco.report.predictions import PredictionSet, confusion, cost_rows, prediction_sets, threshold_rows
from sparseoco.report.quality import at_threshold, baseline_error, class_table, metric_rows
from sparseoco.report.regret import distant, growth_figure, regret_figure, regret_lines, suboptimality_figure
from sparseoco.report.results import Results, check_results, read_results
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location, location
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.metric_names import METRICS

CONFIGURATIONS: Final = 100
"""Configurations in a table, at most; a search may have thousands."""
FRONT: Final = 12
"""Configurations of the front in its table."""
CLASSES: Final = 200
"""Classes in a table, at most."""
STRONGEST: Final = 15
"""Features shown of each class, unless the run file says otherwise; ten where there are many classes."""
RUN_JSON: Final = 50_000
"""Characters shown of run.json."""


def write_report(run: Location) -> Location:
    """Write RUN/report/leaderboard.parquet and RUN/report/report.html; returns the page's path.

    Reads RUN's files and, for the features of mistakes, its store; the same files give the same bytes. Raises
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
    sets = prediction_sets(run, results)
    measured_sets, class_scores = class_table(results, sets)
    best, chosen = best_of_each(table), chosen_row(table)
    shown = [*best, *([chosen] if chosen and chosen not in best else [])]
    online = [row for row in shown if not trains_on_all_documents(row.algorithm)]
    # Of one algorithm, the front says more than its best configuration alone.
    front = [row for row in reversed(_front(table)) if row not in shown] if len(best) == 1 else []
    style = styles(s.algorithm for s in table)
    baseline = baseline_error(results)
    classes = results.run.corpus.classes
    measure = "loss" if results.numbers else "validation error"
    plots: dict[str, Plot | None] = dict.fromkeys(("regret", "growth", "suboptimality")) | {
        "curves": plot(
            "curves",
            f"Progressive {measure} against documents seen",
            curves_figure(results, [*online, *(front if online else [])], style),
        ),
        "sparsity": plot(
            "sparsity",
            f"{capitalised(metric_name(results.metric))} against features used",
            sparsity_figure(table, style, baseline, results.held_out, results.simplest),
        ),
        "density": plot(
            "density",
            "Share of nonzero weights by document frequency",
            density_figure(results, [*shown, *front], style),
        ),
    }
    measured = regret_lines(results, table)
    lines, epochs = [line for line in measured if not line.epochs], [line for line in measured if line.epochs]
    if any(line.marks for line in lines):
        plots["regret"] = plot("regret", "Regret against documents seen", regret_figure(lines, style))
        plots["growth"] = plot("growth", "The same, both axes logarithmic", growth_figure(lines, style))
    if any(line.marks for line in epochs):
        plots["suboptimality"] = plot(
            "suboptimality", "Objective above the optimum against passes", suboptimality_figure(epochs, style)
        )
    context = {
        "run": results.run,
        "overview": overview(results, table, sets),
        "classes": classes,
        "largest": max((of.rows for of in classes), default=0),
        "table": table,
        "shown": shown,
        "front": _front(table),
        "divided": best_of_parts(table),
        "held_out": results.held_out,
        "trained_on": sorted({s.algorithm for s in shown} - {s.algorithm for s in online}),
        "unfinished": [s for s in table if s.rank is None],
        "style": style,
        "metric": results.metric,
        "greater_is_better": METRICS[results.metric].greater_is_better,
        "simplest": results.simplest,
        "limit": CONFIGURATIONS,
        "class_limit": CLASSES,
        "plots": plots if any(s.rank is not None for s in table) else {},
        "has_curves": results.curves.num_rows > 0 and bool(online),
        "has_density": results.feature_survival.num_rows > 0,
        "regret": lines,
        "epochs": epochs,
        "weighted": any("h_t" in (line.end["objective"] or "") for line in lines),
        "distant_bounds": distant(lines),
        "evaluation": results.evaluation,
        "metrics": metric_rows(results, sets),
        "measured_sets": measured_sets,
        "class_scores": class_scores,
        "sets": sets,
        "positive": classes[sets[0].positive].name if sets and classes else "",
        "thresholded": bool(at_threshold(sets)),
        "predicted": _prediction_plots(results, sets),
        "thresholds": threshold_rows(sets) if sets else [],
        "costs": cost_rows(sets) if sets else [],
        "mistakes": [(found, explained_mistakes(run, results, found)) for found in sets if found.classes],
        "panels": strongest(results.weights, classes, STRONGEST if len(classes) <= 4 else 10),
        "two_classes": results.weights is not None and share_column(results.weights, classes),
        "max_classes": MAX_CLASSES,
        "facts": _facts(results),
        "digests": results.digests,
        "run_json": _run_json(results),
    }
    return render_page("page", context)


def _prediction_plots(results: Results, sets: list[PredictionSet]) -> dict[str, Plot | None]:
    """The figures of predictions; None for those that the run has no predictions for."""
    plots: dict[str, Plot | None] = dict.fromkeys(
        ("roc", "precision", "reliability", "threshold", "confusion", "numbers")
    )
    if sets and not sets[0].classes:
        plots["numbers"] = plot("numbers", "Predicted against true numbers", numbers_figure(sets[-1]))
    elif sets:
        plots["roc"] = plot("roc", "ROC curves", roc_figure(sets))
        plots["precision"] = plot("precision", "Precision against recall", precision_recall_figure(sets))
        plots["reliability"] = plot("reliability", "Reliability of probabilities", reliability_figure(sets))
        if len(sets[0].classes) == 2 and not sets[0].several:
            plots["threshold"] = plot("threshold", "Precision and recall by threshold", threshold_figure(sets[0]))
    single = [found for found in sets if found.classes and not found.several]
    if results.evaluation is not None and results.evaluation.confusion:
        names = [of.name for of in results.evaluation.classes]
        chart = confusion_figure(names, results.evaluation.confusion)
        plots["confusion"] = plot("confusion", "Confusion of the test documents", chart)
    elif single:
        chart = confusion_figure(single[-1].classes, confusion(single[-1]))
        plots["confusion"] = plot("confusion", f"Confusion of the {single[-1].name} documents", chart)
    return plots


def _front(table: list[LeaderboardRow]) -> list[LeaderboardRow]:
    """The Pareto front, sparsest first; of a long one some that are evenly spread, with both ends."""
    front = pareto_front(table)
    if len(front) <= FRONT:
        return front
    return [front[round(k * (len(front) - 1) / (FRONT - 1))] for k in range(FRONT)]


def _run_json(results: Results) -> str:
    text = json.dumps(results.run.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= RUN_JSON else text[:RUN_JSON] + "\n… (the rest is in run.json)"


def _facts(results: Results) -> dict[str, str]:
    """How the run was made, as far as its files say."""
    facts = {"sparseoco": results.run.version, "seed": str(results.run.seed)}
    facts["SHA-256 of the shards' manifest"] = results.run.corpus.store
    provenance = (results.model or {}).get("provenance", {})
    if "sources_sha256" in provenance:
        facts[f"SHA-256 of the digests of {plural(provenance['sources'], 'raw file')}"] = provenance["sources_sha256"]
    return facts
