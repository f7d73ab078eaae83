"""Raw text, run files and results in an object store: as in a local folder, whatever the store answers."""

import gzip
import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparseoco.text.ingest
from sparseoco.core.errors import SparseocoError, StorageError
from sparseoco.execution.options import ClusterOptions
from sparseoco.flows.steps import read_run
from sparseoco.ops.doctor import check_folder
from sparseoco.ops.status import read_status
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.scoring.options import ScoreOptions
from sparseoco.storage import commit
from sparseoco.storage import inputs as stored
from sparseoco.storage import locations as clients
from sparseoco.storage.commit import as_local_file, commit_bytes, commit_json, exclusive_lock, read_json, remove_file
from sparseoco.storage.locations import Location, RemoteError, RemotePath, location, map_concurrently, resolve_against
from sparseoco.store.manifest import commit_manifest, latest_manifest, read_manifest, read_manifests
from sparseoco.store.shards import Store
from sparseoco.text.formats import Stream
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import find_sources, iter_files
from tests.search.by_hand import cluster_by_hand
from tests.storage.conftest import SECRET
from tests.support.commands import Cli
from tests.support.damage import flipped
from tests.support.errors import check_causes, raises_code
from tests.support.folders import assert_same_folder, files, folder_bytes
from tests.support.http_servers import Answer, Damage, Request, damaged_answers
from tests.support.ingests import jsonl, random_texts
from tests.support.models import random_model
from tests.support.stores import make_store
from tests.support.texts import RUN_FILE, write_reviews, write_run_file

# ----------------------------------------------------------------------------------------------------------------------
# Run files and cluster files in a bucket, with relative paths.


@pytest.fixture
def file(bucket: Location, tmp_path: Path) -> Location:
    """A run file in a bucket, with its text in the same folder."""
    folder = bucket / "runs" / "places"
    write_run_file(tmp_path, **{"folds = 3": "folds = 2"})
    for name in ("places.jsonl", "places.toml"):
        commit_bytes(folder / name, (tmp_path / name).read_bytes())
    return folder / "places.toml"


def test_paths_are_relative_to_the_file(bucket: Location) -> None:
    text = RUN_FILE.replace('"places.jsonl"', '"raw/", "a[1].txt", "/here/x.txt", "../../y.txt", "s3://other/z.txt"')
    text = text.replace('out = "run"', 'out = "."').replace("[ingest]", '[ingest]\nstore = "../shards"')
    text = text.replace("[search]", '[search]\nwarm_start = "../yesterday/model"')
    commit_bytes(bucket / "runs" / "places" / "run.toml", text.partition("[cluster]")[0].encode())
    top = str(bucket).rstrip("/")
    run = load_run_file(f"{top}/runs/places/run.toml")
    assert (str(run.out), str(run.store)) == (f"{top}/runs/places", f"{top}/runs/shards")
    resolve_against = f"{top}/runs/places"
    assert run.ingest.inputs == (
        f"{resolve_against}/raw", f"{resolve_against}/a[1].txt", "/here/x.txt", f"{top}/y.txt", "s3://other/z.txt",
    )  # fmt: skip
    assert run.search.warm_start == f"{top}/runs/yesterday/model"
    commit_bytes(bucket / "run.toml", RUN_FILE.encode())
    assert str(load_run_file(bucket / "run.toml").out) == f"{top}/run"


def test_nightly_takes_the_uri_of_a_run_file(file: Location, cli: Cli) -> None:
    text = RUN_FILE.replace("folds = 3", "folds = 1").replace("algorithms.rda", "# ")
    commit_bytes(file, text.partition("[evaluate]")[0].encode())
    assert f"report: {file.parent}/run/nightly.html" in cli("nightly", file).out
    assert (file.parent / "run" / "nightly.html").exists()


def test_a_file_of_a_cluster_may_be_in_a_bucket(file: Location, bucket: Location, cli: Cli) -> None:
    commit_bytes(bucket / "site" / "here.toml", b"threads = 3\n")
    printed = cli("doctor", file, "--cluster", bucket / "site" / "here.toml").out
    assert "3 concurrent tasks in this process" in printed
    text = 'cluster = "../../site/here.toml"\n' + RUN_FILE.partition("[cluster]")[0]
    commit_bytes(file, text.encode())
    assert load_run_file(file).cluster.threads == 3


