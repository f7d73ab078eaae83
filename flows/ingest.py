"""Raw text to shards: one step of a run file as a flow of its own.

python -m flows.ingest RUN_FILE

python -m flows.ingest serve --cron "0 2 * * *" RUN_FILE
"""

from prefect import flow

from flows.command import start
from flows.steps import ingest_step, read_run, run_name


@flow(name="sparseoco-ingest", flow_run_name=run_name)
def ingest(run_file: str) -> None:
    """Raw text to shards."""
    ingest_step(read_run(run_file))


if __name__ == "__main__":
    start("ingest")
