"""Boundaries of the records and lines of CSV and TSV."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.kernels.csv_records import (
    NEEDS_MORE,
    NEWLINE,
    NO_QUOTE,
    QUOTE,
    QUOTED,
    RECORD_START,
    RETURN,
    TOO_LONG,
    scan_records,
)
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import line_too_long

BOM = b"\xef\xbb\xbf"


def line_starts(data: bytes | memoryview | NDArray[np.uint8], size: int) -> NDArray[np.int64]:
    """Offsets of the lines of data[:size], as csv.reader counts them: 0, and after each LF, CR and CRLF."""
    text = np.frombuffer(data, np.uint8, size)
    ends = (text == NEWLINE) | (text == RETURN)
    ends[:-1] &= ~((text[:-1] == RETURN) & (text[1:] == NEWLINE))
    return np.concatenate([[0], np.flatnonzero(ends) + 1])


@dataclass
class RecordScanner:
    """Finds ends of records in a file that is read in parts, scanning each byte once.

    Records are those of `csv.reader`; their ends depend neither on the parts nor on where the file is split. Without
    quotes (`quoted`), every line is a record.
    """

    name: str
    delimiter: int
    quoted: bool
    options: TextOptions
    at_start: bool = True  # of the file, where a mark may precede the first record

    def __post_init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._position, self._state, self._begin, self._opened = 0, RECORD_START, 0, 0

    def find_end(self, pending: bytes | memoryview, at_least: int, line: int, *, at_end: bool) -> int:
        """Size of the shortest run of whole records longer than `at_least`, or -1 if more bytes are needed.

        Parameters
        ----------
        pending : bytes or memoryview
            The bytes after the last run that was found.
        line : int
            Number of its first line.
        at_end : bool
            Whether the file ends with `pending`.

        Raises
        ------
        InputError
            For a record that is too long, and for a quoted field without an end.
        """
        if self.at_start:
            if len(pending) < len(BOM) and not at_end:
                return -1
            self.at_start = False
            self._position = len(BOM) if pending[: len(BOM)] == BOM else 0
        found, self._position, self._state, self._begin, self._opened = scan_records(
            np.frombuffer(pending, np.uint8), self._position, self._state, self._begin, self._opened,
            at_least, self.options.max_line_bytes, self.delimiter, QUOTE if self.quoted else NO_QUOTE, at_end,
        )  # fmt: skip
        if self._state == QUOTED and (found == TOO_LONG or at_end):
            number = line + line_starts(pending, self._opened).size - 1
            problem = (
                f"is longer than {self.options.max_line_bytes} bytes; close it, or increase max_line_bytes"
                if found == TOO_LONG
                else "is still open at the end of the file"
            )
            raise InputError(
                f"{self.name}, line {number}: a quoted field that starts here {problem}; if quotes are text, set "
                "--quoting none.",
                code="unclosed-quote",
            )
        if found == TOO_LONG:
            raise line_too_long(self.name, line + line_starts(pending, self._begin).size - 1, self.options)
        if found == NEEDS_MORE:
            return -1
        self._reset()
        return int(found)
