"""Unpack downloaded archives: only plain files inside the target folder.

`tarfile` (with its ``data`` filter) and `zipfile` extract, without owners and special modes. This is stricter: it
refuses links, names that one of them would change, overwriting, and archives that are too large.
"""

import bz2
import errno
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.errors import storage_error

Packing = Literal["none", "tar", "zip", "gz", "bz2"]
MAX_BYTES: Final = 16 << 30
MAX_FILES: Final = 2_000_000
_CORRUPT: Final = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, RuntimeError)


class _Member(NamedTuple):
    name: str
    size: int
    is_file: bool
    extract: Callable[[], Any]


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
    """Unpack an archive into a folder.

    Parameters
    ----------
    archive : Path
        The archive, or a single compressed file, which is written as `name` without its suffix.
    folder : Path
        The target folder, created if needed.
    packing : str
        The format of the archive.
    only : sequence of str
        Patterns (`fnmatch`) of the members to unpack; none for all.
    max_bytes, max_files : int
        Limits of the extracted content.

    Returns
    -------
    int
        The bytes written.

    Raises
    ------
    InputError
        For a corrupt archive, one without the expected members, a member that is not allowed, or too much content.
    StorageError
        If a file cannot be written.
    """
    if packing in ("gz", "bz2"):
        return _decompress(archive, folder / PurePosixPath(name or archive.name).stem, packing, max_bytes)
    written = files = 0
    try:
        for member in (_tar_members if packing == "tar" else _zip_members)(archive, folder):
            if only and not any(fnmatchcase(member.name, pattern) for pattern in only):
                continue
            _check_member(archive, member, folder)
            files, written = files + 1, written + member.size
            if files > max_files:
                raise InputError(f"{archive.name} has more than {max_files:,} files.", code="archive-too-large")
            if written > max_bytes:
                raise _too_large(archive, max_bytes)
            member.extract()
    except _CORRUPT as error:
        raise _corrupt(archive) from error
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
            raise _refused(archive, member.name, "occurs twice") from error
        raise _corrupt(archive) if error.errno is None else storage_error(error, folder) from error
    return _checked_size(archive, written)


def _tar_members(archive: Path, folder: Path) -> Iterator[_Member]:
    with tarfile.open(archive, "r:*") as tar:
        for info in tar:
            if not info.isdir():
                extract = partial(tar.extract, info, folder, filter="data")
                yield _Member(info.name, info.size, info.isreg(), extract)


def _zip_members(archive: Path, folder: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if not info.is_dir() or kind not in (0, stat.S_IFDIR):
                # Never more than `file_size` bytes are read.
                extract = partial(zipped.extract, info, folder)
                yield _Member(info.filename, info.file_size, kind in (0, stat.S_IFREG), extract)


def _check_member(archive: Path, member: _Member, folder: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in member.name or "\0" in member.name:
        raise _refused(archive, member.name, "is not inside the archive's own folder")
    if not member.is_file:
        raise _refused(archive, member.name, "is neither a file nor a folder")
    if (folder / path).exists():
        raise _refused(archive, member.name, "occurs twice")


def _decompress(archive: Path, target: Path, packing: Packing, max_bytes: int) -> int:
    written = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(archive) if packing == "gz" else bz2.open(archive) as source, target.open("xb") as file:
            while block := source.read(1 << 20):
                written += file.write(block)
                if written > max_bytes:
                    raise _too_large(archive, max_bytes)
    except _CORRUPT as error:
        raise _corrupt(archive) from error
    except OSError as error:
        raise _corrupt(archive) if error.errno is None else storage_error(error, target) from error
    return _checked_size(archive, written)


def _checked_size(archive: Path, written: int) -> int:
    if not written:
        raise InputError(f"{archive.name} has none of the expected files.", code="missing-member")
    return written


def _corrupt(archive: Path) -> InputError:
    return InputError(f"{archive.name} is corrupt or of another format: download it again.", code="corrupt-file")


def _too_large(archive: Path, max_bytes: int) -> InputError:
    return InputError(f"{archive.name} has more than {max_bytes:,} bytes of content.", code="archive-too-large")


def _refused(archive: Path, member: str, problem: str) -> InputError:
    return InputError(f"{archive.name} is refused: its member {member!r} {problem}.", code="unsafe-archive")
