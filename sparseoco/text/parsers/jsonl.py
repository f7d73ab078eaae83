"""JSON lines: one object per line. A compiled scanner parses simple lines, and a full parser the others."""

import json
from typing import Any, NamedTuple

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
    PARSED,
    gather_spans,
    scan_json_lines,
    unescape,
)
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk
from sparseoco.text.parsers.fields import (
    MalformedRowError,
    encode_text,
    missing_field,
    parse_label,
    parse_name,
    unknown_class,
)

SKIPPED = 3


class _ParsedLine(NamedTuple):
    text: bytes
    id: bytes | None
    label: bytes | float


class _Spans(NamedTuple):
    """Values of one field as spans of a buffer, one per line."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def strings(self, rows: NDArray[np.int64]) -> pa.Array:
        return string_array(*gather_spans(self.data, self.starts[rows], self.stops[rows]))


def read_jsonl(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Read objects with a text, a label if requested, and optionally an id."""
    lines = chunk.lines(options)
    fields = list(dict.fromkeys([options.text_field, options.id_field, options.label_field, *options.where]))
    text, key, label = (fields.index(name) for name in (options.text_field, options.id_field, options.label_field))
    names = [name.encode("utf-8", "surrogatepass") for name in fields]
    status, kinds, starts, stops = scan_json_lines(
        chunk.data, lines, np.frombuffer(b"".join(names), np.uint8), np.cumsum([0] + [len(name) for name in names])
    )
    # The full parser converts numbers and reports errors.
    odd = (kinds[text] == MISSING) | (kinds[text] == INTEGER)
    if labelled:
        odd |= (kinds[label] == MISSING) | (starts[label] == stops[label]) | (options.labels == "numbers")
    for name in options.where:
        odd |= kinds[fields.index(name)] == ESCAPED
    status[odd & (status == PARSED)] = LEFT
    for name, value in options.where.items():
        field = fields.index(name)
        status[(status == PARSED) & (kinds[field] == MISSING)] = SKIPPED
        rows = np.flatnonzero(status == PARSED)
        found = _Spans(chunk.data, starts[field], stops[field]).strings(rows).cast(pa.binary())
        equal = pc.equal(found, pa.scalar(value.encode("utf-8", "surrogatepass"), pa.binary()))
        status[rows[~equal.to_numpy(zero_copy_only=False)]] = SKIPPED
    parsed = status == PARSED
    for field in {text, key, label}:
        unescape(chunk.data, np.where(parsed, kinds[field], 0), starts[field], stops[field])

    bad: list[BadRow] = []
    if labelled and options.classes is not None:
        rows = np.flatnonzero(parsed)
        labels = _Spans(chunk.data, starts[label], stops[label]).strings(rows)
        for k in rows[pc.invert(pc.is_in(labels, pa.array(options.classes, labels.type)))].tolist():
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
        except MalformedRowError as error:
            bad.append(error.at(chunk.line + k, chunk.offset + int(lines[k])))
            continue
        if row is None:
            continue
        status[k] = PARSED
        numbers[k] = row.label if isinstance(row.label, float) else 0.0
        for field, part in ((text, row.text), (key, row.id), (label, row.label)):
            if isinstance(part, bytes):
                starts[field, k] = chunk.data.size + len(extra)
                extra += part
                stops[field, k] = chunk.data.size + len(extra)
        kinds[key, k] = MISSING if row.id is None else ESCAPED
    bad.sort(key=lambda row: row.line)
    data = np.concatenate([chunk.data, np.frombuffer(extra, np.uint8)]) if extra else chunk.data

    rows = np.flatnonzero(status == PARSED)
    row_labels: Any = None
    if labelled and options.labels == "numbers":
        row_labels = np.array([numbers[k] for k in rows.tolist()], np.float64)
    elif labelled:
        row_labels = _Spans(data, starts[label], stops[label]).strings(rows)
    ids = _Spans(data, starts[key], stops[key]).strings(rows)
    unnamed = kinds[key, rows] == MISSING
    if unnamed.any():
        generated = pa.array([f"{chunk.short}:{chunk.line + k}" for k in rows.tolist()], pa.string())
        ids = pc.if_else(pa.array(unnamed), generated, ids)
    return Documents(data, starts[text, rows], stops[text, rows], ids, row_labels, chunk.line + rows, bad)


def _parse(raw: bytes, options: TextOptions, *, labelled: bool) -> _ParsedLine | None:
    """The document of one line, or None if `where` or `label_list` excludes it."""
    row = _load_object(raw, (options.id_field, options.label_field, *options.where))
    for name, wanted in options.where.items():
        value = row.get(name)
        if value is None or isinstance(value, list | dict) or _as_text(value) != wanted:
            return None
    label: Any = b""
    if labelled:
        label = parse_label(row.get(options.label_field), options)
        if label is None:
            return None
        label = label.encode() if isinstance(label, str) else label
    text = row.get(options.text_field)
    if text is None:
        raise missing_field("text", options.text_field)
    if not isinstance(text, str):
        raise MalformedRowError(f"text field {options.text_field!r} is not a string")
    key = row.get(options.id_field)
    if key is not None:
        key = encode_text(parse_name(key, "id", options.id_field), options)
    return _ParsedLine(encode_text(text, options), key, label)


def _load_object(raw: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """The object of a line; integers in the fields `names` are exact."""
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError:
        row = _load_exactly(raw)
    if isinstance(row, dict) and any(isinstance(v := row.get(name), float) and abs(v) >= 2**63 for name in names):
        row = _load_exactly(raw)  # orjson rounds integers beyond 64 bits
    if not isinstance(row, dict):
        raise MalformedRowError("not a JSON object")
    return row


def _load_exactly(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        raise MalformedRowError("not valid JSON") from None


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
