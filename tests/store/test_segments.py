import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseoco.core.errors import StorageError
from sparseoco.storage.commit import commit_json, parse_json
from sparseoco.store import entries as module
from sparseoco.store.entries import ShardEntry, ShardTable, SourceEntry, SourceTable
from sparseoco.store.manifest import Manifest, commit_manifest, latest_manifest, read_manifest
from sparseoco.store.segments import EMPTY_CHAIN, RATIO, add_entries, chain_digest, read_shard_table, read_source_table
from sparseoco.store.shards import Store
from tests.support.errors import raises_code
from tests.support.stores import make_store


def shard(number: int) -> ShardEntry:
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    return ShardEntry(
        file=f"shard-{digest[:24]}.parquet",
        bytes=1000 + number,
        sha256=digest,
        rows=number % 7,
        nonzeros=5 * number,
        counts="float64" if number % 5 == 3 else "uint16",
        source=number // 2,
        labels=number if number % 2 else None,
    )


def source(number: int) -> SourceEntry:
    return SourceEntry(
        path=f"/texts/{number}.jsonl",
        bytes=number,
        modified_ns=number if number % 3 else None,
        sha256="",
        rows=number,
    )


def first_manifest(folder: Path) -> Manifest:
    """The manifest of a store without shards and sources."""
    manifest = Store.open(make_store(folder)).manifest
    return manifest.model_copy(update=add_entries(folder, None, []))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return first_manifest(tmp_path_factory.mktemp("store"))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=14))
