from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseoco.store.manifest import latest_manifest
from sparseoco.text.ingest import MAX_SHARD_BYTES, MAX_SHARDS, ingest, shard_size
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.text.sources import Source
from tests.support.errors import raises_code
from tests.support.texts import write_reviews


def source(size: int, compression: str | None = None) -> Source:
    return Source("a", "/a", "a", "lines", compression, size, 0, "a")


@pytest.mark.fault(36)
@given(st.integers(0, 10**13), st.integers(1, 9))
def test_the_size_grows_with_the_text(total: int, files: int) -> None:
    size = shard_size(None, [source(total // files)] * files, None)
    assert size == shard_size(None, [source(total // files * files)], None)
    assert SHARD_BYTES <= size <= MAX_SHARD_BYTES
    text = total // files * files
    assert text <= size * MAX_SHARDS or size == MAX_SHARD_BYTES
    assert size == SHARD_BYTES or text > size // 2 * MAX_SHARDS


def test_compressed_text_counts_more() -> None:
    assert shard_size(None, [source(50 * 10**9)], None) == SHARD_BYTES
    assert shard_size(None, [source(50 * 10**9, "gz")], None) == 2 * SHARD_BYTES


def test_later_ingests_keep_the_size_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, later = write_reviews(tmp_path / "a.jsonl"), write_reviews(tmp_path / "b.jsonl", first=200)
    monkeypatch.setattr("sparseoco.text.ingest.SHARD_BYTES", 1 << 12)
    monkeypatch.setattr("sparseoco.text.ingest.MAX_SHARDS", 3)
    made = ingest([str(first)], tmp_path / "store", TextOptions())
    assert made.shard_bytes == 1 << 14
    assert 1 < made.n_shards <= 4
    more = ingest([str(first), str(later)], tmp_path / "store", TextOptions())
    assert (more.shard_bytes, more.added.n_shards) == (1 << 14, made.n_shards)
    assert ingest([str(first)], tmp_path / "given", TextOptions(), shard_bytes=2048).shard_bytes == 2048
    assert shard_size(4096, [], latest_manifest(tmp_path / "given")) == 4096
    with raises_code("invalid-option", "shard_bytes"):
        ingest([str(first)], tmp_path / "other", TextOptions(), shard_bytes=1)
