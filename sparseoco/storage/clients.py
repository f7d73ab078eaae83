"""The clients of object stores, and the errors of their requests.

All requests go through obstore, which implements retries, timeouts and, on every store but HTTP, conditional writes.
Credentials, region and endpoint are read from the environment (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``,
``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_NAME``, …), and from an AWS profile if boto3 is installed.
They are never part of a path.
"""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, HTTPStore, MemoryStore, ObjectStore, S3Store

from sparseoco.core.errors import InputError, StorageError

KINDS: dict[str, Any] = {
    **dict.fromkeys(("s3", "s3a"), S3Store),
    **dict.fromkeys(("gs", "gcs"), GCSStore),
    **dict.fromkeys(("az", "abfs"), AzureStore),
    **dict.fromkeys(("http", "https"), HTTPStore),
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
    if kind is HTTPStore:
        return HTTPStore(root, **options | {"client_options": CLIENT_OPTIONS | {"allow_http": True}})
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
    except (BaseError, FileNotFoundError) as error:
        raise _error(error, root, uri) from error


def _error(error: Exception, root: str, uri: str) -> Exception:
    code = error_code(error)
    if code == "NoSuchBucket":
        return RemoteError(f"{root} does not exist: create the bucket, or check its name.", code="missing-bucket")
    if isinstance(error, AlreadyExistsError | PreconditionError):
        return FileExistsError(errno.EEXIST, "another writer was first", uri)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), uri)
    if code in BUSY:
        return RemoteError(f"{root} is too busy, and stayed so ({code}): run again later.", code="store-busy")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or code in REFUSED:
        return RemoteError(f"{root} denies access ({code or 'AccessDenied'}).", code="access-denied")
    if re.search(r"/latest/api/token|/latest/meta-data|metadata\.google\.internal|/metadata/identity", str(error)):
        return _needs_credentials(root)
    if isinstance(error, GenericError) and code is None:
        endpoint = f" at {host}" if (host := _endpoint_host()) and root.startswith("s3") else ""
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
    return (_endpoint(settings) or "").startswith("http://")


def _endpoint(settings: Any) -> str | None:
    found: str | None = settings.get("AWS_ENDPOINT_URL_S3") or settings.get("AWS_ENDPOINT_URL")
    return found


def _endpoint_host() -> str:
    """Host and port of the endpoint, without a user and password."""
    return urlsplit(_endpoint(os.environ) or "").netloc.rpartition("@")[2]
