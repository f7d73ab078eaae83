"""Terminal output: progress bars, and errors as one line with an exit code."""

import errno
import os
import resource
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.text import Text

from sparseoco.core.errors import SparseocoError, error_text
from sparseoco.core.formatting import duration, printable
from sparseoco.core.logs import progress_to
from sparseoco.core.signals import SIGNALS, print_stopped, raise_stopped

errors = Console(stderr=True, highlight=False, soft_wrap=True)
_names_keys = ContextVar("sparseoco_names_keys", default=False)
FIRST_LINE = 30.0  # seconds
MIN_SHARE, MIN_SECONDS = 0.01, 60.0  # of progress, before the time left is estimated
LEAST_MEMORY = 820_000_000  # bytes of address space with which no command can load its libraries
TOO_SMALL = ("Out of memory: not even the libraries can be loaded; raise ulimit -v.", "out-of-memory")
LIMITS = {
    "failed to map segment": TOO_SMALL,
    "can't start new thread": ("No more threads can be started: raise ulimit -u, or ulimit -v.", "no-threads"),
}
"""What libraries say of a limit of this process, and our message and code."""
output = Console(highlight=False, soft_wrap=True)


def check_address_space() -> None:
    """Raise `SparseocoError` for a limit too small for the libraries: some wait for memory without end, or abort."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < LEAST_MEMORY:
        message, code = TOO_SMALL
        raise SparseocoError(message, code=code)


def print_line(text: object = "") -> None:
    """Print a line on standard output; names in it cannot end it, see `printable`."""
    print(printable(str(text)))


def as_dicts(value: Any) -> Any:
    """A value for JSON: its named tuples, and those in it, as dicts."""
    if hasattr(value, "_asdict"):
        return {name: as_dicts(item) for name, item in value._asdict().items()}
    return [as_dicts(item) for item in value] if isinstance(value, list | tuple) else value


def print_next(what: str, *command: object) -> None:
    """Print, on a terminal, a command that is natural to run next, and what it does."""
    if output.is_terminal:
        print_line(f"next: sparseoco {shlex.join(map(str, command))}  ({what})")


def print_error(text: str) -> None:
    """Print a line on standard error, as `print_line`; flags in it as `spelled`."""
    errors.print(printable(spelled(text)), markup=False)


@contextmanager
def names_of_keys() -> Iterator[None]:
    """A context in which errors and printed messages have keys of a run file in place of flags."""
    from sparseoco.pipeline.run_file import keys_in_errors

    token = _names_keys.set(True)
    try:
        with keys_in_errors():
            yield
    finally:
        _names_keys.reset(token)


def spelled(text: str) -> str:
    """A message, within `names_of_keys` with keys."""
    if not _names_keys.get():
        return text
    from sparseoco.pipeline.run_file import name_keys

    return name_keys(text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: int = 0) -> None:
    """Print a table whose last columns, so many, are numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index >= len(columns) - numbers else "left")
    for row in rows:
        table.add_row(*(Text(printable(str(value))) for value in row))
    output.print(table)


@contextmanager
def progress_bars() -> Iterator[None]:
    """Draw a bar for the progress of each step on a terminal or in a notebook, with the time left.

    Elsewhere, also if TERM is dumb, print a line with the time left now and then, the first after `FIRST_LINE` seconds.
    """
    if not (errors.is_terminal or errors.is_jupyter) or errors.is_dumb_terminal:
        with progress_to(ProgressLines(print_error)):
            yield
        return
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    left = TimeRemainingColumn(elapsed_when_finished=True)
    columns = (TextColumn("{task.description:<12}"), BarColumn(), TaskProgressColumn(), left)
    with Progress(*columns, console=errors, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def report(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)

        with progress_to(report):
            yield


class ProgressLines:
    """Prints how far a step is and how long it will take, after 30 seconds, then at twice the time before.

    The rate is that since the first progress: what precedes it is start-up, such as compilation. There is no estimate
    before `MIN_SHARE` of the work or `MIN_SECONDS` have been measured.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._step, self._since, self._wait = "", 0.0, 0.0
        self._first, self._begun, self._moved = 0, 0.0, False  # units and time from which the rate is measured

    def __call__(self, step: str, done: int, total: int) -> None:
        now = self._clock()
        if step != self._step:
            self._step, self._since, self._wait = step, now, FIRST_LINE
            self._first, self._begun, self._moved = done, now, False
        elif not self._moved and done > self._first:
            self._first, self._begun, self._moved = done, now, True
        if now < self._since + self._wait or not total or done >= total:
            return
        self._wait *= 2
        learned, seconds = done - self._first, now - self._begun
        known = learned > 0 and (learned >= MIN_SHARE * total or seconds >= MIN_SECONDS)
        time_left = f"about {duration(seconds * (total - done) / learned)} left" if known else "no estimate yet"
        self._write(f"{step}: {done / total:.0%} after {duration(now - self._since)}, {time_left}")


@contextmanager
def error_exits() -> Iterator[None]:
    """Turn errors that the user can act on into a line on standard error and an exit code; handle stop signals."""
    try:
        with _stops():
            yield
    except SparseocoError as error:
        _exit(str(error), error.code, error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except MemoryError:
        message = "Out of memory: train fewer columns together (--max-memory), or use fewer features or smaller shards."
        _exit(message, "out-of-memory", 1)
    except (ImportError, RuntimeError, OSError) as error:
        said = f"{error} {error.__context__}"  # what llvmlite raises has the reason as its context
        reason = next((reason for reason in LIMITS if reason in said), None)
        if reason is not None:
            _exit(*LIMITS[reason], 1)
        if not isinstance(error, OSError):
            raise
        if not error.errno:  # of a connection, not of a file
            _exit(f"{error_text(error)}.", "io-error", 1)
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and not error.filename:
            _exit("Standard output could not be written: there is no space left where it goes.", "disk-full", 1)
        from sparseoco.storage.locations import storage_error

        found = storage_error(error, Path(error.filename or "/dev/stdout"))
        _exit(str(found), found.code, 1)


@contextmanager
def _stops() -> Iterator[None]:
    """Exit at a signal, even where a library has made another exception of `Stopped`."""
    received = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise_stopped(number, frame)

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    except SystemExit:
        raise
    except BaseException:
        if not received:
            raise
        print_stopped()
        raise SystemExit(128 + received[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(message: str, code: str, exit_code: int) -> None:
    print_error(f"sparseoco: {message} [{code}]")
    if errors.is_terminal:
        print_error(f"What it means: sparseoco errors {code}")
    raise SystemExit(exit_code) from None
