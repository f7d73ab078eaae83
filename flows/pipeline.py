"""The whole run: ingest, search, train, evaluate, report.

    python -m flows.pipeline RUN_FILE

    python -m flows.pipeline serve --cron "0 2 * * *" RUN_FILE

`sparseoco run RUN_FILE` takes the same steps without Prefect.
"""

from prefect import flow

from flows.command import start
from flows.steps import evaluate_step, ingest_step, publish, read_run, report_step, run_name, search_step, train_step
from sparseoco.pipeline.steps import one_cluster


@flow(name="sparseoco-pipeline", flow_run_name=run_name)
def pipeline(run_file: str) -> str:
    """Raw text to a report; gives the path of the page."""
    run = read_run(run_file)
    with one_cluster(run):
        ingest_step(run)
        search_step(run)
        train_step(run)
        evaluate_step(run)
        page = report_step(run)
    publish(run)
    return str(page)


if __name__ == "__main__":
    start("pipeline")
