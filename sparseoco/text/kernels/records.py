"""Scanners of CSV records."""

from sparseoco.core.compile_cache import compiled, register_jitable

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
