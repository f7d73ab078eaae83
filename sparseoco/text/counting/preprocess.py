"""Lower-casing and word characters, as in scikit-learn."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.text.documents import Documents
from sparseoco.text.kernels import preprocess as kernels

N_CODE_POINTS = 0x110000


def preprocess(documents: Documents, *, lowercase: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The words of all documents separated by zero bytes, and the bounds of the documents (see `count_ngrams`).

    The kernel lower-cases ASCII and Latin letters. Documents with other letters go through `str.lower`, whose result
    can depend on neighbouring letters (final sigma) and be longer than its source (İ).
    """
    latin = _latin_table(lowercase)
    kinds = kernels.classify(documents.data, documents.starts, documents.stops, latin)
    others = [_lower(documents, d, lowercase) for d in np.flatnonzero(kinds == kernels.OTHER).tolist()]
    offsets = np.cumsum([0] + [len(text) for text in others], dtype=np.int64)
    # Building the table takes a tenth of a second: only for text in other scripts.
    word_points: Any = _word_table() if others else np.zeros(1, np.bool_)
    return kernels.preprocess(  # type: ignore[no-any-return]
        documents.data, documents.starts, documents.stops, kinds, latin,
        np.frombuffer(b"".join(others), np.uint8), offsets, lowercase, word_points,
    )  # fmt: skip


@cache
def _latin_table(lowercase: bool) -> NDArray[np.uint16]:
    """(0x250,) uint16: replacements of letters, 0 for other characters, IRREGULAR if `str.lower` changes the length."""
    table = np.zeros(kernels.LATIN_END, np.uint16)
    for point in range(0x80, kernels.LATIN_END):
        lowered = chr(point).lower() if lowercase else chr(point)
        if len(lowered) > 1 or len(lowered.encode()) != 2:
            table[point] = kernels.IRREGULAR
        elif chr(point).isalnum():
            table[point] = ord(lowered)
    return table


@cache
def _word_table() -> NDArray[np.bool_]:
    """(0x110000,) bool: whether `\\w` matches the code point, which is isalnum() or the underscore in Python."""
    table = np.fromiter((chr(point).isalnum() for point in range(N_CODE_POINTS)), np.bool_, N_CODE_POINTS)
    table[ord("_")] = True
    return table


def _lower(documents: Documents, d: int, lowercase: bool) -> bytes:
    raw = documents.data[documents.starts[d] : documents.stops[d]].tobytes()
    return raw.decode().lower().encode() if lowercase else raw
