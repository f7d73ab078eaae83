"""Paths of files and folders, on this machine or in an object store.

A local path is a `pathlib.Path`. A remote one (``s3://bucket/folder``, ``gs://…``, ``az://…``) is a `RemotePath` with
the same methods. `Location` is their common interface, the only one that the rest of the package uses; only
`sparseoco.storage.commit` writes files. Credentials come from the environment, never from a URI.
"""

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from sparseoco.core.errors import InputError
from sparseoco.storage.remote import RemotePath, remote_path

SIGNED = {"x-amz-signature", "x-goog-signature", "signature", "sig", "token", "access_token"}
"""Query parameters of presigned URIs."""
SCRATCH = "SPARSEOCO_SCRATCH"  # environment variable: a local folder with space for the raw text


class Location(Protocol):
    """A file or folder, local or remote; `location` parses its `str`."""

    @property
    def name(self) -> str:
        """The last component."""

    @property
    def stem(self) -> str:
        """The last component without its suffix."""

    @property
    def suffix(self) -> str:
        """The suffix of the last component."""

    @property
    def parent(self) -> "Location":
        """The folder that contains it."""

    def __truediv__(self, name: str, /) -> "Location":
        """A file or folder inside."""

    def __lt__(self, other: Any, /) -> bool:
        """Order by path, for `sorted`."""

    def __hash__(self) -> int:
        """Equal paths have equal hashes."""

    def with_name(self, name: str) -> "Location":
        """Another file of the same folder."""

    def with_suffix(self, suffix: str) -> "Location":
        """The same path with another suffix."""

    def resolve(self) -> "Location":
        """The absolute path, links followed."""

    def absolute(self) -> "Location":
        """The absolute path, links left as they are."""

    def as_uri(self) -> str:
        """The URI: ``file:///…``, ``s3://…``."""

    def exists(self) -> bool:
        """Whether the file or folder exists; a remote folder only exists if it has files."""

    def is_file(self) -> bool:
        """Whether it is a file."""

    def is_dir(self) -> bool:
        """Whether it is a folder; a remote one only exists if it has files."""

    def iterdir(self) -> Iterator["Location"]:
        """Files and folders of a folder."""

    def glob(self, pattern: str) -> Iterator["Location"]:
        """Files below the folder that match a pattern; none if the folder does not exist."""

    def stat(self) -> Any:
        """Its status: at least `st_size` and `st_mtime`."""

    def read_bytes(self) -> bytes:
        """The content of a file."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file."""


def location(path: "str | os.PathLike[str] | Location") -> Location:
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
    """The remote path that a URI names. Raises as `location`."""
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
    root, key = _split(folder)
    path = posixpath.normpath(posixpath.join(key, text))
    if path.split("/")[0] == "..":
        raise InputError(f"{text}, relative to {folder}, is above the bucket.", code="invalid-uri")
    return f"{root}/{path}" if path != "." else root


def resolve_against(folder: Location, text: str) -> Location:
    """The location of `join_path`."""
    return location(join_path(folder, text))


def relative_path(path: Location, folder: Location) -> str:
    """The inverse of `resolve_against`: a path relative to a folder of the same machine or bucket, else absolute."""
    path, folder = path.resolve(), folder.resolve()
    if isinstance(path, Path) and isinstance(folder, Path):
        return os.path.relpath(path, folder)
    (root, key), (other, start) = _split(path), _split(folder)
    return posixpath.relpath(f"/{key}", f"/{start}") if root == other else str(path)


def is_inside(path: Location, folder: Location) -> bool:
    """Whether a path is a folder or something in it.

    >>> is_inside(Path("runs/a/models"), Path("runs/a")), is_inside(Path("runs/ab"), Path("runs/a"))
    (True, False)
    """
    between = relative_path(path, folder)
    return not ("://" in between or os.path.isabs(between) or between.split("/")[0] == "..")


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


def _split(path: Location) -> tuple[str, str]:
    """Scheme and bucket, and the path in the bucket."""
    scheme, _, rest = str(path).partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key
