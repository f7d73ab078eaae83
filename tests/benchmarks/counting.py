"""Counts what a process opens and requests: `install` it in every process of a cluster, then read `counters`."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import obstore
import pyarrow as pa

REQUESTS = ("get", "get_range", "get_ranges", "put", "head", "delete", "list", "list_with_delimiter")
_counts: Counter[str] = Counter()
_folders: list[str] = []


def install(folder: str) -> None:
    """Count opens of files below a folder, and requests to object stores, from now on."""
    if not _folders:
        sys.addaudithook(_audit)
        for name in REQUESTS:
            setattr(obstore, name, _counted(getattr(obstore, name), "requests"))
        pa.memory_map = _counted(pa.memory_map, "opens")
    _folders.append(folder)
    _counts.clear()


def counters() -> dict[str, int]:
    """Opens, requests, bytes read and written by system calls, and the peak of memory in bytes."""
    with open("/proc/self/io") as file:
        transferred = {name: int(value) for name, value in (line.split(":") for line in file)}
    with open("/proc/self/status") as file:  # ru_maxrss would include the process that started this one
        peak = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
    return dict(_counts) | {"read": transferred["rchar"], "written": transferred["wchar"], "peak": peak}


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(_folders[-1]):
        _counts["opens"] += 1


def _counted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(function)
    def counted(*arguments: Any, **options: Any) -> Any:
        _counts[name] += 1
        return function(*arguments, **options)

    return counted
