"""JSON lines: one object per line. A compiled scanner parses simple lines, and a full parser the others."""

import json
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.text.array_files import string_array
from sparseoco.text.documents import BadRow, Documents, column_array, label_array
from sparseoco.text.fields import NumberField
from sparseoco.text.kernels.json_lines import (
    ESCAPED,
    INTEGER,
    LEFT,
    MISSING,
    NUMBER,
    PARSED,
    gather_spans,
    scan_json_lines,
    unescape,
)
from sparseoco.text.options import TextOptions
from sparseoco.text.parsers.chunk import Chunk
from sparseoco.text.parsers.fields import (
    MAX_WEIGHT,
    MalformedRowError,
    encode_text,
    missing_field,
    parse_columns,
    parse_fields,
    parse_label,
    parse_name,
    unknown_class,
)

SKIPPED = 3
FIELD = "field "  # prefix of the names of fields


def read_jsonl(chunk: Chunk, options: TextOptions, *, labelled: bool) -> Documents:
    """Read objects with a text, a label and optional columns if requested, and optionally an id."""
    return _Lines(chunk, options, labelled=labelled).documents()


class _Lines:
    """The lines of a chunk: spans of the strings, and values of the numbers, in the fields of each."""

    def __init__(self, chunk: Chunk, options: TextOptions, *, labelled: bool) -> None:
        self._chunk, self._options = chunk, options
        self._lines = chunk.lines(options)
        columns = options.columns
        named: dict[str, str] = {} if options.fields else {"text": options.text_field}
        named |= {"id": options.id_field}
        named |= {"label": options.label_field} if labelled else {}
        named |= {str(name): field for name, field in columns.items()}
        named |= {f"{FIELD}{name}": name for name in options.fields}
        fields = list(dict.fromkeys([*named.values(), *options.where]))
        self._labels = options.labels if labelled else None
        self._field = {name: fields.index(field) for name, field in named.items()}
        self._where = {fields.index(field): value for field, value in options.where.items()}
        self._numbers: list[str] = [name for name in ("weight", "time") if name in named]
        self._numbers += ["label"] if self._labels == "numbers" else []
        self._numbers += [f"{FIELD}{name}" for name, field in options.fields.items() if isinstance(field, NumberField)]
        self._strings = [name for name in named if name not in self._numbers]
        self._texts = {f"{FIELD}{name}" for name in options.text_fields}
        names = [name.encode("utf-8", "surrogatepass") for name in fields]
        self._status, self._kinds, self._starts, self._stops = scan_json_lines(
            chunk.data,
            self._lines,
            np.frombuffer(b"".join(names), np.uint8),
            np.cumsum([0] + [len(name) for name in names]),
        )
        self._values = {name: np.full(self._status.size, np.nan) for name in self._numbers}
        self._lists: dict[int, list[str]] = {}
        self._bad: list[BadRow] = []

    def documents(self) -> Documents:
        """The documents of all lines."""
        self._leave_unusual()
        self._filter()
        self._read_numbers()
        parsed = self._status == PARSED
        for field in {self._field[name] for name in self._strings}:
            kinds = np.where(parsed & (self._kinds[field] == ESCAPED), ESCAPED, 0)
            unescape(self._chunk.data, kinds, self._starts[field], self._stops[field])
        if self._labels == "classes" and self._options.classes is not None:
            self._check_classes(self._options.classes)
        data = self._parse_left()
        self._bad.sort(key=lambda row: row.line)
        rows = np.flatnonzero(self._status == PARSED)
        text = self._field.get("text")
        nothing = np.zeros(rows.size, np.int64)
        return Documents(
            data,
            nothing if text is None else self._starts[text, rows],
            nothing if text is None else self._stops[text, rows],
            self._ids(data, rows),
            self._row_labels(data, rows),
            self._chunk.line + rows,
            self._bad,
            {name: column_array(name, self._read(data, name, rows)) for name in self._options.columns},
            fields={name: self._read(data, f"{FIELD}{name}", rows) for name in self._options.fields},
        )

    def _leave_unusual(self) -> None:
        """Leave lines to the full parser, which converts values and reports errors."""
        odd = np.full(self._status.size, self._labels == "multi")
        for name in self._strings:
            kinds = self._kinds[self._field[name]]
            odd |= kinds == NUMBER
            if name != "id" and not name.startswith(FIELD):
                odd |= kinds == MISSING
            if name == "text" or name in self._texts:
                odd |= kinds == INTEGER
        if self._labels == "classes":
            label = self._field["label"]
            odd |= self._starts[label] == self._stops[label]
        for name in self._numbers:
            kinds = self._kinds[self._field[name]]
            odd |= (kinds != INTEGER) & (kinds != NUMBER) & ((kinds != MISSING) | (not name.startswith(FIELD)))
        for field in self._where:
            odd |= (self._kinds[field] == ESCAPED) | (self._kinds[field] == NUMBER)
        self._status[odd & (self._status == PARSED)] = LEFT

    def _filter(self) -> None:
        """Skip the documents that `where` excludes."""
        for field, value in self._where.items():
            self._status[(self._status == PARSED) & (self._kinds[field] == MISSING)] = SKIPPED
            rows = np.flatnonzero(self._status == PARSED)
            found = _strings(self._chunk.data, self._starts[field, rows], self._stops[field, rows]).cast(pa.binary())
            equal = pc.equal(found, pa.scalar(value.encode("utf-8", "surrogatepass"), pa.binary()))
            self._status[rows[~equal.to_numpy(zero_copy_only=False)]] = SKIPPED

    def _read_numbers(self) -> None:
        for name in self._numbers:
            rows = np.flatnonzero((self._status == PARSED) & (self._kinds[self._field[name]] != MISSING))
            texts = self._spans(self._chunk.data, name, rows).to_pylist()
            values = np.fromiter(map(float, texts), np.float64, len(texts))
            valid = np.isfinite(values)
            if name == "weight":
                valid &= (values >= 0.0) & (values <= MAX_WEIGHT)
            self._values[name][rows] = values
            self._status[rows[~valid]] = LEFT

    def _check_classes(self, classes: tuple[str, ...]) -> None:
        rows = np.flatnonzero(self._status == PARSED)
        labels = self._spans(self._chunk.data, "label", rows)
        for k in rows[pc.invert(pc.is_in(labels, pa.array(classes, labels.type)))].tolist():
            self._bad.append(self._bad_row(unknown_class(self._options), k))
            self._status[k] = SKIPPED

    def _parse_left(self) -> NDArray[np.uint8]:
        """Parse the lines that are left; returns the bytes of the chunk and of their strings."""
        extra = bytearray()
        for k in np.flatnonzero(self._status == LEFT).tolist():
            raw = self._chunk.data[self._lines[k] : self._lines[k + 1]].tobytes()
            if k == 0 and self._chunk.offset == 0:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            try:
                row = _parse(raw, self._options, labelled=self._labels is not None)
            except MalformedRowError as error:
                self._bad.append(self._bad_row(error, k))
                continue
            if row is None:
                continue
            self._status[k] = PARSED
            for name in self._numbers:
                self._values[name][k] = row[name]
            if self._labels == "multi":
                self._lists[k] = row["label"]
            for name in self._strings:
                field, value = self._field[name], row[name]
                if isinstance(value, bytes):
                    self._starts[field, k] = self._chunk.data.size + len(extra)
                    extra += value
                    self._stops[field, k] = self._chunk.data.size + len(extra)
            self._kinds[self._field["id"], k] = MISSING if row["id"] is None else ESCAPED
        return np.concatenate([self._chunk.data, np.frombuffer(extra, np.uint8)]) if extra else self._chunk.data

    def _bad_row(self, error: MalformedRowError, k: int) -> BadRow:
        return error.at(self._chunk.line + k, self._chunk.offset + int(self._lines[k]))

    def _read(self, data: NDArray[np.uint8], name: str, rows: NDArray[np.int64]) -> Any:
        return self._spans(data, name, rows) if name in self._strings else self._values[name][rows]

    def _spans(self, data: NDArray[np.uint8], name: str, rows: NDArray[np.int64]) -> pa.Array:
        field = self._field[name]
        return _strings(data, self._starts[field, rows], self._stops[field, rows])

    def _ids(self, data: NDArray[np.uint8], rows: NDArray[np.int64]) -> pa.Array:
        ids = self._spans(data, "id", rows)
        unnamed = self._kinds[self._field["id"], rows] == MISSING
        if not unnamed.any():
            return ids
        generated = pa.array([f"{self._chunk.short}:{self._chunk.line + k}" for k in rows.tolist()], pa.string())
        return pc.if_else(pa.array(unnamed), generated, ids)

    def _row_labels(self, data: NDArray[np.uint8], rows: NDArray[np.int64]) -> Any:
        if self._labels == "classes":
            return self._spans(data, "label", rows)
        if self._labels == "numbers":
            return self._values["label"][rows]
        return label_array([self._lists[k] for k in rows.tolist()], "multi") if self._labels == "multi" else None


