"""Answers that are cut, damaged, stalled or without an end: read again, or an error, never other bytes."""

import gzip
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.storage import remote as clients
from sparseoco.storage.commit import Lease, commit_bytes
from sparseoco.storage.locations import Location, location
from sparseoco.storage.remote import RemoteError, RemotePath
from sparseoco.text import stored
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from tests.storage.buckets.test_errors import answering
from tests.support.errors import raises_code
from tests.support.ingests import file_bytes, jsonl, random_texts
from tests.support.s3_proxy import Answer, Damage, Request, damaged_answers

DATA = bytes(range(256)) * 1000
Requests = list[Request]
pytestmark = pytest.mark.fault(59)


@pytest.fixture
def path(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> RemotePath:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # obstore itself tries nothing again
    commit_bytes(bucket / "a.bin", DATA)
    found = bucket / "a.bin"
    assert isinstance(found, RemotePath)
    return found


@pytest.fixture
def damage(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Requests]]:
    """A function that sends all later requests through a proxy, and gives the list of them."""
    proxies = []

    def through(change: Damage, etags: dict[str, str] | None = None) -> Requests:
        requests: Requests = []

        def recorded(request: Request, answer: Answer) -> Answer:
            requests.append(request)
            return change(request, answer)

        proxies.append(damaged_answers(endpoint, recorded, etags))
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxies[-1].__enter__())
        return requests

    yield through
    for proxy in proxies:
        proxy.__exit__(None, None, None)


def once(change: Callable[[Answer], Answer], method: str = "GET") -> Damage:
    """Change the first answer with a body."""
    first = count()

    def changed(request: Request, answer: Answer) -> Answer:
        return change(answer) if request.method == method and answer.body and next(first) == 0 else answer

    return changed


