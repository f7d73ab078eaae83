"""What an object store answers: cut, stalled, repeated or damaged, and its errors."""

import gzip
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.storage import inputs as stored
from sparseoco.storage import remote as clients
from sparseoco.storage.commit import as_local_file, commit_bytes, read_json
from sparseoco.storage.locations import Location, location
from sparseoco.storage.locks import exclusive_lock
from sparseoco.storage.remote import RemoteError, RemotePath
from sparseoco.store.manifest import latest_manifest
from sparseoco.store.shards import Store
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.streams import Stream
from tests.storage.conftest import SECRET
from tests.support.errors import check_causes, raises_code
from tests.support.folders import assert_same_folder
from tests.support.http_servers import Answer, Damage, Request, damaged_answers
from tests.support.ingests import jsonl, random_texts

# ----------------------------------------------------------------------------------------------------------------------
# Answers that are cut, damaged, stalled or without an end: read again, or an error, never other bytes.


DATA = bytes(range(256)) * 1000
Requests = list[Request]
Through = Callable[..., Requests]


@pytest.fixture(autouse=True)
def _impatient(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # obstore itself tries nothing again


@pytest.fixture
def path(bucket: Location) -> RemotePath:
    commit_bytes(bucket / "a.bin", DATA)
    found = bucket / "a.bin"
    assert isinstance(found, RemotePath)
    return found


@pytest.fixture
def through(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Through]:
    """A function that sends all later requests through a proxy, this often, and gives the list of them."""
    proxies = []

    def through(change: Damage, etags: dict[str, str] | None = None, attempts: int = 1) -> Requests:
        requests: Requests = []
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", str(attempts))

        def recorded(request: Request, answer: Answer) -> Answer:
            requests.append(request)
            return change(request, answer)

        proxies.append(damaged_answers(endpoint, recorded, etags))
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxies[-1].__enter__())
        return requests

    yield through
    for proxy in proxies:
        proxy.__exit__(None, None, None)


def once(change: Callable[[Answer], Answer]) -> Damage:
    """Change the first answer with a body."""
    first = count()

    def changed(request: Request, answer: Answer) -> Answer:
        return change(answer) if request.method == "GET" and answer.body and next(first) == 0 else answer

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


def stall(answer: Answer) -> Answer:
    time.sleep(0.5)
    return answer


def local_copy(path: RemotePath) -> bytes:
    with as_local_file(path) as local:
        return local.read_bytes()


READS: dict[str, Callable[[RemotePath], bytes]] = {
    "whole": lambda path: path.read_bytes(),
    "of a size": lambda path: path.read_bytes(e_tag=path.stat().e_tag, size=len(DATA)),
    "a range": lambda path: path.read_range(0, len(DATA), size=len(DATA)),
    "chunks": lambda path: b"".join(path.read_chunks(1000)),
    "a stream": lambda path: b"".join(Stream(str(path), None)),
    "a local copy": local_copy,
}
CODES = {cut: "", shorten: "corrupt-answer", flip: "corrupt-answer", stall: "no-answer"}
"""The error of a read whose first answer is changed."""


@pytest.mark.fault(59)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", CODES)
def test_one_answer_that_is_damaged(
    path: RemotePath, through: Through, monkeypatch: pytest.MonkeyPatch, change: Callable[[Answer], Answer], read: str
) -> None:
    """What was cut is continued by a request for the rest."""
    if read == "a range" and change is flip:
        return  # only TLS protects it
    if change is stall:
        monkeypatch.setattr(clients, "CLIENT_OPTIONS", clients.CLIENT_OPTIONS | {"read_timeout": "200ms"})
    clients._cached_client.cache_clear()
    requests = through(once(change), attempts=2 if change is cut else 1)
    if code := CODES[change]:
        with raises_code(code, "" if change is stall else path, kind=StorageError):
            READS[read](path)
    else:
        assert READS[read](path) == DATA
        _, second = (request for request in requests if request.method == "GET")
        assert second.headers["range"] == f"bytes={len(DATA) // 3}-{len(DATA) - 1}"
    assert READS[read](path) == DATA
    clients._cached_client.cache_clear()


