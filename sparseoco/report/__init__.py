"""Leaderboard, page and summary of a run, from the files in its folder."""

from sparseoco.report.page import summary_markdown, write_report
from sparseoco.report.results import LeaderboardRow, Results, best_of_each, leaderboard_rows, read_results

__all__ = [
    "LeaderboardRow",
    "Results",
    "best_of_each",
    "leaderboard_rows",
    "read_results",
    "summary_markdown",
    "write_report",
]
