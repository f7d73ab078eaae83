"""Files that are there whole or not at all.

Written to a temporary name beside the target, synced, then linked into place, so a kill at any moment leaves either
the old state or the new one. Immutable files are put if absent: the first writer wins and a second with the same
content is a no-op. At an address, where nothing can be renamed, a file is written on this machine and put whole.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sparseoco.core.errors import DamagedError, FolderInUseError, StorageError, error_text
from sparseoco.storage.leases import check_lease, holder, leased
from sparseoco.storage.locations import Location
from sparseoco.storage.objects import fetch, put_file, read_all, remove, remove_below

LOOK = 0.5  # seconds between two looks at a folder that is in use
SEAL = "sha256"
TEMPORARY = ".*.????????.tmp"  # as `tempfile` names what is beside its target
A_DAY = 24 * 3600.0


@contextmanager
def committed(path: Location, *, replace: bool = True) -> Iterator[Path]:
    """Give a temporary path on this machine; on a clean exit what is there is synced and moved, or put, to `path`.

    With ``replace=False`` an existing target is kept and `FileExistsError` is raised: put-if-absent.
    Raises `StorageError` for a full disk, a folder that cannot be written, or whatever a store refuses.
    """
    with _linked(path, replace) if isinstance(path, Path) else _put(path, replace) as temporary:
        yield temporary


@contextmanager
def _linked(path: Path, replace: bool) -> Iterator[Path]:
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


@contextmanager
def _put(path: Location, replace: bool) -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="sparseoco-") as folder:
            temporary = Path(folder) / path.name
            try:
                yield temporary
            except OSError as error:
                raise storage_error(error, temporary) from error
            check_lease(path)
            try:
                put_file(temporary, path, absent=not replace)
            except FileExistsError:
                if path.read_bytes() != temporary.read_bytes():  # else it was this very put, asked for twice
                    raise
    except FileExistsError:
        raise
    except OSError as error:
        raise storage_error(error, path) from error


def commit_bytes(path: Location, data: bytes, *, replace: bool = True) -> None:
    """Write `data` to `path` at once (see `committed`)."""
    with committed(path, replace=replace) as temporary:
        temporary.write_bytes(data)


def commit_json(path: Location, value: Any, *, replace: bool = True) -> None:
    """Write `value` as canonical JSON (sorted keys, so equal values are equal bytes)."""
    commit_bytes(
        path,
        (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(),
        replace=replace,
    )


def commit_checksummed(path: Location, value: dict[str, Any]) -> None:
    """As `commit_json`, with a digest of all the rest, so that a bit that flips is noticed."""
    commit_json(path, value | {SEAL: digest_value(value)})


def read_checksummed(path: Location) -> dict[str, Any]:
    """What `commit_checksummed` wrote. Raises as `read_json`, a flipped bit being damage."""
    return _unsealed(path, read_bytes(path))


def read_all_checksummed(paths: Sequence[Location]) -> Iterator[tuple[Location, dict[str, Any] | None]]:
    """The same of files of one folder, None for those that are damaged; what lies at an address is asked for at once.

    Raises as `read_bytes`.
    """
    for path, data in zip(paths, read_files(paths), strict=True):
        value = None
        with suppress(DamagedError):
            value = _unsealed(path, data)
        yield path, value


def _unsealed(path: Location, data: bytes) -> dict[str, Any]:
    value = _parsed(path, data)
    if not isinstance(value, dict) or value.pop(SEAL, None) != digest_value(value):
        raise DamagedError(f"{path} is damaged: it does not have the digest it names.")
    return value


def read_json(path: Location) -> Any:
    """A JSON file's value. Raises `DamagedError` if it is missing or damaged, `StorageError` if it cannot be read."""
    return _parsed(path, read_bytes(path))


def _parsed(path: Location, data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise DamagedError(f"{path} is damaged: it is not JSON.") from error


def read_bytes(path: Location) -> bytes:
    """A file's content. Raises `DamagedError` if it is missing, `StorageError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise storage_error(error, path) from error


def read_files(paths: Sequence[Location]) -> list[bytes]:
    """The contents of files of one folder; what lies at an address is asked for at once. Raises as `read_bytes`."""
    if not paths or isinstance(paths[0], Path):
        return [read_bytes(path) for path in paths]
    try:
        return read_all(list(paths))
    except OSError as error:
        raise storage_error(error, paths[0].parent) from error


@contextmanager
def on_disk(path: Location) -> Iterator[Path]:
    """A file of this machine with the content of `path`, for as long as the block lasts: itself, or a copy.

    Raises `StorageError` where it cannot be fetched; what is not there locally is for the block to find out.
    """
    if isinstance(path, Path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="sparseoco-") as folder:
        copy = Path(folder) / path.name
        try:
            fetch(path, copy)
        except OSError as error:
            raise storage_error(error, path) from error
        yield copy


def make_folder(folder: Location) -> None:
    """Make a folder and those it is in; at an address there is nothing to make. Raises `StorageError`."""
    if isinstance(folder, Path):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, folder) from error


def remove_folder(folder: Location) -> None:
    """Remove a folder with all that is in it, as far as that can be done."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):
        remove_below(folder)


def remove_file(path: Location) -> None:
    """Remove a file, if it is there. Raises `StorageError`."""
    try:
        if isinstance(path, Path):
            path.unlink(missing_ok=True)
        else:
            remove(path)
    except OSError as error:
        raise storage_error(error, path) from error


@contextmanager
def exclusive_lock(folder: Location, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder for one writer; the hold ends with the process, however it ends.

    At an address the hold is a lease (`sparseoco.storage.leases`): what is left of a process that died elsewhere is
    waited for. Raises `FolderInUseError` if another process holds it, unless told to wait until it does not.
    """
    with _locked(folder, wait) if isinstance(folder, Path) else leased(folder, wait=wait):
        yield


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    lock = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise storage_error(error, folder) from error
    try:
        while not _lock(descriptor):
            if not wait:
                owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                raise FolderInUseError.by(owner, folder)
            time.sleep(LOOK)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder().encode(), 0)
        _remove_left(folder)
        yield
    finally:
        os.close(descriptor)


def _remove_left(folder: Path) -> None:
    """Remove what processes that were killed were writing: no write takes a day."""
    with suppress(OSError):
        for left in folder.rglob(TEMPORARY):
            if left.stat().st_mtime < time.time() - A_DAY:
                left.unlink()


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def digest_file(path: Location) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with on_disk(path) as local, local.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise storage_error(error, path) from error


def digest_value(value: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def storage_error(error: OSError, path: Location) -> StorageError:
    """The sentence that says what the operating system, or an object store, refused, and where."""
    if isinstance(error, StorageError):
        return error
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and isinstance(path, Path):
        free = _free_bytes(path)
        return StorageError(
            f"The disk is full: {path} could not be written ({free / 1e6:.0f} MB free). Free some space and run again."
        )
    if isinstance(error, FileNotFoundError):
        return DamagedError(f"{path} is not there.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"{path} cannot be written or read: permission denied.")
    return StorageError(f"{path}: {error_text(error)}.")


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
