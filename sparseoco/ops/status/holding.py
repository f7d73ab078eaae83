"""Who holds a folder, and when it was last written to: seen from the files, without touching the lock."""

import json
import os
import platform
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sparseoco.report.wording import duration
from sparseoco.storage.leases import EXPIRY_SECONDS, HEARTBEAT_SECONDS, is_dead
from sparseoco.storage.locations import Location

_HOLDER = re.compile(r"process (\d+) on (.+)")


class Hold(NamedTuple):
    """A hold on a folder: by whom, for how many seconds, and whether it is seen to be held.

    `sure` is False where that cannot be seen from here, the holder being on another machine, and where it is `gone`: it
    is known to have ended, or has not renewed its lease for so long that the next run takes the folder over.
    """

    folder: str
    by: str
    seconds: float
    sure: bool
    gone: bool = False

    @property
    def sentence(self) -> str:
        """All that, without the full stop."""
        if self.sure:
            return f"{self.folder} is held by {self.by} for {duration(self.seconds)}"
        if self.gone:
            return f"{self.folder} was held by {self.by}, which has ended or fallen silent: the next run takes it over"
        return (
            f"{self.folder} was held by {self.by}; whether it still is cannot be seen from here: it is if something is "
            "written there again and again"
        )


def hold_on(folder: Location) -> Hold | None:
    """The hold on a folder, None where nobody has one."""
    lock = folder / ".lock"
    return _locked(lock) if isinstance(lock, Path) else _leased(lock)


def age(places: Iterable[Location]) -> float | None:
    """Seconds since the last of these files was written; None where none is there."""
    times = [changed for place in places if (changed := _changed(place)) is not None]
    return max(0.0, time.time() - max(times)) if times else None


def _locked(lock: Path) -> Hold | None:
    try:
        by, status = lock.read_text(errors="replace").strip(), lock.stat()
    except OSError:
        return None
    found = _HOLDER.fullmatch(by)
    if found is None:
        return None
    hold = Hold(str(lock.parent), by, max(0.0, time.time() - status.st_mtime), sure=True)
    if found[2] != platform.node():
        # Locks of other machines are not seen. One that is let go of leaves its file behind.
        return hold._replace(sure=False)
    return hold if _is_locked(status) else None


def _is_locked(status: os.stat_result) -> bool:
    """Whether any process has a lock on that file, by the kernel's list: taking the lock to see would stand in the way
    of who wants it."""
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    return any(
        line.split()[1] == "FLOCK" and line.split()[5].split(":")[2] == str(status.st_ino)
        for line in locks.splitlines()
        if "->" not in line
    )


def _leased(lock: Location) -> Hold | None:
    """A lease at an address: held while it is renewed, and for as long as nobody may take it over."""
    with suppress(OSError, ValueError):
        content = json.loads(lock.read_bytes())
        renewed = _changed(lock)
        if isinstance(content, dict) and renewed is not None:
            since = max(0.0, time.time() - renewed)
            gone = since >= EXPIRY_SECONDS or is_dead(content.get("process"))
            seconds = since + HEARTBEAT_SECONDS * int(content.get("heartbeats") or 0)
            return Hold(str(lock.parent), str(content.get("owner")), seconds, sure=not gone, gone=gone)
    return None


def _changed(place: Any) -> float | None:
    """When a file was written, in seconds since 1970; None where it is not there or the store does not tell."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return float(place.stat().st_mtime)
    return None
