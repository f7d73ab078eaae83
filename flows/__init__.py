"""Prefect flows: wiring, no arithmetic. A step of a run is a task; learner work is Dask tasks inside it."""

import os

# Before Prefect is imported: a batch job phones nobody.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
