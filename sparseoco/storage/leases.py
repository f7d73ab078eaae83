"""A lease per folder of an object store, which has no locks: an object that its owner renews.

The lease is created if absent. Its owner rewrites it every `HEARTBEAT_SECONDS`, on condition that it has not changed.
Another process that finds it watches it by its own clock: a lease that changes is alive; one that stays the same for
`EXPIRY_SECONDS` has expired, and is taken over on condition that it has not changed since. The lease of a process of
this machine that has ended is taken over immediately. An owner that could not renew its lease for `EXPIRY_SECONDS`
writes nothing more.
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
from sparseoco.storage.remote import CONFLICTS, RemotePath, Version

HEARTBEAT_SECONDS = 5.0
EXPIRY_SECONDS = 60.0
POLL_SECONDS = 1.0  # while another process has the lease

_leases: list["Lease"] = []


def _now() -> float:
    """Seconds on a clock that also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The lease of this process on a folder, renewed by a thread until `release`."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._content = {"owner": lock_owner(), "process": _process_identity(), "lease": uuid.uuid4().hex}
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
                raise FolderInUseError.by(content.get("owner"), self._path.parent)
            if is_dead(content.get("process")) or _now() - since >= EXPIRY_SECONDS:
                self._renewed = _now()
                with suppress(FileExistsError):
                    self._version = self._path.put(self._bytes(), version)
                    break
            time.sleep(POLL_SECONDS)
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

    def covers(self, path: RemotePath) -> bool:
        """Whether a file is in the folder of the lease."""
        return str(path).startswith(f"{self._path.parent}/")

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
        """(version, content) of the lease, without content where it is corrupt. Raises `FileNotFoundError`."""
        for _ in range(CONFLICTS):
            version = self._path.version()
            data = self._path.read_bytes()
            if self._path.version() == version:  # else it was rewritten in between
                break
        with suppress(ValueError):
            content = json.loads(data)
            if isinstance(content, dict):
                return version, content
        return version, {}

    def _bytes(self) -> bytes:
        return json.dumps({**self._content, "heartbeats": self._heartbeats}).encode()


@contextmanager
def leased(folder: RemotePath, *, wait: bool) -> Iterator[None]:
    """Hold the lease of a folder within the `with` block. Raises as `Lease.acquire`."""
    lease = Lease(folder / ".lock")
    lease.acquire(wait=wait)
    try:
        yield
    finally:
        lease.release()


def check_lease(path: RemotePath) -> None:
    """Raises `StorageError` if this process had the lease of the folder of a file and lost it."""
    for lease in _leases:
        if lease.covers(path) and lease.lost:
            raise StorageError(
                f"{path} was not written: the lease of its folder was lost. Run again to resume.", code="lease-lost"
            )


def lock_owner() -> str:
    """Name of this process in its locks and leases."""
    return f"process {os.getpid()} on {platform.node()}"


def is_dead(process: Any) -> bool:
    """Whether the process of a lease was one of this machine and has ended."""
    match process:
        case [*machine, int(number), int(started)] if machine == _machine():
            return _start_time(number) != started
    return False


def _process_identity() -> list[str | int]:
    """Boot, PID namespace, PID and start time: unique among all processes of all machines."""
    return [*_machine(), os.getpid(), _start_time(os.getpid()) or 0]


def _machine() -> list[str | int]:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return [boot, os.stat("/proc/self/ns/pid").st_ino]
    return [uuid.uuid4().hex, 0]  # no process of such a machine is known to have ended


def _start_time(number: int) -> int | None:
    """Start time of a process of this machine, in the kernel's ticks; None if it has ended."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state[0] == "Z" else int(state[19])
