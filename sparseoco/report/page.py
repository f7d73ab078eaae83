"""The report page: leaderboard, figures and text in one self-contained HTML file."""

import json
from typing import Final, NamedTuple

from sparseoco.report.charts import styles
from sparseoco.report.features import MAX_CLASSES, strongest
from sparseoco.report.figures import curves_figure, density_figure, sparsity_figure
from sparseoco.report.html import environment, plot
from sparseoco.report.leaderboard import (
    LeaderboardRow,
    best_of_each,
    chosen_row,
    leaderboard_rows,
    trains_on_all_documents,
    write_leaderboard,
)
from sparseoco.report.overview import baseline_error, overview
from sparseoco.report.regret import distant, growth_figure, regret_figure, regret_lines, suboptimality_figure
from sparseoco.report.results import Results, check_results, read_results
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location, location
from sparseoco.storage.locks import exclusive_lock

STRONGEST: Final = 15
"""Features shown of each class, unless the run file says otherwise; ten where there are many classes."""


SOURCES: Final = 10
"""Digests of raw files shown; a corpus may have thousands of files."""


CONFUSIONS: Final = 8


class Confusion(NamedTuple):
    """Documents of class `truth` that were predicted as `answer`."""

    truth: str
    answer: str
    rows: int


def write_report(run: Location) -> Location:
    """Write RUN/report/leaderboard.parquet and RUN/report/report.html; returns the page's path.

    Reads only RUN's files; the same files give the same bytes. Raises `InputError` when RUN holds no results,
    `FolderInUseError` while another process works there and `StorageError` when a file cannot be read or written.
    """
    run = location(run)
    check_results(run)
    with exclusive_lock(run):
        results = read_results(run)
        table = leaderboard_rows(results)
        write_leaderboard(run / "report" / "leaderboard.parquet", table)
        page = run / "report" / "report.html"
        commit_bytes(page, render(results, table).encode())
    return page


def render(results: Results, table: list[LeaderboardRow]) -> str:
    """The page as text."""
    best, chosen = best_of_each(table), chosen_row(table)
    shown = [*best, *([chosen] if chosen and chosen not in best else [])]
    online = [row for row in shown if not trains_on_all_documents(row.algorithm)]
    style = styles(s.algorithm for s in table)
    baseline = baseline_error(results)
    classes = results.run.corpus.classes
    plots = {
        "curves": plot(
            "curves", "Progressive validation error against documents seen", curves_figure(results, online, style)
        ),
        "sparsity": plot(
            "sparsity", "Error against nonzero weights", sparsity_figure(table, style, baseline, results.held_out)
        ),
        "density": plot(
            "density", "Share of nonzero weights by document frequency", density_figure(results, shown, style)
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
        "overview": overview(results, table),
        "classes": classes,
        "largest": max((of.rows for of in classes), default=0),
        "table": table,
        "shown": shown,
        "held_out": results.held_out,
        "trained_on": sorted({s.algorithm for s in shown} - {s.algorithm for s in online}),
        "unfinished": [s for s in table if s.rank is None],
        "style": style,
        "weights_total": results.run.corpus.features * (1 if len(classes) == 2 else len(classes)),
        "plots": plots if any(s.rank is not None for s in table) else {},
        "has_curves": results.curves.num_rows > 0 and bool(online),
        "has_density": results.feature_survival.num_rows > 0,
        "regret": lines,
        "epochs": epochs,
        "weighted": any("h_t" in (line.end["objective"] or "") for line in lines),
        "distant_bounds": distant(lines),
        "evaluation": results.evaluation,
        "confusions": _confusions(results),
        "panels": strongest(results, STRONGEST if len(classes) <= 4 else 10),
        "max_classes": MAX_CLASSES,
        "facts": _facts(results),
        "digests": results.digests,
        "run_json": json.dumps(results.run.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False),
    }
    return environment().get_template("page.html.j2").render(context)


def _confusions(results: Results) -> list[Confusion]:
    """The most frequent confusions, at most `CONFUSIONS`."""
    if results.evaluation is None:
        return []
    names = [of.name for of in results.evaluation.classes]
    wrong = [
        Confusion(truth, answer, rows)
        for truth, row in zip(names, results.evaluation.confusion, strict=True)
        for answer, rows in zip(names, row, strict=True)
        if truth != answer and rows
    ]
    return sorted(wrong, key=lambda of: -of.rows)[:CONFUSIONS]


def _facts(results: Results) -> dict[str, str]:
    """How the run was made, as far as its files say."""
    facts = {"sparseoco": results.run.version, "seed": str(results.run.seed)}
    facts["SHA-256 of the shards' manifest"] = results.run.corpus.store
    provenance = (results.model or {}).get("provenance", {})
    sources = [str(digest) for digest in provenance.get("sources", ())]
    for number, digest in enumerate(sources[:SOURCES], start=1):
        facts[f"SHA-256 of raw file {number}"] = digest
    if len(sources) > SOURCES:
        facts["more raw files"] = f"{len(sources) - SOURCES}, listed in the shards' manifest"
    return facts
