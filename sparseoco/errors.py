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
