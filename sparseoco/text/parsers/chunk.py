"""A run of whole lines of one file in memory."""

import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.text.documents import BadRow
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.fields import MalformedRowError

SLACK = 17
R = TypeVar("R")


class Chunk(NamedTuple):
    """Whole lines of a file.

    Parameters
    ----------
    data : ndarray of uint8
        `size` bytes of text, then a newline and sixteen zeros, so that kernels can read ahead.
    name, short : str
        Names of the file in messages and in generated ids.
    line, offset : int
        Number of the first line, from 1, and offset of its first byte in the uncompressed file.
    header : tuple of str
        Column names, if the file has them.
    quoted : bool
        Whether fields may be quoted.
    """

    data: NDArray[np.uint8]
    size: int
    name: str
    short: str
    line: int
    offset: int
    header: tuple[str, ...] = ()
    quoted: bool = False

    def lines(self, options: TextOptions) -> NDArray[np.int64]:
        """Offsets of the lines, and the end. Raises `InputError` for a line that is too long."""
        lines = np.concatenate([[0], np.flatnonzero(self.data[: self.size] == ord("\n")) + 1])
        if lines[-1] < self.size:
            lines = np.append(lines, self.size)
        sizes = np.diff(lines)
        if sizes.size and sizes.max() > options.max_line_bytes:
            raise line_too_long(self.name, self.line + int(np.argmax(sizes > options.max_line_bytes)), options)
        return lines

    def parse_lines(self, options: TextOptions, parse: Callable[[str, int], R | None]) -> tuple[list[R], list[BadRow]]:
        """The results of parse(text, line number) for each line, without None; and the malformed lines."""
        rows: list[R] = []
        bad: list[BadRow] = []
        data = self.data[: self.size].tobytes()
        for k, (start, stop) in enumerate(itertools.pairwise(self.lines(options).tolist())):
            text = decode_lines(data[start:stop].rstrip(b"\r\n"), self.offset + start)
            try:
                row = parse(text, self.line + k)
            except MalformedRowError as error:
                bad.append(error.at(self.line + k, self.offset + start))
                continue
            if row is not None:
                rows.append(row)
        return rows, bad


def decode_lines(data: bytes, offset: int) -> str:
    """Text from `offset` of a file on, without a byte order mark; invalid UTF-8 becomes surrogates."""
    text = data.decode("utf-8", "surrogateescape")
    return text.removeprefix("\ufeff") if offset == 0 else text


def line_too_long(name: str, line: int | None, options: TextOptions) -> InputError:
    """The error of a line, or of a whole file, over the limit."""
    position = name if line is None else f"{name}, line {line}"
    return InputError(
        f"{position}: longer than {options.max_line_bytes} bytes; increase max_line_bytes to allow it.",
        code="line-too-long",
    )