@pytest.mark.fault(59)
@pytest.mark.parametrize("read", READS)
def test_an_object_that_is_replaced_before_the_rest_is_read(path: RemotePath, through: Through, read: str) -> None:
    """Never bytes of both."""

    def replaced(answer: Answer) -> Answer:
        path.put(DATA[1:] + DATA[:1], "overwrite")
        return cut(answer)

    through(once(replaced), attempts=2)
    with pytest.raises((OSError, SparseocoError)):
        READS[read](path)
    assert READS[read](path) == DATA[1:] + DATA[:1]


@pytest.mark.fault(59)
@pytest.mark.parametrize("read", READS)
def test_a_body_that_is_always_cut(path: RemotePath, through: Through, read: str) -> None:
    requests = through(lambda request, answer: answer._replace(body=b""), attempts=4)
    with raises_code("no-answer", kind=StorageError):
        READS[read](path)
    assert sum(request.method == "GET" for request in requests) == 4


@pytest.mark.fault(59)
def test_an_etag_that_is_no_checksum(path: RemotePath, through: Through) -> None:
    """Encrypted objects have others: what is read twice alike is accepted."""
    other = "0123456789abcdef" * 2

    def encrypted(request: Request, answer: Answer) -> Answer:
        return answer.with_header("ETag", f'"{other}"')

    requests = through(encrypted, {f'"{other}"': str(path.stat().e_tag)})
    assert path.read_bytes() == DATA
    assert [request.headers.get("if-match") for request in requests] == [None, f'"{other}"']


def answer_of(status: int, body: str) -> Damage:
    """The same answer to every request."""

    def answered(request: Request, _: Answer) -> Answer:
        head = f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n\r\n"
        return Answer(head.encode(), b"" if request.method == "HEAD" else body.encode())

    return answered


@pytest.mark.fault(59)
def test_a_listing_without_end(through: Through) -> None:
    """Each page names the next one, which is the same."""
    files = "".join(
        f"<Contents><Key>x/{k:04}</Key><Size>1</Size><ETag>e</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        "</Contents>"
        for k in range(1000)
    )
    page = (
        f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>{files}"
        "</ListBucketResult>"
    )
    through(answer_of(200, page))
    with raises_code("corrupt-answer", "s3://other/x", kind=RemoteError):
        list(RemotePath("s3://other", "x").iter_files())


# ----------------------------------------------------------------------------------------------------------------------
# One answer of an object store during an ingest is damaged: the same store, or one sentence and then the same.
#
# SPARSEOCO_CHAOS_TRIALS is ten times the number of damaged answers of each input, SPARSEOCO_CHAOS_SEED the seed.


TRIALS = int(os.environ.get("SPARSEOCO_CHAOS_TRIALS", "300")) // 10
SEED = os.environ.get("SPARSEOCO_CHAOS_SEED", "0")
INPUTS = ("a.jsonl", "b.jsonl.gz", "c", "d.parquet")


def put_inputs(bucket: Location) -> None:
    rows = jsonl(random_texts(150))
    table = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([{"label": "pn"[k % 2], "text": f"word w{k}"} for k in range(90)]), table)
    objects = {"a.jsonl": rows, "b.jsonl.gz": gzip.compress(rows, mtime=0), "d.parquet": table.getvalue().to_pybytes()}
    for k in range(12):
        objects[f"c/{'pn'[k % 2]}/{k}.txt"] = f"word w{k}".encode()
    for name, data in objects.items():
        commit_bytes(bucket / "raw" / name, data)


def damaged(answer: Answer, kind: str, rng: random.Random) -> Answer:
    """A random bit of the head or of the body is flipped, or the body is cut."""
    if kind == "cut":
        return answer._replace(body=answer.body[: rng.randrange(len(answer.body))])
    data = bytearray(getattr(answer, kind))
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return answer._replace(**{kind: bytes(data)})


