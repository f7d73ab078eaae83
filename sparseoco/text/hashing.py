"""XXH64 of strings."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparseoco.text.array_files import string_buffers
from sparseoco.text.kernels.hashing import hash_terms


def hash_strings(strings: pa.Array, seed: int, bits: int) -> NDArray[np.int64]:
    """The low `bits` bits of XXH64 of each string."""
    data, offsets = string_buffers(strings)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    return hash_terms(padded, offsets, np.uint64(seed), bits)  # type: ignore[no-any-return]
