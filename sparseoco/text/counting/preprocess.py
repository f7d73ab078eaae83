"""Which characters make words, and documents as the counting kernel wants them."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.text.documents import Documents
from sparseoco.text.kernels.preprocess import HARD, WESTERN_END, WIDE, classify, clean_documents

N_CODE_POINTS = 0x110000


@cache
def western_table(lowercase: bool) -> NDArray[np.uint16]:
    """(0x250,) uint16: what a Latin letter becomes, 0 for no letter, HARD where `str.lower` changes its length."""
    table = np.zeros(WESTERN_END, np.uint16)
    for point in range(0x80, WESTERN_END):
        lowered = chr(point).lower() if lowercase else chr(point)
        if len(lowered) > 1 or len(lowered.encode()) != 2:
            table[point] = HARD
        elif chr(point).isalnum():
            table[point] = ord(lowered)
    return table


@cache
def word_table() -> NDArray[np.bool_]:
    """(0x110000,) bool: is the code point matched by `\\w`? Python's `re` takes isalnum() and the underscore."""
    table = np.fromiter((chr(point).isalnum() for point in range(N_CODE_POINTS)), np.bool_, N_CODE_POINTS)
    table[ord("_")] = True
    return table


def clean(documents: Documents, *, lowercase: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Word bytes of all documents, zeros between, and where each document begins (see `count_grams`).

    ASCII and Latin letters are lowered in the kernel; documents with others by Python's `str.lower`, whose result can
    depend on neighbouring letters (a final sigma) and be longer than its source (İ).
    """
    western = western_table(lowercase)
    kinds = classify(documents.data, documents.starts, documents.stops, western)
    parts = [_lowered(documents, d, lowercase) for d in np.flatnonzero(kinds == WIDE).tolist()]
    offsets = np.cumsum([0] + [len(part) for part in parts], dtype=np.int64)
    other = np.frombuffer(b"".join(parts), np.uint8)
    # The table costs a tenth of a second: only text of other scripts pays for it.
    table: Any = word_table() if parts else np.zeros(1, np.bool_)
    cleaned: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    cleaned, bounds = clean_documents(
        documents.data, documents.starts, documents.stops, kinds, western, other, offsets, lowercase, table
    )
    return cleaned, bounds


def _lowered(documents: Documents, d: int, lowercase: bool) -> bytes:
    raw = documents.data[documents.starts[d] : documents.stops[d]].tobytes()
    return raw.decode().lower().encode() if lowercase else raw
