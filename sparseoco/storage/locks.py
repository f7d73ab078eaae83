"""One writer per folder: a file lock on this machine, a lease in an object store."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sparseoco.core.errors import FolderInUseError
from sparseoco.storage.errors import storage_error
from sparseoco.storage.leases import leased, lock_owner
from sparseoco.storage.locations import Location
from sparseoco.storage.remote import RemotePath

POLL_SECONDS = 0.5
TEMPORARY = ".*.????????.tmp"  # as `sparseoco.storage.commit` names files that it writes
TEMPORARY_SECONDS = 24 * 3600.0  # no write takes longer


@contextmanager
def exclusive_lock(folder: Location, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder for one writer, until the end of the `with` block or of the process.

    Parameters
    ----------
    folder : Location
        A local folder, created if needed, gets a file lock; a remote one a lease (`sparseoco.storage.leases`), which
        expires some time after a process on another machine was killed.
    wait : bool
        Wait for the lock instead of raising.

    Raises
    ------
    FolderInUseError
        If another process has the lock and `wait` is false.
    """
    with leased(folder, wait=wait) if isinstance(folder, RemotePath) else _locked(Path(str(folder)), wait):
        yield


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise storage_error(error, folder) from error
    try:
        while not _try_lock(descriptor):
            if not wait:
                owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                raise FolderInUseError.by(owner, folder)
            time.sleep(POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, lock_owner().encode(), 0)
        _remove_temporary_files(folder)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_temporary_files(folder: Path) -> None:
    """Remove the temporary files of killed processes."""
    with suppress(OSError):
        for path in folder.rglob(TEMPORARY):
            if path.stat().st_mtime < time.time() - TEMPORARY_SECONDS:
                path.unlink()
