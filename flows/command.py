"""Run a flow from the command line: now, or on a schedule until it is stopped."""

import datetime
import importlib
import os
import re
import secrets
from functools import partial
from typing import Annotated, Any, Literal

import typer
from prefect import Flow, tags
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import ConcurrencyLimitStrategy
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.context import refresh_global_settings_context
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL

from sparseoco.cli.app import Command, Group
from sparseoco.cli.console import error_exits
from sparseoco.core.errors import InputError
from sparseoco.core.formatting import parse_duration
from sparseoco.core.signals import run_and_exit
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage.locations import location, redact_password

from .ending import report_when_stopped
from .serving import TAG
from .serving import serve as serve_flow

File = Annotated[str, typer.Argument(metavar="RUN_FILE", help="Path or URI of a run file (TOML).")]


COLLISIONS = {"wait": ConcurrencyLimitStrategy.ENQUEUE, "end": ConcurrencyLimitStrategy.CANCEL_NEW}


class _RunUnlessNamed(Group):
    """Commands with `run` as the default: any other first argument is its run file."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["run", *args])


def start(name: str) -> None:
    """Entry point of `python -m sparseoco.flows.NAME`."""
    run_and_exit(partial(main, name))


def main(name: str) -> None:
    """Run or serve the flow `name` of the module of the same name."""
    module = importlib.import_module(f"{__package__}.{name}")  # not __main__, which other processes cannot import
    flow: Flow[..., Any] = getattr(module, name)
    app = typer.Typer(
        cls=_RunUnlessNamed,
        help=module.__doc__,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.command(cls=Command)
    def run(file: File) -> None:
        """Run the flow now; `run` may be omitted."""
        load_run_file(file)  # errors are reported before Prefect starts
        _check_server()
        flow.on_running(report_when_stopped)
        with tags(TAG):
            flow(file)

    @app.command(cls=Command, short_help="Run the flow on a schedule.")
    def serve(
        file: File,
        cron: Annotated[str | None, typer.Option(metavar='"M H D M W"', help="Schedule, as in a crontab.")] = None,
        interval: Annotated[
            str | None, typer.Option(metavar="DURATION", help="Interval between runs: 90s, 30min, 24h.")
        ] = None,
        timezone: Annotated[
            str, typer.Option(metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin.")
        ] = "UTC",
        if_running: Annotated[
            Literal["wait", "end"],
            typer.Option(help="A run that is due while the previous one is still running waits, or is cancelled."),
        ] = "end",
    ) -> None:
        """Wait for the schedule and run the flow in a process of its own each time, until Ctrl-C or SIGTERM.

        Needs a Prefect server (`prefect server start`) and PREFECT_API_URL. Without --cron or --interval, runs are
        started by `prefect deployment run` or in the server's web interface.
        """
        described = load_run_file(file)
        schedules = _schedules(cron, interval, timezone)
        if not PREFECT_API_URL.value():
            raise InputError(
                "A schedule needs a Prefect server: start one (prefect server start) and set PREFECT_API_URL.",
                code="no-prefect-server",
            )
        _check_server()
        deployment = re.sub("[/%]", "-", described.name)  # as Prefect does
        print(
            f"Waiting for scheduled runs; to start one now: prefect deployment run '{flow.name}/{deployment}'",
            flush=True,
        )
        parameters = {"run_file": str(location(file).absolute())}
        serve_flow(flow, deployment, parameters, schedules, COLLISIONS[if_running])

    with error_exits():
        app(prog_name=f"python -m {__package__}.{name}")


def _schedules(cron: str | None, interval: str | None, timezone: str) -> list[CronSchedule | IntervalSchedule]:
    """The schedule, if any. Raises `InputError` naming the option that is invalid."""
    if cron is not None and interval is not None:
        raise InputError("Give --cron or --interval, not both.", code="unsupported-combination")
    if interval is not None:
        return [IntervalSchedule(interval=_interval(interval))]
    try:
        return [] if cron is None else [CronSchedule(cron=cron, timezone=timezone)]
    except ValueError as error:
        raise InputError(
            f'--cron "{cron}" --timezone {timezone} is not a schedule: write "minute hour day month weekday", and '
            "a time zone such as Europe/Berlin.",
            code="invalid-option",
        ) from error


def _interval(text: str) -> datetime.timedelta:
    try:
        interval = datetime.timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise InputError(f"--interval {text}: {error}.", code="invalid-option") from error
    if interval < datetime.timedelta(seconds=1):
        raise InputError(f"--interval {text} must be at least a second.", code="invalid-option")
    return interval


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
