"""Parsing of the fields of a row: text, labels and numbers; and the error of a malformed row."""

import re
from typing import Any

import numpy as np

from sparseoco.text.documents import BadRow
from sparseoco.text.options import TextOptions

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SURROGATE = re.compile("[\ud800-\udfff]")


class MalformedRowError(Exception):
    """A row that cannot be read; reason, code and counted as in `BadRow`."""

    def __init__(self, reason: str, *, code: str = "malformed-record", counted: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.counted = counted

    def at(self, line: int, offset: int) -> BadRow:
        """The bad row at a position of the file."""
        return BadRow(line, offset, self.reason, self.code, self.counted)


def encode_text(text: str, options: TextOptions) -> bytes:
    """UTF-8 of a text; `encoding_errors` decides about undecodable bytes and lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        if options.encoding_errors == "replace":
            return _SURROGATE.sub(REPLACEMENT, text).encode()
        raise MalformedRowError(
            "not valid UTF-8", code="encoding", counted=options.encoding_errors == "error"
        ) from None


def missing_field(kind: str, name: str) -> MalformedRowError:
    """The error of a row without a field."""
    return MalformedRowError(f"{kind} field {name!r} is missing", code="missing-field")


def parse_name(value: Any, kind: str, name: str) -> str:
    """A JSON string, integer or boolean as a name."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    if value is None:
        raise missing_field(kind, name)
    code = "invalid-labels" if kind == "label" else "malformed-record"
    raise MalformedRowError(f"{kind} field {name!r} is neither a string nor an integer", code=code)


def parse_label(value: Any, options: TextOptions) -> Any:
    """The label of a row: a class name or a float; None to skip the row (label_list = "skip")."""
    field = options.label_field
    if isinstance(value, list):
        if options.label_list == "error":
            raise _invalid_label(field, "is a list: set label_list to first, skip or join, or choose another field")
        if options.label_list == "skip" and len(value) != 1:
            return None
        if not value:
            raise _invalid_label(field, "is an empty list")
        if options.label_list == "join":
            names = sorted(parse_name(item, "label", field) for item in value)
            if len(names) > 1 and any("," in name for name in names):
                raise _invalid_label(field, "cannot be joined: a label in the list contains a comma")
            value = ",".join(names)
        else:
            value = value[0]
    if options.labels == "numbers":
        if value is None:
            raise missing_field("label", field)
        return parse_number(value, f"label field {field!r}", code="invalid-labels")
    label = parse_name(value, "label", field)
    if label == "":
        raise _invalid_label(field, "is empty")
    return validate_class(encode_text(label, options).decode(), options)


def _invalid_label(field: str, reason: str) -> MalformedRowError:
    return MalformedRowError(f"label field {field!r} {reason}", code="invalid-labels")


def validate_class(label: str, options: TextOptions) -> str:
    """The label, if it is one of the allowed classes."""
    if not options.has_class(label):
        raise unknown_class(options)
    return label


def unknown_class(options: TextOptions) -> MalformedRowError:
    """The error of a label that is not one of the allowed classes."""
    return MalformedRowError(
        f"the label is not one of the {len(options.classes or ())} classes of the options or the first ingest",
        code="unknown-class",
    )


def parse_number(value: Any, what: str, *, code: str = "malformed-record") -> float:
    """A finite number. Unlike `float`, neither 1_0 nor digits of other scripts are accepted."""
    try:
        if isinstance(value, str) and ("_" in value or not value.isascii()):
            raise ValueError
        result = float(value)
    except OverflowError:
        result = np.inf
    except (TypeError, ValueError):
        raise MalformedRowError(f"{what} is not a number", code=code) from None
    if not np.isfinite(result):
        raise MalformedRowError(f"{what} is not finite", code=code)
    return result
