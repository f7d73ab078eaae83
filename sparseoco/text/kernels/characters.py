"""Characters of UTF-8."""

import numpy as np

from sparseoco.core.compile_cache import register_jitable


@register_jitable
def decode(data, i):
    """(code point, bytes) of the character that begins at data[i]."""
    byte = np.int64(data[i])
    if byte < 0x80:
        return byte, 1
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | (np.int64(data[i + 1]) & 0x3F), 2
    size, point = (3, byte & 0x0F) if byte < 0xF0 else (4, byte & 0x07)
    for k in range(1, size):
        point = (point << 6) | (np.int64(data[i + k]) & 0x3F)
    return point, size


@register_jitable
def previous(data, i):
    """The beginning of the character before data[i]."""
    i -= 1
    while data[i] & np.uint8(0xC0) == np.uint8(0x80):
        i -= 1
    return i
