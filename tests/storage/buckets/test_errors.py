"""Errors of object stores have a code and one sentence, and never a secret."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import as_local_file, commit_bytes, read_bytes, read_json
from sparseoco.storage.locations import Location, location
from sparseoco.storage.locks import exclusive_lock
from sparseoco.store.manifest import latest_manifest
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.streams import Stream
from tests.storage.buckets.conftest import SECRET
from tests.support.errors import check_causes, raises_code


@pytest.fixture(autouse=True)
def _impatient(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def check_refused(place: Location, code: str, *values: str) -> None:
    """Reading, writing, listing and locking there all end with the same error."""
    for attempt in (
        lambda: commit_bytes(place / "file", b"x"),
        lambda: commit_bytes(place / "file", b"x", replace=False),
        lambda: read_json(place / "file"),
        lambda: latest_manifest(place),
        lambda: ingest([str(place / "x.jsonl")], place, TextOptions()),
        lambda: exclusive_lock(place).__enter__(),
    ):
        with raises_code(code, str(place).rpartition("/")[0], *values, kind=StorageError) as error:
            attempt()
        assert SECRET not in str(error.value)
        check_causes(error.value)


@contextmanager
def answering(code: int, body: bytes) -> Iterator[str]:
    """A server with the same answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # a client asks before it sends

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with serving(Handler) as endpoint:
        yield endpoint


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{SECRET} is wrong</Message></Error>".encode()


@pytest.mark.fault(59)
@pytest.mark.parametrize(
    ("status", "answered", "code"),
    [
        (403, "AccessDenied", "access-denied"),
        (403, "SignatureDoesNotMatch", "access-denied"),
        (503, "SlowDown", "store-busy"),
        (400, "InvalidRequest", "request-refused"),
    ],
)
def test_answers_of_the_store(
    bucket: Location, monkeypatch: pytest.MonkeyPatch, status: int, answered: str, code: str
) -> None:
    with answering(status, answer(answered)) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        check_refused(location("s3://other/run"), code, answered)


@contextmanager
def breaking_off() -> Iterator[str]:
    """A server that begins an answer and ends the connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("Content-Length", "1000")
            self.send_header("ETag", '"tag"')
            self.send_header("Last-Modified", "Sun, 22 Nov 2026 01:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(b"begun")
                self.close_connection = True

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with serving(Handler) as endpoint:
        yield endpoint


def test_a_broken_connection(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file read whole, fetched or streamed."""
    with breaking_off() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        place = location("s3://other/file")
        for attempt in (lambda: read_bytes(place), lambda: as_local_file(place).__enter__()):
            with raises_code("no-answer", "s3://other", kind=StorageError):
                attempt()
        with raises_code("no-answer", "s3://other", kind=StorageError):
            list(Stream(str(place), None))


def test_an_endpoint_that_does_not_answer(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:{SECRET}@127.0.0.1:{port}")
    check_refused(location("s3://other/run"), "no-answer", f"127.0.0.1:{port}")


def test_a_missing_bucket(bucket: Location) -> None:
    check_refused(location("s3://no-such-bucket/run"), "missing-bucket")


def test_no_credentials(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    check_refused(bucket / "run", "missing-credentials", "AWS_ACCESS_KEY_ID")


def test_invalid_uris(tmp_path: Path) -> None:
    for uri, code in (
        (f"s3://key:{SECRET}@bucket/run", "credentials-in-uri"),
        ("s3:///run", "invalid-uri"),
        ("s3://bucket//run", "invalid-uri"),
        ("https://host/x?version=2", "unknown-scheme"),
        ("nothing://bucket/run", "unknown-scheme"),
    ):
        with raises_code(code) as error:
            location(uri)
        assert SECRET not in str(error.value)
    with raises_code("credentials-in-uri") as error:
        ingest([f"ftp://user:{SECRET}@127.0.0.1:1/x.jsonl"], tmp_path / "out", TextOptions())
    assert SECRET not in str(error.value)


def test_a_damaged_shard(bucket: Location) -> None:
    commit_bytes(bucket / "x.txt", b"one two\nthree two\n")
    store = bucket / "store"
    manifest = ingest([str(bucket / "x.txt")], store, TextOptions())
    shard = Store(store, manifest).shards[0].file
    commit_bytes(store / shard, b"other")
    with raises_code("corrupt-file", shard, kind=StorageError):
        Store.open(store).read(0)
    with raises_code("not-a-store", bucket):
        Store.open(bucket / "nothing")
