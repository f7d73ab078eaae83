"""The training of a run file as a flow of its own: the selected configuration, on all the data.

python -m sparseoco.flows.train RUN_FILE
"""

from .steps import TASKS, read_run, run_flow, start


@run_flow("train")
def train(run_file: str) -> None:
    """Train the selected configuration on all the data."""
    TASKS["train"](read_run(run_file))


if __name__ == "__main__":
    start("train")
