"""What a person sees while a command runs: progress on a terminal, plain lines elsewhere, errors as sentences."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from sparseoco.core.errors import SparseocoError, error_text
from sparseoco.core.progress import ProgressCallback
from sparseoco.core.signals import SIGNALS, Stopped, print_stopped, raise_stopped
from sparseoco.storage.commit import storage_error

errors = Console(stderr=True, highlight=False, soft_wrap=True)
output = Console(highlight=False, soft_wrap=True)


def _named(params: list[Any]) -> list[Any]:
    """Parameters whose help does not name the types of Python: an argument's name says what it is, and flags take
    nothing."""
    for param in params:
        if isinstance(param, TyperArgument) or (isinstance(param, TyperOption) and param.is_flag):
            param.display_type_rich = lambda ctx: ""  # type: ignore[method-assign]
    return params


class Command(TyperCommand):
    """A command whose help speaks of folders, files and numbers."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters."""
        return _named(super().get_params(ctx))


class Group(TyperGroup):
    """Commands whose help speaks of folders, files and numbers."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Parameters of all of them."""
        return _named(super().get_params(ctx))


@contextmanager
def progress_bars() -> Iterator[ProgressCallback]:
    """A function (step, done, total) that moves a bar a step on a terminal, and does nothing when piped."""
    if not errors.is_terminal:
        yield lambda step, done, total: None
        return
    columns = (TextColumn("{task.description:<12}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=errors, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def report(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)

        yield report


@contextmanager
def sentences() -> Iterator[None]:
    """Turn what the user can act on into one sentence on standard error and an exit code; heed SIGINT and SIGTERM."""
    before = {number: signal.signal(number, raise_stopped) for number in SIGNALS}
    try:
        yield
    except SparseocoError as error:
        _end(str(error), error.exit_code)
    except Stopped as stopped:
        print_stopped()
        raise SystemExit(128 + stopped.args[0]) from None
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except MemoryError:
        _end("Out of memory: ask for narrower blocks (--memory), fewer features or smaller shards.", 1)
    except OSError as error:
        # One without a number is no file's, but a connection's.
        path = Path(error.filename or "/dev/stdout")
        _end(str(storage_error(error, path)) if error.errno else f"{error_text(error)}.", 1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(sentence: str, code: int) -> None:
    errors.print("sparseoco:", sentence, markup=False)
    raise SystemExit(code) from None
