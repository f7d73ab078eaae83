"""How runs end: errors that the user can act on are messages of states; a run that was stopped is reported."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, cast
from uuid import UUID

from prefect import Flow, State
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Crashed, Failed

from sparseoco.core.errors import SparseocoError
from sparseoco.core.signals import kill_after

P = ParamSpec("P")
R = TypeVar("R")
GRACE_SECONDS = 7.0  # for a run to close its workers and report to the server itself


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


def report_when_stopped(flow: Flow[..., Any], flow_run: FlowRun, state: State) -> None:
    """A hook for flows that start running: a run that is stopped and does not end in time is reported as crashed."""
    kill_after(GRACE_SECONDS, partial(_report_crashed, flow_run.id))


def _report_crashed(run: UUID) -> None:
    # The server ignores this if the run has reported how it ended; it may also be gone.
    with suppress(Exception), get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Crashed(message="Stopped, and killed because it did not end in time."))
