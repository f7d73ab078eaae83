"""What happens in a run: records of the loggers `sparseoco.*`, and JSON lines of them where they are asked for.

A record has an event and fields: run and step of whoever tells it, block, shard, rows, seconds and the like. Text of
documents, names of features and credentials are never among them. Whoever wants the records elsewhere adds a handler
to the logger `sparseoco` (Prefect: PREFECT_LOGGING_EXTRA_LOGGERS=sparseoco).
"""

import functools
import inspect
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sparseoco.core.errors import InputError, SparseocoError, error_text

logging.getLogger("sparseoco").addHandler(logging.NullHandler())  # else warnings would go to standard error
ENVIRONMENT = "SPARSEOCO_LOG"  # of commands, where --log says nothing
_context: ContextVar[Mapping[str, Any] | None] = ContextVar("sparseoco_log", default=None)

P = ParamSpec("P")
T = TypeVar("T")


def log_event(name: str, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Tell the logger `sparseoco.NAME` of an event, with fields of what JSON can hold."""
    logger = logging.getLogger(f"sparseoco.{name}")
    if logger.isEnabledFor(level):
        fields = {**(_context.get() or {}), **fields}
        said = ", ".join(f"{key} {value}" for key, value in fields.items())
        logger.log(level, "%s", f"{event} ({said})" if said else event, extra={"event": event, "fields": fields})


def logged_step(name: str, folder: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function tell when it begins and how it ends, as a step.

    `folder` is the argument that is the run's folder, or a run file, which may name a log of its own.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            run: Any = signature.bind(*arguments, **options).arguments[folder]
            own = getattr(run, "log", None)
            with log_to(own and own.file), _told_step(name, str(getattr(run, "out", run))):
                return function(*arguments, **options)

        return call

    return decorate


@contextmanager
def log_to(place: str | None) -> Iterator[None]:
    """Write the records as JSON lines to the end of a file, to standard error for "-", or nowhere for None.

    A place that they go to already gets them once. Raises `InputError` for a file that cannot be written.
    """
    logger = logging.getLogger("sparseoco")
    if place is None or _name(place) in {handler.get_name() for handler in logger.handlers}:
        yield
        return
    before = logger.level, logger.propagate
    handler = _handler(place)
    handler.set_name(_name(place))
    handler.setFormatter(_JsonLine())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        handler.close()


@contextmanager
def _told_step(name: str, run: str) -> Iterator[None]:
    if (_context.get() or {}).get("step") == name:  # called by the same step of a run file
        yield
        return
    token = _context.set({"run": run, "step": name})
    started = time.monotonic()
    log_event("steps", "step begun")
    try:
        yield
    except BaseException as error:
        # The message of an error that nobody foresaw might hold anything: of it the name is enough.
        fields: dict[str, Any] = {"seconds": round(time.monotonic() - started, 3), "error": type(error).__name__}
        if isinstance(error, SparseocoError):
            fields["reason"] = str(error)
        log_event("steps", "step broken off", level=logging.ERROR, **fields)
        raise
    else:
        log_event("steps", "step ended", seconds=round(time.monotonic() - started, 3))
    finally:
        _context.reset(token)


def _name(place: str) -> str:
    """What handlers that write there are told by, however it is written."""
    return place if place == "-" else str(Path(place).resolve())


def _handler(place: str) -> logging.Handler:
    if place == "-":
        return logging.StreamHandler(sys.stderr)
    try:
        path = Path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        return logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise InputError(f"The log {place} cannot be written: {error_text(error)}.") from error


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", record.getMessage()),
        }
        return json.dumps(told | getattr(record, "fields", {}), ensure_ascii=False, default=str)
