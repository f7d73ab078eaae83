"""The steps of a run as Prefect tasks, and how they are told to Prefect."""

from pathlib import Path
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from sparseoco import steps
from sparseoco.config import RunFile
from sparseoco.errors import InputError
from sparseoco.report import leaderboard_table, summary_markdown


async def _worth_retrying(task: Task[Any, Any], task_run: Any, state: Any) -> bool:
    """Bad input stays bad; a worker or a disk may come back."""
    return not isinstance(await state.aresult(raise_on_failure=False), InputError)


def _step(name: str) -> Task[[RunFile], Path | None]:
    # A step finds what it has committed, so running it again redoes next to nothing; Prefect's own cache would only
    # hide a file that has gone.
    @task(name=name, retries=1, retry_delay_seconds=5, retry_condition_fn=_worth_retrying, cache_policy=NO_CACHE)
    def step(run: RunFile) -> Path | None:
        get_run_logger().info("%s: %s starts", run.name, name)
        result = steps.STEPS[name](run)
        get_run_logger().info("%s: %s ended, see %s", run.name, name, result)
        return result

    return step


ingest_step = _step("ingest")
search_step = _step("search")
train_step = _step("train")
evaluate_step = _step("evaluate")
report_step = _step("report")


@task(name="publish", cache_policy=NO_CACHE)
def publish(run: RunFile) -> None:
    """Show the report's summary and leaderboard as Prefect artifacts."""
    create_markdown_artifact(summary_markdown(run.out), key="sparseoco-summary", description=run.name)
    create_table_artifact(leaderboard_table(run.out), key="sparseoco-leaderboard", description=run.name)
