"""Atomic commits of files with checksums, validated reading of them, and one writer per folder: locks and leases."""

import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from fnmatch import fnmatchcase
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, cast

from pydantic import ConfigDict, Field, Strict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from sparseoco.core.errors import DamagedError, FolderInUseError, InputError, StorageError
from sparseoco.core.logs import is_log
from sparseoco.storage.locations import Location, RemotePath, Version, map_concurrently, storage_error, storage_errors
from sparseoco.storage.temporary import remove_abandoned_files, temporary_file, temporary_folder

if TYPE_CHECKING:
    import pyarrow as pa


# ----------------------------------------------------------------------------------------------------------------------
# A lease per folder of an object store, which has no locks: an object that its owner renews.
#
# The lease is created if absent. Its owner rewrites it every `HEARTBEAT_SECONDS`, on condition that it has not changed.
# Another process that finds it watches it by its own clock: a lease that changes is alive; one that stays the same for
# `EXPIRY_SECONDS` has expired, and is taken over on condition that it has not changed since. An owner that could not
# renew its lease for `EXPIRY_SECONDS` writes nothing more.


HEARTBEAT_SECONDS = 5.0
EXPIRY_SECONDS = 60.0
LEASE_POLL_SECONDS = 1.0  # while another process has the lease
LEASE_READS = 5  # tries: it may be renewed while it is read

_leases: list["Lease"] = []


def _now() -> float:
    """Seconds on a clock that also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The lease of this process on a folder, renewed by a thread until `release`."""

    def __init__(self, path: RemotePath) -> None:
        self._path, self.folder = path, path.parent
        self._content = {"owner": lock_owner(), "lease": uuid.uuid4().hex}
        self._heartbeats = 0
        self._version: Version = {}
        self._renewed = _now()
        self._lost = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def acquire(self, *, wait: bool) -> None:
        """Acquire the lease, waiting for it if `wait`. Raises `FolderInUseError` if another process has it."""
        first: Version | None = None
        since, changed = 0.0, False
        while not self._create():
            try:
                version, content = self._read()
            except FileNotFoundError:
                continue
            if version != first:
                changed = changed or first is not None
                first, since = version, _now()
            if changed and not wait:
                raise FolderInUseError.by(content.get("owner"), self.folder)
            if _now() - since >= EXPIRY_SECONDS:
                self._renewed = _now()
                with suppress(FileExistsError):
                    self._version = self._path.put(self._bytes(), version)
                    break
            time.sleep(LEASE_POLL_SECONDS)
        self._thread.start()
        _leases.append(self)

    def release(self) -> None:
        """End the renewals, and remove the lease if it is still this process's."""
        _leases.remove(self)
        self._ended.set()
        self._thread.join(HEARTBEAT_SECONDS)  # a renewal may be in progress
        if not self.lost:
            with suppress(OSError, StorageError):  # it expires by itself
                self._path.unlink(missing_ok=True)

    @property
    def lost(self) -> bool:
        """Whether another process has, or may have, taken over."""
        return self._lost or _now() - self._renewed >= EXPIRY_SECONDS

    def _create(self) -> bool:
        self._renewed = _now()
        try:
            self._version = self._path.put(self._bytes(), "create")
        except FileExistsError:
            return self._is_own()
        return True

    def _renew(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS) and not self.lost:
            self._heartbeats += 1
            started = _now()
            try:
                self._version = self._path.put(self._bytes(), self._version)
            except (FileExistsError, FileNotFoundError):
                if not self._is_own():
                    self._lost = True
                    continue
            except (OSError, StorageError):  # the store may respond again before the lease expires
                continue
            self._renewed = started

    def _is_own(self) -> bool:
        """Whether the stored lease is this one: a request whose response was lost is sent again."""
        with suppress(OSError, StorageError, ValueError):
            version, content = self._read()
            if content.get("lease") == self._content["lease"]:
                self._version = version
                return True
        return False

    def _read(self) -> tuple[Version, dict[str, Any]]:
        """(version, content) of the lease, without content that is corrupt or of a later version.

        Raises `FileNotFoundError`.
        """
        for _ in range(LEASE_READS):
            version, content = self._path.version(), None
            with suppress(FileExistsError):  # renewed between the two requests
                with suppress(ValueError):
                    content = json.loads(self._path.read_bytes(e_tag=version.get("e_tag")))
                break
        return version, content if isinstance(content, dict) else {}

    def _bytes(self) -> bytes:
        return json.dumps({**self._content, "heartbeats": self._heartbeats}).encode()


