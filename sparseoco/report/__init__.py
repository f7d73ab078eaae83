"""Leaderboard, page and summary of a run, from the files in its folder."""

from sparseoco.report.leaderboard import LeaderboardRow, best_of_each, leaderboard_rows
from sparseoco.report.page import write_report
from sparseoco.report.results import Results, read_results
from sparseoco.report.summary import leaderboard_table, summary_markdown

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
