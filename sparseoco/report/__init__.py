"""Rows of a finished run → a leaderboard, a page, a summary. Nothing but the RUN folder's files is read."""

from sparseoco.report.leaderboard import Standing, best_of_each, standings
from sparseoco.report.page import write_report
from sparseoco.report.results import Results, read_results
from sparseoco.report.summary import leaderboard_table, summary_markdown

__all__ = [
    "Results",
    "Standing",
    "best_of_each",
    "leaderboard_table",
    "read_results",
    "standings",
    "summary_markdown",
    "write_report",
]
