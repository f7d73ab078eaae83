"""Prefect flows: a task for each step of a run, in which Dask does the work.

The folder is linked into the package: installed or not, the flows are modules of `sparseoco.flows`.
"""

import logging
import os
import sys
from contextlib import nullcontext
from importlib.util import find_spec

from sparseoco.core.signals import install_handlers

# Before Prefect is imported: no telemetry.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
# deploy/prefect-automations.yaml crashes runs that send no heartbeat for two minutes; Prefect's default is three.
os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
# Log events of a run go to Prefect's log too.
os.environ.setdefault("PREFECT_LOGGING_EXTRA_LOGGERS", "sparseoco")
logging.getLogger("sparseoco").setLevel(logging.INFO)

BY_HAND = sys.argv[0] == "-m"  # started by `python -m sparseoco.flows.…`, not by Prefect
if BY_HAND:
    install_handlers()  # handles stop signals while the libraries are being loaded
if find_spec("prefect") is None:
    from sparseoco.cli.console import error_exits
    from sparseoco.core.errors import InputError

    with error_exits() if BY_HAND else nullcontext():
        raise InputError("Flows need Prefect: pip install 'sparseoco[flows]'.", code="missing-package")
