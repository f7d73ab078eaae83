"""The whole run: ingest, search, train, evaluate, score, report.

    python -m sparseoco.flows.pipeline RUN_FILE

`sparseoco run RUN_FILE` runs the same steps without Prefect.
"""

from .steps import TASKS, publish, read_run, run_flow, start


@run_flow("pipeline")
def pipeline(run_file: str) -> str:
    """Run all steps; returns the path of the report."""
    run = read_run(run_file)
    for name, step in TASKS.items():
        if name != "score" or run.score is not None:
            page = step(run)
    publish(run)
    return str(page)


if __name__ == "__main__":
    start("pipeline")
