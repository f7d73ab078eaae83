"""What a command may write over: files and folders of the kind that it writes, and nothing else."""

import hashlib
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import NamedTuple

from sparseoco.core.errors import DamagedError, InputError
from sparseoco.core.logs import is_log
from sparseoco.storage.commit import read_bytes, read_json
from sparseoco.storage.locations import Location

DATA_FILE = re.compile(r"[a-z]+-([0-9a-f]{24})\.parquet")  # as `sparseoco.store.data_files` names them


class FolderKind(NamedTuple):
    """What a command writes to its folder.

    Parameters
    ----------
    name : str
        What the folder is, with an article.
    marks : tuple of str
        Patterns of JSON files, each of which says that the folder is of this kind.
    others : tuple of str
        Patterns of the other files and folders, which an interrupted command may leave without a mark.
    """

    name: str
    marks: tuple[str, ...]
    others: tuple[str, ...]


def check_folder(folder: Location, *kinds: FolderKind) -> None:
    """Raises `InputError` for a folder that has something else than what makes folders of these kinds.

    Without a mark, a folder was left by an interrupted command: it has the command's lock or, in an object store, files
    with a checksum. Hidden files, run files and logs may be in any folder.
    """
    if not folder.is_dir():
        return
    found = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and path.suffix != ".toml"]
    marks = [path for path in found if any(fnmatchcase(path.name, mark) for kind in kinds for mark in kind.marks)]
    if any(is_intact(path) for path in marks):
        return
    names = [pattern for kind in kinds for pattern in (*kind.marks, *kind.others)]
    was_locked = (folder / ".lock").exists()
    for path in found:
        is_own = any(fnmatchcase(path.name, name) for name in names) and (was_locked or _is_ours(path))
        if not (is_own or is_log(path)):
            raise InputError(
                f"{folder} has {path.name}, which is not of {kinds[0].name} that sparseoco wrote: choose a new or an "
                "empty folder.",
                code="folder-not-empty",
            )


def check_file(path: Location, name: str, is_own: Callable[[Location], bool]) -> None:
    """Raises `InputError` for a file that exists, unless `is_own` says that it is another version of what is written.

    `name` is what that is.
    """
    if path.exists() and not is_own(path):
        raise InputError(f"{path} exists, and is not {name}: choose another name, or remove it.", code="file-exists")


def is_intact(path: Location) -> bool:
    """Whether a file exists, and its content is what was written: JSON, npz, npy, Parquet; true of other kinds.

    Raises `StorageError` if it cannot be read now.
    """
    from sparseoco.storage.checkpoints import is_complete, map_array  # load NumPy and PyArrow
    from sparseoco.storage.parquet import read_parquet_file

    try:
        if path.suffix == ".json":
            read_json(path)
        elif path.suffix == ".npz":
            return is_complete(path)
        elif path.suffix == ".npy":
            map_array(path)
        elif name := DATA_FILE.fullmatch(path.name):
            return hashlib.sha256(read_bytes(path)).hexdigest().startswith(name[1])
        elif path.suffix == ".parquet":
            read_parquet_file(path)
    except DamagedError:
        return False
    return True


def _is_ours(path: Location) -> bool:
    """Whether a file of a folder without a lock was written by this package: its name or its content has a digest."""
    if path.is_dir() or DATA_FILE.fullmatch(path.name):
        return True
    return path.suffix in (".json", ".npz", ".parquet") and is_intact(path)
