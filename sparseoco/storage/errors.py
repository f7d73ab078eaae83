"""`StorageError`s for errors of the operating system."""

import errno
import os
from copy import copy
from pathlib import Path

from sparseoco.core.errors import DamagedError, StorageError, error_text
from sparseoco.storage.locations import Location


def storage_error(error: OSError, path: Location) -> StorageError:
    """The `StorageError` for an `OSError` on a path; of an error that is a `StorageError` already, a copy.

    The error itself must not become its own cause: Dask, which sends all causes of an error, would not end.
    """
    if isinstance(error, StorageError):
        return copy(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and isinstance(path, Path):
        return StorageError(
            f"The disk is full: {path} could not be written ({_free_bytes(path) / 1e6:.0f} MB free). Free some space "
            "and run again.",
            code="disk-full",
        )
    if isinstance(error, FileNotFoundError):
        return DamagedError(f"{path} does not exist.", code="missing-file")
    if error.errno == errno.EROFS:
        return StorageError(f"{path} cannot be written: the file system is read-only.", code="permission-denied")
    if error.errno in (errno.EACCES, errno.EPERM):
        return StorageError(f"{path} cannot be written or read: permission denied.", code="permission-denied")
    return StorageError(f"{path}: {error_text(error)}.", code="io-error")


def folder_error(error: OSError, folder: Path) -> StorageError:
    """The `StorageError` for a folder that could not be created."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        file = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        which = "it" if file == folder else str(file)
        return StorageError(f"{folder} cannot be a folder: {which} is a file. Choose another.", code="io-error")
    if isinstance(error, FileNotFoundError):  # a parent, as in /proc, that takes no new entries
        return StorageError(f"{folder} cannot be created: choose another folder.", code="io-error")
    return storage_error(error, folder)


def _free_bytes(path: Path) -> int:
    folder = path
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
