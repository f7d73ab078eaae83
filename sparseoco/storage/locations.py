"""Where files are: folders of this machine and, by address, object stores and other file systems.

A local path is a `pathlib.Path`. An address (``s3://bucket/folder``, or any other that fsspec knows) is a path of
universal_pathlib with the same methods. `Location` is what the two have in common and all that the rest of the package
asks of either; files are written by `sparseoco.storage.commit` alone. Credentials come from the environment or the
usual files, never from an address.
"""

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

# Not where it is needed: two threads that load fsspec at once may each find the half of it that the other has made.
from fsspec.core import split_protocol, url_to_fs

from sparseoco.core.errors import InputError

BUCKETS = ("s3", "s3a")
PATTERNS = "*?["  # what has one of these is a pattern where fsspec lists and removes
SIGNED = {"x-amz-signature", "x-goog-signature", "signature", "sig", "token", "access_token"}
"""What addresses that open a file to whoever has them, for a while, hold after their ``?``."""
SCRATCH = "SPARSEOCO_SCRATCH"  # in the environment: a folder of this machine with room for the raw text


class Location(Protocol):
    """A file or folder, local or at an address. `str` gives what `location` takes."""

    @property
    def name(self) -> str:
        """The last part."""

    @property
    def stem(self) -> str:
        """The last part without its suffix."""

    @property
    def suffix(self) -> str:
        """What the last part ends in, from its last dot."""

    @property
    def parent(self) -> "Location":
        """The folder it is in."""

    def __truediv__(self, name: str, /) -> "Location":
        """What is of that name inside."""

    def __lt__(self, other: Any, /) -> bool:
        """Order by name, for `sorted`."""

    def __hash__(self) -> int:
        """Equal places have equal ones."""

    def with_name(self, name: str) -> "Location":
        """Another file of the same folder."""

    def with_suffix(self, suffix: str) -> "Location":
        """The file of the same folder whose name ends so instead."""

    def resolve(self) -> "Location":
        """The same place, whole, wherever a process works."""

    def absolute(self) -> "Location":
        """The same place, whole, links left as they are."""

    def as_uri(self) -> str:
        """Its address: ``file:///…``, ``s3://…``."""

    def exists(self) -> bool:
        """Whether a file, or a folder with files in it, is there."""

    def is_file(self) -> bool:
        """Whether it is a file."""

    def is_dir(self) -> bool:
        """Whether it is a folder; at an address: whether there are files in it."""

    def iterdir(self) -> Iterator["Location"]:
        """What is inside a folder."""

    def glob(self, pattern: str) -> Iterator["Location"]:
        """What matches below a folder; nothing where the folder is not there."""

    def read_bytes(self) -> bytes:
        """A file's content."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file."""


def location(place: "str | os.PathLike[str] | Location") -> Location:
    """The place that a path or an address names; a location is given back as it is.

    Raises `InputError` for an address of a kind that is not known or not installed, that holds credentials, or that
    would be taken for a pattern.
    """
    if not isinstance(place, str | os.PathLike) or isinstance(place, Path):
        return place
    text = os.fspath(place)
    protocol, rest = split_protocol(text)
    if protocol is None:
        return Path(text)
    if protocol in ("file", "local"):
        return Path(rest)
    _check_no_credentials(protocol, text)
    if any(character in text for character in PATTERNS):
        raise InputError(
            f"{text} has one of {' '.join(PATTERNS)} in it, and would stand for other folders too: choose another name."
        )
    if protocol in BUCKETS:
        return _bucket_path(text)
    from upath import UPath

    try:
        # A listing that is remembered would hide what another process has written since.
        found = UPath(text, use_listings_cache=False)
        found.fs  # noqa: B018  # imports what it needs
    except ImportError as error:
        raise InputError(f"{protocol}:// addresses need another package: {error}.") from error
    except ValueError as error:
        raise InputError(f"{text} is not an address of a file system that is known: {error}.") from error
    return found


