"""Log events, and progress."""

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

# ----------------------------------------------------------------------------------------------------------------------
# The progress of steps, reported to whoever shows it.


ProgressCallback = Callable[[str, int, int], None]
"""Called with the step's name, the units done and their total."""
_callbacks: list[ProgressCallback] = []

RowsCallback = Callable[[int], None]
"""Called with the rows of the stream processed so far, over all epochs."""


@contextmanager
def progress_to(callback: ProgressCallback) -> Iterator[None]:
    """Have the progress of all steps of this process reported to a callback, and within another one to it alone."""
    _callbacks.append(callback)
    try:
        yield
    finally:
        _callbacks.remove(callback)


def report_progress(step: str, done: int, total: int) -> None:
    """Report the units of a step that are done, and their total."""
    for callback in _callbacks[-1:]:
        callback(step, done, total)


def progress_of(step: str, total: int, *, before: int = 0) -> Callable[[int], None]:
    """What reports the units that are done of the rest of a step, whose first `before` units are."""
    return lambda done: report_progress(step, before + done, total)


# ----------------------------------------------------------------------------------------------------------------------
# Log events of a run: records of the loggers `sparseoco.*`, written as JSON lines on request.
#
# A record has an event and fields: run, step, block, shard, rows, seconds and the like; never text of documents, names
# of features or credentials. To send the records elsewhere, add a handler to the logger `sparseoco` (Prefect:
# PREFECT_LOGGING_EXTRA_LOGGERS=sparseoco).


logging.getLogger("sparseoco").addHandler(logging.NullHandler())  # otherwise warnings would go to standard error
ENVIRONMENT = "SPARSEOCO_LOG"  # the environment variable that is the default of --log
_context: ContextVar[Mapping[str, Any] | None] = ContextVar("sparseoco_log", default=None)

P = ParamSpec("P")
T = TypeVar("T")


def log_event(name: str, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event to the logger `sparseoco.NAME`, with fields that JSON can represent."""
    logger = logging.getLogger(f"sparseoco.{name}")
    if logger.isEnabledFor(level):
        fields = {**(_context.get() or {}), **fields}
        text = ", ".join(f"{key} {value}" for key, value in fields.items())
        logger.log(level, "%s", f"{event} ({text})" if text else event, extra={"event": event, "fields": fields})


def logged_step(name: str, folder: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a step of a run: its start and its end are logged.

    `folder` is the parameter that is the run's folder, or a run file, which may name a log file.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            run: Any = signature.bind(*arguments, **options).arguments[folder]
            own = getattr(run, "log", None)
            with log_to(own and own.file), _step_events(name, str(getattr(run, "out", run))):
                return function(*arguments, **options)

        return call

    return decorate


@contextmanager
def log_to(target: str | None) -> Iterator[None]:
    """Append the records as JSON lines to a file, to standard error for "-", or nowhere for None.

    A target that is logged to already gets each record once. Raises `InputError` for a file that cannot be written.
    """
    logger = logging.getLogger("sparseoco")
    if target is None:
        yield
        return
    name = target if target == "-" else str(Path(target).resolve())  # one for all spellings of a path
    if name in {handler.get_name() for handler in logger.handlers}:
        yield
        return
    before = logger.level, logger.propagate
    handler = _handler(target)
    handler.set_name(name)
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
def _step_events(name: str, run: str) -> Iterator[None]:
    if (_context.get() or {}).get("step") == name:  # called by the step of a run file of the same name
        yield
        return
    token = _context.set({"run": run, "step": name})
    started = time.monotonic()
    log_event("steps", "step started")
    try:
        yield
    except BaseException as error:
        # The message of an unexpected error might contain anything: log its type only.
        fields: dict[str, Any] = {"seconds": round(time.monotonic() - started, 3), "error": type(error).__name__}
        if isinstance(error, SparseocoError):
            fields |= {"code": error.code, "reason": str(error)}
        log_event("steps", "step failed", level=logging.ERROR, **fields)
        raise
    else:
        log_event("steps", "step finished", seconds=round(time.monotonic() - started, 3))
    finally:
        _context.reset(token)


def is_log(path: Any) -> bool:
    """Whether a file has records of `log_to`, by its first line."""
    if not (isinstance(path, Path) and path.is_file()):
        return False
    with path.open("rb") as file:
        line = file.readline(1 << 16)
    try:
        return {"time", "level", "logger", "event"} <= set(json.loads(line))
    except (ValueError, TypeError):
        return False


def _handler(target: str) -> logging.Handler:
    if target == "-":
        return logging.StreamHandler(sys.stderr)
    try:
        path = Path(target)
        if path.is_file() and path.stat().st_size and not is_log(path):
            raise InputError(f"{target} is not a log: choose another file for the log.", code="file-exists")
        path.parent.mkdir(parents=True, exist_ok=True)
        return logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise InputError(f"The log {target} cannot be written: {error_text(error)}.", code="not-writable") from error


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", record.getMessage()),
        }
        return json.dumps(values | getattr(record, "fields", {}), ensure_ascii=False, default=str)
