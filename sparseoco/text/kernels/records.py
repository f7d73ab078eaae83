"""Scanners of CSV records and of JSON lines."""

import numpy as np

from sparseoco.core.compile_cache import compiled, register_jitable
from sparseoco.text.kernels.ngrams import B3, HIGHS, ONES, ZERO, load8, store8, trailing_zeros

# ----------------------------------------------------------------------------------------------------------------------
# Ends of the records of CSV and TSV: the state machine of Python's `csv.reader`, over bytes.


# At the start of a field; in a field without quotes; in a quoted field; after a quote in a quoted field.
RECORD_START, UNQUOTED, QUOTED, CLOSED = 0, 1, 2, 3
NEEDS_MORE, TOO_LONG = -1, -2

QUOTE, NEWLINE, RETURN = 0x22, 0x0A, 0x0D
NO_QUOTE = -1  # no byte


@register_jitable
def _read_field(data, i, stop, state, delimiter, quote):
    """Read from i < stop, where no record ends: to after a delimiter or quote, or to the end of plain text.

    Returns (first byte that was not read, state).
    """
    if state == QUOTED:
        while i < stop and data[i] != quote:
            i += 1
        return (i + 1, CLOSED) if i < stop else (i, QUOTED)
    if data[i] == delimiter:
        return i + 1, RECORD_START
    if data[i] == quote and state in (RECORD_START, CLOSED):
        return i + 1, QUOTED
    i += 1
    while i < stop and data[i] != delimiter and data[i] != NEWLINE and data[i] != RETURN:
        i += 1
    return i, UNQUOTED


@compiled
def scan_records(data, position, state, begin, opened, at_least, longest, delimiter, quote, final):
    """Scan data[position:] for the first end of a record beyond `at_least`.

    A quote opens a quoted field only at the start of a field; two quotes in a quoted field stand for one, and text
    after the closing quote continues without quotes. LF, CR and CRLF end a record, except in a quoted field. `begin`
    is the start of the current record, `opened` the start of the last quoted field; `quote` is QUOTE, or NO_QUOTE if
    quotes are text; `final` means that no data follows.

    Returns (end, or NEEDS_MORE, or TOO_LONG for a record of more than `longest` bytes; position; state; begin; opened).
    """
    size = data.size
    i = position
    while i < size:
        byte = data[i]
        if state != QUOTED and byte in (NEWLINE, RETURN):
            if byte == RETURN and i + 1 == size and not final:
                break  # CR or CRLF? The next byte decides
            i += 2 if byte == RETURN and i + 1 < size and data[i + 1] == NEWLINE else 1
            state = RECORD_START
            if i - begin > longest:
                return TOO_LONG, i, state, begin, opened
            begin = i
            if i > at_least:
                return i, i, state, begin, opened
        else:
            if byte == quote and state == RECORD_START:
                opened = i
            i, state = _read_field(data, i, size, state, delimiter, quote)
    if size - begin > longest:
        return TOO_LONG, i, state, begin, opened
    return size if final else NEEDS_MORE, i, state, begin, opened


@compiled
def record_ends(data, begin, stop, state, delimiter, quote, ends):
    """Write the ends of the records that end in data[begin:stop] to `ends`, from the state before `begin`.

    The state machine of `scan_records`. A CRLF across `stop` ends beyond it, and the next range begins there.
    Returns (number of ends, first byte that was not read, state).
    """
    n = 0
    i = begin
    while i < stop:
        byte = data[i]
        if state != QUOTED and byte in (NEWLINE, RETURN):
            i += 2 if byte == RETURN and i + 1 < data.size and data[i + 1] == NEWLINE else 1
            state = RECORD_START
            ends[n] = i
            n += 1
        else:
            i, state = _read_field(data, i, stop, state, delimiter, quote)
    return n, i, state


# ----------------------------------------------------------------------------------------------------------------------
# Strings of JSON: their ends, and their escapes.


QUOTES, SLASHES, SPACES = ONES * np.uint64(0x22), ONES * np.uint64(0x5C), ONES * np.uint64(0x20)


@register_jitable
def _in_range(data, i, low, high):
    return low <= data[i] <= high


