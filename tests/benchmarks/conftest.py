"""The store that several benchmarks read, and a bucket."""

import pytest

from sparseoco.execution.options import ClusterOptions
from sparseoco.pipeline.steps import ingest_texts
from sparseoco.store.shards import Store
from sparseoco.text.options import SHARD_BYTES, TextOptions
from tests.benchmarks.corpora import corpus
from tests.storage.conftest import bucket, endpoint

__all__ = ["bucket", "endpoint", "imdb_store"]


@pytest.fixture(scope="session")
def imdb_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """IMDB, 50,000 reviews, uni- and bigrams."""
    folder = tmp_path_factory.mktemp("imdb") / "shards"
    options = TextOptions(ngram_range=(1, 2), duplicates="all")
    inputs = [str(corpus("imdb/imdb_50k.jsonl.gz"))]
    ingest_texts(inputs, folder, options, ClusterOptions(), shard_bytes=SHARD_BYTES)
    return Store.open(folder)
