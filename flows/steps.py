"""The steps of a run as Prefect tasks, their artifacts, and errors as messages of states."""

import logging
import re
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from prefect import Flow, Task, flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.settings import get_current_settings
from prefect.states import Failed

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.signals import kill_after
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import RunFile, keys_in_errors, load_run_file
from sparseoco.report.page import plain, summary_markdown
from sparseoco.storage.locations import Location, location

from . import BY_HAND

P = ParamSpec("P")
R = TypeVar("R")
Step = Callable[[RunFile], Location | None]

GRACE_SECONDS = 2.5  # Prefect polls every three
_settings = get_current_settings().tasks
RETRIES = _settings.default_retries if "default_retries" in _settings.model_fields_set else 1
RETRY_SECONDS: Any = _settings.default_retry_delay_seconds or 5


def read_run(run_file: str) -> RunFile:
    """A run file, with absolute paths: workers may run in other folders."""
    return load_run_file(location(run_file).absolute())


def run_name() -> str:
    """The name of a flow run: that of its run file, and the time it was scheduled for."""
    file = flow_run.parameters["run_file"]
    try:
        name = read_run(file).name
    except SparseocoError:  # the run itself reports it
        name = Path(file).stem
    return f"{name} {flow_run.scheduled_start_time:%Y-%m-%d %H:%M:%S} UTC"


def fails_with_message(function: Callable[P, R]) -> Callable[P, R]:
    """The function of a flow or task; its run fails with the message and code of a `SparseocoError` it raises."""

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return function(*arguments, **options)
        except SparseocoError as error:
            return cast(R, Failed(data=error, message=f"{error} [{error.code}]"))

    return call


def _without_traceback(record: logging.LogRecord) -> bool:
    """Leave out what Prefect logs of a `SparseocoError` besides the states of runs: its traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        record.exc_info = None  # of a state that was returned, there is none
    return not isinstance(error, SparseocoError)


for _name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
    logging.getLogger(_name).addFilter(_without_traceback)


def run_flow(name: str) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """Decorate the function of the flow sparseoco-NAME, whose first parameter is a run file."""
    return lambda function: flow(name=f"sparseoco-{name}", flow_run_name=run_name)(fails_with_message(function))


async def _is_retriable(task: Task[Any, Any], task_run: Any, state: Any) -> bool:
    """Invalid input stays invalid; a worker or a disk may come back."""
    return not isinstance(await state.aresult(raise_on_failure=False), InputError)


@cache
def _end_quickly_when_stopped() -> None:
    """In a process that Prefect started, a cancelled run ends within seconds, whatever it is doing."""
    if not BY_HAND:
        kill_after(GRACE_SECONDS)


def make_task(name: str, step: Step | None = None) -> Step:
    """A step of a run as a task, called with the run: that of this name, or the one given."""

    # A step finds what it has committed, so running it again repeats next to nothing; Prefect's cache would only hide a
    # deleted file.
    @task(
        name=name,
        retries=RETRIES,
        retry_delay_seconds=RETRY_SECONDS,
        retry_condition_fn=_is_retriable,
        cache_policy=NO_CACHE,
    )
    @fails_with_message
    def run_step(run: RunFile) -> Location | None:
        _end_quickly_when_stopped()
        get_run_logger().info("%s: %s started", run.name, name)
        with keys_in_errors():
            result = (step or run_steps.STEPS[name])(run)
        get_run_logger().info("%s: %s finished, see %s", run.name, name, result)
        return result

    return lambda run: run_step(run, return_state=True).result()


TASKS = {name: make_task(name) for name in run_steps.STEPS}


def artifact_key(run: RunFile) -> str:
    """The prefix of the keys of a run's artifacts."""
    return re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-") or "run"


@task(name="publish", cache_policy=NO_CACHE)
def publish(run: RunFile) -> None:
    """Publish the report's summary, with the place of its files, as a Prefect artifact."""
    key = artifact_key(run)
    summary = f"{summary_markdown(run.out)}\nFiles: {plain(run.out.absolute().as_uri())}\n"
    create_markdown_artifact(summary, key=f"{key}-summary", description=run.name)
