"""The steps of a run as Prefect tasks, and how they are told to Prefect."""

from pathlib import Path

from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from sparseoco import steps
from sparseoco.config import RunFile
from sparseoco.report import leaderboard_table, summary_markdown

# Every step finds what it has committed, so a retry or a second run redoes next to nothing; Prefect's own cache would only
# hide a file that has gone.
RETRIES = {"retries": 1, "retry_delay_seconds": 5, "cache_policy": NO_CACHE, "persist_result": False}


def _told(run: RunFile, step: str) -> Path | None:
    logger = get_run_logger()
    logger.info("%s: %s starts", run.name, step)
    result = steps.STEPS[step](run)
    logger.info("%s: %s wrote %s", run.name, step, result)
    return result


@task(name="ingest", **RETRIES)
def ingest_step(run: RunFile) -> Path | None:
    """Raw text to shards."""
    return _told(run, "ingest")


@task(name="search", **RETRIES)
def search_step(run: RunFile) -> Path | None:
    """Every configuration over every fold."""
    return _told(run, "search")


@task(name="train", **RETRIES)
def train_step(run: RunFile) -> Path | None:
    """The best configuration on all the data."""
    return _told(run, "train")


@task(name="evaluate", **RETRIES)
def evaluate_step(run: RunFile) -> Path | None:
    """The model on text it has not seen, if the run file asks for it."""
    return _told(run, "evaluate")


@task(name="report", **RETRIES)
def report_step(run: RunFile) -> Path | None:
    """Tables to a page, and the same as Prefect artifacts."""
    page = _told(run, "report")
    create_markdown_artifact(summary_markdown(run.out), key="sparseoco-summary", description=f"Report of {run.name}")
    create_table_artifact(
        leaderboard_table(run.out), key="sparseoco-leaderboard", description=f"Leaderboard of {run.name}"
    )
    return page
