"""Times as people write them."""

import re
from typing import Any

_TIME = re.compile(r"(?:(\d+\.?\d*)\s*h)?\s*(?:(\d+\.?\d*)\s*m(?:in)?)?\s*(?:(\d+\.?\d*)\s*s?)?")


def parse_duration(value: Any) -> Any:
    """A text such as 90s, 30min or 1h 30min in seconds; what is no text as it is. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    parts = _TIME.fullmatch(value.strip())
    if parts is None or not any(parts.groups()):
        raise ValueError("write a time as seconds, or as 90s, 30min, 1h 30min")
    return sum(float(part or 0) * seconds for part, seconds in zip(parts.groups(), (3600, 60, 1), strict=True))
