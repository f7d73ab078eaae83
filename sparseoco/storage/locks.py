"""Locks of folders, and what a command may write over."""

import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from sparseoco.core.errors import DamagedError, FolderInUseError, InputError, StorageError
from sparseoco.core.logs import is_log
from sparseoco.storage.commit import leased, lock_owner, read_bytes, read_json
from sparseoco.storage.locations import Location, storage_error
from sparseoco.storage.remote import RemotePath
from sparseoco.storage.temporary import remove_abandoned_files

# ----------------------------------------------------------------------------------------------------------------------
# What a command may write over: files and folders of the kind that it writes, and nothing else.


DATA_FILE = re.compile(r"[a-z]+-([0-9a-f]{24})\.parquet")  # as `sparseoco.store.entries` names them


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
    from sparseoco.storage.tables import is_complete, map_array, read_parquet_file  # load NumPy and PyArrow

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


# ----------------------------------------------------------------------------------------------------------------------
# One writer per folder: a file lock on this machine, a lease in an object store.


POLL_SECONDS = 0.5
OWNER_BYTES = 200  # the size of a lock file: one line, padded with spaces
OWNER = b"process "  # how its content begins, see `lock_owner`
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NO_FILE = (errno.ELOOP, errno.EISDIR, errno.ENXIO)  # for a link, a folder or a socket


@contextmanager
def exclusive_lock(folder: Location, *kinds: FolderKind, wait: bool = False) -> Iterator[None]:
    """Lock a folder for one writer, until the end of the `with` block or of the process.

    Parameters
    ----------
    folder : Location
        A local folder, created if needed, gets a file lock; a remote one a lease (`sparseoco.storage.commit`), which
        expires some time after a process on another machine was killed.
    kinds : FolderKind
        What the writer makes of the folder, which must not have anything else.
    wait : bool
        Wait for the lock instead of raising.

    Raises
    ------
    FolderInUseError
        If another process has the lock and `wait` is false.
    InputError
        If the folder has something else than what the writer makes of it.
    """
    if kinds:
        check_folder(folder, *kinds)
    with leased(folder, wait=wait) if isinstance(folder, RemotePath) else _locked(folder, wait):
        yield


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, folder) from error
    descriptor = _open_lock(folder / ".lock")
    try:
        while not _try_lock(descriptor):
            if not wait:
                owner = os.pread(descriptor, OWNER_BYTES, 0).decode(errors="replace").strip()
                raise FolderInUseError.by(owner, folder)
            time.sleep(POLL_SECONDS)
        os.pwrite(descriptor, lock_owner().encode().ljust(OWNER_BYTES - 1)[: OWNER_BYTES - 1] + b"\n", 0)
        remove_abandoned_files(folder)
        yield
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    """A descriptor of a lock file, created if needed.

    Raises `StorageError` for what is no lock file: a link, also a hard one, a folder, a pipe, or a file of other
    content, which would be overwritten.
    """
    try:
        descriptor = os.open(path, _FLAGS, 0o666)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _not_a_lock(path) from error
        raise storage_error(error, path) from error
    status = os.fstat(descriptor)
    if (
        not stat.S_ISREG(status.st_mode)
        or status.st_nlink > 1
        or status.st_size > OWNER_BYTES
        or (status.st_size and not os.pread(descriptor, OWNER_BYTES, 0).startswith(OWNER))
    ):
        os.close(descriptor)
        raise _not_a_lock(path)
    return descriptor


def _not_a_lock(path: Path) -> StorageError:
    return StorageError(
        f"{path} is not a lock file of sparseoco: remove it, or choose another folder.", code="not-a-lock"
    )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