@register_jitable
def _skip_utf8(data, i):
    """End of the run of bytes above 127 at i, or -1 if it is not well-formed UTF-8 (Unicode 16.0, table 3-7)."""
    while data[i] >= 0x80:
        byte = data[i]
        if 0xC2 <= byte <= 0xDF:
            size = 2
            good = True
        elif 0xE0 <= byte <= 0xEF:
            size = 3
            good = _in_range(data, i + 1, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF)
        elif 0xF0 <= byte <= 0xF4:
            size = 4
            good = _in_range(data, i + 1, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF)
        else:
            return -1
        for k in range(1, size):
            if not _in_range(data, i + k, 0x80, 0xBF):
                return -1
        if not good:
            return -1
        i += size
    return i


@register_jitable
def skip_string(data, i):
    """From the byte after a quote: (position of the closing quote, has escapes), or (-1, ·) for the full parser."""
    escaped = False
    while True:
        word = load8(data, i)
        quote = word ^ QUOTES
        slash = word ^ SLASHES
        hit = ((quote - ONES) & ~quote) | ((slash - ONES) & ~slash) | ((word - SPACES) & ~word) | word
        hit &= HIGHS
        if hit == ZERO:
            i += 8
            continue
        i += np.int64(trailing_zeros(hit) >> B3)
        byte = data[i]
        if byte == 0x22:
            return i, escaped
        if byte >= 0x80:
            i = _skip_utf8(data, i)
            if i < 0:
                return -1, escaped
            continue
        if byte != 0x5C:
            return -1, escaped
        i = _skip_escape(data, i)
        if i < 0:
            return -1, escaped
        escaped = True


@register_jitable
def _skip_escape(data, i):
    """End of the escape at i, with the second one of a surrogate pair, or -1."""
    byte = data[i + 1]
    if (
        byte == 0x22 or byte == 0x5C or byte == 0x2F or byte == 0x6E or byte == 0x74 or byte == 0x72
        or byte == 0x62 or byte == 0x66
    ):  # fmt: skip
        return i + 2
    if byte != 0x75:
        return -1
    unit = _code_unit(data, i + 2)
    if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
        return -1
    i += 6
    if unit < 0xD800 or unit > 0xDFFF:
        return i
    if data[i] != 0x5C or data[i + 1] != 0x75 or not 0xDC00 <= _code_unit(data, i + 2) <= 0xDFFF:
        return -1
    return i + 6


@register_jitable
def _code_unit(data, i):
    """The number of the four hexadecimal digits at i, or -1."""
    unit = 0
    for k in range(4):
        byte = data[i + k]
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 65 <= byte <= 70 or 97 <= byte <= 102:
            digit = (byte | 32) - 87
        else:
            return -1
        unit = unit * 16 + digit
    return unit


@register_jitable
def _resolve(byte):
    """The character of a simple escape, by the byte after its backslash."""
    if byte == 0x6E:
        return np.uint8(10)
    if byte == 0x74:
        return np.uint8(9)
    if byte == 0x72:
        return np.uint8(13)
    if byte == 0x62:
        return np.uint8(8)
    return np.uint8(12) if byte == 0x66 else byte


@register_jitable
def _store_utf8(data, to, code):
    """Write the UTF-8 of a code point; returns its end."""
    if code < 0x80:
        data[to] = code
        return to + 1
    if code < 0x800:
        data[to] = 0xC0 | code >> 6
    else:
        if code < 0x10000:
            data[to] = 0xE0 | code >> 12
        else:
            data[to] = 0xF0 | code >> 18
            to += 1
            data[to] = 0x80 | code >> 12 & 0x3F
        to += 1
        data[to] = 0x80 | code >> 6 & 0x3F
    data[to + 1] = 0x80 | code & 0x3F
    return to + 2


