"""A flow run by hand that is stopped: the server hears of it, whatever the run is at."""

from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from prefect import Flow, State
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Crashed

from sparseoco.core.signals import end_in_time

GRACE_SECONDS = 7.0  # for a run to let go of its workers and tell the server itself


def end_known(flow: Flow[..., Any], flow_run: FlowRun, state: State) -> None:
    """A hook for flows that begin to run: one that is stopped and does not end in time is told to have crashed."""
    end_in_time(GRACE_SECONDS, partial(_tell_crashed, flow_run.id))


def _tell_crashed(run: UUID) -> None:
    # The server takes no notice where the run has told how it ended, and may be gone.
    with suppress(Exception), get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Crashed(message="Stopped; ended, for it did not end by itself in time."))
