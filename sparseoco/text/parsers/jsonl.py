"""JSON lines: one object per line."""

import json
import re
from typing import Any

import orjson

from sparseoco.text.documents import Documents, ParsedRow
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.rows import BOM, Chunk, MalformedRowError, RecordParser

BLANKS = b" \t\r\n"
_LONG_NUMBER = re.compile(rb"\d{19}")


def read_jsonl(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Read objects with a text, a label and optional columns if requested, and optionally an id.

    orjson parses a line. Python's parser, which is slower, does where orjson would round an integer, and where it
    refuses what Python accepts: lone surrogates and undecodable bytes, of which ``encoding_errors`` decides, and NaN.
    """
    parser = RecordParser(chunk.short, options, labelled=labelled)

    def parse(raw: bytes, line: int) -> ParsedRow | None:
        return parser.row(_load_object(raw, nested=bool(options.carried)), line) if raw.strip(BLANKS) else None

    return parser.documents(*chunk.parse_lines(options, parse))


def object_keys(head: bytes) -> tuple[str, ...]:
    """The keys of the object in the first line of some text, if it is one."""
    for line in head.removeprefix(BOM).splitlines()[:-1] or [head]:
        if line.strip():
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                return ()
            return tuple(row) if isinstance(row, dict) else ()
    return ()


def _load_object(raw: bytes, *, nested: bool) -> dict[str, Any]:
    """The object of a line, with exact integers, if `nested` also within its lists and objects."""
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError:
        row = _load_exactly(raw)
    if not isinstance(row, dict):
        raise MalformedRowError("not a JSON object")
    for value in row.values():
        kind = type(value)
        is_long = kind is float and abs(value) >= 2**63  # perhaps an integer beyond 64 bits, which orjson rounds
        if is_long or (nested and kind in (list, dict) and _LONG_NUMBER.search(raw)):
            return _load_exactly(raw)  # type: ignore[no-any-return]
    return row


def _load_exactly(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        raise MalformedRowError("not valid JSON") from None
