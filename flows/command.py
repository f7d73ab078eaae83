"""Running a flow from the command line."""

import sys
from typing import Any

from prefect import Flow

from sparseoco.config import load_run_file
from sparseoco.console import sentences


def main(flow: Flow[[str], Any]) -> None:
    """Run `flow` on the run file that is the only argument."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print((sys.modules["__main__"].__doc__ or "").strip())
        raise SystemExit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    with sentences():
        load_run_file(sys.argv[1])  # what is wrong with it is said before Prefect starts
        flow(sys.argv[1])
