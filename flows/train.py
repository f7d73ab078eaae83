"""The best configuration of the search on all the data: one step of a run file as a flow of its own.

python -m flows.train RUN_FILE
"""

from prefect import flow

from flows.command import main
from flows.steps import train_step
from sparseoco.config import load_run_file


@flow(name="sparseoco-train")
def train(run_file: str) -> None:
    """The best configuration of the search on all the data."""
    train_step(load_run_file(run_file))


if __name__ == "__main__":
    main(train)
