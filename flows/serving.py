"""Serve a flow on a schedule, each run in its own process, until Ctrl-C or SIGTERM."""

import asyncio
import signal
from typing import Any, cast
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.runner import Runner
from prefect.types.entrypoint import EntrypointType

from sparseoco.core.signals import SIGNALS, kill_after, print_stopped

TAG = "sparseoco"  # of all runs; deploy/prefect-automations.yaml looks for it

# Prefect checks every three seconds whether a run that it stopped has ended, and then records it.
GRACE_SECONDS = 9.0


def serve(
    flow: Flow[..., Any],
    name: str,
    parameters: dict[str, Any],
    schedules: list[CronSchedule | IntervalSchedule],
    collision: ConcurrencyLimitStrategy,
) -> None:
    """Serve the flow as a deployment of that name, one run at a time; exits after a signal as other commands do."""
    runner = Runner(name=name, pause_on_shutdown=False)
    deployment = runner.add_flow(
        flow,
        name=name,
        schedules=schedules,
        parameters=parameters,
        tags=[TAG],
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=collision),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    number = asyncio.run(_serve_until_stopped(runner, cast(UUID, deployment)))
    if number is not None:
        print_stopped()
        raise SystemExit(128 + number)


async def _serve_until_stopped(runner: Runner, deployment: UUID) -> int | None:
    """Serve; returns the signal that ended it."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int, frame: object) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        loop.call_soon_threadsafe(stopped.set_result, number)

    kill_after(GRACE_SECONDS)
    serving = loop.create_task(runner.start())
    await asyncio.sleep(0)
    # Replaces the handler that Prefect has set by now, which would wait for running flows to finish.
    for number in SIGNALS:
        signal.signal(number, stop)
    either: set[asyncio.Future[Any]] = {serving, stopped}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not stopped.done():
        await serving
        return None
    async with get_client() as client:  # first, so that no run becomes due until the flow is served again
        await client.pause_deployment(deployment)
    if runner.started:
        await runner.astop()
    else:
        serving.cancel()
    while not serving.done():  # a run that was just starting was not among those that were stopped
        await asyncio.wait({serving}, timeout=1)
        await runner.cancel_all()
    return stopped.result()