def cut(answer: Answer) -> Answer:
    return answer._replace(body=answer.body[: len(answer.body) // 3])


def shorten(answer: Answer) -> Answer:
    """The head agrees with the shorter body."""
    half = len(answer.body) // 2
    return answer._replace(body=answer.body[:half]).with_header("Content-Length", str(half))


def flip(answer: Answer) -> Answer:
    at = len(answer.body) // 2
    return answer._replace(body=answer.body[:at] + bytes([answer.body[at] ^ 1]) + answer.body[at + 1 :])


READS: list[Callable[[RemotePath, int], bytes]] = [
    lambda path, size: path.read_bytes(size=size),
    lambda path, size: path.read_range(0, size, size=size),
    lambda path, size: b"".join(path.read_chunks(1000)),
]


@pytest.mark.parametrize("read", READS)
def test_a_body_that_is_cut_is_continued(
    path: RemotePath, damage: Callable[..., Requests], read: Callable[[RemotePath, int], bytes]
) -> None:
    """By a request for the same version, of what no chunk has passed on."""
    requests = damage(once(cut))
    assert read(path, len(DATA)) == DATA
    assert len(requests) == 2
    assert requests[1].headers["if-match"] == path.stat().e_tag
    if read is READS[-1]:
        assert requests[1].headers["range"] == f"bytes={len(DATA) // 3}-{len(DATA) - 1}"


def test_a_body_that_is_always_cut(path: RemotePath, damage: Callable[..., Requests]) -> None:
    requests = damage(lambda request, answer: answer._replace(body=b""))
    with raises_code("no-answer", kind=StorageError):
        path.read_bytes()
    assert len(requests) == 4


def test_a_head_that_says_less(path: RemotePath, damage: Callable[..., Requests]) -> None:
    """With the size that was found the rest is read; without, the checksum is another."""
    damage(once(shorten))
    with raises_code("corrupt-answer", path, kind=StorageError):
        path.read_bytes()
    damage(once(shorten))
    with raises_code("corrupt-answer", path, kind=StorageError):
        path.read_bytes(e_tag=path.stat().e_tag, size=len(DATA))
    assert path.read_bytes() == DATA


def test_a_body_with_another_checksum(path: RemotePath, damage: Callable[..., Requests]) -> None:
    damage(once(flip))
    with raises_code("corrupt-answer", path, kind=StorageError):
        path.read_bytes()
    assert path.read_bytes() == DATA


def test_an_etag_that_is_no_checksum(path: RemotePath, damage: Callable[..., Requests]) -> None:
    """Encrypted objects have others: what is read twice alike is accepted."""
    other = "0123456789abcdef" * 2

    def encrypted(request: Request, answer: Answer) -> Answer:
        return answer.with_header("ETag", f'"{other}"')

    requests = damage(encrypted, {f'"{other}"': str(path.stat().e_tag)})
    assert path.read_bytes() == DATA
    assert [request.headers.get("if-match") for request in requests] == [None, f'"{other}"']


def test_a_connection_that_stalls(
    path: RemotePath, damage: Callable[..., Requests], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CLIENT_OPTIONS", clients.CLIENT_OPTIONS | {"read_timeout": "200ms"})
    clients._cached_client.cache_clear()
    first = count()

    def stall(request: Request, answer: Answer) -> Answer:
        if next(first) == 0:
            time.sleep(0.5)
        return answer

    damage(stall)
    with raises_code("no-answer", kind=StorageError):
        path.read_bytes()
    assert path.read_bytes() == DATA
    clients._cached_client.cache_clear()


def test_a_listing_without_end(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page names the next one, which is the same."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    files = "".join(
        f"<Contents><Key>x/{k:04}</Key><Size>1</Size><ETag>e</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        "</Contents>"
        for k in range(1000)
    )
    page = (
        f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>{files}"
        "</ListBucketResult>"
    )
    with answering(200, page.encode()) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with raises_code("corrupt-answer", "s3://other/x", kind=RemoteError):
            list(RemotePath("s3://other", "x").iter_files())


def test_a_lease_whose_version_changes_with_every_request(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_bytes(bucket / ".lock", b"{}")
    versions = count()
    monkeypatch.setattr(RemotePath, "version", lambda _: {"e_tag": str(next(versions))})
    lease = location(bucket / ".lock")
    assert isinstance(lease, RemotePath)
    assert Lease(lease)._read()[1] == {}
    assert next(versions) < 100


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "c.jsonl", "d/p/x.txt"])
@pytest.mark.parametrize("number", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_flipped_bit_in_an_ingest(
    tmp_path: Path, bucket: Location, damage: Callable[..., Requests], monkeypatch: pytest.MonkeyPatch,
    name: str, number: int,
) -> None:  # fmt: skip
    """In what is read first, or again: the run says so, and another one gives the store of undamaged text."""
    monkeypatch.setattr(stored, "PART_BYTES", 10_000)
    rows = jsonl(random_texts(150))
    commit_bytes(bucket / "raw" / name, {"b": gzip.compress(rows), "c": rows[:3900], "d": b"words"}.get(name[0], rows))
    commit_bytes(bucket / "raw" / "d" / "n" / "y.txt", b"other words")
    source = bucket / "raw" / "d" if "/" in name else bucket / "raw" / name
    options = TextOptions(max_bad_rows=1)
    ingest([str(source)], tmp_path / "expected", options, shard_bytes=4096)
    bodies = count()

    def flipped(request: Request, answer: Answer) -> Answer:
        if name in request.path and request.method == "GET" and next(bodies) == number:
            return flip(answer)
        return answer

    damage(flipped)
    failure = ""
    try:
        ingest([str(source)], tmp_path / "out", options, shard_bytes=4096)
    except SparseocoError as error:
        failure = error.code
    assert failure in ("", "input-changed", "corrupt-answer", "corrupt-file")
    if failure:
        assert not list((tmp_path / "out").glob("manifest-*"))
        ingest([str(source)], tmp_path / "out", options, shard_bytes=4096)
    assert file_bytes(tmp_path / "out") == file_bytes(tmp_path / "expected")
