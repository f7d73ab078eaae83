"""JSON lines: one object per line. A compiled scanner parses simple lines, and a full parser the others."""

import json
import re
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparseoco.text.array_files import string_array
from sparseoco.text.documents import BadRow, Documents, column_array, label_array
from sparseoco.text.kernels.records import (
    BOOLEAN,
    ESCAPED,
    INTEGER,
    LEFT,
    MISSING,
    NESTED,
    NUMBER,
    PARSED,
    STRING,
    gather_spans,
    scan_json_lines,
    unescape,
)
from sparseoco.text.options import NumberField, TextOptions
from sparseoco.text.parsers.rows import (
    MAX_FLOAT32,
    Chunk,
    MalformedRowError,
    carried_text,
    encode_text,
    matches,
    missing_field,
    parse_columns,
    parse_fields,
    parse_label,
    parse_name,
    unknown_class,
    which_match,
)

SKIPPED = 3
FIELD, CARRIED = "field ", "carried "  # prefixes of the names of fields
_LONG_NUMBER = re.compile(rb"\d{19}")


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
        self._carried = [f"{CARRIED}{field}" for field in options.carried]
        named |= dict(zip(self._carried, options.carried, strict=True))
        fields = list(dict.fromkeys([*named.values(), *options.where]))
        self._labels = options.labels if labelled else None
        self._field = {name: fields.index(field) for name, field in named.items()}
        self._where = {fields.index(field): value for field, value in options.where.items()}
        self._numbers: list[str] = [name for name in ("weight", "time") if name in named]
        self._numbers += ["label"] if self._labels == "numbers" else []
        self._numbers += [f"{FIELD}{name}" for name, field in options.fields.items() if isinstance(field, NumberField)]
        self._strings = [name for name in named if name not in self._numbers and name not in self._carried]
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
        self._extra = bytearray()  # strings that are not in the chunk
        self._bad: list[BadRow] = []

    def documents(self) -> Documents:
        """The documents of all lines."""
        self._leave_unusual()
        self._filter()
        self._read_numbers()
        parsed = self._status == PARSED
        for field in {self._field[name] for name in [*self._strings, *self._carried]}:
            escaped = parsed & (self._kinds[field] == ESCAPED)
            unescape(self._chunk.data, escaped, self._starts[field], self._stops[field])
        if self._labels == "classes" and self._options.classes is not None:
            self._check_classes(self._options.classes)
        self._normalize_carried()
        self._parse_left()
        data = self._chunk.data
        if self._extra:
            data = np.concatenate([data, np.frombuffer(self._extra, np.uint8)])
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
            carried={name: self._carry(data, f"{CARRIED}{name}", rows) for name in self._options.carried},
        )

    def _leave_unusual(self) -> None:
        """Leave lines to the full parser, which converts values and reports errors."""
        odd = np.full(self._status.size, self._labels == "multi")
        for name in self._strings:
            kinds = self._kinds[self._field[name]]
            odd |= (kinds == NUMBER) | (kinds == NESTED)
            if name != "id" and not name.startswith(FIELD):
                odd |= kinds == MISSING
            if name == "text" or name in self._texts:
                odd |= (kinds == INTEGER) | (kinds == BOOLEAN)
        if self._labels == "classes":
            label = self._field["label"]
            odd |= self._starts[label] == self._stops[label]
        for name in self._numbers:
            kinds = self._kinds[self._field[name]]
            odd |= (kinds != INTEGER) & (kinds != NUMBER) & ((kinds != MISSING) | (not name.startswith(FIELD)))
        for field in self._where:
            odd |= np.isin(self._kinds[field], (ESCAPED, NUMBER, NESTED))
        self._status[odd & (self._status == PARSED)] = LEFT

    def _filter(self) -> None:
        """Skip the documents that `where` excludes."""
        for field, value in self._where.items():
            self._status[(self._status == PARSED) & (self._kinds[field] == MISSING)] = SKIPPED
            rows = np.flatnonzero(self._status == PARSED)
            found = _strings(self._chunk.data, self._starts[field, rows], self._stops[field, rows]).cast(pa.binary())
            self._status[rows[~which_match(found, value)]] = SKIPPED

    def _read_numbers(self) -> None:
        for name in self._numbers:
            rows = np.flatnonzero((self._status == PARSED) & (self._kinds[self._field[name]] != MISSING))
            texts = self._spans(self._chunk.data, name, rows).to_pylist()
            values = np.fromiter(map(float, texts), np.float64, len(texts))
            valid = np.isfinite(values)
            if name == "weight":
                valid &= (values >= 0.0) & (values <= MAX_FLOAT32)
            self._values[name][rows] = values
            self._status[rows[~valid]] = LEFT

    def _check_classes(self, classes: tuple[str, ...]) -> None:
        rows = np.flatnonzero(self._status == PARSED)
        labels = self._spans(self._chunk.data, "label", rows)
        for k in rows[pc.invert(pc.is_in(labels, pa.array(classes, labels.type)))].tolist():
            self._bad.append(self._bad_row(unknown_class(self._options), k))
            self._status[k] = SKIPPED

    def _normalize_carried(self) -> None:
        """Write carried numbers, lists and objects as the full parser does."""
        for name in self._carried:
            field = self._field[name]
            odd = (self._kinds[field] == NUMBER) | (self._kinds[field] == NESTED)
            for k in np.flatnonzero((self._status == PARSED) & odd).tolist():
                raw = self._chunk.data[self._starts[field, k] : self._stops[field, k]].tobytes()
                value = _load_exactly(raw) if _LONG_NUMBER.search(raw) else _load(raw)
                self._put(field, k, carried_text(value, name).encode())

    def _put(self, field: int, k: int, value: bytes) -> None:
        """Set the value of a field of line k."""
        self._starts[field, k] = self._chunk.data.size + len(self._extra)
        self._extra += value
        self._stops[field, k] = self._chunk.data.size + len(self._extra)

    def _parse_left(self) -> None:
        """Parse the lines that are left."""
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
            for name in [*self._strings, *self._carried]:
                if isinstance(row[name], bytes):
                    self._put(self._field[name], k, row[name])
            for name in ["id", *self._carried]:
                self._kinds[self._field[name], k] = MISSING if row[name] is None else STRING

    def _bad_row(self, error: MalformedRowError, k: int) -> BadRow:
        return error.at(self._chunk.line + k, self._chunk.offset + int(self._lines[k]))

    def _read(self, data: NDArray[np.uint8], name: str, rows: NDArray[np.int64]) -> Any:
        return self._spans(data, name, rows) if name in self._strings else self._values[name][rows]

    def _carry(self, data: NDArray[np.uint8], name: str, rows: NDArray[np.int64]) -> pa.Array:
        missing = self._kinds[self._field[name], rows] == MISSING
        return pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), self._spans(data, name, rows))

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
    others = *columns.values(), *options.fields, *options.where, *options.carried
    row = _load_object(raw, (options.id_field, options.label_field, *others), nested=options.carried)
    for name, wanted in options.where.items():
        value = row.get(name)
        if value is None or isinstance(value, list | dict) or not matches(_as_text(value), wanted):
            return None
    try:
        return _values(row, options, labelled=labelled)
    except MalformedRowError as error:
        if error.missing is not None and error.missing[1] in row:
            raise missing_field(*error.missing, null=True) from None
        raise


