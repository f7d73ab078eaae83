"""The training of a run file as a flow of its own: the selected configuration, on all the data.

python -m sparseoco.flows.train RUN_FILE

python -m sparseoco.flows.train serve --cron "0 2 * * *" RUN_FILE
"""

from prefect import flow

from .command import start
from .ending import fails_with_message
from .steps import read_run, run_name, train_task


@flow(name="sparseoco-train", flow_run_name=run_name)
@fails_with_message
def train(run_file: str) -> None:
    """Train the selected configuration on all the data."""
    train_task(read_run(run_file))


if __name__ == "__main__":
    start("train")
