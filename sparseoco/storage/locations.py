"""Paths and URIs of object stores, errors of reading and writing them, TOML files."""

import errno
import hashlib
import json
import os
import posixpath
import re
import shutil
import tomllib
from contextlib import suppress
from copy import copy
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from sparseoco.core.errors import DamagedError, InputError, SparseocoError, StorageError, error_text
from sparseoco.storage.remote import RemotePath, remote_path

# ----------------------------------------------------------------------------------------------------------------------
# Paths of files and folders, on this machine or in an object store.
#
# A local path is a `pathlib.Path`. A remote one (``s3://bucket/folder``, ``gs://…``, ``az://…``) is a `RemotePath`
#     with
# the same methods. `Location` is either of them: the rest of the package uses the methods that both have; only
# `sparseoco.storage.commit` writes files. Credentials come from the environment, never from a URI.


SIGNED = {"x-amz-signature", "x-goog-signature", "signature", "sig", "token", "access_token"}
"""Query parameters of presigned URIs."""
SCRATCH = "SPARSEOCO_SCRATCH"  # environment variable: a local folder with space for the raw text


if TYPE_CHECKING:
    Location: TypeAlias = Path | RemotePath
    """A file or folder, local or remote; `location` parses its `str`."""
else:

    class Location:
        """Names the type in signatures: Typer takes a class, and parses values of this one by `location`."""


def location(path: str | os.PathLike[str] | Location) -> Location:
    """The location that a path or a URI names; a location is returned as it is.

    Raises
    ------
    InputError
        For a path that is not UTF-8, and for a URI with credentials, whose scheme is not supported, or that names no
        bucket.
    """
    if not isinstance(path, str | os.PathLike):
        return path
    text = os.fspath(path)
    check_name(text)
    if isinstance(path, Path):
        return path
    if is_remote_uri(text):
        return remote_location(text)
    return Path(text.partition("://")[2] if "://" in text else text)


def check_name(path: str) -> None:
    """Raises `InputError` for a path that is not UTF-8, which neither files nor messages between processes can have.

    No file can have a NUL in its name either.
    """
    if "\0" in path:
        raise InputError(f"{path!r}: a name cannot have the character NUL.", code="file-name")
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise InputError(f"{shown}: the name is not UTF-8; rename the file or folder.", code="file-name") from None


def remote_location(uri: str) -> RemotePath:
    """The remote path that a URI names. Raises `InputError`."""
    netloc, query = urlsplit(uri.rpartition("::")[2])[1:4:2]
    if "@" in netloc or SIGNED & {name.lower() for name, _ in parse_qsl(query)}:
        scheme = uri.partition("://")[0]
        raise InputError(
            f"A URI of {scheme}:// has credentials: they belong in the environment.", code="credentials-in-uri"
        )
    return remote_path(uri)


