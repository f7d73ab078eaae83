"""Bodies of objects: as long as they should be, continued where an answer ends early, compared with the MD5 of S3."""

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import GenericError
from obstore.store import ObjectStore

from sparseoco.storage.clients import RemoteError, is_plain_http

if TYPE_CHECKING:
    from obstore import GetOptions

    from sparseoco.storage.remote import RemotePath

RESUMES = 3  # of one body, besides the attempts of obstore for every request
_MD5 = re.compile(r'"[0-9a-f]{32}"')


def read_body(
    path: "RemotePath",
    store: ObjectStore,
    span: tuple[int, int] | None,
    e_tag: str | None,
    size: int | None,
    chunk_bytes: int,
) -> Iterator[bytes]:
    """The bytes of an object, or of a span (start, stop) that is cut at its end, in chunks of at least `chunk_bytes`.

    A body that ends early is continued, up to `RESUMES` times, by a request for the rest of the same version. A whole
    object that came without TLS is compared with its ETag, if that is an MD5.

    Parameters
    ----------
    e_tag, size : optional
        Those of the whole object; every request names the ETag.

    Raises
    ------
    RemoteError
        With the code "corrupt-answer", for a body of another length or checksum.
    FileExistsError
        For an object without ETag that has another size.
    """
    position, stop = span or (0, None)
    resumes = 0
    digest = hashlib.md5(usedforsecurity=False) if span is None and _is_verified(path) else None
    expected, condition = size, e_tag
    while True:
        options: GetOptions = {} if condition is None else {"if_match": condition}
        if span is not None or position:
            assert stop is not None
            options["range"] = position, stop
        answer = obstore.get(store, path.key, options=options)
        if expected is not None and answer.meta["size"] != expected:
            if condition is None:
                raise FileExistsError(f"{path} has another size")
            raise _damaged(path)
        expected = answer.meta["size"]
        stop = expected if stop is None else min(stop, expected)
        condition = condition or _strong(answer.meta["e_tag"])
        failure: Exception | None = None
        try:
            for chunk in answer.stream(min_chunk_size=chunk_bytes):
                data = bytes(chunk)
                position += len(data)
                if position > stop:
                    raise _damaged(path)
                if digest is not None:
                    digest.update(data)
                yield data
        except GenericError as error:
            failure = error
        if position == stop:
            break
        resumes += 1
        if resumes > RESUMES or condition is None:
            raise failure or _damaged(path)
    if digest is not None and condition is not None:
        _check_md5(path, store, digest.hexdigest(), condition)


def _is_verified(path: "RemotePath") -> bool:
    return path.root.startswith("s3") and is_plain_http()


def _check_md5(path: "RemotePath", store: ObjectStore, found: str, e_tag: str) -> None:
    """Raises `RemoteError` if an object that was read has another MD5 than its ETag says.

    The ETag of an encrypted object looks like an MD5 and is another value: what is read twice alike is accepted.
    """
    if not _MD5.fullmatch(e_tag) or e_tag.strip('"') == found:
        return
    again = hashlib.md5(usedforsecurity=False)
    for chunk in obstore.get(store, path.key, options={"if_match": e_tag}).stream():
        again.update(chunk)
    if again.hexdigest() != found:
        raise _damaged(path)


def _strong(e_tag: str | None) -> str | None:
    """An ETag that identifies bytes."""
    return None if e_tag is None or e_tag.startswith("W/") else e_tag


def _damaged(path: "RemotePath") -> RemoteError:
    return RemoteError(
        f"{path}: what the store sent is damaged: check the network, then run again.", code="corrupt-answer"
    )
