"""Nightly runs: new files are ingested, the deployed model is evaluated on them, they are learned, a model promoted."""

from sparseoco.pipeline.nightly.page import night_line
from sparseoco.pipeline.nightly.rollback import roll_back
from sparseoco.pipeline.nightly.run import Outcome, run_nightly
from sparseoco.pipeline.nightly.summary import nights_markdown, nights_table

__all__ = ["Outcome", "night_line", "nights_markdown", "nights_table", "roll_back", "run_nightly"]
