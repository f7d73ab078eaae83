"""Files of plain values, TOML or YAML: nothing executable, no key twice, no alias that explodes."""

import tomllib
from pathlib import Path
from typing import Any

import yaml

from sparseoco.errors import InputError

MAX_RUN_FILE_BYTES = 1 << 20


def read_values(file: Path) -> Any:
    """What stands in a file of the form of a run file, unchecked.

    Raises `InputError` for one that cannot be read, is too large or is neither TOML nor YAML.
    """
    try:
        if file.stat().st_size > MAX_RUN_FILE_BYTES:
            raise InputError(f"{file} is larger than a run file can be (1 MB).")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text.") from error
    try:
        if file.suffix.lower() == ".toml":
            return tomllib.loads(text)
        if file.suffix.lower() in (".yaml", ".yml"):
            return _StrictLoader(text).get_single_data()
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
    raise InputError(f"{file}: a run file ends in .toml, .yaml or .yml.")


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
