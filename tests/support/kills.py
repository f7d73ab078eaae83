"""Kill worker processes of this process at random moments."""

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil


def check_under_kills(folder: Path, run: Callable[[Path], None], *, kills: int, seed: int) -> None:
    """Call `run` with one new folder after the other until so many of the two workers have been killed in between.

    Now this and now that worker dies, after some more files have come, gone or changed; `run` asserts what it leaves.
    """
    killed, over = 0, threading.Event()

    def kill() -> None:
        nonlocal killed
        choose = random.Random(seed)
        while killed < kills and not over.is_set():
            before, wanted = listing(folder), choose.randint(1, 12)
            while len(listing(folder) ^ before) < wanted and not over.is_set():
                time.sleep(0.001)
            while len(alive := worker_processes()) < 2 and not over.is_set():
                time.sleep(0.01)
            if not over.is_set():
                with suppress(psutil.NoSuchProcess):
                    choose.choice(alive).kill()
                    killed += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        runs = 0
        while killed < kills:
            run(folder / f"{runs}")
            runs += 1
    finally:
        over.set()
        killer.join()


def listing(folder: Path) -> set[tuple[str, int]]:
    """Name and time of every file below a folder that is changing."""
    found = set()
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found.add((name, os.stat(os.path.join(parent, name)).st_mtime_ns))
    return found


def worker_processes(root: int | None = None) -> list[psutil.Process]:
    """The workers that nannies of a process keep alive, by default of this one."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(root).children(recursive=True):
            with suppress(psutil.Error):  # it has just died
                if "spawn_main" in " ".join(child.cmdline()):
                    found.append(child)
    return found
