"""The best configuration of the search on all the data: one step of a run file as a flow of its own.

python -m flows.train RUN_FILE

python -m flows.train serve --cron "0 2 * * *" RUN_FILE
"""

from prefect import flow

from flows.command import start
from flows.steps import read_run, run_name, train_step


@flow(name="sparseoco-train", flow_run_name=run_name)
def train(run_file: str) -> None:
    """The best configuration of the search on all the data."""
    train_step(read_run(run_file))


if __name__ == "__main__":
    start("train")
