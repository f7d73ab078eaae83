"""A flow from the command line: run now, or served on a schedule until it is stopped."""

import datetime
import importlib
import re
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer
from prefect import Flow, tags
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitStrategy
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.settings import PREFECT_API_URL

from flows.ending import end_known
from flows.serving import TAG
from flows.serving import serve as serve_flow
from sparseoco.cli.console import Command, Group, sentences
from sparseoco.core.errors import InputError
from sparseoco.core.quantities import parse_duration
from sparseoco.core.signals import to_the_end
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage.locations import location, redact_password

File = Annotated[str, typer.Argument(metavar="RUN_FILE", help="A run file (.toml or .yaml), or its address.")]


class IfRunning(StrEnum):
    """What a run does that is due while the last one has not ended."""

    WAIT = "wait"
    END = "end"


COLLISIONS = {
    IfRunning.WAIT: ConcurrencyLimitStrategy.ENQUEUE,
    IfRunning.END: ConcurrencyLimitStrategy.CANCEL_NEW,
}


class _RunUnlessNamed(Group):
    """Commands of which `run` needs no name: what is no command's name is its run file."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["run", *args])


def start(name: str) -> None:
    """Entry point of `python -m flows.NAME`."""
    to_the_end(partial(main, name))


def main(name: str) -> None:
    """Run or serve the flow `name` of the module flows.`name`, as the command line says."""
    module = importlib.import_module(f"flows.{name}")  # not __main__, which a run in another process could not import
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
        """Run the flow now; `run` may be left out."""
        load_run_file(file)  # what is wrong with it is said before Prefect starts
        _check_server()
        flow.on_running(end_known)
        with tags(TAG):
            flow(file)

    @app.command(cls=Command, short_help="Run the flow whenever it is due.")
    def serve(
        file: File,
        cron: Annotated[str | None, typer.Option(metavar='"M H D M W"', help="When, as in a crontab.")] = None,
        interval: Annotated[str | None, typer.Option(metavar="TIME", help="How often: 90s, 30min, 24h.")] = None,
        timezone: Annotated[
            str, typer.Option(metavar="ZONE", help="Where the times of --cron are: Europe/Berlin.")
        ] = "UTC",
        if_running: Annotated[
            IfRunning, typer.Option(help="A run that is due while the last one has not ended waits, or ends.")
        ] = IfRunning.END,
    ) -> None:
        """Wait for the schedule and run the flow in a process of its own each time, until Ctrl-C or SIGTERM.

        Needs a Prefect server (`prefect server start`) and PREFECT_API_URL. Without --cron or --interval it runs when
        told to by `prefect deployment run` or in the server's pages.
        """
        described = load_run_file(file)
        schedules = _schedules(cron, interval, timezone)
        if not PREFECT_API_URL.value():
            raise InputError(
                "A schedule needs a Prefect server: start one (prefect server start), set PREFECT_API_URL."
            )
        _check_server()
        deployment = re.sub("[/%]", "-", described.name)  # as Prefect will have it
        print(f"Waiting for runs; for one now: prefect deployment run '{flow.name}/{deployment}'", flush=True)
        parameters = {"run_file": str(location(file).absolute())}
        serve_flow(flow, deployment, parameters, schedules, COLLISIONS[if_running])

    with sentences():
        app(prog_name=f"python -m flows.{name}")


def _schedules(cron: str | None, interval: str | None, timezone: str) -> list[CronSchedule | IntervalSchedule]:
    """The schedule that is asked for, if one is. Raises `InputError` naming the option that cannot be read."""
    if cron is not None and interval is not None:
        raise InputError("Give --cron or --interval, not both.")
    if interval is not None:
        return [IntervalSchedule(interval=_time(interval))]
    try:
        return [] if cron is None else [CronSchedule(cron=cron, timezone=timezone)]
    except ValueError as error:
        raise InputError(
            f'--cron "{cron}" --timezone {timezone} is no schedule: write "minute hour day month weekday", and a zone '
            "such as Europe/Berlin."
        ) from error


def _time(text: str) -> datetime.timedelta:
    try:
        time = datetime.timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise InputError(f"--interval {text}: {error}.") from error
    if time < datetime.timedelta(seconds=1):
        raise InputError(f"--interval {text} must be at least a second.")
    return time


def _check_server() -> None:
    """Raise `InputError` if a server is named that does not answer."""
    address = PREFECT_API_URL.value()
    if not address:
        return
    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
    if error is not None:
        raise InputError(
            f"No Prefect server answers at {redact_password(address)} ({type(error).__name__}): start it, or unset "
            "PREFECT_API_URL."
        )
