"""The report in a few lines of Markdown and a table, for places that show no HTML page."""

import re
from typing import Any

from sparseoco.core.formatting import duration, integer, metric_name, metric_with_error, percent_with_error
from sparseoco.report.features import strongest
from sparseoco.report.leaderboard import LeaderboardRow, best_of_each, leaderboard_rows
from sparseoco.report.overview import overview
from sparseoco.report.predictions import prediction_sets
from sparseoco.report.results import read_results
from sparseoco.storage.locations import Location

MAX_ROWS = 100


def leaderboard_table(run: Location) -> list[dict[str, Any]]:
    """The first `MAX_ROWS` rows as text, ready for a Prefect table artifact."""
    return [
        {
            "rank": "" if s.rank is None else s.rank,
            "algorithm": s.algorithm + (" (chosen)" if s.chosen else ""),
            "parameters": s.label,
            **({} if s.metric == "error" else {metric_name(s.metric): _value(s)}),
            "held-out error": percent_with_error(s.error, s.standard_error),
            "features": integer(s.size),
            "time": duration(s.seconds),
            "status": s.status,
            "reason": s.reason,
        }
        for s in leaderboard_rows(read_results(run))[:MAX_ROWS]
    ]


def _value(row: LeaderboardRow) -> str:
    return metric_with_error(row.metric, row.value, row.value_error)


def summary_markdown(run: Location) -> str:
    """Headline, the best of each algorithm and the strongest features of each class."""
    results = read_results(run)
    table = leaderboard_rows(results)
    head = overview(results, table, prediction_sets(run, results))
    lines = [f"# {plain(results.run.name)}", "", plain(head.headline), "", plain(head.detail), ""]
    measure = "held-out error" if results.metric == "error" else metric_name(results.metric)
    lines += [f"| rank | algorithm | parameters | {measure} | features |", "|--:|---|---|--:|--:|"]
    for s in best_of_each(table):
        cells = (s.rank, plain(s.algorithm), plain(s.label), _value(s), integer(s.size))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    panels = strongest(results.weights, results.run.corpus.classes, 8)
    if panels:
        lines += ["", "| class | strongest features |", "|---|---|"]
        lines += [f"| {plain(p.name)} | {', '.join(plain(f.name) for f in p.features) or '–'} |" for p in panels]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text from data, so that neither Markdown nor HTML finds anything to act on."""
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~$-])", r"\\\1", text)