def _strings(data: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> pa.Array:
    return string_array(*gather_spans(data, starts, stops))


def _parse(raw: bytes, options: TextOptions, *, labelled: bool) -> dict[str, Any] | None:
    """The values of a line by name, strings in UTF-8, or None if `where` excludes it."""
    columns = options.columns
    row = _load_object(raw, (options.id_field, options.label_field, *columns.values(), *options.fields, *options.where))
    for name, wanted in options.where.items():
        value = row.get(name)
        if value is None or isinstance(value, list | dict) or _as_text(value) != wanted:
            return None
    label: Any = b""
    if labelled:
        label = parse_label(row.get(options.label_field), options)
        label = label.encode() if isinstance(label, str) else label
    text = "" if options.fields else row.get(options.text_field)
    if text is None:
        raise missing_field("text", options.text_field)
    if not isinstance(text, str):
        raise MalformedRowError(f"text field {options.text_field!r} is not a string")
    key = row.get(options.id_field)
    if key is not None:
        key = encode_text(parse_name(key, "id", options.id_field), options)
    text_bytes = encode_text(text, options)
    others: dict[str, Any] = dict(zip(columns, parse_columns(row.get, options), strict=True))
    others |= {
        f"{FIELD}{name}": value for name, value in zip(options.fields, parse_fields(row.get, options), strict=True)
    }
    values = {name: value.encode() if isinstance(value, str) else value for name, value in others.items()}
    return {"text": text_bytes, "id": key, "label": label, **values}


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
