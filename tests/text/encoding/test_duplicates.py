"""Duplicates are found by hashes of ids; equal hashes are decided by the ids."""

from pathlib import Path

import pytest

from sparseoco.store.shards import Store, read_shards
from sparseoco.text import encoding as duplicates
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.vocabulary import exchange
from tests.support.errors import raises_code
from tests.support.ingests import write_documents


@pytest.mark.parametrize(("buckets", "ids_per_task"), [(1, 1 << 20), (2, 20), (1 << 62, 1 << 20), (1 << 62, 20)])
def test_ids_with_equal_hashes_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int, ids_per_task: int
) -> None:
    monkeypatch.setattr(exchange, "NGRAMS_PER_TASK", ids_per_task)
    original = duplicates._hash_ids
    monkeypatch.setattr(duplicates, "_hash_ids", lambda strings: original(strings) % buckets)
    names = [f"d{k}" for k in range(120)]
    write_documents(tmp_path / "x.jsonl", names)
    apart = ingest([str(tmp_path / "x.jsonl")], tmp_path / "apart", TextOptions(), shard_bytes=2000)
    assert apart.rows == 120
    repeated = [*names[:70], "d3", "d69", *names[70:], "d3", "d119"]
    write_documents(tmp_path / "y.jsonl", repeated)
    with raises_code("duplicate-id", "y.jsonl, line 4 and ", "y.jsonl, line 71"):
        ingest([str(tmp_path / "y.jsonl")], tmp_path / "error", TextOptions(), shard_bytes=2000)
    ingest([str(tmp_path / "y.jsonl")], tmp_path / "first", TextOptions(duplicates="first"), shard_bytes=2000)
    store = Store.open(tmp_path / "first")
    ids = [name for shard in range(store.n_shards) for name in store.read(shard, ids=True).ids.to_pylist()]
    assert ids == names
    with raises_code("duplicate-id", "x.jsonl and ", "z.jsonl, line 2"):  # against the shards of the store
        write_documents(tmp_path / "z.jsonl", ["new", "d5"])
        ingest([str(tmp_path / "z.jsonl")], tmp_path / "apart", TextOptions(), shard_bytes=2000)
    X, _ = read_shards(tmp_path / "apart")
    assert X.shape[0] == 120
