"""Files that are there whole or not at all.

Written to a temporary name beside the target, synced, then linked into place, so a kill at any moment leaves either
the old state or the new one. Immutable files are put if absent: the first writer wins and a second with the same
content is a no-op.
"""

import errno
import fcntl
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sparseoco.errors import StorageError


@contextmanager
def committed(path: Path, *, replace: bool = True) -> Iterator[Path]:
    """Give a temporary path in the target's folder; on a clean exit sync it and move it to `path`.

    With ``replace=False`` an existing target is kept and `FileExistsError` is raised: put-if-absent.
    Raises `StorageError` for a full disk or a folder that cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
    except OSError as error:
        raise storage_error(error, path) from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        _sync(temporary)
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)
        _sync(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def commit_bytes(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Write `data` to `path` at once (see `committed`)."""
    with committed(path, replace=replace) as temporary:
        temporary.write_bytes(data)


def commit_json(path: Path, value: Any, *, replace: bool = True) -> None:
    """Write `value` as canonical JSON (sorted keys, so equal values are equal bytes)."""
    commit_bytes(
        path,
        (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(),
        replace=replace,
    )


def read_json(path: Path) -> Any:
    """A JSON file's value. Raises `StorageError` if it is missing or damaged."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise storage_error(error, path) from error
    except ValueError as error:
        raise StorageError(f"{path} is damaged: it is not JSON.") from error


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Hold a folder for one writer; the hold ends with the process, however it ends.

    Raises `StorageError` if another process holds it.
    """
    lock = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise storage_error(error, folder) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            raise StorageError(
                f"{folder} is in use by {owner or 'another run'}: wait for it, or choose another folder."
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise storage_error(error, path) from error


def digest_value(value: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def storage_error(error: OSError, path: Path) -> StorageError:
    """The sentence that says what the operating system refused, and where."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = _free_bytes(path)
        return StorageError(
            f"The disk is full: {path} could not be written ({free / 1e6:.0f} MB free). Free some space and run again."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"{path} cannot be written or read: permission denied.")
    return StorageError(f"{path}: {error.strerror or error}.")


def _free_bytes(path: Path) -> int:
    folder = path
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
