"""The steps of a run as Prefect tasks, and how they are told to Prefect."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.settings import get_current_settings

from flows import BY_HAND
from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.signals import end_in_time
from sparseoco.pipeline import steps
from sparseoco.pipeline.run_file import RunFile, load_run_file
from sparseoco.report import leaderboard_table, summary_markdown
from sparseoco.storage.locations import Location, location

Take = Callable[[RunFile], Location | None]

GRACE_SECONDS = 2.5  # Prefect looks again after three
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


def read_run(run_file: str) -> RunFile:
    """What a run file says, its paths whole: workers of a cluster may be at work in other folders."""
    return load_run_file(location(run_file).absolute())


def run_name() -> str:
    """What a flow run is called: the name in its run file, and the time it was due."""
    file = flow_run.parameters["run_file"]
    try:
        name = read_run(file).name
    except SparseocoError:  # which the run itself will say
        name = Path(file).stem
    return f"{name} {flow_run.scheduled_start_time:%Y-%m-%d %H:%M:%S} UTC"


async def _worth_retrying(task: Task[Any, Any], task_run: Any, state: Any) -> bool:
    """Bad input stays bad; a worker or a disk may come back."""
    return not isinstance(await state.aresult(raise_on_failure=False), InputError)


@cache
def _heed_stops() -> None:
    """A run in a process that Prefect started is over within seconds when it is cancelled, whatever it is at."""
    if not BY_HAND:
        end_in_time(GRACE_SECONDS)


def step_of(name: str, take: Take | None = None) -> Task[[RunFile], Location | None]:
    """A step of a run as a task: that of the name, or what takes it."""

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
        _heed_stops()
        get_run_logger().info("%s: %s starts", run.name, name)
        result = (take or steps.STEPS[name])(run)
        get_run_logger().info("%s: %s ended, see %s", run.name, name, result)
        return result

    return step


ingest_step = step_of("ingest")
search_step = step_of("search")
train_step = step_of("train")
evaluate_step = step_of("evaluate")
report_step = step_of("report")


def key_of(run: RunFile) -> str:
    """What the keys of a run's artifacts begin with."""
    return re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-") or "run"


@task(name="publish", cache_policy=NO_CACHE)
def publish(run: RunFile) -> None:
    """Show the report's summary, its leaderboard and where the files are as Prefect artifacts, keyed by the run."""
    key = key_of(run)
    create_markdown_artifact(summary_markdown(run.out), key=f"{key}-summary", description=run.name)
    create_table_artifact(leaderboard_table(run.out), key=f"{key}-leaderboard", description=run.name)
    for name, file in RESULTS.items():
        path = run.out.absolute() / file
        if path.exists():
            create_link_artifact(path.as_uri(), file, key=f"{key}-{name}", description=run.name)
