"""Tokens beyond runs of word characters: inner joiners, folded numbers, limits of length and stop words."""

import numpy as np

from sparseoco.core.compile_cache import register_jitable
from sparseoco.text.kernels import kernel
from sparseoco.text.kernels.characters import decode, previous
from sparseoco.text.kernels.hashing import xxh64
from sparseoco.text.kernels.preprocess import OTHER, SLACK

APOSTROPHES, HYPHENS, DECIMAL_POINTS = 1, 2, 3


@register_jitable
def _joiner_size(source, i, joiners):
    """Bytes of the joiner that begins at source[i]; 0 if there is none."""
    byte = source[i]
    if joiners == DECIMAL_POINTS:
        return 1 if byte == 0x2E or byte == 0x2C else 0
    if byte == (0x27 if joiners == APOSTROPHES else 0x2D):
        return 1
    if byte == 0xE2 and source[i + 1] == 0x80:
        last = source[i + 2]
        if last == 0x99 if joiners == APOSTROPHES else (last == 0x90 or last == 0x91):
            return 3
    return 0


@kernel
def keep_joiners(data, starts, stops, kinds, other, other_offsets, joiners, digits, clean, bounds):
    """Copy the joiners between two word characters, of decimal points those between two digits, to `clean`, in place.

    The other arguments are those of `preprocess` and what it returned; `digits[c]`: is code point c a digit?
    """
    n_other = 0
    for d in range(starts.size):
        if kinds[d] == OTHER:
            source = other[other_offsets[n_other] : other_offsets[n_other + 1]]
            n_other += 1
        else:
            source = data[starts[d] : stops[d]]
        target = clean[bounds[d] : bounds[d + 1]]
        for i in range(1, source.size - 1):
            if target[i - 1] == 0:
                continue
            size = _joiner_size(source, i, joiners)
            if size == 0 or target[i + size] == 0:
                continue
            if joiners == DECIMAL_POINTS and not (
                digits[decode(source, previous(source, i))[0]] and digits[decode(source, i + 1)[0]]
            ):
                continue
            for k in range(size):
                target[i + k] = source[i + k]


@register_jitable
def _is_number(clean, begin, end, digits):
    """Whether a token has only digits and the points between them."""
    i = begin
    while i < end:
        point, size = decode(clean, i)
        if not digits[point] and point != 0x2E and point != 0x2C:
            return False
        i += size
    return True


@register_jitable
def _is_stop_word(clean, begin, end, table, stop_bytes, stop_offsets):
    mask = np.uint64(table.size - 1)
    slot = xxh64(clean, begin, end, np.uint64(0)) & mask
    while table[slot] >= 0:
        word = table[slot]
        if stop_offsets[word + 1] - stop_offsets[word] == end - begin:
            same = True
            for k in range(end - begin):
                same &= stop_bytes[stop_offsets[word] + k] == clean[begin + k]
            if same:
                return True
        slot = (slot + np.uint64(1)) & mask
    return False


@kernel
def select_tokens(clean, shortest, longest, fold, digits, table, stop_bytes, stop_offsets):
    """Blank the tokens that are not counted, in place: those of too few or too many characters, and stop words.

    clean    uint8 with SLACK zero bytes, tokens separated by zeros
    fold     0, or the character to which numbers are shortened, which may be a stop word but is never too short
    table    int32, open addressing by XXH64: numbers of stop words, −1 is free; size 1 for none
    """
    i = 0
    end = clean.size - SLACK
    while i < end:
        if clean[i] == 0:
            i += 1
            continue
        begin = i
        characters = 0
        while clean[i] != 0:
            if clean[i] & np.uint8(0xC0) != np.uint8(0x80):
                characters += 1
            i += 1
        last = i
        number = fold and _is_number(clean, begin, i, digits)
        if number:
            clean[begin:i] = 0
            clean[begin] = fold
            last = begin + 1
        if (not number and (characters < shortest or characters > longest)) or (
            table.size > 1 and _is_stop_word(clean, begin, last, table, stop_bytes, stop_offsets)
        ):
            clean[begin:last] = 0