def test_any_ingests_give_the_same_tables_and_digest(
    tmp_path_factory: pytest.TempPathFactory, empty: Manifest, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    manifest, stop = empty, 0
    for version, size in enumerate(sizes, 2):
        first, stop = stop, stop + size
        added = add_entries(folder, manifest, map(shard, range(first, stop)), map(source, range(first, stop)))
        manifest = manifest.model_copy(update={**added, "version": version})
        commit_manifest(folder, manifest)
        assert list(read_shard_table(folder, manifest.increment)) == [shard(number) for number in range(first, stop)]
        lengths = [segment.entries for segment in manifest.shard_segments]
        assert all(longer > RATIO * shorter for longer, shorter in pairwise(lengths))
    whole = empty.model_copy(update=add_entries(folder, None, map(shard, range(stop)), map(source, range(stop))))
    if sizes:
        assert latest_manifest(folder) == manifest
    assert manifest.digest == whole.digest
    for name in ("n_shards", "rows", "nonzeros", "bytes", "n_sources"):
        assert getattr(manifest, name) == getattr(whole, name)
    shards, sources = read_shard_table(folder, manifest), read_source_table(folder, manifest)
    assert (shards, sources) == (read_shard_table(folder, whole), read_source_table(folder, whole))
    assert list(shards) == [shard(number) for number in range(stop)]
    assert list(sources) == [source(number) for number in range(stop)]


def test_segments_grow_with_the_logarithm_of_ingests(tmp_path: Path, empty: Manifest) -> None:
    manifest, heads, written = empty, [], set[str]()
    for number in range(300):
        manifest = manifest.model_copy(update=add_entries(tmp_path, manifest, [shard(number)]))
        heads.append(len(manifest.shard_segments))
        written |= {segment.file for segment in manifest.shard_segments}
    assert max(heads) <= np.log2(300) + 1
    assert len(written) <= 300
    assert read_shard_table(tmp_path, manifest) == ShardTable.of(map(shard, range(300)))


def test_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ShardTable.of(map(shard, range(50)))
    made = []
    monkeypatch.setattr(module, "ShardEntry", lambda **fields: made.append(fields) or ShardEntry(**fields))
    assert table.row_offsets.tolist() == np.cumsum([0, *(k % 7 for k in range(50))]).tolist()
    assert table.nonzero_offsets[-1] == 5 * 49 * 25
    assert table.label_offsets[-1] == sum(range(1, 50, 2))
    assert table.counts_dtypes == ["float64", "uint16"]
    assert table.digests[3].tobytes().hex() == shard(3).sha256
    part = table[10:20]
    assert part.digests[0].tobytes().hex() == shard(10).sha256
    assert part.row_offsets[-1] == sum(k % 7 for k in range(10, 20))
    assert chain_digest(table[20:], chain_digest(table[:20])) == chain_digest(table) != EMPTY_CHAIN
    assert not made
    assert (table[3], table[-1], part[0]) == (shard(3), shard(49), shard(10))
    assert len(made) == 3
    with pytest.raises(IndexError):
        table[50]
    assert len(ShardTable.of([])) == len(SourceTable.of([])) == 0
    assert ShardTable.of([]).row_offsets.tolist() == [0]


@pytest.mark.fault(36)
def test_opening_makes_no_object_per_shard(tmp_path: Path, empty: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = empty.model_copy(
        update={**add_entries(tmp_path, None, map(shard, range(2000)), map(source, range(2000)))}
    )
    commit_manifest(tmp_path, manifest)

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("an entry was made")

    for entry in ("ShardEntry", "SourceEntry"):
        monkeypatch.setattr(module, entry, fail)
    store = Store.open(tmp_path)
    assert store.shards.row_offsets[-1] == store.n_rows == sum(k % 7 for k in range(2000))
    assert store.counts_dtype == np.float64
    assert store.sources.column("rows").sum() == 1999 * 1000


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def test_a_flipped_bit(tmp_path: Path) -> None:
    make_store(tmp_path)
    store = Store.open(tmp_path)
    store.shards  # noqa: B018
    (segment,) = store.manifest.shard_segments
    for path in (tmp_path / "manifest-00000001.json", tmp_path / segment.file):
        data = path.read_bytes()
        for place in range(0, len(data), max(1, len(data) // 40)):
            path.write_bytes(flipped(data, place))
            with raises_code("corrupt-file", path, kind=StorageError):
                Store.open(tmp_path).shards  # noqa: B018
        path.write_bytes(data)
    (tmp_path / segment.file).unlink()
    with raises_code("missing-file", segment.file, kind=StorageError):
        Store.open(tmp_path).shards  # noqa: B018


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": -1},
        {"nonzeros": -1},
        {"version": 2},
        {"n_shards": 2},
        {"features": {"count": 0}},
        {"frequencies": {"file": "../x", "bytes": 1, "sha256": "0" * 64}},
        {"frequencies": {"file": "a/x", "bytes": 1, "sha256": "0" * 64}},
        {"frequencies": {"file": "..", "bytes": 1, "sha256": "0" * 64}},
        {"frequencies": {"file": "x", "bytes": 1, "sha256": "0"}},
        {"labels": {"kind": "numbers"}},
        {"added": {"n_shards": 4}},
    ],
)
def test_a_head_that_cannot_be_true(tmp_path: Path, changed: dict[str, Any]) -> None:
    make_store(tmp_path)
    path = tmp_path / "manifest-00000001.json"
    value = parse_json(path, path.read_bytes())
    for name, part in changed.items():
        value[name] = {**value[name], **part} if isinstance(value[name], dict) else part
    path.unlink()
    commit_json(path, value)
    with raises_code("corrupt-file", path, kind=StorageError):
        read_manifest(tmp_path, 1)


@pytest.mark.parametrize("column", ["rows", "nonzeros", "source", "labels"])
def test_a_segment_that_cannot_be_true(tmp_path: Path, empty: Manifest, column: str) -> None:
    table = ShardTable.of(map(shard, range(9))).table
    wrong = table.set_column(
        table.schema.get_field_index(column), column, pa.array([-1, *table[column].to_pylist()[1:]], pa.int64())
    )
    manifest = empty.model_copy(update=add_entries(tmp_path, None, ShardTable(wrong)))
    with raises_code("corrupt-file", manifest.shard_segments[0].file, kind=StorageError):
        read_shard_table(tmp_path, manifest)
