"""Leaderboard, page and summary of a run, from the files in its folder."""

from sparseoco.report.page import leaderboard_table, summary_markdown, write_report
from sparseoco.report.results import LeaderboardRow, Results, best_of_each, leaderboard_rows, read_results

__all__ = [
    "LeaderboardRow",
    "Results",
    "best_of_each",
    "leaderboard_rows",
    "leaderboard_table",
    "read_results",
    "summary_markdown",
    "write_report",
]
