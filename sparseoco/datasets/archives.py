"""Unpacking what came from elsewhere: plain files inside the target folder, and nothing else.

Members are copied, never "extracted": modes, owners and times are left behind. A member that is not a plain file or
folder (a link, a device), whose name is absolute, climbs out or occurs twice, or that makes the whole too large, stops
the unpacking.
"""

import bz2
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Final, Literal, cast

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import storage_error

Packing = Literal["none", "tar", "zip", "gz", "bz2"]
MAX_BYTES: Final = 16 << 30
MAX_FILES: Final = 2_000_000
_BLOCK: Final = 1 << 20
_DAMAGED: Final = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError, RuntimeError)


def unpack(
    archive: Path,
    folder: Path,
    packing: Packing,
    *,
    only: Sequence[str] = (),
    name: str = "",
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
) -> int:
    """Unpack `archive` into `folder`; returns the bytes written.

    `only` are patterns (`fnmatch`) of the members to take, none for all. A single compressed file is written as `name`
    without its suffix. Raises `InputError` naming the archive and the member that is damaged, not allowed or too much,
    `StorageError` when the disk refuses.
    """
    written = files = 0
    for member, stream in _members(archive, packing, name or archive.name):
        if only and not any(fnmatchcase(member, pattern) for pattern in only):
            continue
        files += 1
        if files > max_files:
            raise InputError(f"{archive.name} holds more than {max_files:,} files.")
        written += _copy(archive, member, stream, _inside(folder, archive, member), max_bytes - written)
    if not written:
        raise InputError(f"{archive.name} holds none of the files it should.")
    return written


def _members(archive: Path, packing: Packing, name: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents of the files in an archive."""
    try:
        if packing == "tar":
            yield from _tar_members(archive)
        elif packing == "zip":
            yield from _zip_members(archive)
        else:
            with gzip.open(archive) if packing == "gz" else bz2.open(archive) as stream:
                yield PurePosixPath(name).stem, cast(IO[bytes], stream)
    except _DAMAGED as error:
        raise _damaged(archive) from error


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, stream
            elif not member.isdir():
                raise _not_allowed(archive, member.name, "is neither a file nor a folder")


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as zipped:
        for member in zipped.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _not_allowed(archive, member.filename, "is neither a file nor a folder")
            if not member.is_dir():
                with zipped.open(member) as stream:
                    yield member.filename, stream


def _inside(folder: Path, archive: Path, member: str) -> Path:
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in member or "\0" in member:
        raise _not_allowed(archive, member, "does not lie inside the archive's own folder")
    return folder / path


def _copy(archive: Path, member: str, stream: IO[bytes], target: Path, budget: int) -> int:
    written = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file = target.open("xb")
    except (FileExistsError, NotADirectoryError) as error:
        raise _not_allowed(archive, member, "occurs twice") from error
    except OSError as error:
        raise storage_error(error, target) from error
    with file:
        while block := _read(archive, stream):
            written += len(block)
            if written > budget:
                raise InputError(f"{archive.name} holds more than can be meant: it was stopped at {member!r}.")
            try:
                file.write(block)
            except OSError as error:
                raise storage_error(error, target) from error
    return written


def _read(archive: Path, stream: IO[bytes]) -> bytes:
    try:
        return stream.read(_BLOCK)
    except _DAMAGED as error:
        raise _damaged(archive) from error


def _damaged(archive: Path) -> InputError:
    return InputError(f"{archive.name} is damaged, or not the kind of archive it should be; get it again.")


def _not_allowed(archive: Path, member: str, what: str) -> InputError:
    return InputError(f"{archive.name} is refused: its member {member!r} {what}.")
