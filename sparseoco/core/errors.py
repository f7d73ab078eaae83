"""Errors with a message for the user.

Every error carries a stable `code` in kebab-case, for scripts and tests; the message may change, the code does not.
The command line prints both and exits with `exit_code`. Document text never appears in a message.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


class SparseocoError(Exception):
    """An error the user can act on.

    Parameters
    ----------
    message : str
        One or two plain sentences: what is wrong, with the file, key or value, and what to do.
    code : str
        Stable identifier of the kind of error, such as ``"unknown-parameter"``.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes with all their attributes."""
        return _rebuild, (type(self), self.args, self.__dict__)


class InputError(SparseocoError, ValueError):
    """Invalid input, option or run file: names the file and line, or the key. A `ValueError`, as libraries expect.

    `source` is the path of the input file that could not be read, if it is the error of one.
    """

    exit_code = 2
    source: str | None = None


def unsupported(message: str) -> InputError:
    """The error of options, or of options and data, that do not go together."""
    return InputError(message, code="unsupported-combination")


class StorageError(SparseocoError):
    """A folder or file that cannot be written or read, or is corrupt."""

    exit_code = 3


class DamagedError(StorageError):
    """A file that is missing, corrupt or of another version: reading it again will not help, rebuilding it does."""


class FolderInUseError(StorageError):
    """A folder that another process is writing."""

    @classmethod
    def by(cls, owner: str | None, folder: object) -> "FolderInUseError":
        """The error that names the owner, as far as it is known."""
        message = f"{folder} is in use by {owner or 'another run'}: wait for it, or choose another folder."
        return cls(message, code="folder-in-use")


class HeldError(SparseocoError):
    """An increment of a nightly run that is unlike those before, and waits for a decision."""

    exit_code = 4


def _rebuild(kind: type[SparseocoError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> SparseocoError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


def error_text(error: BaseException) -> str:
    """The message of an error of another library, or its type if it has none.

    >>> error_text(TimeoutError()), error_text(FileNotFoundError(2, "No such file", "x"))
    ('TimeoutError', 'No such file')
    """
    own = error.strerror if isinstance(error, OSError) else None
    return own or str(error) or type(error).__name__


GROUPS = {
    "options": "Options and run files",
    "inputs": "Input text and records",
    "stores": "Stores and features",
    "training": "Training and search",
    "results": "Runs, models and scores",
    "python": "Arrays and tables",
    "files": "Files and folders",
    "remote": "Object stores",
    "cluster": "Workers and clusters",
    "corpora": "Public corpora and papers",
}
"""Headings of the groups of codes."""


class ErrorEntry(NamedTuple):
    """An error: its group, the exit codes it ends a command with, what it means and what to do."""

    group: str
    exit: tuple[int, ...]
    meaning: str
    remedy: str


@cache
def error_entries() -> dict[str, ErrorEntry]:
    """The entries by code, those of a group together, sorted by code."""
    groups = tomllib.loads(Path(__file__).with_name("error_codes.toml").read_text())
    return {
        code: ErrorEntry(group, tuple(entry["exit"]), entry["meaning"], entry["remedy"])
        for group in GROUPS
        for code, entry in sorted(groups[group].items())
    }
