"""Leaderboard, page and summary of a run, from the files in its folder."""

from sparseoco.report.page import plain, summary_markdown, write_report
from sparseoco.report.results import (
    ChoiceRecord,
    LeaderboardRow,
    Results,
    RunRecord,
    as_configuration,
    best_of_each,
    leaderboard_rows,
    read_results,
)
from sparseoco.report.scores import write_scores_page

__all__ = [
    "ChoiceRecord",
    "LeaderboardRow",
    "Results",
    "RunRecord",
    "as_configuration",
    "best_of_each",
    "leaderboard_rows",
    "plain",
    "read_results",
    "summary_markdown",
    "write_report",
    "write_scores_page",
]
