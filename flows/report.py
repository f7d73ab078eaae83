"""The report of a run file as a flow of its own: writes the page and publishes Prefect artifacts.

python -m sparseoco.flows.report RUN_FILE

python -m sparseoco.flows.report serve --cron "0 2 * * *" RUN_FILE
"""

from prefect import flow

from .command import start
from .ending import fails_with_message
from .steps import publish, read_run, report_task, run_name


@flow(name="sparseoco-report", flow_run_name=run_name)
@fails_with_message
def report(run_file: str) -> None:
    """Write the report and publish Prefect artifacts."""
    described = read_run(run_file)
    report_task(described)
    publish(described)


if __name__ == "__main__":
    start("report")
