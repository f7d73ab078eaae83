"""Nightly runs: ingest new files, evaluate the deployed model on them, learn them, promote a model."""

from sparseoco.pipeline.nightly.page import increment_line, left_out_lines
from sparseoco.pipeline.nightly.rollback import roll_back
from sparseoco.pipeline.nightly.run import NightlyResult, run_nightly
from sparseoco.pipeline.nightly.summary import increments_table, nightly_markdown

__all__ = [
    "NightlyResult",
    "increment_line",
    "increments_table",
    "left_out_lines",
    "nightly_markdown",
    "roll_back",
    "run_nightly",
]
