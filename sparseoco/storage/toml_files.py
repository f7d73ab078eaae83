"""TOML files of options."""

import json
import os
import re
import tomllib
from collections.abc import Iterator
from errno import ENOENT
from pathlib import Path
from typing import Any

from sparseoco.core.errors import InputError, SparseocoError, error_text
from sparseoco.storage.locations import Location
from sparseoco.storage.remote import RemotePath

MAX_BYTES = 1 << 20


def read_toml(file: Location) -> dict[str, Any]:
    """The values of a TOML file, local or remote, unchecked but for NUL, which no path can have.

    Raises `InputError` if it does not exist, is larger than `MAX_BYTES` or is not TOML, and `StorageError` for any
    other error of an object store.
    """
    if file.suffix.lower() != ".toml":
        raise InputError(f"{file} is not a TOML file: its name must end in .toml.", code="unknown-format")
    try:
        values = tomllib.loads(_read_limited(file).decode())
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is not TOML: {error}.", code="invalid-toml") from error
    except RecursionError as error:
        raise InputError(f"{file} is nested too deeply.", code="invalid-toml") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text.", code="encoding") from error
    except SparseocoError:
        raise
    except ValueError as error:  # such as a date that does not exist
        raise InputError(f"{file} has a value that cannot be read: {error}.", code="invalid-toml") from error
    for key, text in _texts(values):
        if "\0" in text:
            raise InputError(f"{file}: {key}: must be text without NUL.", code="invalid-option")
    return values


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a value, each with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(item, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)


def toml_value(value: Any) -> str:
    """A value in TOML, whose values except tables have the syntax of JSON.

    >>> toml_value({"split": "train"}), toml_value(["a", 1])
    ('{ split = "train" }', '["a", 1]')
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """A key in TOML, in quotes if it needs them.

    >>> toml_key("split"), toml_key("a b")
    ('split', '"a b"')
    """
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_value(name)


def _read_limited(file: Location) -> bytes:
    try:
        if isinstance(file, RemotePath):
            data = file.read_range(0, MAX_BYTES + 1)
        else:
            with Path(str(file)).open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
    except SparseocoError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{file}: {os.strerror(ENOENT)}.", code="missing-file") from error
    except OSError as error:
        raise InputError(f"{file}: {error_text(error)}.", code="unreadable-file") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{file} is larger than a file of options can be (1 MB).", code="file-too-large")
    return data
