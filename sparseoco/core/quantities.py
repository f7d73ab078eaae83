"""Numbers in text; durations, sizes and counts with units."""

import re
from contextlib import suppress
from typing import Any

_DURATION = re.compile(r"(?:(\d+\.?\d*)\s*h)?\s*(?:(\d+\.?\d*)\s*m(?:in)?)?\s*(?:(\d+\.?\d*)\s*s?)?")
_SIZE = re.compile(r"(\d+\.?\d*|\.\d+)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def number_or_text(text: str) -> int | float | str:
    """A number if the text is one.

    >>> number_or_text("3"), number_or_text("1e-3"), number_or_text("inf."), number_or_text("l1")
    (3, 0.001, 'inf.', 'l1')
    """
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def parse_duration(value: Any) -> Any:
    """Seconds of a text such as 90s, 30min or 1h 30min; any other type unchanged. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    parts = _DURATION.fullmatch(value.strip())
    if parts is None or not any(parts.groups()):
        raise ValueError("write a duration as seconds, or as 90s, 30min, 1h 30min")
    return sum(float(part or 0) * seconds for part, seconds in zip(parts.groups(), (3600, 60, 1), strict=True))


def plural(number: int, noun: str, nouns: str = "") -> str:
    """A count and its noun.

    >>> plural(1, "fold"), plural(10660, "document"), plural(2, "class", "classes")
    ('1 fold', '10,660 documents', '2 classes')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def parse_bytes(value: Any) -> Any:
    """Bytes of a text such as 500MB or 2GiB; any other type unchanged. Raises `ValueError`.

    >>> parse_bytes("500MB"), parse_bytes("1.5 GiB"), parse_bytes("65536")
    (500000000, 1610612736, 65536)
    """
    if not isinstance(value, str):
        return value
    parts = _SIZE.fullmatch(value.strip())
    if parts is None:
        raise ValueError("write a size as bytes, or as 500MB, 2GiB")
    number, prefix, binary = parts.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix.lower() or " "))
