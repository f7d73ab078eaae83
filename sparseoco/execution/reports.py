"""How far running tasks are: events from workers to the client, by name of the task's work."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from distributed import Client, get_worker

from sparseoco.core.progress import RowsCallback

TOPIC = "sparseoco-rows"
SECONDS = 0.5  # between two reports of a task


def task_reporter(names: Sequence[str], check: Callable[[], None] = lambda: None) -> RowsCallback:
    """For a task: reports to the client how many rows of these names are done; calls `check` every time."""
    worker, last = get_worker(), time.monotonic()

    def report(rows: int) -> None:
        nonlocal last
        check()
        if time.monotonic() - last > SECONDS:
            for name in names:
                worker.log_event(TOPIC, {"name": name, "rows": rows})
            last = time.monotonic()

    return report


@contextmanager
def task_reports(client: Client, reported: Callable[[str, int], None]) -> Iterator[None]:
    """Call `reported` with the name and the rows of every report; from another thread."""

    def receive(event: tuple[float, dict[str, Any]]) -> None:
        reported(event[1]["name"], event[1]["rows"])

    client.subscribe_topic(TOPIC, receive)
    try:
        yield
    finally:
        client.unsubscribe_topic(TOPIC)