@pytest.mark.parametrize(
    ("place", "content", "code", "said"),
    [
        ("runs/none.toml", None, 2, "none.toml: No such file or directory."),
        ("runs/run.yaml", b"", 2, "run.yaml"),
        ("runs/empty.toml", b"", 2, "empty.toml: ingest: this key is required"),
        ("log.toml", RUN_FILE.encode() + b'[log]\nfile = "run.jsonl"\n', 2, "is a remote URI; a log is a local file"),
        ("runs/up.toml", b'out = "../../run"\n' + RUN_FILE.replace('out = "run"', "").encode(), 2, "../../run"),
        ("s3://no-such-bucket/run.toml", None, 3, "s3://no-such-bucket does not exist"),
        ("s3://key:secret@bucket/run.toml", None, 2, "credentials"),
    ],
)
def test_invalid_run_files(bucket: Location, cli: Cli, place: str, content: bytes | None, code: int, said: str) -> None:
    path = location(place) if place.startswith("s3://no") else place if "@" in place else resolve_against(bucket, place)
    if content is not None:
        commit_bytes(path, content)
    error = cli("run", path, code=code).err
    assert said in error
    assert "Traceback" not in error
    assert "secret@" not in error
    assert said in "".join(cli("doctor", path, code=2 if "@" in place else 1))


def test_flows_take_the_uri_as_it_is(file: Location) -> None:
    assert read_run(str(file)) == load_run_file(file)


