"""JSON lines: an object a line. A compiled scanner takes the plain ones, a full parser the others, alike."""

import json
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.text.array_files import string_array
from sparseoco.text.documents import BadRow, Documents
from sparseoco.text.kernels.json_lines import (
    ESCAPED,
    INTEGER,
    LEFT,
    MISSING,
    TAKEN,
    gather_spans,
    scan_json_lines,
    unescape,
)
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk, UnreadableError, plain_value, settle_label, unknown_class, utf8

SKIPPED = 3


def read_jsonl(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Read objects with a text, a label (where asked for) and perhaps an id."""
    lines = chunk.lines(options)
    fields = list(dict.fromkeys([options.text_field, options.id_field, options.label_field, *options.where]))
    text, key, label = (fields.index(name) for name in (options.text_field, options.id_field, options.label_field))
    names = [name.encode("utf-8", "surrogatepass") for name in fields]
    status, kinds, starts, stops = scan_json_lines(
        chunk.data, lines, np.frombuffer(b"".join(names), np.uint8), np.cumsum([0] + [len(name) for name in names])
    )
    # What the full parser must say something about, or convert, is left to it.
    odd = (kinds[text] == MISSING) | (kinds[text] == INTEGER)
    if labelled:
        odd |= (kinds[label] == MISSING) | (starts[label] == stops[label]) | (options.labels == "numbers")
    for name in options.where:
        odd |= kinds[fields.index(name)] == ESCAPED
    status[odd & (status == TAKEN)] = LEFT
    for name, value in options.where.items():
        field = fields.index(name)
        status[(status == TAKEN) & (kinds[field] == MISSING)] = SKIPPED
        _choose(chunk.data, status, starts[field], stops[field], value)
    taken = status == TAKEN
    for field in {text, key, label}:
        unescape(chunk.data, np.where(taken, kinds[field], 0), starts[field], stops[field])

    bad: list[BadRow] = []
    if labelled and options.classes is not None:
        for k in _of_no_class(chunk.data, status, starts[label], stops[label], options.classes):
            bad.append(unknown_class(options).at(chunk.line + k, chunk.offset + int(lines[k])))
            status[k] = SKIPPED
    extra = bytearray()
    numbers: dict[int, float] = {}
    for k in np.flatnonzero(status == LEFT).tolist():
        raw = chunk.data[lines[k] : lines[k + 1]].tobytes()
        if k == 0 and chunk.offset == 0:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            row = _parse(raw, options, labelled=labelled)
        except UnreadableError as error:
            bad.append(error.at(chunk.line + k, chunk.offset + int(lines[k])))
            continue
        if row is None:
            continue
        status[k] = TAKEN
        numbers[k] = row[2] if isinstance(row[2], float) else 0.0
        for field, part in ((text, row[0]), (key, row[1]), (label, row[2])):
            if isinstance(part, bytes):
                starts[field, k] = chunk.data.size + len(extra)
                extra += part
                stops[field, k] = chunk.data.size + len(extra)
        kinds[key, k] = MISSING if row[1] is None else ESCAPED
    bad.sort(key=lambda row: row.line)
    data = np.concatenate([chunk.data, np.frombuffer(extra, np.uint8)]) if extra else chunk.data

    rows = np.flatnonzero(status == TAKEN)
    labels: Any = None
    if labelled:
        if options.labels == "numbers":
            labels = np.array([numbers[k] for k in rows.tolist()], np.float64)
        else:
            labels = string_array(*gather_spans(data, starts[label, rows], stops[label, rows]))
    ids = string_array(*gather_spans(data, starts[key, rows], stops[key, rows]))
    unnamed = kinds[key, rows] == MISSING
    if unnamed.any():
        made = pa.array([f"{chunk.short}:{chunk.line + k}" for k in rows.tolist()], pa.string())
        ids = pc.if_else(pa.array(unnamed), made, ids)
    return Documents(data, starts[text, rows], stops[text, rows], ids, labels, chunk.line + rows, bad)


def _choose(
    data: NDArray[np.uint8],
    status: NDArray[np.uint8],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    value: str,
) -> None:
    taken = np.flatnonzero(status == TAKEN)
    found = string_array(*gather_spans(data, starts[taken], stops[taken])).cast(pa.binary())
    wanted = pa.scalar(value.encode("utf-8", "surrogatepass"), pa.binary())
    status[taken[~pc.equal(found, wanted).to_numpy(zero_copy_only=False)]] = SKIPPED


def _of_no_class(
    data: NDArray[np.uint8],
    status: NDArray[np.uint8],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    classes: tuple[str, ...],
) -> list[int]:
    """The taken rows whose label is not one of the classes there may be."""
    taken = np.flatnonzero(status == TAKEN)
    labels = string_array(*gather_spans(data, starts[taken], stops[taken]))
    unknown: list[int] = taken[pc.invert(pc.is_in(labels, pa.array(classes, labels.type)))].tolist()
    return unknown


def _parse(raw: bytes, options: TextOptions, *, labelled: bool) -> tuple[bytes, bytes | None, bytes | float] | None:
    """(text, id, label) of one line, or None where it is not chosen. Raises `UnreadableError`."""
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            row = json.loads(raw.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            raise UnreadableError("not valid JSON") from None
    names = (options.id_field, options.label_field, *options.where)
    if isinstance(row, dict) and any(isinstance(v := row.get(name), float) and abs(v) >= 2**63 for name in names):
        # A whole number beyond 64 bits, which the faster parser rounds.
        row = json.loads(raw.decode("utf-8", "surrogateescape"))
    if not isinstance(row, dict):
        raise UnreadableError("not a JSON object")
    for name, wanted in options.where.items():
        value = row.get(name)
        if value is None or isinstance(value, list | dict) or _named(value) != wanted:
            return None
    label: Any = b""
    if labelled:
        label = settle_label(row.get(options.label_field), options)
        if label is None:
            return None
        label = label.encode() if isinstance(label, str) else label
    text = row.get(options.text_field)
    if not isinstance(text, str):
        missing = "is missing" if text is None else "is not a string"
        raise UnreadableError(f"text field {options.text_field!r} {missing}")
    key = row.get(options.id_field)
    if key is not None:
        key = utf8(plain_value(key, f"id field {options.id_field!r}"), options)
    return utf8(text, options), key, label


def _named(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
