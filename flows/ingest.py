"""The ingest of a run file as a flow of its own: converts raw text to shards.

python -m sparseoco.flows.ingest RUN_FILE

python -m sparseoco.flows.ingest serve --cron "0 2 * * *" RUN_FILE
"""

from prefect import flow

from .command import start
from .ending import fails_with_message
from .steps import ingest_task, read_run, run_name


@flow(name="sparseoco-ingest", flow_run_name=run_name)
@fails_with_message
def ingest(run_file: str) -> None:
    """Convert raw text to shards."""
    ingest_task(read_run(run_file))


if __name__ == "__main__":
    start("ingest")