def is_remote_uri(text: str) -> bool:
    """Whether text is the URI of a remote file or folder, not a local path."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme not in ("file", "local")


def absolute_path(path: str) -> str:
    """Absolute path or URI, for workers with other working directories."""
    return path if is_remote_uri(path) else os.path.abspath(path)


def real_path(path: str) -> str:
    """A local path without symbolic links; a remote URI as it is."""
    return path if is_remote_uri(path) else os.path.realpath(path)


def is_local(path: Location) -> bool:
    """Whether a path is on this machine, where files can be mapped, linked and locked."""
    return isinstance(path, Path)


def join_path(folder: Location, text: str) -> str:
    """The path or URI that `text` names relative to a folder, or by itself if it is absolute.

    Raises `InputError` for a path above a bucket.
    """
    if "://" in text or os.path.isabs(text):
        return text
    if isinstance(folder, Path):
        return str(folder / text)
    path = posixpath.normpath(posixpath.join(folder.key, text))
    if path.split("/")[0] == "..":
        raise InputError(f"{text}, relative to {folder}, is above the bucket.", code="invalid-uri")
    return str(RemotePath(folder.root, path if path != "." else ""))


def resolve_against(folder: Location, text: str) -> Location:
    """The location of `join_path`."""
    return location(join_path(folder, text))


def relative_path(path: Location, folder: Location) -> str:
    """The inverse of `resolve_against`: a path relative to a folder of the same machine or bucket, else absolute."""
    path, folder = path.resolve(), folder.resolve()
    if isinstance(path, Path) and isinstance(folder, Path):
        return os.path.relpath(path, folder)
    if isinstance(path, RemotePath) and isinstance(folder, RemotePath) and path.root == folder.root:
        return posixpath.relpath(f"/{path.key}", f"/{folder.key}")
    return str(path)


def is_inside(path: Location, folder: Location) -> bool:
    """Whether a path is a folder or something in it.

    >>> is_inside(Path("runs/a/models"), Path("runs/a")), is_inside(Path("runs/ab"), Path("runs/a"))
    (True, False)
    """
    between = relative_path(path, folder)
    return not ("://" in between or os.path.isabs(between) or between.split("/")[0] == "..")


def files_below(folder: Location, *, recursive: bool = True) -> list[tuple[Location, int]]:
    """The files of a folder with their sizes, links not followed; of all folders in it if recursive."""
    if isinstance(folder, RemotePath):
        entries = folder.list(recursive=recursive)
        return [(path, status.st_size) for path, status in entries if status is not None]
    found: list[tuple[Location, int]] = []
    for parent, folders, names in os.walk(str(folder)):
        for name in sorted(names):
            with suppress(FileNotFoundError):  # renamed or removed since it was listed
                found.append((Path(parent, name), os.lstat(os.path.join(parent, name)).st_size))
        folders[:] = sorted(folders) if recursive else []
    return found


def local_work_folder(folder: Location) -> Path:
    """The local folder for the temporary files of a run that writes to `folder`: a local `folder` itself.

    Each remote folder gets one below `SCRATCH`, or else below the user's cache folder.
    """
    if isinstance(folder, Path):
        return folder
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    own = hashlib.sha256(str(folder).encode()).hexdigest()[:24]
    return Path(os.environ.get(SCRATCH) or Path(caches) / "sparseoco") / own


def redact_password(url: str) -> str:
    """A URL without user name and password.

    >>> redact_password("http://me:secret@127.0.0.1:4200/api")
    'http://127.0.0.1:4200/api'
    """
    return re.sub(r"//[^/]*@", "//", url)


# ----------------------------------------------------------------------------------------------------------------------
# `StorageError`s for errors of the operating system.


def storage_error(error: OSError, path: Location) -> StorageError:
    """The `StorageError` for an `OSError` on a path; of an error that is a `StorageError` already, a copy.

    The error itself must not become its own cause: Dask, which sends all causes of an error, would not end.
    """
    if isinstance(error, StorageError):
        return copy(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and isinstance(path, Path):
        return StorageError(
            f"The disk is full: {path} could not be written ({free_bytes(path) / 1e6:.0f} MB free). Free some space "
            "and run again.",
            code="disk-full",
        )
    if isinstance(error, FileNotFoundError):
        return DamagedError(f"{path} does not exist.", code="missing-file")
    if isinstance(error, FileExistsError | NotADirectoryError):
        return StorageError(
            f"{path} cannot be a folder: it, or one above it, is a file. Choose another.", code="io-error"
        )
    if error.errno == errno.EROFS:
        return StorageError(f"{path} cannot be written: the file system is read-only.", code="permission-denied")
    if error.errno in (errno.EACCES, errno.EPERM):
        return StorageError(f"{path} cannot be written or read: permission denied.", code="permission-denied")
    return StorageError(f"{path}: {error_text(error)}.", code="io-error")


def free_bytes(path: Path) -> int:
    """Free bytes of the file system that a path is, or would be, in."""
    folder = path
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


# ----------------------------------------------------------------------------------------------------------------------
# TOML files of options.


def read_toml(file: Location) -> dict[str, Any]:
    """The values of a TOML file, local or remote, unchecked.

    Raises `InputError` if it does not exist, cannot be read or is not TOML, and `StorageError` for any other error of
    an object store.
    """
    if file.suffix.lower() != ".toml":
        raise InputError(f"{file} is not a TOML file: its name must end in .toml.", code="unknown-format")
    try:
        return tomllib.loads(file.read_bytes().decode())
    except SparseocoError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{file}: {os.strerror(ENOENT)}.", code="missing-file") from error
    except OSError as error:
        raise InputError(f"{file}: {error_text(error)}.", code="unreadable-file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text.", code="encoding") from error
    except RecursionError as error:
        raise InputError(f"{file} is nested too deeply.", code="invalid-toml") from error
    except ValueError as error:  # no TOML, or a value such as a date that does not exist
        raise InputError(f"{file} is not TOML: {error}.", code="invalid-toml") from error


def toml_value(value: Any) -> str:
    """A value in TOML, whose values except tables have the syntax of JSON.

    >>> toml_value({"split": "train"}), toml_value(["a", 1])
    ('{ split = "train" }', '["a", 1]')
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """A key in TOML, in quotes if it needs them.

    >>> toml_key("split"), toml_key("a b")
    ('split', '"a b"')
    """
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_value(name)
