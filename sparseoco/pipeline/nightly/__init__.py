"""Nightly runs: ingest new files, evaluate the deployed model on them, learn them, promote a model."""

from sparseoco.pipeline.nightly.records import increment_line, increments_table, left_out_lines, nightly_markdown
from sparseoco.pipeline.nightly.run import NightlyResult, roll_back, run_nightly

__all__ = [
    "NightlyResult",
    "increment_line",
    "increments_table",
    "left_out_lines",
    "nightly_markdown",
    "roll_back",
    "run_nightly",
]
