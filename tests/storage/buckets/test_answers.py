"""What an object store answers: cut, stalled, repeated or damaged, and its errors."""

import gzip
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.storage import inputs as stored
from sparseoco.storage import remote as clients
from sparseoco.storage.commit import Lease, as_local_file, commit_bytes, read_bytes, read_json
from sparseoco.storage.locations import Location, location
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.remote import RemoteError, RemotePath
from sparseoco.store.manifest import latest_manifest
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.streams import Stream
from tests.storage.buckets.conftest import SECRET
from tests.support.errors import check_causes, raises_code
from tests.support.ingests import file_bytes, jsonl, random_texts
from tests.support.s3_proxy import Answer, Damage, Request, damaged_answers

# ----------------------------------------------------------------------------------------------------------------------
# Answers that are cut, damaged, stalled or without an end: read again, or an error, never other bytes.


DATA = bytes(range(256)) * 1000
Requests = list[Request]


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


@pytest.mark.fault(59)
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


@pytest.mark.fault(59)
def test_a_body_that_is_always_cut(path: RemotePath, damage: Callable[..., Requests]) -> None:
    requests = damage(lambda request, answer: answer._replace(body=b""))
    with raises_code("no-answer", kind=StorageError):
        path.read_bytes()
    assert len(requests) == 4


@pytest.mark.fault(59)
def test_a_head_that_says_less(path: RemotePath, damage: Callable[..., Requests]) -> None:
    """With the size that was found the rest is read; without, the checksum is another."""
    damage(once(shorten))
    with raises_code("corrupt-answer", path, kind=StorageError):
        path.read_bytes()
    damage(once(shorten))
    with raises_code("corrupt-answer", path, kind=StorageError):
        path.read_bytes(e_tag=path.stat().e_tag, size=len(DATA))
    assert path.read_bytes() == DATA


@pytest.mark.fault(59)
def test_a_body_with_another_checksum(path: RemotePath, damage: Callable[..., Requests]) -> None:
    damage(once(flip))
    with raises_code("corrupt-answer", path, kind=StorageError):
        path.read_bytes()
    assert path.read_bytes() == DATA


@pytest.mark.fault(59)
def test_an_etag_that_is_no_checksum(path: RemotePath, damage: Callable[..., Requests]) -> None:
    """Encrypted objects have others: what is read twice alike is accepted."""
    other = "0123456789abcdef" * 2

    def encrypted(request: Request, answer: Answer) -> Answer:
        return answer.with_header("ETag", f'"{other}"')

    requests = damage(encrypted, {f'"{other}"': str(path.stat().e_tag)})
    assert path.read_bytes() == DATA
    assert [request.headers.get("if-match") for request in requests] == [None, f'"{other}"']


@pytest.mark.fault(59)
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


@pytest.mark.fault(59)
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


@pytest.mark.fault(59)
def test_a_lease_whose_version_changes_with_every_request(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_bytes(bucket / ".lock", b"{}")
    versions = count()
    monkeypatch.setattr(RemotePath, "version", lambda _: {"e_tag": str(next(versions))})
    lease = location(bucket / ".lock")
    assert isinstance(lease, RemotePath)
    assert Lease(lease)._read()[1] == {}
    assert next(versions) < 100


@pytest.mark.fault(59)
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


# ----------------------------------------------------------------------------------------------------------------------
# One answer of an object store during an ingest is damaged: the same store, or one sentence and then the same.
#
# SPARSEOCO_CHAOS_TRIALS is ten times the number of damaged answers of each kind, SPARSEOCO_CHAOS_SEED the seed.


TRIALS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "300")) // 10
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")


def flip_head(answer: Answer, rng: random.Random) -> Answer:
    return answer._replace(head=_flip(answer.head, rng))


def flip_body(answer: Answer, rng: random.Random) -> Answer:
    return answer._replace(body=_flip(answer.body, rng))


def cut_body(answer: Answer, rng: random.Random) -> Answer:
    return answer._replace(body=answer.body[: rng.randrange(len(answer.body))])


def _flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def put_inputs(bucket: Location) -> dict[str, str]:
    """What is ingested, by name, and the beginning of the keys of its objects."""
    rows = jsonl(random_texts(150))
    table = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([{"label": "pn"[k % 2], "text": f"word w{k}"} for k in range(90)]), table)
    objects = {"a.jsonl": rows, "b.jsonl.gz": gzip.compress(rows, mtime=0), "d.parquet": table.getvalue().to_pybytes()}
    for k in range(30):
        objects[f"c/{'pn'[k % 2]}/{k}.txt"] = f"word w{k}".encode()
    for name, data in objects.items():
        commit_bytes(bucket / "raw" / name, data)
    return {name: f"{bucket}/raw/{name}" for name in ("a.jsonl", "b.jsonl.gz", "c", "d.parquet")}


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.fault(59)
@pytest.mark.parametrize("damage", [flip_head, flip_body, cut_body])
def test_one_damaged_answer(
    tmp_path: Path,
    bucket: Location,
    monkeypatch: pytest.MonkeyPatch,
    endpoint: str,
    damage: object,
) -> None:
    """But for the content of a table, of which ranges are read: only TLS protects it."""
    monkeypatch.setattr(stored, "PART_BYTES", 10_000)
    inputs = put_inputs(bucket)
    asked = 0

    def counted(request: Request, answer: Answer) -> Answer:
        nonlocal asked
        asked += 1
        return answer

    def run(source: str, out: Path) -> str:
        try:
            ingest([source], out, TextOptions(max_bad_rows=5), shard_bytes=4096)
        except SparseocoError as error:
            return error.code
        return ""

    requests, lock = {}, threading.Lock()
    for name, source in inputs.items():
        asked = 0
        with damaged_answers(endpoint, counted) as proxy, monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy)
            assert run(source, tmp_path / "expected" / name) == ""
        requests[name] = asked
    wrong = []
    for trial in range(TRIALS):
        rng = random.Random(f"{SEED} {trial}")
        name = rng.choice([*inputs][: 3 if damage is flip_body else 4])
        number, answers = rng.randrange(requests[name]), count()

        def damaged(request: Request, answer: Answer) -> Answer:
            with lock:
                hit = next(answers) == number  # noqa: B023 - called within this trial
            return damage(answer, rng) if hit and answer.body else answer  # type: ignore[operator]  # noqa: B023

        out = tmp_path / f"{trial}"
        with damaged_answers(endpoint, damaged) as proxy, monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy)
            code = run(inputs[name], out)
        if code and (list(out.glob("manifest-*")) or run(inputs[name], out)):
            wrong.append(f"{trial}: {name}, answer {number}: {code}, and not again")
        elif file_bytes(out) != file_bytes(tmp_path / "expected" / name):
            wrong.append(f"{trial}: {name}, answer {number}: {code or 'another store'}")
    assert not wrong, "\n".join([f"seed {SEED}:", *wrong])


# ----------------------------------------------------------------------------------------------------------------------
# Errors of object stores have a code and one sentence, and never a secret.


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
