"""Staging files, which the steps of an ingest exchange.

Each has digests of its content and of its name. An ingest that meets a damaged one counts again.

The staging folder is on this machine if all steps run here, so that its files can be mapped. If workers on other
machines write to a remote store, it is in the store, and each process caches local copies; staging files never change.
"""

import atexit
import logging
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.core.logs import log_event
from sparseoco.storage.commit import remove_folder
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import Location, local_work_folder
from sparseoco.storage.remote import RemotePath
from sparseoco.storage.temporary import temporary_folder

T = TypeVar("T")
STAGING = ".staging"
CACHE_BYTES = 4 << 30  # of local copies in a process
_copies: OrderedDict[str, tuple[Path, int]] = OrderedDict()
_lock = threading.Lock()


class StagingError(DamagedError):
    """A staging file is missing, or its content is not what was written to it: an ingest starts over."""


def damaged(path: Location) -> StagingError:
    """The error for a staging file whose content is not what was written to it."""
    return StagingError(f"{path} is corrupt: delete its folder and run again.", code="corrupt-file")


def staging_error(error: OSError, path: Location) -> StorageError:
    """The error for a staging file that cannot be read."""
    failure = storage_error(error, path)
    return StagingError(*failure.args, code=failure.code) if isinstance(failure, DamagedError) else failure


def staging_folder(out: Location, *, local: bool) -> Location:
    """Folder for the staged files of an ingest into `out`.

    Local staging files are not synced: they survive the death of a process, but not of the machine. So every boot of
    the machine uses a new folder. `local` says that all steps run on this machine.
    """
    if not local and not isinstance(out, Path):
        return out / STAGING / "shared"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = "unknown"
    return local_work_folder(out) / STAGING / boot


def starting_over(out: Location, name: str, work: Callable[[], T]) -> T:
    """The result of work into `out`; it starts over once if it meets a staging file that is missing or corrupt."""
    try:
        return work()
    except StagingError as error:
        log_event(name, "staging file corrupt, starting over", level=logging.WARNING, error=str(error))
        clear_staging(out)
        return work()


def clear_staging(out: Location) -> None:
    """Remove all staging folders of ingests into `out` that this machine can see."""
    for folder in {out, local_work_folder(out)}:
        remove_folder(folder / STAGING)


def local_copy(path: Location) -> Path:
    """The file itself if it is on this machine, else a cached copy. Raises `StorageError`."""
    if not isinstance(path, RemotePath):
        return Path(str(path))
    with _lock:
        name = str(path)
        if name in _copies:
            _copies.move_to_end(name)
            return _copies[name][0]
        copy = _copy_folder() / uuid.uuid4().hex
        try:
            path.download(copy)
        except OSError as error:
            raise staging_error(error, path) from error
        _copies[name] = copy, copy.stat().st_size
        while len(_copies) > 1 and sum(size for _, size in _copies.values()) > CACHE_BYTES:
            _copies.popitem(last=False)[1][0].unlink(missing_ok=True)  # existing memory maps stay valid
        return copy


def forget_copy(path: Location) -> None:
    """Remove the cached copy of a file that is damaged, and may be written again."""
    with _lock:
        if str(path) in _copies:
            _copies.pop(str(path))[0].unlink(missing_ok=True)


@cache
def _copy_folder() -> Path:
    """Removed when the process ends."""
    folder = temporary_folder()
    atexit.register(folder.__exit__, None, None, None)
    return folder.__enter__()
