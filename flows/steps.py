"""The steps of a run as Prefect tasks, and how they are told to Prefect."""

import re
from pathlib import Path
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.settings import get_current_settings

from sparseoco import steps
from sparseoco.config import RunFile, load_run_file
from sparseoco.errors import InputError, SparseocoError
from sparseoco.locations import Location
from sparseoco.report import leaderboard_table, summary_markdown

_told = get_current_settings().tasks
RETRIES = _told.default_retries if "default_retries" in _told.model_fields_set else 1
RETRY_SECONDS: Any = _told.default_retry_delay_seconds or 5
RESULTS = {
    "report": "report/report.html",
    "leaderboard-parquet": "report/leaderboard.parquet",
    "metrics": "search/metrics.parquet",
    "curves": "search/curves.parquet",
    "kept": "search/kept.parquet",
    "weights": "model/weights.parquet",
    "evaluation": "evaluation.json",
}


def run_name() -> str:
    """What a flow run is called: the name in its run file, and the time it was due."""
    file = flow_run.parameters["run_file"]
    try:
        name = load_run_file(file).name
    except SparseocoError:  # which the run itself will say
        name = Path(file).stem
    return f"{name} {flow_run.scheduled_start_time:%Y-%m-%d %H:%M:%S} UTC"


async def _worth_retrying(task: Task[Any, Any], task_run: Any, state: Any) -> bool:
    """Bad input stays bad; a worker or a disk may come back."""
    return not isinstance(await state.aresult(raise_on_failure=False), InputError)


def _step(name: str) -> Task[[RunFile], Location | None]:
    # A step finds what it has committed, so running it again redoes next to nothing; Prefect's own cache would only
    # hide a file that has gone.
    @task(
        name=name,
        retries=RETRIES,
        retry_delay_seconds=RETRY_SECONDS,
        retry_condition_fn=_worth_retrying,
        cache_policy=NO_CACHE,
    )
    def step(run: RunFile) -> Location | None:
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
    """Show the report's summary, its leaderboard and where the files are as Prefect artifacts, keyed by the run."""
    key = re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-") or "run"
    create_markdown_artifact(summary_markdown(run.out), key=f"{key}-summary", description=run.name)
    create_table_artifact(leaderboard_table(run.out), key=f"{key}-leaderboard", description=run.name)
    for name, file in RESULTS.items():
        path = run.out.absolute() / file
        if path.exists():
            create_link_artifact(path.as_uri(), file, key=f"{key}-{name}", description=run.name)
