"""Raw text to committed shards against CountVectorizer on the same raw file, in the same run."""

import gzip
import json
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sklearn.feature_extraction.text import CountVectorizer

from sparseoco.ingest import ingest
from sparseoco.text.options import TextOptions

IMDB = Path(__file__).parents[3] / "shared" / "data" / "imdb" / "imdb_50k.jsonl.gz"


def vectorize(path: Path) -> tuple[float, Any]:
    start = time.perf_counter()
    with gzip.open(path, "rt") as file:
        texts = [json.loads(line)["text"] for line in file]
    matrix = CountVectorizer(ngram_range=(1, 2)).fit_transform(texts)
    return time.perf_counter() - start, matrix


class PeakMemory:
    """The largest resident memory of this process while the block runs, in bytes."""

    def __enter__(self) -> "PeakMemory":
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.bytes = max(self.bytes, pages * resource.getpagesize())


@pytest.mark.benchmark
@pytest.mark.corpora
@pytest.mark.skipif(not IMDB.exists(), reason="the IMDB corpus is not beside the project")
@pytest.mark.parametrize("where", ["threads", "dask"])
def test_imdb_against_countvectorizer(tmp_path: Path, where: str) -> None:
    options = TextOptions(ngram_range=(1, 2), duplicates="all")

    def measure(client: Any) -> list[float]:
        times = []
        for k in range(6):
            start = time.perf_counter()
            manifest = ingest([str(IMDB)], tmp_path / f"{where}-{k}", options, client=client)
            times.append(time.perf_counter() - start)
        assert manifest.features.count == 2_467_929
        return times

    # The first run compiles or loads the kernels, so it is not counted.
    with PeakMemory() as memory:
        if where == "threads":
            times = measure(None)[1:]
        else:
            from distributed import Client, LocalCluster

            with (
                LocalCluster(
                    n_workers=1, threads_per_worker=os.cpu_count(), processes=False, dashboard_address=None
                ) as cluster,
                Client(cluster) as client,
            ):
                times = measure(client)[1:]
    theirs, matrix = vectorize(IMDB)
    assert matrix.shape[1] == 2_467_929
    best, median = min(times), sorted(times)[len(times) // 2]
    print(
        f"\n{where}: CountVectorizer {theirs:.2f} s; ingest best {best:.2f} s, median {median:.2f} s; "
        f"{theirs / best:.1f} times faster at best, {theirs / median:.1f} at the median; "
        f"peak {memory.bytes / 1e9:.2f} GB"
    )
    assert memory.bytes < 2e9
