"""Ctrl-C and SIGTERM end a command within ten seconds, whatever it is doing, with one line on standard error.

A signal raises `Stopped` in the main thread, which unwinds like any error. Python cannot raise it while the main thread
runs a kernel or a library, and it waits for other threads at the end. So a separate thread waits for the signal and
kills the process and its children if they take too long. Files are safe: they are committed atomically.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import NoReturn

MESSAGE = "Stopped. Committed work is kept: run the same command again to resume."
GRACE_SECONDS = 5.0  # for a clean shutdown
LAST_SECONDS = 2.0  # for the last callback after that
RAISE_AGAIN_SECONDS = 0.05
NO_EXCEPTIONS = "numba.core.serialize"
"""A kernel that returns arrays calls this module and does not look for an exception: the process could crash."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_printing = threading.Lock()  # never released by the thread that prints the message


class Stopped(BaseException):
    """SIGINT or SIGTERM; the signal's number is the argument. No `Exception`, so that libraries do not catch it."""


def install_handlers() -> None:
    """End this process at a signal: immediately, until `raise_stopped` becomes the handler.

    For the entry points of commands, before they import what they need.
    """
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: _kill(number))
        atexit.register(signal.signal, number, signal.SIG_IGN)  # registered first, called last
    sys.unraisablehook = _raise_again
    sys.excepthook = _raise_printed_again
    kill_after()


def kill_after(seconds: float = GRACE_SECONDS, last: Callable[[], None] | None = None) -> None:
    """Kill this process and its children if they still run `seconds` after a signal; the last call counts.

    Before that, `last` is called in a thread, with `LAST_SECONDS` to finish. Call this in the main thread.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # The interpreter writes there immediately, whatever the main thread is doing.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_kill_after, args=(reader, seconds, last), name="stopping", daemon=True).start()


def run_and_exit(command: Callable[[], None]) -> NoReturn:
    """Run a command, shut down cleanly and exit with its code, but without finalizing the interpreter.

    Finalization ends library threads that still run and request the GIL; C++ then aborts the process with SIGABRT
    (CPython issue 87135).
    """
    code = 0
    try:
        command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads and pools, as the interpreter does first
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def raise_stopped(number: int, frame: FrameType | None) -> None:
    """A signal handler that raises `Stopped`, once, and not where numba's machine code waits for a Python function."""
    signal.signal(number, signal.SIG_IGN)
    while frame is not None:
        if frame.f_globals.get("__name__") == NO_EXCEPTIONS:
            return _raise_later(number)
        frame = frame.f_back
    raise Stopped(number)


def _raise_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """`Stopped` was raised where exceptions are swallowed, such as in a callback of the garbage collector."""
    if isinstance(unraisable.exc_value, Stopped):
        _raise_later(unraisable.exc_value.args[0])
    else:
        sys.__unraisablehook__(unraisable)


def _raise_printed_again(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """`Stopped` was raised in an import by C code, which prints its traceback and makes an ImportError of it."""
    if isinstance(error, Stopped):
        _raise_later(error.args[0])
    else:
        sys.__excepthook__(kind, error, trace)


def _raise_later(number: int) -> None:
    signal.signal(number, raise_stopped)
    main = threading.main_thread().ident
    threading.Timer(RAISE_AGAIN_SECONDS, signal.pthread_kill, [main, number]).start()


def print_stopped() -> None:
    """Print the message on standard error, once."""
    if _printing.acquire(blocking=False):
        os.write(2, f"sparseoco: {MESSAGE}\n".encode())


def _kill_after(reader: int, seconds: float, last: Callable[[], None] | None) -> None:
    while (number := os.read(reader, 1)[0]) not in SIGNALS:
        pass
    time.sleep(seconds)
    if last is not None:
        thread = threading.Thread(target=last, daemon=True)
        with suppress(RuntimeError):  # no more threads can be started
            thread.start()
            thread.join(LAST_SECONDS)
    _kill(number)


def _kill(number: int) -> NoReturn:
    print_stopped()
    with suppress(ImportError):  # stopped during its import: there are no children yet
        import psutil

        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    os._exit(128 + number)
