"""Nightly runs: new files are taken in, judged, learned from where the night before ended, and a model is promoted."""

from sparseoco.pipeline.nightly.choosing import serve_night
from sparseoco.pipeline.nightly.page import night_line
from sparseoco.pipeline.nightly.run import Outcome, run_nightly
from sparseoco.pipeline.nightly.summary import nights_markdown, nights_table

__all__ = ["Outcome", "night_line", "nights_markdown", "nights_table", "run_nightly", "serve_night"]
