"""Files in object stores: S3, Google Cloud Storage, Azure Blob Storage, HTTP servers and, for tests, memory.

A `RemotePath` has the methods of a `pathlib.Path`; `sparseoco.storage.clients` sends its requests.
"""

import errno
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Literal, NamedTuple, TypeVar

import obstore
from obstore.store import ObjectStore

from sparseoco.core.errors import InputError
from sparseoco.storage.bodies import read_body
from sparseoco.storage.clients import KINDS, RemoteError, client, error_code, translated

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult

CONFLICTS = 10  # attempts: S3 may refuse both of two simultaneous conditional writes
CONCURRENT = 16  # requests at a time
CHUNK_BYTES = 1 << 20
PAGE = 1000  # files of a listing at a time
T = TypeVar("T")
R = TypeVar("R")
Version = dict[str, str]
"""Identifies the content of an object: its ETag, or its generation on Google Cloud Storage."""


class FileStatus(NamedTuple):
    """Size in bytes, time of the last change in seconds since 1970, and ETag of a file."""

    st_size: int
    st_mtime: float
    e_tag: str | None


@dataclass(frozen=True, slots=True, order=True)
class RemotePath:
    """A file or folder in an object store, with the methods of `pathlib.Path` that `Location` lists.

    Parameters
    ----------
    root : str
        Scheme and bucket, such as ``"s3://bucket"``.
    key : str
        Path in the bucket, without a trailing slash; empty for the bucket itself.
    """

    root: str
    key: str

    @property
    def _store(self) -> ObjectStore:
        return client(self.root)

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    @property
    def name(self) -> str:
        """The last component."""
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        """The last component without its suffix."""
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        """The suffix of the last component."""
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> "RemotePath":
        """The folder that contains it."""
        return RemotePath(self.root, posixpath.dirname(self.key))

    def __truediv__(self, name: str, /) -> "RemotePath":
        return RemotePath(self.root, f"{self.key}/{name}" if self.key else name)

    def with_name(self, name: str) -> "RemotePath":
        """Another file of the same folder."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> "RemotePath":
        """The same path with another suffix."""
        return self.parent / (self.stem + suffix)

    def resolve(self) -> "RemotePath":
        """The path itself, which is always absolute."""
        return self

    absolute = resolve

    def as_uri(self) -> str:
        """The URI, as `str`."""
        return str(self)

    def exists(self) -> bool:
        """Whether it is a file, or a folder with files."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether it is a file."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether it is a folder with files."""
        if self.root.startswith("http"):  # which has no listings
            return False
        with translated(self.root, str(self)):
            return any(meta["path"] != self.key for page in self._pages() for meta in page)

    def stat(self) -> FileStatus:
        """Size and time of a file. Raises `FileNotFoundError`."""
        if not self.key:
            raise FileNotFoundError(errno.ENOENT, "a bucket is no file", str(self))
        with translated(self.root, str(self)):
            return _status(obstore.head(self._store, self.key))

    def version(self) -> Version:
        """The version, which changes whenever other bytes are written. Raises `FileNotFoundError`."""
        with translated(self.root, str(self)):
            return _version(obstore.head(self._store, self.key))

    def list(self, *, recursive: bool = False) -> "list[tuple[RemotePath, FileStatus | None]]":
        """Files of a folder with their status, and its folders with None; all files below it if recursive."""
        if self.root.startswith("http"):
            return []
        if recursive:
            return sorted(self.iter_files(), key=itemgetter(0))
        with translated(self.root, str(self)):
            found = obstore.list_with_delimiter(self._store, self.key)
        entries: list[tuple[RemotePath, FileStatus | None]] = [
            (RemotePath(self.root, meta["path"]), _status(meta))
            for meta in found["objects"]
            if meta["path"] != self.key
        ]
        entries += [(RemotePath(self.root, folder), None) for folder in found["common_prefixes"]]
        return sorted(entries, key=itemgetter(0))

    def iter_files(self) -> "Iterator[tuple[RemotePath, FileStatus]]":
        """All files below a folder with their status, page by page as they are listed."""
        if self.root.startswith("http"):  # which has no listings
            return
        with translated(self.root, str(self)):
            for page in self._pages():
                for meta in page:
                    if meta["path"] != self.key:  # some tools mark a folder with an empty object of its name
                        yield RemotePath(self.root, meta["path"]), _status(meta)

    def _pages(self) -> "Iterator[Sequence[ObjectMeta]]":
        """The pages of a listing of all files below. Raises `RemoteError` for a page that comes again."""
        first: set[str] = set()
        for page in obstore.list(self._store, self.key, chunk_size=PAGE):
            if page and page[0]["path"] in first:
                raise RemoteError(f"{self} could not be listed: its listing repeats itself.", code="corrupt-answer")
            first |= {meta["path"] for meta in page[:1]}
            yield page

    def iterdir(self) -> "Iterator[RemotePath]":
        """Files and folders of a folder."""
        return (path for path, _ in self.list())

    def glob(self, pattern: str) -> "Iterator[RemotePath]":
        """Files below the folder that match a pattern, component by component."""
        parts = pattern.split("/")
        for path, status in self.list(recursive=len(parts) > 1):
            found = path.key.removeprefix(self.key).lstrip("/").split("/")
            if status is not None and len(found) == len(parts) and all(map(fnmatchcase, found, parts)):
                yield path

    def read_bytes(self, *, e_tag: str | None = None, size: int | None = None) -> bytes:
        """The content of a file. Raises as `read_chunks`."""
        return b"".join(self.read_chunks(e_tag=e_tag, size=size))

    def read_range(self, start: int, stop: int, *, e_tag: str | None = None, size: int | None = None) -> bytes:
        """Bytes `start` to `stop` of a file, fewer if it is shorter. Raises as `read_chunks`."""
        try:
            return b"".join(self._body((start, stop), e_tag, size, max(1, stop - start)))
        except RemoteError as error:
            if error_code(error.__cause__) not in ("InvalidRange", "416"):  # it starts at the end
                raise
            return b""

    def read_chunks(
        self,
        chunk_bytes: int = CHUNK_BYTES,
        *,
        span: tuple[int, int] | None = None,
        e_tag: str | None = None,
        size: int | None = None,
    ) -> Iterator[bytes]:
        """The content of a file, or of a span (start, stop), in chunks of at least this size, but for the last.

        Parameters
        ----------
        e_tag, size : optional
            Those of the whole file.

        Raises
        ------
        FileNotFoundError
        FileExistsError
            For a file with another ETag, or without one and of another size.
        RemoteError
            Also for a body that stays shorter than it should be, or has another checksum (`read_body`).
        """
        return self._body(span, e_tag, size, chunk_bytes)

    def _body(
        self, span: tuple[int, int] | None, e_tag: str | None, size: int | None, chunk_bytes: int
    ) -> Iterator[bytes]:
        with translated(self.root, str(self)):
            yield from read_body(self, self._store, span, e_tag, size, chunk_bytes)

    def download(self, target: Path) -> None:
        """Copy a file to this machine. Raises `FileNotFoundError`."""
        with target.open("wb") as file:
            for chunk in self.read_chunks():
                file.write(chunk)

    def put(self, data: "bytes | Path | IO[bytes]", mode: Literal["create", "overwrite"] | Version) -> Version:
        """Write an object atomically, and return its version.

        With ``mode="create"`` it must not exist; with a version, that version must be the current one. Raises
        `FileExistsError` otherwise.
        """
        for attempt in range(CONFLICTS):
            try:
                with translated(self.root, str(self)):
                    return _version(obstore.put(self._store, self.key, data, mode=mode))  # type: ignore[arg-type]
            except FileExistsError as error:
                if error_code(error.__cause__) != "ConditionalRequestConflict" or attempt == CONFLICTS - 1:
                    raise
                time.sleep(0.05 * 2**attempt)
        raise AssertionError

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file."""
        try:
            with translated(self.root, str(self)):
                obstore.delete(self._store, self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_tree(self) -> None:
        """Remove all files of a folder."""
        keys = [path.key for path, _ in self.list(recursive=True)]
        with translated(self.root, str(self)):
            if keys:
                obstore.delete(self._store, keys)


def map_concurrently(request: Callable[[T], R], paths: Iterable[T]) -> list[R]:
    """The results of a request for each path, `CONCURRENT` of them at a time."""
    with ThreadPoolExecutor(CONCURRENT) as pool:
        return list(pool.map(request, paths))


def remote_path(uri: str) -> RemotePath:
    """The path that a URI names. Raises `InputError` for an unknown scheme, a missing bucket or an invalid key."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme not in KINDS:
        raise InputError(
            f"{uri}: {scheme}:// is not supported; use one of {', '.join(f'{kind}://' for kind in KINDS)}.",
            code="unknown-scheme",
        )
    if not bucket:
        raise InputError(f"{uri} names no bucket: write {scheme}://BUCKET/FOLDER.", code="invalid-uri")
    key = key.removesuffix("/")
    if key and not {"", ".", ".."}.isdisjoint(key.split("/")):
        raise InputError(f"{uri} has an empty component, or one that is . or .., in its path.", code="invalid-uri")
    if "?" in key and scheme.startswith("http"):
        raise InputError(f"{uri} has a query: download the file and name the local copy.", code="invalid-uri")
    return RemotePath(f"{scheme}://{bucket}", key)


def _version(meta: "ObjectMeta | PutResult") -> Version:
    return {name: value for name in ("e_tag", "version") if isinstance(value := meta[name], str)}


def _status(meta: "ObjectMeta") -> FileStatus:
    # Listings and single responses differ in the fraction of a second.
    return FileStatus(meta["size"], float(int(meta["last_modified"].timestamp())), meta["e_tag"])
