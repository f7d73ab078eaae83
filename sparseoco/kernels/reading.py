"""Read many runs of bytes of a file in one call, without mapping it.

Mapped pages count as memory of the worker and may be read ahead in 2 MB pieces; copies by `pread` do not.
"""

import ctypes

import numpy as np
from numba import config, types

from sparseoco.core.compile_cache import compiled

if config.DISABLE_JIT:
    pread = ctypes.CDLL(None).pread
    pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
    pread.restype = ctypes.c_ssize_t
else:
    pread = types.ExternalFunction("pread", types.int64(types.int32, types.voidptr, types.uint64, types.int64))


def _kernel(function):
    return compiled(function, [])


@_kernel
def read_runs(descriptor, offsets, sizes, out):
    """Copy sizes[i] bytes from offsets[i] of an open file, run after run, into `out` (uint8); returns success.

    descriptor int32; offsets, sizes (runs,) int64
    """
    at = 0
    for i in range(offsets.size):
        done = 0
        while done < sizes[i]:
            got = pread(descriptor, out[at + done :].ctypes, np.uint64(sizes[i] - done), offsets[i] + done)
            if got <= 0:
                return False
            done += got
        at += sizes[i]
    return True
