"""The search of a run file as a flow of its own: cross-validates every configuration.

python -m sparseoco.flows.search RUN_FILE
"""

from .steps import TASKS, read_run, run_flow, start


@run_flow("search")
def search(run_file: str) -> None:
    """Cross-validate every configuration."""
    TASKS["search"](read_run(run_file))


if __name__ == "__main__":
    start("search")
