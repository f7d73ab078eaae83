"""Files of plain values, TOML or YAML: nothing executable, no key twice, no alias that explodes."""

import os
import tomllib
from errno import ENOENT
from typing import Any

import yaml

from sparseoco.core.errors import InputError, SparseocoError, error_text
from sparseoco.storage.locations import Location, is_local
from sparseoco.storage.objects import read_up_to

MAX_RUN_FILE_BYTES = 1 << 20
YAML = (".yaml", ".yml")


def read_values(file: Location) -> Any:
    """What stands in a file of the form of a run file, on this machine or at an address, unchecked.

    Raises `InputError` for one that is not there, is too large or is neither TOML nor YAML, and `SparseocoError` for
    whatever else a store refuses.
    """
    if file.suffix.lower() not in (".toml", *YAML):
        raise InputError(f"{file}: a run file ends in .toml, .yaml or .yml.")
    text = _text(file)
    try:
        if file.suffix.lower() in YAML:
            return _StrictLoader(text).get_single_data()
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is not TOML: {error}.") from error
    except RecursionError as error:
        raise InputError(f"{file} is nested too deeply for a run file.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{file}{where} is not YAML: {getattr(error, 'problem', None) or error}.") from error
    except ValueError as error:  # a date that does not exist, say
        raise InputError(f"{file} holds a value that cannot be read: {error}.") from error


def _text(file: Location) -> str:
    try:
        data = read_up_to(file, MAX_RUN_FILE_BYTES)
    except SparseocoError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{file}: {os.strerror(ENOENT)}.") from error
    except OSError as error:
        raise InputError(f"{file}: {error_text(error)}.") from error
    except Exception as error:  # every kind of address has errors of its own
        if is_local(file):
            raise
        raise InputError(f"{file} cannot be read: {error_text(error)}.") from error
    if data is None:
        raise InputError(f"{file} is larger than a run file can be (1 MB).")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text.") from error


class _StrictLoader(yaml.SafeLoader):
    """Plain values only: no aliases (they can explode), no key twice (one would be lost silently)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not allowed", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for i, (key, _) in enumerate(node.value):
            if keys[i] in keys[:i]:
                raise yaml.MarkedYAMLError(problem=f"the key {keys[i]!r} stands twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)
