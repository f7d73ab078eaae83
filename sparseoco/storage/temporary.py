"""Temporary files and folders, which do not outlive their processes for long.

A process has a lock on every one that it writes. The system releases it when the process ends, however it ends; what
is named like one and has no lock is removed by whoever looks there next. Locks of other machines may not be visible:
the name has the boot of the machine, and what another one made is only removed after `TEMPORARY_SECONDS`.
"""

import fcntl
import glob
import hashlib
import os
import secrets
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from sparseoco.core.errors import StorageError, error_text

PATTERN = "*.????????-????????.tmp"
TEMPORARY_SECONDS = 24 * 3600.0  # no write takes longer
NAME_BYTES = 255  # of a file name
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@cache
def boot() -> str:
    """The boot of this machine; where it is unknown, a name of this process, which then is a machine of its own."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return uuid.uuid4().hex


@contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """A new empty file in the folder of `target`, with the permissions that the umask leaves.

    Removed at the end, unless it was renamed. Raises `OSError`.
    """
    while True:
        path = _new_name(target.parent, f".{target.name}")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        if _lock(descriptor, path):
            break
        os.close(descriptor)
    try:
        yield path
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        os.close(descriptor)


@contextmanager
def temporary_folder(parent: Path | None = None, name: str = "sparseoco") -> Iterator[Path]:
    """A new folder of this user alone, removed at the end with its content.

    Parameters
    ----------
    parent : Path, optional
        The folder that it is made in, by default the one for temporary files. Those that killed processes left there
        under this name are removed first.

    Raises
    ------
    StorageError
        If there is no folder for temporary files.
    OSError
        If `parent` cannot be written.
    """
    if parent is None:
        try:
            parent = Path(tempfile.gettempdir())
        except OSError as error:
            raise _no_temporary_files(error) from error
    for left in parent.glob(glob.escape(name) + PATTERN[1:]):
        remove_if_abandoned(left)
    while True:
        path = _new_name(parent, name)
        path.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # taken for abandoned before it was locked
            descriptor = os.open(path, _FOLDER_FLAGS)
            if _lock(descriptor, path):
                break
            os.close(descriptor)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


class SharedFolder:
    """A folder in `parent` for several processes, removed with the last of them.

    Released when `release` is called, the object is garbage-collected or the process ends. Each process has a shared
    lock on it. Folders of `parent` whose processes have all ended are removed first, also that of this name: nobody
    knows what has happened to its files. Raises `OSError` if it cannot be created.

    Attributes
    ----------
    path : Path
        The folder; it may have files of other processes that use it now.
    """

    def __init__(self, parent: Path, name: str) -> None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = parent / f"{name}.{_boot_digest()}-together.tmp"
        while True:
            for left in parent.glob(PATTERN):
                remove_if_abandoned(left)
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            with suppress(FileNotFoundError):  # taken for abandoned before it was locked
                descriptor = os.open(self.path, _FOLDER_FLAGS)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if _has_name(descriptor, self.path):
                    break
                os.close(descriptor)
        self._finalizer = weakref.finalize(self, _give_up, descriptor, self.path)

    def release(self) -> None:
        """Give the folder up, and remove it unless another process uses it. Open files stay usable."""
        self._finalizer()


def _give_up(descriptor: int, path: Path) -> None:
    os.close(descriptor)
    remove_if_abandoned(path)


def unnamed_file() -> IO[bytes]:
    """A temporary file without a name, which ends with the process. Raises `StorageError`."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise _no_temporary_files(error) from error


def remove_abandoned_files(folder: Path) -> None:
    """Remove the temporary files below a folder whose processes have ended."""
    with suppress(OSError):
        for path in folder.rglob(f".{PATTERN}"):
            remove_if_abandoned(path)


def remove_if_abandoned(path: Path) -> None:
    """Remove a temporary file or folder if its process has ended; errors are ignored."""
    with suppress(OSError):
        flags = _FOLDER_FLAGS if path.is_dir() else os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags)
        try:
            certain = path.name[-21:-13] == _boot_digest()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            except OSError:  # a file system without locks
                certain = False
            if not _has_name(descriptor, path):  # removed meanwhile, and made again
                return
            if certain or os.fstat(descriptor).st_mtime < time.time() - TEMPORARY_SECONDS:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
        finally:
            os.close(descriptor)


def _new_name(folder: Path, name: str) -> Path:
    suffix = f".{_boot_digest()}-{secrets.token_hex(4)}.tmp"
    return folder / (os.fsdecode(os.fsencode(name)[: NAME_BYTES - len(suffix)]) + suffix)


@cache
def _boot_digest() -> str:
    return hashlib.sha256(boot().encode()).hexdigest()[:8]


def _lock(descriptor: int, path: Path) -> bool:
    """Lock a new file or folder; False if another process has taken it for abandoned meanwhile."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where nothing is taken for abandoned for a day
        return True
    return _has_name(descriptor, path)


def _has_name(descriptor: int, path: Path) -> bool:
    """Whether an open file or folder is the one that has this name now."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    return False


def _no_temporary_files(error: OSError) -> StorageError:
    return StorageError(
        f"No temporary file can be written: {error_text(error)}. Set TMPDIR to a folder with space.",
        code="no-temporary-folder",
    )
