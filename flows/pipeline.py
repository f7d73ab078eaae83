"""The whole run: ingest, search, train, evaluate, score, report.

    python -m sparseoco.flows.pipeline RUN_FILE

    python -m sparseoco.flows.pipeline serve --cron "0 2 * * *" RUN_FILE

`sparseoco run RUN_FILE` runs the same steps without Prefect.
"""

from prefect import flow

from sparseoco.pipeline.steps import one_cluster

from .command import start
from .ending import fails_with_message
from .steps import (
    evaluate_task,
    ingest_task,
    publish,
    publish_scores,
    read_run,
    report_task,
    run_name,
    score_task,
    search_task,
    train_task,
)


@flow(name="sparseoco-pipeline", flow_run_name=run_name)
@fails_with_message
def pipeline(run_file: str) -> str:
    """Run all steps; returns the path of the report."""
    run = read_run(run_file)
    with one_cluster(run):
        ingest_task(run)
        search_task(run)
        train_task(run)
        evaluate_task(run)
        if run.score is not None:
            score_task(run)
        page = report_task(run)
    publish(run)
    if run.score is not None:
        publish_scores(run)
    return str(page)


if __name__ == "__main__":
    start("pipeline")
