"""Run a flow from the command line."""

import importlib
import os
import secrets
from contextlib import suppress
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import typer
from prefect import Flow, State, tags
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import refresh_global_settings_context
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL
from prefect.states import Crashed

from sparseoco.cli.app import Command
from sparseoco.cli.console import error_exits
from sparseoco.core.errors import InputError
from sparseoco.core.signals import kill_after, run_and_exit
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage.locations import redact_password

File = Annotated[str, typer.Argument(metavar="RUN_FILE", help="Path or URI of a run file (TOML).")]
TAG = "sparseoco"  # of all runs; deploy/prefect-automations.yaml looks for it
GRACE_SECONDS = 7.0  # for a run to close its workers and report to the server itself


def start(name: str) -> None:
    """Entry point of `python -m sparseoco.flows.NAME`."""
    run_and_exit(partial(main, name))


def main(name: str) -> None:
    """Run the flow `name` of the module of the same name."""
    module = importlib.import_module(f"{__package__}.{name}")  # not __main__, which other processes cannot import
    flow: Flow[..., Any] = getattr(module, name)
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
        flow.on_running(_report_when_stopped)
        with tags(TAG):
            flow(file)

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
    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
        refused = error is None and _is_refused(client)
    plain = redact_password(address)
    if error is not None:
        raise InputError(
            f"No Prefect server answers at {plain} ({type(error).__name__}): start it, or unset PREFECT_API_URL.",
            code="no-prefect-server",
        )
    if refused:
        raise InputError(
            f"The Prefect server at {plain} refuses the password, or needs one: set PREFECT_API_AUTH_STRING.",
            code="prefect-password",
        )


def _is_refused(client: SyncPrefectClient) -> bool:
    """Whether the server wants another password; for its health it wants none."""
    try:
        client.api_version()
    except PrefectHTTPStatusError as error:
        return error.response.status_code == 401
    return False


def _report_when_stopped(flow: Flow[..., Any], flow_run: FlowRun, state: State) -> None:
    """A hook for flows that start running: a run that is stopped and does not end in time is reported as crashed."""
    kill_after(GRACE_SECONDS, partial(_report_crashed, flow_run.id))


def _report_crashed(run: UUID) -> None:
    # The server ignores this if the run has reported how it ended; it may also be gone.
    with suppress(Exception), get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Crashed(message="Stopped, and killed because it did not end in time."))
