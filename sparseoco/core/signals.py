"""What Ctrl-C and SIGTERM do to a command: it ends within ten seconds, whatever it is at, and says so in one sentence.

A signal raises `Stopped` in the main thread, which ends what is under way as any error does. Python cannot raise it
while the main thread is inside a kernel or a library, and threads that compute are waited for at the end: so a thread
of its own counts the seconds from the signal on, and ends the process and its children where that takes too long. No
file suffers: what is committed is whole, and what is not is not there.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

SENTENCE = "Stopped. What is committed is kept: run the same command again to go on."
GRACE_SECONDS = 5.0  # to end in good order
LAST_SECONDS = 2.0  # for what is to be done last where it did not
AGAIN_SECONDS = 0.05
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_telling = threading.Lock()  # held for good by who has said the sentence


class Stopped(BaseException):
    """Ctrl-C or SIGTERM, whose number is the argument; no library takes it for an error of its own."""


def watch() -> None:
    """See to it, from now on, that this process ends at a signal: at once until `raise_stopped` takes over.

    For the entry points of commands, before they load what they need.
    """
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: _end_now(number))
    sys.unraisablehook = _raise_again
    atexit.register(_ignore)  # the first to be registered is the last to be called
    end_in_time()


def end_in_time(seconds: float = GRACE_SECONDS, last: Callable[[], None] | None = None) -> None:
    """End this process and its children so many seconds after a signal, if it still runs then; the last call counts.

    Before, `last` is called in a thread of its own, which has `LAST_SECONDS`. For the main thread.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # The interpreter writes there at once, whatever the main thread is at.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_end_in_time, args=(reader, seconds, last), name="stopping", daemon=True).start()


def to_the_end(command: Callable[[], None]) -> NoReturn:
    """Do what a process is for, and end it in good order with its exit code, but without taking the interpreter down.

    A thread of a library that still runs then and asks for the interpreter is ended inside of it, which C++ answers by
    ending the process with SIGABRT (CPython issue 87135).
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


def raise_stopped(number: int, frame: object) -> None:
    """A handler of signals that raises `Stopped`, once."""
    signal.signal(number, signal.SIG_IGN)
    raise Stopped(number)


def _raise_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """`Stopped` was raised in a place that no exception leaves, such as a callback of the garbage collector."""
    if isinstance(unraisable.exc_value, Stopped):
        number = unraisable.exc_value.args[0]
        signal.signal(number, raise_stopped)
        main = threading.main_thread().ident
        threading.Timer(AGAIN_SECONDS, signal.pthread_kill, [main, number]).start()
    else:
        sys.__unraisablehook__(unraisable)


def print_stopped() -> None:
    """Say the sentence on standard error, unless it stands there."""
    if _telling.acquire(blocking=False):
        os.write(2, f"sparseoco: {SENTENCE}\n".encode())


def _end_in_time(reader: int, seconds: float, last: Callable[[], None] | None) -> None:
    while (number := os.read(reader, 1)[0]) not in SIGNALS:
        pass
    time.sleep(seconds)
    if last is not None:
        doing = threading.Thread(target=last, daemon=True)
        with suppress(RuntimeError):  # no thread can be started any more
            doing.start()
            doing.join(LAST_SECONDS)
    _end_now(number)


def _end_now(number: int) -> NoReturn:
    print_stopped()
    _end_children()
    os._exit(128 + number)


def _ignore() -> None:
    """All is done and said: a signal that comes while the interpreter is taken down stops nothing."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end_children() -> None:
    with suppress(ImportError):  # stopped while it was being loaded: nobody has children yet
        import psutil

        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
