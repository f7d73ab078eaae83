"""Every configuration over every fold of the shards: one step of a run file as a flow of its own.

python -m flows.search RUN_FILE
"""

from prefect import flow

from flows.command import main
from flows.steps import search_step
from sparseoco.config import load_run_file


@flow(name="sparseoco-search")
def search(run_file: str) -> None:
    """Every configuration over every fold of the shards."""
    search_step(load_run_file(run_file))


if __name__ == "__main__":
    main(search)
