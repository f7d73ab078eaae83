"""The lock of a folder, and when it was last written: read from the files, without taking the lock."""

import json
import os
import platform
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sparseoco.core.formatting import duration
from sparseoco.storage.leases import EXPIRY_SECONDS, HEARTBEAT_SECONDS, is_dead
from sparseoco.storage.locations import Location

_OWNER = re.compile(r"process (\d+) on (.+)")


class FolderLock(NamedTuple):
    """The lock of a folder.

    Parameters
    ----------
    folder, owner : str
        The folder, and the process that locked it.
    seconds : float
        Time since it was locked.
    held : bool
        Whether it is known to be held; False if the owner is on another machine, which cannot be checked from here.
    expired : bool
        Whether the owner has ended, or has not renewed its lease for so long that the next run takes the folder over.
    """

    folder: str
    owner: str
    seconds: float
    held: bool
    expired: bool = False

    @property
    def message(self) -> str:
        """A sentence, without the full stop."""
        if self.held:
            return f"{self.folder} is locked by {self.owner} since {duration(self.seconds)}"
        if self.expired:
            return f"{self.folder} was locked by {self.owner}, which has ended: the next run takes it over"
        return (
            f"{self.folder} was locked by {self.owner}; it cannot be checked from here whether that process is still "
            "running: new files in the folder show that it is"
        )


def folder_lock(folder: Location) -> FolderLock | None:
    """The lock of a folder, or None."""
    lock = folder / ".lock"
    return _locked(lock) if isinstance(lock, Path) else _leased(lock)


def age(paths: Iterable[Location]) -> float | None:
    """Seconds since the last of these files was written; None if there are none."""
    times = [changed for path in paths if (changed := _changed(path)) is not None]
    return max(0.0, time.time() - max(times)) if times else None


def _locked(lock: Path) -> FolderLock | None:
    try:
        owner, status = lock.read_text(errors="replace").strip(), lock.stat()
    except OSError:
        return None
    match = _OWNER.fullmatch(owner)
    if match is None:
        return None
    local = FolderLock(str(lock.parent), owner, max(0.0, time.time() - status.st_mtime), held=True)
    if match[2] != platform.node():
        # Locks of other machines are not visible, and a released lock leaves its file behind.
        return local._replace(held=False)
    return local if _is_locked(status) else None


def _is_locked(status: os.stat_result) -> bool:
    """Whether any process has a lock on that file, by the kernel's list: taking the lock would block others."""
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    return any(
        line.split()[1] == "FLOCK" and line.split()[5].split(":")[2] == str(status.st_ino)
        for line in locks.splitlines()
        if "->" not in line
    )


def _leased(lock: Location) -> FolderLock | None:
    """A lease at a remote URI: held while it is renewed, until it expires."""
    with suppress(OSError, ValueError):
        content = json.loads(lock.read_bytes())
        renewed = _changed(lock)
        if isinstance(content, dict) and renewed is not None:
            since = max(0.0, time.time() - renewed)
            expired = since >= EXPIRY_SECONDS or is_dead(content.get("process"))
            seconds = since + HEARTBEAT_SECONDS * int(content.get("heartbeats") or 0)
            return FolderLock(str(lock.parent), str(content.get("owner")), seconds, held=not expired, expired=expired)
    return None


def _changed(path: Any) -> float | None:
    """When a file was written, in seconds since 1970; None if it does not exist or the store does not say."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return float(path.stat().st_mtime)
    return None
