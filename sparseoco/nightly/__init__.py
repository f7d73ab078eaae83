"""Nightly runs: new files are taken in, judged, learned from where the night before ended, and a model is promoted."""

from sparseoco.nightly.page import night_line
from sparseoco.nightly.run import Outcome, run_nightly

__all__ = ["Outcome", "night_line", "run_nightly"]
