"""Prefect flows: wiring, no arithmetic. A step of a run is a task; learner work is Dask tasks inside it."""

import logging
import os
import sys

from sparseoco.core.signals import watch

# Before Prefect is imported: a batch job phones nobody.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
# A run that is not heard of for two minutes is given up, where deploy/prefect-automations.yaml is: Prefect's own three
# minutes between two heartbeats would give up those that live.
os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
# What happens in a run stands beside Prefect's own records.
os.environ.setdefault("PREFECT_LOGGING_EXTRA_LOGGERS", "sparseoco")
logging.getLogger("sparseoco").setLevel(logging.INFO)

BY_HAND = sys.argv[0] == "-m"  # `python -m flows.…` is on its way to its module, not Prefect in a process of its own
if BY_HAND:
    watch()  # a stop is heeded while the libraries are loaded