@compiled
def unescape(data, escaped, starts, stops):
    """Resolve the escapes of the strings that are `escaped` in place, which shortens them (`stops` changes)."""
    for k in range(starts.size):
        if not escaped[k]:
            continue
        to = i = starts[k]
        stop = stops[k]
        while i < stop:
            if i + 8 <= stop:
                word = load8(data, i)
                slash = word ^ SLASHES
                if (slash - ONES) & ~slash & HIGHS == ZERO:
                    store8(data, to, word)
                    i += 8
                    to += 8
                    continue
            if data[i] != 0x5C:
                data[to] = data[i]
                i += 1
                to += 1
            elif data[i + 1] != 0x75:
                data[to] = _resolve(data[i + 1])
                i += 2
                to += 1
            else:
                code = _code_unit(data, i + 2)
                i += 6
                if 0xD800 <= code <= 0xDBFF:
                    code = 0x10000 + ((code - 0xD800) << 10) + _code_unit(data, i + 2) - 0xDC00
                    i += 6
                to = _store_utf8(data, to, code)
        stops[k] = to


# ----------------------------------------------------------------------------------------------------------------------
# A strict scanner for simple JSON lines; all others are left to a full parser.
#
# Parsed here: objects on one line whose strings are UTF-8. Left: lone surrogates, escapes in keys of the object,
# repeated requested keys, values nested more than 64 deep, and anything that is not JSON.


ONE = np.uint64(1)

PARSED, LEFT, BLANK = 0, 1, 2
MISSING, STRING, ESCAPED, INTEGER, NUMBER, BOOLEAN, NESTED = 0, 1, 2, 3, 4, 5, 6
MAX_DEPTH = 64  # bits of a word


@register_jitable
def _skip_blanks(data, i):
    while data[i] == 32 or data[i] == 9 or data[i] == 13:
        i += 1
    return i


@register_jitable
def _skip_digits(data, i):
    while 48 <= data[i] <= 57:
        i += 1
    return i


@register_jitable
def _number(data, i):
    """From the first byte of a number: (end, is an integer in canonical form), or (-1, ·)."""
    negative = data[i] == 45
    i += negative
    begin = i
    i = _skip_digits(data, i)
    if i == begin or (data[begin] == 48 and i > begin + 1):
        return -1, False
    integer = not (negative and data[begin] == 48)
    if data[i] == 46:
        integer = False
        begin = i + 1
        i = _skip_digits(data, begin)
        if i == begin:
            return -1, False
    if data[i] == 101 or data[i] == 69:
        integer = False
        i += 1
        if data[i] == 43 or data[i] == 45:
            i += 1
        begin = i
        i = _skip_digits(data, begin)
        if i == begin:
            return -1, False
    return i, integer


@register_jitable
def _literal(data, i):
    """End of true, false or null at i, or -1."""
    a, b, c, d = data[i], data[i + 1], data[i + 2], data[i + 3]
    if (a == 116 and b == 114 and c == 117 and d == 101) or (a == 110 and b == 117 and c == 108 and d == 108):
        return i + 4
    if a == 102 and b == 97 and c == 108 and d == 115 and data[i + 4] == 101:
        return i + 5
    return -1


@register_jitable
def _skip_scalar(data, i):
    """From the first byte of a value: (end, kind), or (-1, ·). Literals but true and false are MISSING."""
    byte = data[i]
    if byte == 0x22:
        i, escaped = skip_string(data, i + 1)
        return (i if i < 0 else i + 1), (ESCAPED if escaped else STRING)
    if byte == 45 or 48 <= byte <= 57:
        i, integer = _number(data, i)
        return i, (INTEGER if integer else NUMBER)
    return _literal(data, i), (MISSING if byte == 110 else BOOLEAN)


@register_jitable
def _skip_key(data, i):
    """From a key to the first byte of its value, or -1."""
    if data[i] != 0x22:
        return -1
    i, _ = skip_string(data, i + 1)
    if i < 0:
        return -1
    i = _skip_blanks(data, i + 1)
    return _skip_blanks(data, i + 1) if data[i] == 0x3A else -1


@register_jitable
def _skip_nested(data, i):
    """End of the list or object at i, or -1."""
    objects = ZERO  # bit k: whether what is open k levels above is an object
    depth = 0
    while True:
        opens_object = data[i] == 0x7B
        if opens_object or data[i] == 0x5B:
            if depth == MAX_DEPTH:
                return -1
            depth += 1
            objects = objects << ONE | (ONE if opens_object else ZERO)
            i = _skip_blanks(data, i + 1)
            if data[i] != (0x7D if opens_object else 0x5D):
                if opens_object:
                    i = _skip_key(data, i)
                    if i < 0:
                        return -1
                continue
        else:
            i, _ = _skip_scalar(data, i)
            if i < 0:
                return -1
            i = _skip_blanks(data, i)
        while data[i] == (0x7D if objects & ONE else 0x5D):
            depth -= 1
            objects >>= ONE
            if depth == 0:
                return i + 1
            i = _skip_blanks(data, i + 1)
        if data[i] != 0x2C:
            return -1
        i = _skip_blanks(data, i + 1)
        if objects & ONE:
            i = _skip_key(data, i)
            if i < 0:
                return -1


