"""Settings of the C library's memory allocator."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa

# Names and numbers of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
RETAINED_BYTES = 1 << 30


@cache
def retain_freed_memory() -> None:
    """Let glibc keep up to `RETAINED_BYTES` of freed memory; without effect on other C libraries.

    Every split needs buffers of the same sizes. Returning them to the system and requesting them again would cost a
    tenth of the time of an ingest in page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in ((M_MMAP_THRESHOLD, RETAINED_BYTES), (M_TRIM_THRESHOLD, RETAINED_BYTES), (M_ARENA_MAX, 1)):
            mallopt(option, value)


def call_and_release(step: Callable[..., Any], *arguments: Any) -> Any:
    """Run a step of an ingest and return freed memory to the system: the process of a worker has a limit."""
    try:
        return step(*arguments)
    finally:
        pa.default_memory_pool().release_unused()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
