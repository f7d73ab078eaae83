"""One writer a folder in an object store, which has no locks: a lease, an object that its holder keeps on renewing.

The lease is put if absent. Its holder puts it again every `BEAT` seconds, on condition that it is still its own. Who
finds one there watches it, on its own clock: seen to change, it is held; the same for `STALE` seconds, its holder is
gone, and it is taken over on condition that it has not changed since. A holder that died on this very machine is not
waited for. A holder that could not renew for so long that another may have taken over writes nothing any more.
"""

import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sparseoco.core.errors import FolderInUseError, StorageError
from sparseoco.storage.locations import Location
from sparseoco.storage.objects import put_again, put_new, remove, tag

BEAT = 5.0  # seconds between two renewals
STALE = 60.0
LOOK = 1.0  # seconds between two looks at somebody else's

_held: list["Lease"] = []


def _now() -> float:
    """Seconds on a clock that goes on while the machine sleeps: for all others they pass."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The hold of this process on a folder, renewed by a thread until `give_back`."""

    def __init__(self, place: Location) -> None:
        self._place = place
        self._content = {"holder": holder(), "process": _process(), "run": uuid.uuid4().hex}
        self._beat = 0
        self._tag: str | None = None
        self._renewed = _now()
        self._lost = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def take(self, *, wait: bool) -> None:
        """Take the lease. Raises `FolderInUseError` if it is held, unless told to wait until it is not."""
        first, since, seen = None, 0.0, False
        while not self._take_new():
            try:
                found, content = self._read()
            except FileNotFoundError:
                continue
            if found != first:
                seen = seen or first is not None
                first, since = found, _now()
            if seen and not wait:
                raise FolderInUseError.by(content.get("holder"), self._place.parent)
            if is_dead(content.get("process")) or _now() - since >= STALE:
                self._renewed = _now()
                with suppress(FileExistsError):
                    self._tag = put_again(self._place, self._bytes(), found)
                    break
            time.sleep(LOOK)
        self._thread.start()
        _held.append(self)

    def give_back(self) -> None:
        """End the renewals and remove the lease, if it is still held."""
        _held.remove(self)
        self._ended.set()
        self._thread.join(BEAT)  # it may be waiting for an answer
        if not self.lost:
            with suppress(OSError, StorageError):  # it grows stale by itself
                remove(self._place)

    @property
    def lost(self) -> bool:
        """Whether somebody else has, or may have, taken over."""
        return self._lost or _now() - self._renewed >= STALE

    def covers(self, place: Location) -> bool:
        """Whether a file lies in the folder that is held."""
        return str(place).startswith(f"{str(self._place.parent).rstrip('/')}/")

    def _take_new(self) -> bool:
        self._renewed = _now()
        try:
            self._tag = put_new(self._place, self._bytes())
        except FileExistsError:
            return self._is_own()
        return True

    def _renew(self) -> None:
        while not self._ended.wait(BEAT) and not self.lost:
            self._beat += 1
            asked = _now()
            try:
                self._tag = put_again(self._place, self._bytes(), self._tag)
            except (FileExistsError, FileNotFoundError):
                if not self._is_own():
                    self._lost = True
                    continue
            except (OSError, StorageError):  # it may answer again before the lease is stale
                continue
            self._renewed = asked

    def _is_own(self) -> bool:
        """Whether what is there was put by this very lease: an answer that is lost on its way is asked for again."""
        with suppress(OSError, StorageError, ValueError):
            found, content = self._read()
            if content.get("run") == self._content["run"]:
                self._tag = found
                return True
        return False

    def _read(self) -> tuple[str | None, dict[str, Any]]:
        """(tag, content) of what is there, if it is whole, else no content. Raises `FileNotFoundError`."""
        found = tag(self._place)
        data = self._place.read_bytes()
        if tag(self._place) != found:  # put again in between
            return self._read()
        with suppress(ValueError):
            content = json.loads(data)
            if isinstance(content, dict):
                return found, content
        return found, {}

    def _bytes(self) -> bytes:
        return json.dumps({**self._content, "beat": self._beat}).encode()


@contextmanager
def leased(folder: Location, *, wait: bool) -> Iterator[None]:
    """Hold a folder at an address for one writer.

    Raises `FolderInUseError` if another process holds it, unless told to wait until it does not.
    """
    lease = Lease(folder / ".lock")
    lease.take(wait=wait)
    try:
        yield
    finally:
        lease.give_back()


def check_lease(place: Location) -> None:
    """Raises `StorageError` if this process held the folder of a file and lost it."""
    for lease in _held:
        if lease.covers(place) and lease.lost:
            raise StorageError(f"{place} was not written: the hold on its folder was lost. Run again to go on.")


def holder() -> str:
    """This process, for those who find its hold."""
    return f"process {os.getpid()} on {platform.node()}"


def _process() -> list[str | int]:
    """What tells this process from all others, on whatever machine: its boot, space of processes, number, beginning."""
    return [*_machine(), os.getpid(), _beginning(os.getpid()) or 0]


def is_dead(process: Any) -> bool:
    """Whether a process is known to have ended: one of this machine that is not there any more."""
    match process:
        case [*machine, int(number), int(beginning)] if machine == _machine():
            return _beginning(number) != beginning
    return False


def _machine() -> list[str | int]:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return [boot, os.stat("/proc/self/ns/pid").st_ino]
    return [uuid.uuid4().hex, 0]  # nothing can be said of the processes of such a machine


def _beginning(number: int) -> int | None:
    """When a process of this machine began, in the kernel's ticks; None if it is not there."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state[0] == "Z" else int(state[19])
