"""Memory that is used again for every shard, kept instead of handed back page by page."""

import ctypes
from functools import cache

# Names and numbers of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
KEPT_BYTES = 1 << 30


@cache
def keep_memory() -> None:
    """Ask the C library to keep up to `KEPT_BYTES` of what is freed; does nothing where it is not glibc.

    Every shard needs buffers of the same sizes. Handed back and asked for again, each of their pages costs a fault: a
    tenth of the time of an ingest.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in ((M_MMAP_THRESHOLD, KEPT_BYTES), (M_TRIM_THRESHOLD, KEPT_BYTES), (M_ARENA_MAX, 1)):
            mallopt(option, value)
