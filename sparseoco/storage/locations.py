"""Paths of files, local or in an object store; requests to object stores; errors of reading and writing; TOML files."""

import errno
import hashlib
import json
import os
import posixpath
import re
import shutil
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, MemoryStore, ObjectStore, S3Store

from sparseoco.core.errors import DamagedError, InputError, SparseocoError, StorageError, error_text

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta, PutResult


# ----------------------------------------------------------------------------------------------------------------------
# The clients of object stores, and the errors of their requests.
#
# All requests go through obstore, which implements retries, timeouts and conditional writes.
# Credentials, region and endpoint are read from the environment (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``,
# ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_NAME``, …), and from an AWS profile if boto3 is
# installed. They are never part of a path.


KINDS: dict[str, Any] = {
    **dict.fromkeys(("s3", "s3a"), S3Store),
    **dict.fromkeys(("gs", "gcs"), GCSStore),
    **dict.fromkeys(("az", "abfs"), AzureStore),
    "memory": MemoryStore,
}
ATTEMPTS = 10  # of a request, unless AWS_MAX_ATTEMPTS is set
RETRY_TIME = timedelta(minutes=3)  # longer than a connection may stall
# Practically no limit for a whole request: a large file on a slow connection takes long. Within read_timeout, which
# includes sending a part of 5 MiB, something must come.
CLIENT_OPTIONS: dict[str, Any] = {"connect_timeout": "10s", "read_timeout": "2m", "timeout": "1day"}
ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_")
S3_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
}
BUSY = {"SlowDown", "ServiceUnavailable", "RequestLimitExceeded", "Throttling", "ThrottlingException", "429", "503"}
REFUSED = {"AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "401", "403"}
_memory: dict[str, MemoryStore] = {}


class RemoteError(StorageError, OSError):
    """A request that an object store refused or did not answer; an `OSError`, like errors of local file systems."""


def client(root: str) -> ObjectStore:
    """The client of a bucket, created again if the environment has changed."""
    if root.startswith("memory://"):
        return _memory.setdefault(root, MemoryStore())
    return _cached_client(root, frozenset(entry for entry in os.environ.items() if entry[0].startswith(ENVIRONMENT)))


@lru_cache(maxsize=32)
def _cached_client(root: str, environment: frozenset[tuple[str, str]]) -> ObjectStore:
    settings = dict(environment)
    kind = KINDS[urlsplit(root).scheme]
    options: dict[str, Any] = {
        "client_options": CLIENT_OPTIONS,
        "retry_config": {
            "max_retries": int(settings.get("AWS_MAX_ATTEMPTS", ATTEMPTS)) - 1,
            "retry_timeout": RETRY_TIME,
        },
    }
    bucket = urlsplit(root).netloc
    if kind is not S3Store:
        found: ObjectStore = kind(bucket, **options)
        return found
    options["client_options"] = CLIENT_OPTIONS | {"allow_http": is_plain_http(settings)}
    if S3_CREDENTIALS.isdisjoint(settings):
        options["credential_provider"] = _profile_credentials(root, settings)
    return S3Store(bucket, conditional_put="etag", **options)


def _profile_credentials(root: str, settings: dict[str, str]) -> Any:
    """S3 credentials as boto3 finds them: profiles, single sign-on, roles, or the instance metadata.

    None without boto3: obstore only uses the instance metadata.
    """
    try:
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        if "AWS_PROFILE" in settings:
            raise InputError("AWS_PROFILE needs boto3: pip install 'sparseoco[s3]'.", code="missing-package") from error
        return None
    try:
        return Boto3CredentialProvider()
    except (BotoCoreError, ValueError) as error:
        raise _needs_credentials(root) from error


@contextmanager
def translated(root: str, uri: str) -> Iterator[None]:
    """Translate errors of a request for a URI of a bucket to `FileNotFoundError`, `FileExistsError` or `RemoteError`.

    Only the code of a response is repeated: its message may contain credentials.
    """
    try:
        yield
    except (exceptions.BaseError, FileNotFoundError) as error:
        raise _error(error, root, uri) from error


def _error(error: Exception, root: str, uri: str) -> Exception:
    code = error_code(error)
    if code == "NoSuchBucket":
        return RemoteError(f"{root} does not exist: create the bucket, or check its name.", code="missing-bucket")
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError) or code == "PreconditionFailed":
        return FileExistsError(errno.EEXIST, "another writer was first", uri)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), uri)
    if code in BUSY:
        return RemoteError(f"{root} is too busy, and stayed so ({code}): run again later.", code="store-busy")
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError) or code in REFUSED:
        return RemoteError(f"{root} denies access ({code or 'AccessDenied'}).", code="access-denied")
    if re.search(r"/latest/api/token|/latest/meta-data|metadata\.google\.internal|/metadata/identity", str(error)):
        return _needs_credentials(root)
    if isinstance(error, exceptions.GenericError) and code is None:
        host = urlsplit(_endpoint(os.environ)).netloc.rpartition("@")[2]  # without a user and password
        endpoint = f" at {host}" if host and root.startswith("s3") else ""
        return RemoteError(f"{root} does not answer{endpoint}: check the network, then run again.", code="no-answer")
    return RemoteError(f"{root} refused a request ({code or type(error).__name__}).", code="request-refused")


def error_code(error: object) -> str | None:
    """The error code of a response, or else its HTTP status; None without a response."""
    text = str(error)
    found = re.search(r"<Code>(\w+)</Code>", text) or re.search(r"status code: (\d+)", text)
    return found[1] if found else None


