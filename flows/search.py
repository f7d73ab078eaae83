"""The search of a run file as a flow of its own: cross-validates every configuration.

python -m sparseoco.flows.search RUN_FILE

python -m sparseoco.flows.search serve --cron "0 2 * * *" RUN_FILE
"""

from prefect import flow

from .command import start
from .ending import fails_with_message
from .steps import read_run, run_name, search_task


@flow(name="sparseoco-search", flow_run_name=run_name)
@fails_with_message
def search(run_file: str) -> None:
    """Cross-validate every configuration."""
    search_task(read_run(run_file))


if __name__ == "__main__":
    start("search")
