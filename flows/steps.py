"""The steps of a run as Prefect tasks, their artifacts, errors as messages of states, and flows as commands."""

import importlib
import logging
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial, wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, cast
from uuid import UUID

import typer
from prefect import Flow, State, Task, flow, get_run_logger, runtime, tags, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import refresh_global_settings_context
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, get_current_settings
from prefect.states import Crashed, Failed

from sparseoco.cli.console import error_exits
from sparseoco.cli.options import Command
from sparseoco.core.errors import HeldError, InputError, SparseocoError
from sparseoco.core.signals import kill_after, run_and_exit
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import RunFile, keys_in_errors, load_run_file
from sparseoco.report.page import plain, summary_markdown
from sparseoco.storage.locations import Location, location, redact_password

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
    file = runtime.flow_run.parameters["run_file"]
    try:
        name = read_run(file).name
    except SparseocoError:  # the run itself reports it
        name = Path(file).stem
    return f"{name} {runtime.flow_run.scheduled_start_time:%Y-%m-%d %H:%M:%S} UTC"


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
    """Invalid input stays invalid, and what is held is held; a worker or a disk may come back."""
    return not isinstance(await state.aresult(raise_on_failure=False), InputError | HeldError)


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


# ----------------------------------------------------------------------------------------------------------------------
# Flows as commands: python -m sparseoco.flows.NAME RUN_FILE.


File = Annotated[str, typer.Argument(metavar="RUN_FILE", help="Path or URI of a run file (TOML).")]
TAG = "sparseoco"  # of all runs; deploy/prefect-automations.yaml looks for it
REPORT_SECONDS = 7.0  # for a run to close its workers and report to the server itself


def start(name: str) -> None:
    """Entry point of `python -m sparseoco.flows.NAME`."""
    run_and_exit(partial(main, name))


def main(name: str) -> None:
    """Run the flow `name` of the module of the same name."""
    module = importlib.import_module(f"{__package__}.{name}")  # not __main__, which other processes cannot import
    started: Flow[..., Any] = getattr(module, name)
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.command(cls=Command, help=module.__doc__, no_args_is_help=True)
    def run(file: File) -> None:
        load_run_file(file)  # errors are reported before Prefect starts
        _check_server()
        started.on_running(_report_when_stopped)
        with tags(TAG):
            started(file)

    with error_exits():
        app(prog_name=f"python -m {__package__}.{name}")


def _check_server() -> None:
    """Check that the configured server answers; if there is none, set a password for the one that Prefect starts.

    Raises `InputError` if it does not answer, or refuses the password.
    """
    address = PREFECT_API_URL.value()
    if not address:  # every user of this machine reaches a server on loopback
        password = f"sparseoco:{secrets.token_urlsafe()}"
        os.environ.update(PREFECT_SERVER_API_AUTH_STRING=password, PREFECT_API_AUTH_STRING=password)
        refresh_global_settings_context()
        return
    refused = False
    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
        try:
            if error is None:  # for its health, the server wants no password
                client.api_version()
        except PrefectHTTPStatusError as refusal:
            refused = refusal.response.status_code == 401
    server = redact_password(address)
    if error is not None:
        raise InputError(
            f"No Prefect server answers at {server} ({type(error).__name__}): start it, or unset PREFECT_API_URL.",
            code="no-prefect-server",
        )
    if refused:
        raise InputError(
            f"The Prefect server at {server} refuses the password, or needs one: set PREFECT_API_AUTH_STRING.",
            code="prefect-password",
        )


def _report_when_stopped(flow: Flow[..., Any], flow_run: FlowRun, state: State) -> None:
    """A hook for flows that start running: a run that is stopped and does not end in time is reported as crashed."""
    kill_after(REPORT_SECONDS, partial(_report_crashed, flow_run.id))


def _report_crashed(run: UUID) -> None:
    # The server ignores this if the run has reported how it ended; it may also be gone.
    with suppress(Exception), get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Crashed(message="Stopped, and killed because it did not end in time."))