def _needs_credentials(root: str) -> RemoteError:
    wanted = {
        "g": "set GOOGLE_APPLICATION_CREDENTIALS",
        "a": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    }.get(root[0], "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
    return RemoteError(f"{root} needs credentials: {wanted}.", code="missing-credentials")


def is_plain_http(settings: Mapping[str, str] = os.environ) -> bool:
    """Whether the endpoint of S3 is asked without TLS, so that nothing but checksums shows damaged answers."""
    return _endpoint(settings).startswith("http://")


def _endpoint(settings: Mapping[str, str]) -> str:
    return settings.get("AWS_ENDPOINT_URL_S3") or settings.get("AWS_ENDPOINT_URL") or ""


# ----------------------------------------------------------------------------------------------------------------------
# Bodies of objects that are damaged. obstore continues one that is cut.


_MD5 = re.compile(r'"[0-9a-f]{32}"')


def _check_md5(path: "RemotePath", found: str, e_tag: str) -> None:
    """Raises `RemoteError` if an object that was read has another MD5 than its ETag says.

    The ETag of an encrypted object looks like an MD5 and is another value: what is read twice alike is accepted.
    """
    if not _MD5.fullmatch(e_tag) or e_tag.strip('"') == found:
        return
    again = hashlib.md5(usedforsecurity=False)
    for chunk in obstore.get(client(path.root), path.key, options={"if_match": e_tag}).stream():
        again.update(chunk)
    if again.hexdigest() != found:
        raise _damaged(path)


def _damaged(path: "RemotePath") -> RemoteError:
    return RemoteError(
        f"{path}: what the store sent is damaged: check the network, then run again.", code="corrupt-answer"
    )


# ----------------------------------------------------------------------------------------------------------------------
# Files in object stores: S3, Google Cloud Storage, Azure Blob Storage and, for tests, memory.
#
# A `RemotePath` has the methods of a `pathlib.Path`.


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
    """A file or folder in an object store, with the methods of `pathlib.Path` that the package uses.

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

    def iterdir(self) -> "Iterator[Path | RemotePath]":
        """Files and folders of a folder."""
        return (path for path, _ in self.list())

    def glob(self, pattern: str) -> "Iterator[Path | RemotePath]":
        """Files below the folder that match a pattern, component by component."""
        parts = pattern.split("/")
        for path, status in self.list(recursive=len(parts) > 1):
            found = path.key.removeprefix(self.key).lstrip("/").split("/")
            if status is not None and len(found) == len(parts) and all(map(fnmatchcase, found, parts)):
                yield path

    def read_bytes(self, *, e_tag: str | None = None, size: int | None = None) -> bytes:
        """The content of a file. Raises `FileNotFoundError` and `RemoteError`."""
        return b"".join(self.read_chunks(e_tag=e_tag, size=size))

    def read_range(self, start: int, stop: int, *, e_tag: str | None = None, size: int | None = None) -> bytes:
        """Bytes `start` to `stop` of a file, fewer if it is shorter. Raises `FileNotFoundError`."""
        try:
            return b"".join(self.read_chunks(max(1, stop - start), span=(start, stop), e_tag=e_tag, size=size))
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

        A whole file that came without TLS is compared with its ETag, if that is an MD5.

        Parameters
        ----------
        e_tag, size : optional
            Those of the whole file; every request names the ETag.

        Raises
        ------
        FileNotFoundError
        FileExistsError
            For a file with another ETag, or without one and of another size.
        RemoteError
            Also with the code "corrupt-answer", for a body of another length or checksum.
        """
        options: GetOptions = {} if e_tag is None else {"if_match": e_tag}
        if span is not None:
            options["range"] = span
        with translated(self.root, str(self)):
            answer = obstore.get(self._store, self.key, options=options)
            length, found = answer.meta["size"], answer.meta["e_tag"]
            if size not in (None, length):
                raise FileExistsError(f"{self} has another size") if e_tag is None else _damaged(self)
            position, stop = (0, length) if span is None else (span[0], min(span[1], length))
            is_verified = span is None and found is not None and self.root.startswith("s3") and is_plain_http()
            digest = hashlib.md5(usedforsecurity=False)
            for chunk in answer.stream(min_chunk_size=chunk_bytes):
                data = bytes(chunk)
                position += len(data)
                if position > stop:
                    raise _damaged(self)
                if is_verified:
                    digest.update(data)
                yield data
            if position != stop:
                raise _damaged(self)
            if is_verified:
                _check_md5(self, digest.hexdigest(), str(found))

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
    if scheme in ("http", "https"):
        raise InputError(
            f"{uri}: files of web servers are not read: download it first (sparseoco fetch, or curl), or use s3://, "
            "gs:// or az://.",
            code="unknown-scheme",
        )
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
    return RemotePath(f"{scheme}://{bucket}", key)


def _version(meta: "ObjectMeta | PutResult") -> Version:
    return {name: value for name in ("e_tag", "version") if isinstance(value := meta[name], str)}


def _status(meta: "ObjectMeta") -> FileStatus:
    # Listings and single responses differ in the fraction of a second.
    return FileStatus(meta["size"], float(int(meta["last_modified"].timestamp())), meta["e_tag"])


# ----------------------------------------------------------------------------------------------------------------------
# Paths of files and folders, on this machine or in an object store.
#
# A local path is a `pathlib.Path`. A remote one (``s3://bucket/folder``, ``gs://…``, ``az://…``) is a `RemotePath` with
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


@contextmanager
def storage_errors(path: Location, *, but: type[OSError] | tuple[()] = ()) -> Iterator[None]:
    """Raise `storage_error` for every `OSError` of the block, except those of the class `but`."""
    try:
        yield
    except but:
        raise
    except OSError as error:
        raise storage_error(error, path) from error


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
        raise InputError(f"{file}: {os.strerror(errno.ENOENT)}.", code="missing-file") from error
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