def test_manifests_of_several_increments_can_be_batches(
    tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_manifest(make_store(tmp_path), 1)
    expected = [whole.model_copy(update={"version": version}) for version in range(1, 6)]
    for manifest in expected:
        commit_manifest(bucket / "shards", manifest)
    batches = []

    def read(request: Callable[[Location], bytes], paths: list[Location]) -> list[bytes]:
        batches.append(len(paths))
        return map_concurrently(request, paths)

    monkeypatch.setattr("sparseoco.storage.commit.map_concurrently", read)
    monkeypatch.setattr("sparseoco.store.manifest.BATCH", 2)
    assert list(read_manifests(bucket / "shards", 5)) == expected
    assert batches == [2, 2, 1]
    with raises_code("missing-file", "manifest-00000006.json", kind=StorageError):
        list(read_manifests(bucket / "shards", 6))


# ----------------------------------------------------------------------------------------------------------------------
# A corpus in a bucket is scored into a bucket as one on this machine.


KEEP = {"keep_top": "10%", "keep_class": "b", "shard_bytes": 2048}


def test_scores_in_a_bucket(bucket: Location, tmp_path: Path) -> None:
    random_model(tmp_path / "run")
    for path in (tmp_path / "run" / "model").iterdir():
        commit_bytes(bucket / "model" / path.name, path.read_bytes())
    rows = pa.Table.from_pylist([{"id": f"t{k}", "text": text} for k, text in enumerate(random_texts(40, 4))])
    pq.write_table(rows, tmp_path / "b.parquet", row_group_size=10)
    (tmp_path / "a.jsonl").write_bytes(jsonl(random_texts(40, 3)))
    for name in ("a.jsonl", "b.parquet"):
        commit_bytes(bucket / "in" / name, (tmp_path / name).read_bytes())
    inputs = [str(tmp_path / name) for name in ("a.jsonl", "b.parquet")]
    for keep_as in ("documents", "ids"):
        options, out, local = ScoreOptions(**KEEP, keep_as=keep_as), bucket / keep_as, tmp_path / keep_as
        manifest = run_steps.score(str(bucket / "model"), [str(bucket / "in")], out, options, ClusterOptions(threads=1))
        assert manifest.rows == 80
        run_steps.score(str(tmp_path / "run"), inputs, local, options, ClusterOptions(threads=1))
        assert len(files(out)) == len(files(local))
        kept, expected = (kept_rows(folder / "kept") for folder in (out, local))
        assert keep_as == "ids" or kept == expected
        assert any(kept)


def kept_rows(folder: Location) -> list[str]:
    """The content of each file; the checksum in a table depends on its name, and so on the path of its source."""
    return sorted(
        str(pq.read_table(pa.BufferReader(data)).to_pylist() if name.endswith(".parquet") else data)
        for name, data in folder_bytes(folder).items()
    )


# ----------------------------------------------------------------------------------------------------------------------
# A run in a bucket, its status and doctor.


def test_commands_take_the_uri_of_a_run_file(file: Location, tmp_path: Path, cli: Cli) -> None:
    """And its status is read where it is."""
    assert "150 documents" in cli("doctor", file).out
    run = load_run_file(file)
    run_steps.run_ingest(run)
    run_steps.run_search(run)
    found = read_status(run.out)
    assert {step.name: step.state for step in found.steps} == {
        "ingest": "done",
        "search": "done",
        "train": "not started",
        "evaluate": "not started",
        "report": "not started",
    }
    assert found.steps[1].figures["completed"] == 8
    assert found.seconds is not None
    assert not found.locks
    with exclusive_lock(run.out):
        (lock,) = read_status(run.out).locks
        assert lock.held
        assert lock.owner.startswith("process ")
        assert [finding.state for finding in check_folder("out", run.out)] == ["ok", "error"]
    assert [finding.state for finding in check_folder("out", run.out)] == ["ok"]
    commit_json(run.out / ".lock", {"owner": "process 1 on elsewhere", "heartbeats": 3})
    with patch.object(commit, "EXPIRY_SECONDS", 0.0):
        (lock,) = read_status(run.out).locks
    assert (lock.held, lock.expired) == (False, True)
    assert lock.message.endswith("which has ended: the next run takes it over")
    (lock,) = read_status(run.out).locks
    assert lock.held
    assert 15 <= lock.seconds < 60  # three renewals
    assert [finding.state for finding in check_folder("out", run.out)] == ["ok", "error"]
    remove_file(run.out / ".lock")
    assert not [place for place in run.out.iterdir() if "doctor" in place.name]

    assert f"report: {file.parent}/run/report/report.html" in cli("run", file).out
    run_steps.run_all(load_run_file(tmp_path / "places.toml"))
    there, here = file.parent / "run", tmp_path / "run"
    both = [[name for name in files(run) if "/sources-" not in name] for run in (there, here)]
    assert both[0] == both[1]  # but for the table of sources, which has their paths
    for name in ("search/metrics.parquet", "search/best.json", "model/weights.parquet"):
        assert (there / name).read_bytes() == (here / name).read_bytes(), name
    assert all(SECRET.encode() not in data for data in folder_bytes(there, without=()).values())


# ----------------------------------------------------------------------------------------------------------------------
# Raw text in a bucket: files, prefixes, folders of classes; growing stores; workers on other machines.


OPTIONS = TextOptions(ngram_range=(1, 2))


def same(there: Store, here: Store) -> bool:
    """Whether two stores differ in the paths of their sources alone."""

    def comparable(store: Store) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        sources = [source.model_dump(exclude={"modified_ns"}) for source in store.sources]
        for source in sources:
            source["path"] = source["path"].rsplit("/", 1)[1]
        return store.manifest.model_dump(mode="json", exclude={"source_listing"}), sources

    return comparable(there) == comparable(here)


def test_small_files_are_read_concurrently(bucket: Location) -> None:
    sizes = {"a": 3, "b": 0, "c": stored.SMALL_FILE, "d": stored.SMALL_FILE + 1}
    for name, size in sizes.items():
        commit_bytes(bucket / "x" / name, b"x" * size)
    files = sorted(iter_files(f"{bucket}/x", TextOptions()))
    contents = list(stored.small_contents((file.path, file.pin) for file in files))
    assert [None if content is None else len(content) for content in contents] == [3, 0, stored.SMALL_FILE, None]
    for file, content in zip(files, contents, strict=True):
        stream = Stream(file.path, None, content=content, pin=file.pin)
        assert sum(map(len, stream)) == stream.bytes == sizes[file.name]


def test_a_listing_has_the_status_of_its_files(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding new files needs no request per file, and gives the same sources as naming each file."""
    requests: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        request = getattr(obstore, name)
        return lambda *arguments, **options: (requests.append(name), request(*arguments, **options))[1]

    for number in range(9):
        commit_bytes(bucket / "raw" / f"{number}.jsonl", f'{{"text": "{number}"}}\n'.encode())
    for name in ("head", "get", "get_range", "list", "list_with_delimiter"):
        monkeypatch.setattr(obstore, name, counted(name))
    sources = find_sources([f"{bucket / 'raw'}/"], TextOptions())
    assert len(sources) == 9
    assert 0 < len(requests) < 5
    for source in sources:
        (alone,) = find_sources([source.path], TextOptions())
        assert alone._replace(key=source.key, of_folder=True) == source


def test_a_store_grows_without_reading_old_files_again(
    tmp_path: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later = write_reviews(tmp_path / "a.jsonl"), write_reviews(tmp_path / "b.jsonl", rows=80, first=200)
    raw = bucket / "raw"
    commit_bytes(raw / "a.jsonl", first.read_bytes())
    ingest([str(raw)], bucket / "store", OPTIONS)
    ingest([str(first)], tmp_path / "store", OPTIONS)
    commit_bytes(raw / "b.jsonl", later.read_bytes())
    read: list[str] = []
    stored = Stream._stored
    monkeypatch.setattr(Stream, "_stored", lambda self: (read.append(self.path), stored(self))[1])
    there = ingest([f"{raw}/"], bucket / "store", OPTIONS)
    here = ingest([str(first), str(later)], tmp_path / "store", OPTIONS)
    assert there.version == 2
    assert same(Store(bucket / "store", there), Store(tmp_path / "store", here))
    assert {path for path in read if path.startswith("s3")} == {f"{raw}/b.jsonl"}
    assert ingest([str(raw)], bucket / "store", OPTIONS) == there == latest_manifest(bucket / "store")
    commit_bytes(raw / "a.jsonl", later.read_bytes())
    with raises_code("input-changed", "a.jsonl"):
        ingest([str(raw)], bucket / "store", OPTIONS)


@pytest.mark.fault(54)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "f/p/a.txt"])
def test_every_request_names_the_version_that_was_found(bucket: Location, tmp_path: Path, name: str) -> None:
    """An object that is replaced by one of the same size is an error, and a later run resumes."""
    text = write_reviews(tmp_path / "a.jsonl").read_bytes()
    pq.write_table(pa.Table.from_pylist([json.loads(line) for line in text.splitlines()]), tmp_path / "a.parquet")
    data = {".gz": gzip.compress(text), ".parquet": (tmp_path / "a.parquet").read_bytes()}.get(Path(name).suffix, text)
    commit_bytes(bucket / "raw" / name, data)
    commit_bytes(bucket / "raw" / "f" / "n" / "b.txt", b"words")
    source = bucket / "raw" / "f" if "/" in name else bucket / "raw" / name
    real = sparseoco.text.ingest.pass_over

    def changed(*arguments: Any) -> Any:
        commit_bytes(bucket / "raw" / name, data[::-1])
        return real(*arguments)

    with patch.object(sparseoco.text.ingest, "pass_over", changed), raises_code("input-changed", source):
        ingest([str(source)], tmp_path / "store", OPTIONS, shard_bytes=1 << 13)
    commit_bytes(bucket / "raw" / name, data)
    assert ingest([str(source)], tmp_path / "store", OPTIONS, shard_bytes=1 << 13).rows > 1


def test_prefixes_without_files(bucket: Location) -> None:
    commit_bytes(bucket / "only" / ".hidden", b"x")
    for item, code in (("nothing", "missing-file"), ("nothing/", "no-documents"), ("only", "no-documents")):
        with raises_code(code, f"{bucket}/{item}"):
            ingest([f"{bucket}/{item}"], bucket / "store", OPTIONS)


@pytest.mark.slow
def test_workers_elsewhere_read_and_write_the_bucket(tmp_path: Path, bucket: Location) -> None:
    here = load_run_file(write_run_file(tmp_path))
    raw = bucket / "places.jsonl"
    commit_bytes(raw, (tmp_path / "places.jsonl").read_bytes())
    zipped = bucket / "zipped" / "places.jsonl.gz"
    commit_bytes(zipped, gzip.compress((tmp_path / "places.jsonl").read_bytes()))
    run_steps.run_all(here)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with cluster_by_hand(elsewhere, SPARSEOCO_SCRATCH=str(elsewhere / "scratch")) as cluster:
        for name, text in (("plain", raw), ("zipped", zipped)):
            there = here.model_copy(
                update={
                    "out": bucket / "runs" / name,
                    "ingest": here.ingest.model_copy(update={"inputs": (str(text),)}),
                    "cluster": ClusterOptions(scheduler=cluster.address),
                }
            )
            run_steps.run_all(there)
            manifests = latest_manifest(there.store), latest_manifest(here.store)
            assert manifests[0].shard_listing == manifests[1].shard_listing  # type: ignore[union-attr]
            own, other = (
                {
                    place: data
                    for place, data in folder_bytes(run.out).items()
                    if not place.startswith("shards/sources-")
                }
                for run in (there, here)
            )
            differing = {place for place in other if own.get(place) != other[place]}
            assert set(own) == set(other)
            assert differing <= {"shards/manifest-00000001.json", "evaluation.json", "model/model.json"}


# ----------------------------------------------------------------------------------------------------------------------
# Answers that are cut, damaged, stalled or without an end: read again, or an error, never other bytes.


DATA = bytes(range(256)) * 1000
Requests = list[Request]
Through = Callable[..., Requests]


@pytest.fixture
def impatient(bucket: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # obstore itself tries nothing again


@pytest.fixture
def path(bucket: Location, impatient: None) -> RemotePath:
    commit_bytes(bucket / "a.bin", DATA)
    return bucket / "a.bin"


@pytest.fixture
def through(endpoint: str, impatient: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Through]:
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
    requests = through(once(change), attempts=2 if change is cut else 1)
    if code := CODES[change]:
        with monkeypatch.context() as patch, raises_code(code, "" if change is stall else path, kind=StorageError):
            if change is stall:
                patch.setattr(clients, "CLIENT_OPTIONS", clients.CLIENT_OPTIONS | {"read_timeout": "200ms"})
            clients._cached_client.cache_clear()
            READS[read](path)
        clients._cached_client.cache_clear()
    else:
        assert READS[read](path) == DATA
        _, second = (request for request in requests if request.method == "GET")
        assert second.headers["range"] == f"bytes={len(DATA) // 3}-{len(DATA) - 1}"
    assert READS[read](path) == DATA


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


def damaged(answer: Answer, kind: str, rng: random.Random) -> Answer:
    """A random bit of the head or of the body is flipped, or the body is cut."""
    if kind == "cut":
        return answer._replace(body=answer.body[: rng.randrange(len(answer.body))])
    return answer._replace(**{kind: flipped(getattr(answer, kind), rng)[0]})


@pytest.mark.fault(59)
@pytest.mark.parametrize(
    "trials", [3, pytest.param(TRIALS, marks=[pytest.mark.chaos, pytest.mark.slow])], ids=["few", "many"]
)
@pytest.mark.parametrize("name", INPUTS)
def test_one_damaged_answer_in_an_ingest(
    tmp_path: Path, bucket: Location, through: Through, monkeypatch: pytest.MonkeyPatch, name: str, trials: int
) -> None:
    """But for the content of a table, of which ranges are read: only TLS protects it."""
    monkeypatch.setattr(stored, "PART_BYTES", 10_000)
    rows = jsonl(random_texts(150))
    table = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([{"label": "pn"[k % 2], "text": f"word w{k}"} for k in range(90)]), table)
    objects = {"a.jsonl": rows, "b.jsonl.gz": gzip.compress(rows, mtime=0), "d.parquet": table.getvalue().to_pybytes()}
    for k in range(12):
        objects[f"c/{'pn'[k % 2]}/{k}.txt"] = f"word w{k}".encode()
    for key, data in objects.items():
        commit_bytes(bucket / "raw" / key, data)

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


@pytest.mark.usefixtures("impatient")
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
