"""Raw text to committed shards against CountVectorizer on the same raw file, in the same run."""

import gzip
import json
import resource
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline.steps import ingest_texts
from sparseoco.text.options import SHARD_BYTES, TextOptions
from tests.benchmarks.corpora import corpus


def vectorize(path: Path) -> tuple[float, Any]:
    start = time.perf_counter()
    with gzip.open(path, "rt") as file:
        texts = [json.loads(line)["text"] for line in file]
    matrix = CountVectorizer(ngram_range=(1, 2)).fit_transform(texts)
    return time.perf_counter() - start, matrix


class PeakMemory:
    """The largest resident memory of this process while the block runs, in bytes."""

    def __enter__(self) -> "PeakMemory":
        self.before = self.bytes = self._resident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self.bytes = max(self.bytes, self._resident())

    @staticmethod
    def _resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.benchmark
def test_imdb_against_countvectorizer(tmp_path: Path) -> None:
    """The ingest step with its own cluster of threads, kernels compiled; CountVectorizer before and after it."""
    imdb = corpus("imdb/imdb_50k.jsonl.gz")
    options = TextOptions(ngram_range=(1, 2), duplicates="all")
    first, matrix = vectorize(imdb)
    times = []
    with PeakMemory() as memory:
        for k in range(6):
            start = time.perf_counter()
            manifest = ingest_texts([str(imdb)], tmp_path / str(k), options, ClusterOptions(), shard_bytes=SHARD_BYTES)
            times.append(time.perf_counter() - start)
    theirs = min(first, vectorize(imdb)[0])
    assert (manifest.features.count, manifest.nonzeros) == (matrix.shape[1], matrix.nnz)
    best, median = min(times[1:]), sorted(times[1:])[2]
    print(
        f"\nCountVectorizer {theirs:.2f} s; ingest best {best:.2f} s, median {median:.2f} s: "
        f"{theirs / best:.1f} times faster at best, {theirs / median:.1f} at the median; "
        f"memory {(memory.bytes - memory.before) / 1e9:.2f} GB above the {memory.before / 1e9:.2f} GB before"
    )


@pytest.mark.benchmark
def test_formats_against_json_lines(tmp_path: Path) -> None:
    """Parquet, Arrow, CSV and a folder of the same reviews against JSON lines, by processor time; kernels compiled."""
    with gzip.open(corpus("imdb/imdb_50k.jsonl.gz"), "rb") as file:
        table = pyarrow.json.read_json(file, pyarrow.json.ReadOptions(block_size=1 << 24))
    table = table.select(["label", "text"])
    pq.write_table(table, tmp_path / "imdb.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "imdb.feather")
    table.to_pandas().to_csv(tmp_path / "imdb.csv", index=False)
    table.to_pandas().to_json(tmp_path / "imdb.jsonl", orient="records", lines=True, force_ascii=False)
    best: dict[str, float] = {}
    for k in range(4):
        for name in ("imdb.jsonl", "imdb.parquet", "imdb.feather", "imdb.csv"):
            start = time.process_time()
            options = TextOptions(ngram_range=(1, 2))
            ingest_texts(
                [str(tmp_path / name)], tmp_path / f"{name}{k}", options, ClusterOptions(), shard_bytes=SHARD_BYTES
            )
            best[name] = min(best.get(name, np.inf), time.process_time() - start)
    print("\n" + ", ".join(f"{name} {seconds / best['imdb.jsonl']:.2f}" for name, seconds in best.items()))
