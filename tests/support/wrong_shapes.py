"""JSON files with a valid checksum whose content has another shape."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparseoco.storage.commit import CHECKSUM, digest_value

VALUES = (None, [], {}, "x", "", -1, 10**30, 0.5, True, float("inf"), float("nan"), [None], {"a": [1]}, "../x\n\udc80")
DELETED = object()


def reshaped(data: bytes, chooser: random.Random) -> tuple[bytes, str]:
    """The content of a JSON file with one value replaced or removed, and what was done."""
    value = json.loads(data)
    value.pop(CHECKSUM, None)
    key = chooser.choice(list(_keys(value)))
    new = chooser.choice((*VALUES, *([DELETED] if key else ())))
    value = _replaced(value, key, new)
    return checksummed(value), f"{key} is {'missing' if new is DELETED else repr(new)}"


def forge(path: Path, key: tuple[Any, ...], new: object = DELETED) -> None:
    """Replace or remove an entry of a JSON file, which has a checksum that matches."""
    value = json.loads(path.read_bytes())
    value.pop(CHECKSUM, None)
    path.write_bytes(checksummed(_replaced(value, key, new)))


def checksummed(value: Any) -> bytes:
    """Any JSON value as the content of a file, with a checksum that matches if it is an object."""
    if isinstance(value, dict):
        value = {**value, CHECKSUM: digest_value(value)}
    return json.dumps(value).encode()


def _keys(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _keys(item, (*above, name))
    elif isinstance(value, list):
        for i, item in enumerate(value[:2]):
            yield from _keys(item, (*above, i))


def _replaced(value: Any, key: tuple[Any, ...], new: Any) -> Any:
    if not key:
        return new
    value = copy.deepcopy(value)
    inner = value
    for part in key[:-1]:
        inner = inner[part]
    if new is DELETED:
        del inner[key[-1]]
    else:
        inner[key[-1]] = new
    return value
