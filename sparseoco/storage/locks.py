"""One writer per folder: a file lock on this machine, a lease in an object store."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparseoco.core.errors import FolderInUseError, StorageError
from sparseoco.storage.errors import folder_error, storage_error
from sparseoco.storage.leases import leased, lock_owner
from sparseoco.storage.locations import Location
from sparseoco.storage.outputs import FolderKind, check_folder
from sparseoco.storage.remote import RemotePath
from sparseoco.storage.temporary import remove_abandoned_files

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
        A local folder, created if needed, gets a file lock; a remote one a lease (`sparseoco.storage.leases`), which
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
    with leased(folder, wait=wait) if isinstance(folder, RemotePath) else _locked(Path(str(folder)), wait):
        yield


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise folder_error(error, folder) from error
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
