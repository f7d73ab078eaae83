"""Folders that the processes of a host share, removed with the last process that uses them.

Each process has a shared lock on the folder's lock file. The system releases it when the process ends, however it ends;
whoever then gets the lock alone removes the folder: the last user, or the next process that opens any folder there. So
nobody uses files that killed processes left behind.
"""

import fcntl
import os
import shutil
import weakref
from contextlib import suppress
from pathlib import Path

from sparseoco.core.errors import StorageError
from sparseoco.storage.errors import storage_error
from sparseoco.storage.temporary import boot

LOCK = ".lock"


def folder_on_host(parent: Path) -> Path:
    """The folder in `parent` that this user's processes on this host share; created if needed.

    Its name has the boot of the machine: hosts that see the same `parent` have folders of their own, and files that
    were not synced before a crash are not used. Containers on a host share one if they share `parent`.

    Raises `StorageError` if it cannot be created, is a link, or is not this user's alone.
    """
    folder = parent / f"sparseoco-{os.geteuid()}-{boot()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise storage_error(error, folder) from error
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise StorageError(
            f"{folder} can be changed by other users: remove it, or start workers with another --local-directory.",
            code="unsafe-folder",
        )
    return folder


class SharedFolder:
    """A folder in `parent` that other processes may use, too.

    Released when `release` is called, the object is garbage-collected or the process ends. Removes other folders of
    `parent` whose processes were killed. Raises `OSError` if it cannot be created.

    Attributes
    ----------
    path : Path
        The folder; it may have files of other processes that use it now.
    """

    def __init__(self, parent: Path, name: str) -> None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = parent / name
        for lock in parent.glob(f"*{LOCK}"):
            if lock.name != name + LOCK:
                with suppress(OSError):  # its last user has just removed it
                    _remove_unused(os.open(lock, os.O_RDWR | os.O_NOFOLLOW), lock)
        descriptor = _open_locked(parent / (name + LOCK), self.path)
        self.path.mkdir(mode=0o700, exist_ok=True)
        self._finalizer = weakref.finalize(self, _remove_unused, descriptor, parent / (name + LOCK))

    def release(self) -> None:
        """Give the folder up, and remove it unless another process uses it. Open files stay usable."""
        self._finalizer()


def _open_locked(lock: Path, folder: Path) -> int:
    """A descriptor of a lock file, with a shared lock on the file that has the name now.

    A folder that no other process uses is removed: nobody knows what has happened to its files.
    """
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(descriptor, lock):
                shutil.rmtree(folder, ignore_errors=True)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if _is_named(descriptor, lock):
            return descriptor
        os.close(descriptor)  # the last user removed it meanwhile


def _remove_unused(descriptor: int, lock: Path) -> None:
    """Remove the folder of a lock file, and the file, unless a process has a lock on it; closes the descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_named(descriptor, lock):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink()
    except OSError:  # it is used, or was removed with its parent
        pass
    finally:
        os.close(descriptor)


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