@pytest.mark.fault(59)
@pytest.mark.parametrize(
    "trials", [6, pytest.param(TRIALS, marks=[pytest.mark.chaos, pytest.mark.slow])], ids=["few", "many"]
)
@pytest.mark.parametrize("name", INPUTS)
def test_one_damaged_answer_in_an_ingest(
    tmp_path: Path, bucket: Location, through: Through, monkeypatch: pytest.MonkeyPatch, name: str, trials: int
) -> None:
    """But for the content of a table, of which ranges are read: only TLS protects it."""
    monkeypatch.setattr(stored, "PART_BYTES", 10_000)
    put_inputs(bucket)

    def run(out: Path) -> str:
        try:
            ingest([str(bucket / "raw" / name)], out, TextOptions(max_bad_rows=5), shard_bytes=4096)
        except SparseocoError as error:
            return error.code
        return ""

    requests = through(lambda request, answer: answer)
    assert run(tmp_path / "expected") == ""
    asked, lock = len(requests), threading.Lock()
    kinds = ("head", "cut") if name == "d.parquet" else ("body", "head", "cut")
    for trial in range(trials):
        rng, out, answers = random.Random(f"{SEED} {name} {trial}"), tmp_path / f"{trial}", count()
        kind, number = kinds[trial % len(kinds)], rng.randrange(asked)

        def change(request: Request, answer: Answer) -> Answer:
            with lock:
                hit = next(answers) == number  # noqa: B023 - called within this trial
            return damaged(answer, kind, rng) if hit and answer.body else answer  # noqa: B023

        through(change)
        code, what = run(out), f"seed {SEED}, {trial}: {kind} of answer {number}"
        through(lambda request, answer: answer)
        if code:
            assert not list(out.glob("manifest-*")), (what, code)
            assert run(out) == "", (what, code)
        assert_same_folder(out, tmp_path / "expected", what=f"{what}: {code}")


# ----------------------------------------------------------------------------------------------------------------------
# Errors of object stores have a code and one sentence, and never a secret.


ATTEMPTS: dict[str, Callable[[Location], object]] = {
    "write": lambda place: commit_bytes(place / "file", b"x"),
    "create": lambda place: commit_bytes(place / "file", b"x", replace=False),
    "read": lambda place: read_json(place / "file"),
    "list": latest_manifest,
    "ingest": lambda place: ingest([str(place / "x.jsonl")], place, TextOptions()),
    "lock": lambda place: exclusive_lock(place).__enter__(),
}


def check_refused(place: Location, attempt: str, code: str, *values: str) -> None:
    with raises_code(code, str(place).rpartition("/")[0], *values, kind=StorageError) as error:
        ATTEMPTS[attempt](place)
    assert SECRET not in str(error.value)
    check_causes(error.value)


@pytest.mark.fault(59)
@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize(
    ("status", "answered", "code"),
    [
        (403, "AccessDenied", "access-denied"),
        (403, "SignatureDoesNotMatch", "access-denied"),
        (503, "SlowDown", "store-busy"),
        (400, "InvalidRequest", "request-refused"),
    ],
)
def test_answers_of_the_store(through: Through, attempt: str, status: int, answered: str, code: str) -> None:
    through(answer_of(status, f"<Error><Code>{answered}</Code><Message>{SECRET} is wrong</Message></Error>"))
    check_refused(location("s3://other/run"), attempt, code, answered)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_stores_that_cannot_be_reached(bucket: Location, monkeypatch: pytest.MonkeyPatch, attempt: str) -> None:
    check_refused(location("s3://no-such-bucket/run"), attempt, "missing-bucket")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:{SECRET}@127.0.0.1:{port}")
    check_refused(location("s3://other/run"), attempt, "no-answer", f"127.0.0.1:{port}")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    check_refused(bucket / "run", attempt, "missing-credentials", "AWS_ACCESS_KEY_ID")


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