def check_lease(path: RemotePath) -> None:
    """Raises `StorageError` if this process had the lease of the folder of a file and lost it."""
    for lease in _leases:
        if str(path).startswith(f"{lease.folder}/") and lease.lost:
            raise StorageError(
                f"{path} was not written: the lease of its folder was lost. Run again to resume.", code="lease-lost"
            )


def lock_owner() -> str:
    """Name of this process in its locks and leases."""
    return f"process {os.getpid()} on {platform.node()}"


# ----------------------------------------------------------------------------------------------------------------------
# Atomic writes of files, and reading.
#
# A local file is written under a temporary name in the same folder, synced, and renamed, so a kill at any moment leaves
# either the old state or the new one. A remote file, which cannot be renamed, is written on this machine and uploaded
# in one request. Immutable files are created only if absent: the first writer wins, and a second one with the same
# content succeeds.


CHECKSUM = "checksum"
READABLE_BYTES = 1 << 14  # longer JSON has no line for each value, which takes twenty times as long to write


def committed(path: Location, *, replace: bool = True, sync: bool = True) -> AbstractContextManager[Path]:
    """A context of a temporary local path; on a clean exit, its file is moved to `path` atomically.

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
    return _put(path, replace) if isinstance(path, RemotePath) else _moved(path, replace, sync)


@contextmanager
def _moved(path: Path, replace: bool, sync: bool) -> Iterator[Path]:
    make_folder(path.parent)
    with storage_errors(path, but=FileExistsError), temporary_file(path) as temporary:
        yield temporary
        if sync:
            _sync(temporary)
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)
        if sync:
            _sync(path.parent)


@contextmanager
def _put(path: RemotePath, replace: bool) -> Iterator[Path]:
    with storage_errors(path, but=FileExistsError), temporary_folder() as folder:
        temporary = folder / path.name
        with storage_errors(temporary):
            yield temporary
        check_lease(path)
        try:
            path.put(temporary, "overwrite" if replace else "create")
        except FileExistsError:
            if path.read_bytes() != temporary.read_bytes():  # equal after a request that was sent twice
                raise


def commit_bytes(path: Location, data: bytes, *, replace: bool = True) -> None:
    """Write `data` as `committed` does."""
    with committed(path, replace=replace) as temporary:
        temporary.write_bytes(data)


def commit_json(path: Location, value: Mapping[str, Any], *, replace: bool = True) -> None:
    """Write `value` as JSON with a checksum of it and of the file's name, as `committed` does.

    Keys are sorted, so equal values give equal bytes. `value` has no key `CHECKSUM`.
    """
    checked = {**value, CHECKSUM: digest_value([path.name, value])}
    text = _to_json(checked)
    if len(text) < READABLE_BYTES:
        text = _to_json(checked, indent=1)
    commit_bytes(path, text + b"\n", replace=replace)


def read_json(path: Location) -> dict[str, Any]:
    """The value that `commit_json` wrote.

    Raises `DamagedError` if the file is missing or its checksum does not match, `StorageError` if it cannot be read.
    """
    return parse_json(path, read_bytes(path))


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
    with storage_errors(path):
        return path.read_bytes()


def read_files(paths: Sequence[Location]) -> list[bytes]:
    """The contents of files of one folder, remote ones requested concurrently. Raises `StorageError`."""
    if paths and isinstance(paths[0], RemotePath):
        return map_concurrently(read_bytes, paths)
    return [read_bytes(path) for path in paths]


@contextmanager
def as_local_file(path: Location) -> Iterator[Path]:
    """Yield a local file with the content of `path`: the file itself, or a temporary copy of a remote one.

    Raises `StorageError` if it cannot be downloaded. Whether a local file exists is not checked.
    """
    if not isinstance(path, RemotePath):
        yield path
        return
    with temporary_folder() as folder:
        copy = folder / path.name
        with storage_errors(path):
            path.download(copy)
        yield copy


def make_folder(folder: Location) -> None:
    """Create a folder and its parents on the disk, unless it is remote. Raises `StorageError`."""
    if isinstance(folder, Path):
        with storage_errors(folder):
            made = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
            folder.mkdir(parents=True, exist_ok=True)
            for path in made:  # without it, the name of a folder may be gone after a loss of power
                _sync(path.parent)


def remove_folder(folder: Location) -> None:
    """Remove a folder with all its files, as far as possible."""
    if isinstance(folder, RemotePath):
        with suppress(OSError):
            folder.remove_tree()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def remove_file(path: Location) -> None:
    """Remove a file if it exists. Raises `StorageError`."""
    with storage_errors(path):
        path.unlink(missing_ok=True)


def digest_file(path: Location) -> str:
    """SHA-256 of the content of a file, in hexadecimal. Raises `StorageError`."""
    with storage_errors(path), as_local_file(path) as local, local.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


# ----------------------------------------------------------------------------------------------------------------------
# JSON files whose content has a stated shape: a pydantic model, or a TypedDict where keys are looked up.


T = TypeVar("T")
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LARGEST = 1e100
"""Bound of the numbers of a model: what is computed of them, such as squares, is finite."""
Moderate = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
with_other_keys = with_config(ConfigDict(extra="allow"))
"""Decorates a TypedDict that says only something of a file."""


def row_shape(schema: "pa.Schema") -> Any:
    """The shape of a row of a table of this schema: values have the types of their columns, columns may be missing."""
    columns = {field.name: _value_shape(field.type) for field in schema}
    return with_other_keys(TypedDict("Row", columns, total=False))  # type: ignore[operator]


def _value_shape(kind: "pa.DataType") -> Any:
    import pyarrow as pa  # the manifest of a store is read without it

    if pa.types.is_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return Annotated[int, Strict(), Field(ge=-bound, lt=bound)] | None
    for is_kind, value in ((pa.types.is_floating, float), (pa.types.is_boolean, bool), (pa.types.is_string, str)):
        if is_kind(kind):
            return Annotated[value, Strict()] | None
    return Any


def read_validated(path: Location, shape: type[T]) -> T:
    """The value of a JSON file as `shape`. Raises `StorageError`."""
    return validated(path, read_json(path), shape)


def validated(path: Location, value: Any, shape: type[T]) -> T:
    """A value that was read from a file, as `shape`. Raises `DamagedError`, naming the file and the key."""
    try:
        return cast(T, _adapter(cast(Any, shape)).validate_python(value))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"]) or "the whole file"
        raise DamagedError(f"{path} is corrupt or of another version (at {where}).", code="corrupt-file") from error


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


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
        is_own = any(fnmatchcase(path.name, name) for name in names)
        if is_own and not (was_locked or path.is_dir() or DATA_FILE.fullmatch(path.name)):
            # Without a lock, only a file whose content has a digest was surely written by this package.
            is_own = path.suffix in (".json", ".npz", ".parquet") and is_intact(path)
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
    if not isinstance(folder, RemotePath):
        with _locked(folder, wait):
            yield
        return
    lease = Lease(folder / ".lock")
    lease.acquire(wait=wait)
    try:
        yield
    finally:
        lease.release()


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = _open_lock(folder / ".lock")
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not wait:
                    owner = os.pread(descriptor, OWNER_BYTES, 0).decode(errors="replace").strip()
                    raise FolderInUseError.by(owner, folder) from None
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