@register_jitable
def _field_index(data, start, stop, names, name_offsets):
    for w in range(name_offsets.size - 1):
        size = name_offsets[w + 1] - name_offsets[w]
        if size == stop - start:
            same = True
            for k in range(size):
                same &= data[start + k] == names[name_offsets[w] + k]
            if same:
                return w
    return -1


@register_jitable
def _line(data, i, end, names, name_offsets, kinds, starts, stops):
    """Scan the object of one line; True if it was parsed. `end` is the position of its newline."""
    if data[i] != 0x7B:
        return False
    i = _skip_blanks(data, i + 1)
    while True:
        if data[i] != 0x22:
            return False
        begin = i + 1
        i, escaped = skip_string(data, begin)
        if i < 0 or escaped:
            return False
        field = _field_index(data, begin, i, names, name_offsets)
        i = _skip_blanks(data, i + 1)
        if data[i] != 0x3A:
            return False
        i = _skip_blanks(data, i + 1)
        begin = i
        if data[i] == 0x7B or data[i] == 0x5B:
            i = _skip_nested(data, i)
            kind = NESTED
        else:
            i, kind = _skip_scalar(data, i)
        if i < 0:
            return False
        if field >= 0:
            if kinds[field] != MISSING:
                return False
            quote = kind in (STRING, ESCAPED)
            kinds[field] = kind
            starts[field] = begin + quote
            stops[field] = i - quote
        i = _skip_blanks(data, i)
        if data[i] == 0x7D:
            return _skip_blanks(data, i + 1) == end
        if data[i] != 0x2C:
            return False
        i = _skip_blanks(data, i + 1)


@compiled
def scan_json_lines(data, lines, names, name_offsets):
    """Find the requested fields of each line.

    data   uint8, with a newline and eight bytes of slack after the last line; lines from `Chunk.lines`
    names  the requested keys, concatenated, and their offsets
    Returns status uint8 (lines,): PARSED, LEFT or BLANK; kinds uint8, starts, stops int64 (fields, lines) of values.
    A missing key and null have the kind MISSING. The span of a string is inside its quotes, with its escapes.
    """
    n = lines.size - 1
    fields = name_offsets.size - 1
    status = np.empty(n, np.uint8)
    kinds = np.zeros((fields, n), np.uint8)
    starts, stops = np.zeros((fields, n), np.int64), np.zeros((fields, n), np.int64)
    kind, start, stop = np.empty(fields, np.uint8), np.empty(fields, np.int64), np.empty(fields, np.int64)
    for k in range(n):
        end = lines[k + 1]
        if data[end - 1] == 10:
            end -= 1
        i = _skip_blanks(data, lines[k])
        if i >= end:
            status[k] = BLANK
            continue
        for w in range(fields):
            kind[w] = MISSING
        if _line(data, i, end, names, name_offsets, kind, start, stop):
            status[k] = PARSED
            for w in range(fields):
                if kind[w] != MISSING:
                    kinds[w, k], starts[w, k], stops[w, k] = kind[w], start[w], stop[w]
        else:
            status[k] = LEFT
    return status, kinds, starts, stops


@compiled
def gather_spans(data, starts, stops):
    """(bytes, int32 offsets) of the concatenated spans: the two buffers of an Arrow string array."""
    offsets = np.zeros(starts.size + 1, np.int32)
    for k in range(starts.size):
        offsets[k + 1] = offsets[k] + (stops[k] - starts[k])
    gathered = np.empty(offsets[starts.size], np.uint8)
    for k in range(starts.size):
        to = offsets[k]
        for i in range(starts[k], stops[k]):
            gathered[to] = data[i]
            to += 1
    return gathered, offsets