def _values(row: dict[str, Any], options: TextOptions, *, labelled: bool) -> dict[str, Any]:
    """The values of an object by name."""
    columns = options.columns
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
    values: dict[str, Any] = dict(zip(columns, parse_columns(row.get, options), strict=True))
    values |= {
        f"{FIELD}{name}": value for name, value in zip(options.fields, parse_fields(row.get, options), strict=True)
    }
    values = {name: value.encode() if isinstance(value, str) else value for name, value in values.items()}
    carried = {
        f"{CARRIED}{field}": None if (value := row.get(field)) is None else carried_text(value, field).encode()
        for field in options.carried
    }
    return {"text": text_bytes, "id": key, "label": label, **values, **carried}


def object_keys(head: bytes) -> tuple[str, ...]:
    """The keys of the object in the first line of some text, if it is one."""
    for line in head.removeprefix(b"\xef\xbb\xbf").splitlines()[:-1] or [head]:
        if line.strip():
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                return ()
            return tuple(row) if isinstance(row, dict) else ()
    return ()


def _load_object(raw: bytes, names: tuple[str, ...], nested: tuple[str, ...]) -> dict[str, Any]:
    """The object of a line; integers in the fields `names`, and within lists and objects in `nested`, are exact."""
    row = _load(raw)
    if isinstance(row, dict) and (
        any(isinstance(value := row.get(name), float) and abs(value) >= 2**63 for name in names)
        or (any(isinstance(row.get(name), list | dict) for name in nested) and _LONG_NUMBER.search(raw))
    ):
        row = _load_exactly(raw)  # orjson rounds integers beyond 64 bits
    if not isinstance(row, dict):
        raise MalformedRowError("not a JSON object")
    return row


def _load(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _load_exactly(raw)


def _load_exactly(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        raise MalformedRowError("not valid JSON") from None


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
