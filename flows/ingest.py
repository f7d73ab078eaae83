"""The ingest of a run file as a flow of its own: converts raw text to shards.

python -m sparseoco.flows.ingest RUN_FILE
"""

from .steps import TASKS, read_run, run_flow, start


@run_flow("ingest")
def ingest(run_file: str) -> None:
    """Convert raw text to shards."""
    TASKS["ingest"](read_run(run_file))


if __name__ == "__main__":
    start("ingest")
