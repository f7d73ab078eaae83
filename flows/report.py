"""The report of a run file as a flow of its own: writes the page and publishes Prefect artifacts.

python -m sparseoco.flows.report RUN_FILE
"""

from .steps import TASKS, publish, read_run, run_flow, start


@run_flow("report")
def report(run_file: str) -> None:
    """Write the report and publish Prefect artifacts."""
    described = read_run(run_file)
    TASKS["report"](described)
    publish(described)


if __name__ == "__main__":
    start("report")
