"""Atomic writes of files, and reading.

A local file is written under a temporary name in the same folder, synced, and renamed, so a kill at any moment leaves
either the old state or the new one. A remote file, which cannot be renamed, is written on this machine and uploaded in
one request. Immutable files are created only if absent: the first writer wins, and a second one with the same content
succeeds.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from sparseoco.core.errors import DamagedError
from sparseoco.storage.errors import folder_error, storage_error
from sparseoco.storage.leases import check_lease
from sparseoco.storage.locations import Location
from sparseoco.storage.remote import RemotePath, map_concurrently
from sparseoco.storage.temporary import temporary_file, temporary_folder

CHECKSUM = "checksum"


@contextmanager
def committed(path: Location, *, replace: bool = True, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary local path; on a clean exit, its file is moved to `path` atomically.

    Parameters
    ----------
    path : Location
        The target; missing folders are created, with the permissions that the umask leaves, as the file. A symbolic
        link at the target is replaced by the file, and what it names is not touched; links to its folder are followed.
    replace : bool
        Whether an existing target is replaced; otherwise it is kept and `FileExistsError` is raised.
    sync : bool
        Sync a local file to disk. Without it the file survives the death of the process, but not of the machine.

    Raises
    ------
    StorageError
        For a full disk, a folder that is not writable, or a request that an object store refuses.
    """
    writing = _put(path, replace) if isinstance(path, RemotePath) else _moved(Path(str(path)), replace, sync)
    with writing as temporary:
        yield temporary


@contextmanager
def _moved(path: Path, replace: bool, sync: bool) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            make_folder(path.parent)
            temporary = stack.enter_context(temporary_file(path))
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            yield temporary
            if sync:
                _sync(temporary)
            if replace:
                temporary.replace(path)
            else:
                os.link(temporary, path)
            if sync:
                _sync(path.parent)
        except FileExistsError:
            raise
        except OSError as error:
            raise storage_error(error, path) from error


@contextmanager
def _put(path: RemotePath, replace: bool) -> Iterator[Path]:
    try:
        with temporary_folder() as folder:
            temporary = folder / path.name
            try:
                yield temporary
            except OSError as error:
                raise storage_error(error, temporary) from error
            check_lease(path)
            try:
                path.put(temporary, "overwrite" if replace else "create")
            except FileExistsError:
                if path.read_bytes() != temporary.read_bytes():  # equal after a request that was sent twice
                    raise
    except FileExistsError:
        raise
    except OSError as error:
        raise storage_error(error, path) from error


def commit_bytes(path: Location, data: bytes, *, replace: bool = True) -> None:
    """Write `data` as `committed` does."""
    with committed(path, replace=replace) as temporary:
        temporary.write_bytes(data)


def commit_json(path: Location, value: Mapping[str, Any], *, replace: bool = True) -> None:
    """Write `value` as JSON with a checksum of it and of the file's name, as `committed` does.

    Keys are sorted, so equal values give equal bytes. `value` has no key `CHECKSUM`.
    """
    checked = {**value, CHECKSUM: digest_value([path.name, value])}
    commit_bytes(path, _to_json(checked, indent=1) + b"\n", replace=replace)


def read_json(path: Location) -> dict[str, Any]:
    """The value that `commit_json` wrote.

    Raises `DamagedError` if the file is missing or its checksum does not match, `StorageError` if it cannot be read.
    """
    return parse_json(path, read_bytes(path))


def read_all_json(paths: Sequence[Location]) -> Iterator[tuple[Location, dict[str, Any] | None]]:
    """(path, value) of JSON files of one folder, None for corrupt ones. Raises as `read_files`."""
    for path, data in zip(paths, read_files(paths), strict=True):
        value = None
        with suppress(DamagedError):
            value = parse_json(path, data)
        yield path, value


def parse_json(path: Location, data: bytes) -> dict[str, Any]:
    """The value of the content of a JSON file.

    Raises `DamagedError` if its checksum does not match: it is damaged, or a copy of a file of another name.
    """
    try:
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        checksum = value.pop(CHECKSUM, None)
        contents = [path.name, value], value  # earlier versions left out the name
        matches = any(checksum == digest_value(content) for content in contents)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is corrupt: it is not JSON of this program.", code="corrupt-file") from error
    if checksum is None:
        raise DamagedError(
            f"{path} has no checksum: it is corrupt, or from an earlier version of sparseoco.", code="corrupt-file"
        )
    if not matches:
        raise wrong_checksum(path)
    return value


def wrong_checksum(path: Location) -> DamagedError:
    """The error for a file whose content is not what was written."""
    return DamagedError(
        f"{path} is corrupt: its checksum does not match. Restore it, or run the command that wrote it again.",
        code="corrupt-file",
    )


def read_bytes(path: Location) -> bytes:
    """The content of a file. Raises `DamagedError` if it is missing, `StorageError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise storage_error(error, path) from error


def read_files(paths: Sequence[Location]) -> list[bytes]:
    """The contents of files of one folder, remote ones requested concurrently. Raises as `read_bytes`."""
    if paths and isinstance(paths[0], RemotePath):
        return map_concurrently(read_bytes, paths)
    return [read_bytes(path) for path in paths]


@contextmanager
def as_local_file(path: Location) -> Iterator[Path]:
    """Yield a local file with the content of `path`: the file itself, or a temporary copy of a remote one.

    Raises `StorageError` if it cannot be downloaded. Whether a local file exists is not checked.
    """
    if not isinstance(path, RemotePath):
        yield Path(str(path))
        return
    with temporary_folder() as folder:
        copy = folder / path.name
        try:
            path.download(copy)
        except OSError as error:
            raise storage_error(error, path) from error
        yield copy


def make_folder(folder: Location) -> None:
    """Create a folder and its parents, unless it is remote. Raises `StorageError`."""
    if isinstance(folder, Path):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise folder_error(error, folder) from error


def remove_folder(folder: Location) -> None:
    """Remove a folder with all its files, as far as possible."""
    if isinstance(folder, RemotePath):
        with suppress(OSError):
            folder.remove_tree()
    else:
        shutil.rmtree(str(folder), ignore_errors=True)


def remove_file(path: Location) -> None:
    """Remove a file if it exists. Raises `StorageError`."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(error, path) from error


def digest_file(path: Location) -> str:
    """SHA-256 of the content of a file, in hexadecimal. Raises `StorageError`."""
    try:
        with as_local_file(path) as local, local.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise storage_error(error, path) from error


def digest_value(value: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(_to_json(value)).hexdigest()


def _to_json(value: Any, indent: int | None = None) -> bytes:
    """UTF-8 text with sorted keys. Names of files that are not UTF-8 have lone surrogates, which are escaped."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, indent=indent)
    return text.encode("utf-8", "backslashreplace")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
