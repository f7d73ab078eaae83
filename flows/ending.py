"""Report a flow run that was stopped to the server, whatever it is doing."""

from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from prefect import Flow, State
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Crashed

from sparseoco.core.signals import kill_after

GRACE_SECONDS = 7.0  # for a run to close its workers and report to the server itself


def report_when_stopped(flow: Flow[..., Any], flow_run: FlowRun, state: State) -> None:
    """A hook for flows that start running: a run that is stopped and does not end in time is reported as crashed."""
    kill_after(GRACE_SECONDS, partial(_report_crashed, flow_run.id))


def _report_crashed(run: UUID) -> None:
    # The server ignores this if the run has reported how it ended; it may also be gone.
    with suppress(Exception), get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Crashed(message="Stopped, and killed because it did not end in time."))
