"""Errors whose message is a sentence for the person who started the run.

The command line prints the sentence and ends with `exit_code`; nothing of the text of a document is ever in one.
"""


class SparseocoError(Exception):
    """Something the user can act on; the message says what."""

    exit_code = 1


class InputError(SparseocoError, ValueError):
    """Bad input, option or run file: names the file and line, or the key. A `ValueError`, as libraries expect."""

    exit_code = 2


class StorageError(SparseocoError):
    """A folder or file that cannot be written, read or trusted."""

    exit_code = 3


class DamagedError(StorageError):
    """A file that is gone, damaged or of another version: reading it again will not help, making it anew does."""


class FolderInUseError(StorageError):
    """A folder that another process is writing."""

    @classmethod
    def by(cls, owner: str | None, folder: object) -> "FolderInUseError":
        """The sentence that names who, as far as is known."""
        return cls(f"{folder} is in use by {owner or 'another run'}: wait for it, or choose another folder.")


def error_text(error: BaseException) -> str:
    """What an error that is none of ours says of itself, for the end of a sentence; its kind where it says nothing.

    >>> said_by(TimeoutError()), said_by(FileNotFoundError(2, "No such file", "x"))
    ('TimeoutError', 'No such file')
    """
    own = error.strerror if isinstance(error, OSError) else None
    return own or str(error) or type(error).__name__
