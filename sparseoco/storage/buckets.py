"""Paths in the buckets of S3 and of what speaks its protocol; whatever such a store refuses is a sentence.

Credentials, region and endpoint are those of the environment (``AWS_ACCESS_KEY_ID``, ``AWS_PROFILE``,
``AWS_ENDPOINT_URL``, …) or of the usual files, as botocore finds them; none is ever a part of a path.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientError as ReadError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)
from s3fs import S3FileSystem
from upath.implementations.cloud import S3Path
from upath.registry import register_implementation

from sparseoco.core.errors import StorageError

ATTEMPTS = 5  # of botocore, unless AWS_MAX_ATTEMPTS says otherwise
ROUNDS = 3  # of such attempts: with the pauses in between, half a minute
CONFLICTS = 10  # two conditional puts at the same moment: both may be told to try again
REFUSED = {"403", "AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
BUSY = {"SlowDown", "503", "ServiceUnavailable", "RequestLimitExceeded", "Throttling", "ThrottlingException"}


class BucketError(StorageError, OSError):
    """What an object store refused, as a sentence; an `OSError`, as of any file system."""


class BucketFileSystem(S3FileSystem):  # type: ignore[misc]
    """s3fs whose errors are `BucketError`, but for files that are missing or there already."""

    retries = ROUNDS

    async def _call_s3(self, method: str, *arguments: Any, **options: Any) -> Any:
        for attempt in range(CONFLICTS):
            try:
                return await super()._call_s3(method, *arguments, **options)
            except (BotoCoreError, OSError) as error:
                if _code(error) != "ConditionalRequestConflict" or attempt == CONFLICTS - 1:
                    raise _told(error, options.get("Bucket")) from error
                await asyncio.sleep(0.05 * 2**attempt)
        raise AssertionError

    async def _cat_file(self, path: str, *arguments: Any, **options: Any) -> Any:
        with _told_of(path):
            return await super()._cat_file(path, *arguments, **options)

    async def _get_file(self, path: str, *arguments: Any, **options: Any) -> Any:
        with _told_of(path):
            return await super()._get_file(path, *arguments, **options)


class BucketPath(S3Path):
    """A path in a bucket."""

    __slots__ = ()

    def read_bytes(self) -> bytes:
        """A file's content, in one request."""
        return bytes(self.fs.cat_file(self.path))

    @classmethod
    def _fs_factory(cls, urlpath: str, protocol: str, storage_options: Mapping[str, Any]) -> BucketFileSystem:
        retries = {
            "mode": os.environ.get("AWS_RETRY_MODE", "standard"),
            "total_max_attempts": int(os.environ.get("AWS_MAX_ATTEMPTS", ATTEMPTS)),
        }
        # A listing that is remembered would hide what another process has written since.
        return BucketFileSystem(
            use_listings_cache=False,
            config_kwargs={"connect_timeout": 10, "read_timeout": 60, "retries": retries},
            **storage_options,
        )


for protocol in ("s3", "s3a"):  # so that what is made of such a path, or unpickled, is one again
    register_implementation(protocol, BucketPath, clobber=True)


@contextmanager
def _told_of(path: str) -> Iterator[None]:
    """What breaks off while an answer is read, as the error that says so."""
    try:
        yield
    except (BotoCoreError, ReadError, TimeoutError) as error:
        raise _told(error, path.removeprefix("s3://").split("/")[0]) from error


def _told(error: Exception, bucket: str | None) -> Exception:
    """The error that says what went wrong: of what the store answered only the code, for its words may tell more."""
    code = _code(error)
    where = f"s3://{bucket}" if bucket else "The object store"
    if code == "NoSuchBucket":
        return BucketError(f"{where} does not exist: make the bucket first, or look at its name.")
    if isinstance(error, FileNotFoundError | FileExistsError | BucketError):
        return error
    if code in ("PreconditionFailed", "412"):
        return FileExistsError(f"{where}: another writer was first")
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound):
        return BucketError(
            f"{where} needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        )
    if isinstance(error, PermissionError) or code in REFUSED:
        return BucketError(f"{where} cannot be read or written: access is refused ({code or 'AccessDenied'}).")
    if code in BUSY:
        return BucketError(f"{where} is too busy: it asked to slow down and went on doing so; run again later.")
    if isinstance(error, ConnectionError | HTTPClientError | ReadError | TimeoutError):
        return BucketError(f"{where} does not answer{_at_endpoint()}: look at the network, then run again.")
    return BucketError(f"{where} refused what was asked of it ({code or type(error).__name__}).")


def _code(error: BaseException) -> str | None:
    """The code of what the store answered, if it did."""
    answered = error if isinstance(error, ClientError) else error.__cause__
    return str(answered.response.get("Error", {}).get("Code")) if isinstance(answered, ClientError) else None


def _at_endpoint() -> str:
    endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "")
    return f" at {endpoint.hostname}{f':{endpoint.port}' if endpoint.port else ''}" if endpoint.hostname else ""
