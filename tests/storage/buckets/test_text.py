"""Raw text in a bucket: files, prefixes, folders of classes; growing stores; workers on other machines."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import sparseoco.text.ingest
from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps as run_steps
from sparseoco.pipeline.run_file import load_run_file
from sparseoco.storage import inputs as stored
from sparseoco.storage.commit import commit_bytes
from sparseoco.storage.locations import Location, resolve_against
from sparseoco.store.manifest import commit_manifest, latest_manifest
from sparseoco.store.shards import Store
from sparseoco.text.folders import list_files
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import find_sources
from sparseoco.text.streams import Stream
from tests.storage.buckets.contents import contents, names
from tests.support.errors import raises_code
from tests.support.texts import write_reviews, write_run_file

OPTIONS = TextOptions(ngram_range=(1, 2))


def same(there: Store, here: Store) -> bool:
    """Whether two stores differ in the paths of their sources alone."""

    def comparable(store: Store) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        sources = [source.model_dump(exclude={"modified_ns"}) for source in store.sources]
        for source in sources:
            source["path"] = source["path"].rsplit("/", 1)[1]
        return store.manifest.model_dump(mode="json", exclude={"source_segments"}), sources

    return comparable(there) == comparable(here)


def put(bucket: Location, folder: Path) -> Location:
    """The files of a folder in a bucket, under its name."""
    for path in folder.rglob("*"):
        if path.is_file():
            commit_bytes(resolve_against(bucket, f"{folder.name}/{path.relative_to(folder)}"), path.read_bytes())
    return bucket / folder.name


def write_raw(folder: Path) -> Path:
    folder.mkdir()
    write_reviews(folder / "a.jsonl", rows=120)
    write_reviews(folder / "b.jsonl", rows=80, first=120)
    (folder / "c.jsonl.gz").write_bytes(
        gzip.compress(write_reviews(folder / "c.jsonl", rows=60, first=200).read_bytes())
    )
    (folder / "c.jsonl").unlink()
    (folder / ".hidden").write_text("no JSON")
    return folder


def write_classes(folder: Path) -> Path:
    for name, texts in {"sea": ["wave boat", "tide"], "wood": ["tree fox", "moss leaf tree"]}.items():
        (folder / name).mkdir(parents=True)
        for i, text in enumerate(texts):
            (folder / name / f"{i}.txt").write_text(text)
    return folder


@pytest.mark.parametrize("write", [write_raw, write_classes])
def test_text_under_a_prefix_is_ingested_as_a_folder(tmp_path: Path, bucket: Location, write: Any) -> None:
    raw = write(tmp_path / "raw")
    here = ingest([str(raw)], tmp_path / "store", OPTIONS, shard_bytes=1 << 13)
    there = ingest([str(put(bucket, raw))], bucket / "store", OPTIONS, shard_bytes=1 << 13)
    assert same(Store(bucket / "store", there), Store(tmp_path / "store", here))
    there_names, here_names = (
        [name for name in names(folder) if not name.startswith(("manifest-", "sources-"))]  # they name the inputs
        for folder in (bucket / "store", tmp_path / "store")
    )
    assert there_names == here_names


def test_small_files_are_read_concurrently(bucket: Location) -> None:
    sizes = {"a": 3, "b": 0, "c": stored.SMALL_FILE, "d": stored.SMALL_FILE + 1}
    for name, size in sizes.items():
        commit_bytes(bucket / "x" / name, b"x" * size)
    files = list_files(f"{bucket}/x", TextOptions())
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


def test_the_first_manifest_of_a_version_counts(tmp_path: Path, bucket: Location) -> None:
    first = ingest([str(write_reviews(tmp_path / "a.jsonl"))], bucket / "store", OPTIONS)
    commit_manifest(bucket / "store", first)  # the very same
    with raises_code("version-conflict", bucket / "store", "version 1", kind=StorageError):
        commit_manifest(bucket / "store", first.model_copy(update={"rows": 0}))
    assert latest_manifest(bucket / "store") == first


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
def test_every_request_names_the_version_that_was_found(
    bucket: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
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

    with monkeypatch.context() as patch, raises_code("input-changed", source):
        patch.setattr(sparseoco.text.ingest, "pass_over", changed)
        ingest([str(source)], tmp_path / "store", OPTIONS, shard_bytes=1 << 13)
    commit_bytes(bucket / "raw" / name, data)
    assert ingest([str(source)], tmp_path / "store", OPTIONS, shard_bytes=1 << 13).rows > 1


def test_prefixes_without_files(bucket: Location) -> None:
    commit_bytes(bucket / "only" / ".hidden", b"x")
    for item, code in (("nothing", "missing-file"), ("nothing/", "no-documents"), ("only", "no-documents")):
        with raises_code(code, f"{bucket}/{item}"):
            ingest([f"{bucket}/{item}"], bucket / "store", OPTIONS)


@contextmanager
def workers_elsewhere(folder: Path) -> Iterator[str]:
    """A scheduler with two workers that share no folder with this process; gives its address."""
    address, environment = folder / "scheduler.json", os.environ | {"SPARSEOCO_SCRATCH": str(folder / "scratch")}
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(address), "--nthreads", "1"]
    folder.mkdir()
    commands = [[*dask, "--no-dashboard", "--scheduler-file", str(address)]] + 2 * [[*worker, "--no-dashboard"]]
    started = [
        subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL) for command in commands
    ]
    try:
        with Client(scheduler_file=str(address), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            yield client.scheduler.address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


@pytest.mark.slow
def test_workers_elsewhere_read_and_write_the_bucket(tmp_path: Path, bucket: Location) -> None:
    here = load_run_file(write_run_file(tmp_path))
    raw = bucket / "places.jsonl"
    commit_bytes(raw, (tmp_path / "places.jsonl").read_bytes())
    zipped = bucket / "zipped" / "places.jsonl.gz"
    commit_bytes(zipped, gzip.compress((tmp_path / "places.jsonl").read_bytes()))
    run_steps.run_all(here)
    with workers_elsewhere(tmp_path / "elsewhere") as address:
        for name, text in (("plain", raw), ("zipped", zipped)):
            there = here.model_copy(
                update={
                    "out": bucket / "runs" / name,
                    "ingest": here.ingest.model_copy(update={"inputs": (str(text),)}),
                    "cluster": ClusterOptions(scheduler=address),
                }
            )
            run_steps.run_all(there)
            manifests = latest_manifest(there.store), latest_manifest(here.store)
            assert manifests[0].shard_segments == manifests[1].shard_segments  # type: ignore[union-attr]
            own, other = contents(there.out), contents(here.out)
            own, other = (
                {place: data for place, data in found.items() if not place.startswith("shards/sources-")}
                for found in (own, other)
            )
            differing = {place for place in other if own.get(place) != other[place]}
            assert set(own) == set(other)
            assert differing <= {"shards/manifest-00000001.json", "evaluation.json", "model/model.json"}