def file_system(address: str) -> tuple[Any, str]:
    """The fsspec file system of a file at an address, and the file's name there, which may look like a pattern.

    Raises as `location`.
    """
    protocol, _ = split_protocol(address)
    _check_no_credentials(protocol, address)
    if protocol in BUCKETS:
        found: Any = _bucket_path(address)
        return found.fs, found.path
    try:
        return url_to_fs(address)  # type: ignore[no-any-return]
    except ImportError as error:
        raise InputError(f"{protocol}:// addresses need another package: {error}.") from error


def resolve_against(folder: Location, text: str) -> Location:
    """What `text` names, relative to a folder unless it is whole."""
    return location(join_path(folder, text))


def join_path(folder: Location, text: str) -> str:
    """The path or address of `resolve_against`, which may be a pattern. Raises `InputError` for one above all of a
    bucket."""
    if split_protocol(text)[0] is not None or os.path.isabs(text):
        return text
    if isinstance(folder, Path):
        return str(folder / text)
    protocol, _, rest = str(folder).partition("://")  # where ".." is a name as any other
    host, _, inner = rest.partition("/")
    path = posixpath.normpath(posixpath.join(inner, text))
    if path.split("/")[0] == "..":
        raise InputError(f"{text} is above all that is at {protocol}://{host}, and nothing is there.")
    return f"{protocol}://{host}/{path if path != '.' else ''}"


def relative(place: Location, folder: Location) -> str:
    """What `resolve_against` takes for a place: relative to a folder where both are of one file system, else whole."""
    place, folder = place.resolve(), folder.resolve()
    if isinstance(place, Path) and isinstance(folder, Path):
        return os.path.relpath(place, folder)
    own, other = str(place).partition("://"), str(folder).partition("://")
    if own[0] != other[0] or own[2].split("/")[0] != other[2].split("/")[0]:
        return str(place)
    return posixpath.relpath(own[2], other[2])


def is_inside(place: Location, folder: Location) -> bool:
    """Whether a place is a folder or something in it.

    >>> is_inside(Path("runs/a/models"), Path("runs/a")), is_inside(Path("runs/ab"), Path("runs/a"))
    (True, False)
    """
    way = relative(place, folder)
    return not (is_address(way) or os.path.isabs(way) or way.split("/")[0] == "..")


def local_work_folder(folder: Location) -> Path:
    """A folder of this machine for what must be on one while a run writes to a folder: that one, where it is here.

    For one at an address it is of that address's own, below `SCRATCH` or else the user's folder for caches.
    """
    if isinstance(folder, Path):
        return folder
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    own = hashlib.sha256(str(folder).encode()).hexdigest()[:24]
    return Path(os.environ.get(SCRATCH) or Path(caches) / "sparseoco") / own


def is_address(text: str) -> bool:
    """Whether text names a place at an address rather than on this machine."""
    return split_protocol(text)[0] not in (None, "file", "local")


def redact_password(address: str) -> str:
    """An address without what may stand before its host: a name and a password.

    >>> without_password("http://me:secret@127.0.0.1:4200/api")
    'http://127.0.0.1:4200/api'
    """
    return re.sub(r"//[^/]*@", "//", address)


def is_local(place: Location) -> bool:
    """Whether a place is on this machine, where files can be mapped, linked and locked."""
    return isinstance(place, Path)


def _check_no_credentials(protocol: str | None, address: str) -> None:
    for part in map(urlsplit, address.split("::")):
        named = {name.lower() for name, _ in parse_qsl(part.query)}
        if "@" in part.netloc or named & SIGNED:
            raise InputError(f"An address of {protocol}:// holds credentials: they belong in the environment.")


def _bucket_path(address: str) -> Location:
    try:
        from sparseoco.storage.buckets import BucketPath
    except ImportError as error:
        raise InputError("s3:// addresses need s3fs: pip install 'sparseoco[s3]'.") from error
    if not urlsplit(address).netloc:
        raise InputError(f"{address} names no bucket: write s3://BUCKET/FOLDER.")
    return BucketPath(address)
