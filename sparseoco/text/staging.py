"""Where the steps of an ingest leave files for the next, and how these are written and read.

They are on this machine wherever all steps run there, so that they can be mapped. Where a store at an address is made
by workers of other machines, they are beside it, and each process keeps copies: what is staged never changes.
"""

import os
import tempfile
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sparseoco.storage.commit import committed, make_folder, remove_folder, storage_error
from sparseoco.storage.locations import Location, local_work_folder
from sparseoco.storage.remote import RemotePath

KEPT_BYTES = 4 << 30  # of copies in a process; whatever is mapped of one that was removed stays
_kept: OrderedDict[str, tuple[Path, int]] = OrderedDict()
_lock = threading.Lock()


def staging_folder(out: Location, *, here: bool) -> Location:
    """Where the steps of an ingest into `out` leave files: one folder for each boot of the machine.

    What was written without a sync survives the death of any process but not of the machine: another boot starts anew.
    `here` says that all steps run on this machine.
    """
    if not here and not isinstance(out, Path):
        return out / ".staging" / "shared"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = "unknown"
    return local_work_folder(out) / ".staging" / boot


def clear_staging(out: Location) -> None:
    """Remove all that ingests into `out` left behind, as far as it can be seen from here."""
    for folder in {out, local_work_folder(out)}:
        remove_folder(folder / ".staging")


@contextmanager
def staged(path: Location) -> Iterator[Path]:
    """Give a temporary path on this machine whose file becomes `path` on a clean exit, not synced.

    Raises `StorageError`.
    """
    if not isinstance(path, Path):
        with committed(path) as temporary:
            yield temporary
        return
    make_folder(path.parent)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        try:
            yield Path(name)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise storage_error(error, path) from error


def local_copy(path: Location) -> Path:
    """The file itself, where it is on this machine, or a copy. Raises `StorageError`."""
    if not isinstance(path, RemotePath):
        return Path(str(path))
    with _lock:
        name = str(path)
        if name in _kept:
            _kept.move_to_end(name)
            return _kept[name][0]
        copy = Path(_folder().name) / uuid.uuid4().hex
        try:
            path.download(copy)
        except OSError as error:
            raise storage_error(error, path) from error
        _kept[name] = copy, copy.stat().st_size
        while len(_kept) > 1 and sum(size for _, size in _kept.values()) > KEPT_BYTES:
            _kept.popitem(last=False)[1][0].unlink(missing_ok=True)
        return copy


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="sparseoco-")
