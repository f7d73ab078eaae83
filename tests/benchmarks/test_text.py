"""Raw text to shards and to scores, beside scikit-learn, fastText and Vowpal Wabbit."""

import gzip
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet as pq
import pytest
import zstandard
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline

from sparseoco import Model
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline.evaluation import document_batches
from sparseoco.pipeline.steps import ingest_texts
from sparseoco.text.counting import tokenize
from sparseoco.text.options import SHARD_BYTES, TextOptions
from tests.benchmarks.corpora import corpus
from tests.benchmarks.support import least
from tests.benchmarks.test_accuracy import Record, Task, command, split_task, write_texts

# ----------------------------------------------------------------------------------------------------------------------
# Raw text to committed shards against CountVectorizer on the same raw file, in the same run.


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


# ----------------------------------------------------------------------------------------------------------------------
# Margins of text on one thread beside scikit-learn, fastText and Vowpal Wabbit, in megabytes of text per second; and
# the whole command `score`.
#
# Uni- and bigrams of IMDB, three linear models of some 10^5 nonzero weights: sublinear tf-idf in rows of unit length,
# whose norms need the whole vocabulary, counts, and counts of 2^22 hashed features. Ours reads JSON lines. The peers
# are given what they read fastest: a fitted `Pipeline` of scikit-learn and fastText's `predict` a list of texts,
# Vowpal Wabbit, which hashes features and has no vocabulary, a file of its own format in lower case. fastText and
# Vowpal Wabbit are left out unless `fasttext-wheel` and `vowpalwabbit` are installed. Prints the speed of each, and
# of reading and numbering the words of the same file as the ingest does ("tokenize"); ours must be 10 times that of
# scikit-learn, and greater than fastText's.


TRAIN = ("--algorithm", "adagrad", "--set", "eta=0.3", "--epochs", 2)
COUNTS = ("--set", "lam=3e-4", "--tf", "count", "--idf", "false", "--norm", "none")
MODELS = {
    "tf-idf, l2": ("shards", ("--set", "lam=7e-6")),
    "counts": ("shards", COUNTS),
    "hashed counts": ("hashed", COUNTS),
}
REPEATS = 5
COPIES = int(os.environ.get("SPARSEOCO_COPIES", "10"))
# Run by a small process: the memory that is reported is at least that of the process that starts the command.
MEASURE = """
import json, os, sys, time
SILENT = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
began = time.perf_counter()
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=SILENT), 0)
assert status == 0
print(json.dumps([time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def scikit_learn(task: Task, texts: list[str]) -> float:
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True),
        SGDClassifier(loss="log_loss", penalty="l1", alpha=1e-6, random_state=0),
    )
    model.fit([r["text"] for r in task.train], [r["label"] for r in task.train])
    return least(lambda: model.predict(texts), turns=1, clock=time.thread_time)


def fasttext_lines(records: list[Record]) -> list[str]:
    return [" ".join(r["text"].lower().split()) for r in records]


def fasttext(task: Task, folder: Path) -> float:
    """Its defaults and bigrams; `predict` of a list is its fastest way into Python, as fast as `test` of a file."""
    from fasttext import train_supervised

    labels = (r["label"] for r in task.train)
    lines = zip(labels, fasttext_lines(task.train), strict=True)
    (folder / "fasttext").write_text("".join(f"__label__{label} {line}\n" for label, line in lines), encoding="utf-8")
    model = train_supervised(str(folder / "fasttext"), wordNgrams=2, epoch=1, verbose=0, thread=2)
    texts = fasttext_lines(task.test)
    return least(lambda: model.predict(texts), turns=1, clock=time.thread_time)


def vowpal_wabbit(task: Task, folder: Path) -> float:
    """Seconds of processor of its process, which reads the file on a second thread."""
    for part, records in zip(("train", "test"), task, strict=True):
        with (folder / f"{part}.vw").open("w", encoding="utf-8") as file:
            for record, line in zip(records, fasttext_lines(records), strict=True):
                file.write(f"{1 if record['label'] == 'pos' else -1} | {line.replace(':', ' ').replace('|', ' ')}\n")
    vw = [sys.executable, "-m", "vowpalwabbit", "--quiet", "--ngram", "2", "-b", "22", "--loss_function", "logistic"]
    subprocess.run([*vw, "-d", folder / "train.vw", "-f", folder / "vw"], check=True)
    before = os.times()
    subprocess.run([*vw, "-t", "-i", folder / "vw", "-d", folder / "test.vw", "-p", folder / "predicted"], check=True)
    return os.times().children_user - before.children_user


def peers(task: Task, folder: Path) -> Iterator[tuple[str, float]]:
    """Seconds for the test texts."""
    yield "scikit-learn", scikit_learn(task, [r["text"] for r in task.test])
    if find_spec("fasttext") is not None:
        yield "fastText", fasttext(task, folder)
    if find_spec("vowpalwabbit") is not None:
        yield "Vowpal Wabbit", vowpal_wabbit(task, folder)


def threaded(work: Callable[[], Any], threads: int) -> float:
    """Seconds of the clock until each thread has done the work."""
    seconds = []
    for _ in range(REPEATS):
        running = [threading.Thread(target=work) for _ in range(threads)]
        started = time.perf_counter()
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def score(folder: Path, texts: Path, name: str, megabytes: float) -> tuple[float, float]:
    """Seconds on one thread, and megabytes per second on two."""
    started = time.thread_time()
    Model(folder).margins(["a fine film"])
    opening = time.thread_time() - started
    model = Model(folder)

    def batches() -> Iterator[Any]:
        return document_batches(model, [str(texts)], {})

    def margins() -> None:
        for batch in batches():
            model.margins(batch)

    ours = least(margins, turns=REPEATS, clock=time.thread_time)
    reading = least(lambda: [None for _ in batches()], turns=REPEATS, clock=time.thread_time)
    tokenizing = least(
        lambda: [tokenize(batch.spans, model.text) for batch in batches()], turns=REPEATS, clock=time.thread_time
    )
    nonzeros = json.loads((folder / "model.json").read_text())["nonzeros"]
    speed = {"reading": megabytes / reading, "tokenize": megabytes / tokenizing}
    print(f"  ours, {name:18} {megabytes / ours:6.1f}  ({nonzeros:,} weights, opened in {opening:.2f} s)")
    print("    " + ", ".join(f"{step} {value:.1f}" for step, value in speed.items()), end="")
    print(f"; ours takes {ours / tokenizing:.2f} times as long as tokenize")
    return ours, 2 * megabytes / threaded(margins, 2)


@pytest.mark.benchmark
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_margins_against_peers(tmp_path: Path) -> None:
    task = split_task("imdb/imdb_50k.jsonl.gz")
    write_texts(task, tmp_path)
    command(tmp_path, "ingest", "train.jsonl", "--out", "shards", "--ngram-range", "1,2", "--min-df", 2)
    command(tmp_path, "ingest", "train.jsonl", "--out", "hashed", "--ngram-range", "1,2", "--hash-bits", 22)
    megabytes = sum(len(r["text"].encode()) for r in task.test) / 1e6
    found = dict(peers(task, tmp_path))
    print(f"\n{megabytes:.1f} MB of text, {len(task.test):,} documents; MB/s on one thread:")
    for name, seconds in found.items():
        print(f"  {name:24} {megabytes / seconds:6.1f}")
    for number, (name, (store, flags)) in enumerate(MODELS.items()):
        command(tmp_path, "train", store, "--out", f"model-{number}", *TRAIN, *flags)
        ours, two = score(tmp_path / f"model-{number}", tmp_path / "test.jsonl", name, megabytes)
        print(f"    on two threads {two:.1f}; ", end="")
        print(", ".join(f"{peer} {seconds / ours:.1f}" for peer, seconds in found.items()), "times our seconds")
        assert ours < found["scikit-learn"] / 10
        assert ours < found.get("fastText", ours + 1)


@pytest.mark.benchmark
@pytest.mark.parametrize("form", ["jsonl.zst", "parquet"])
def test_command_on_a_corpus(tmp_path: Path, form: str) -> None:
    """`SPARSEOCO_COPIES` (10) files of all 50,000 reviews; speed counts the bytes of the texts, and starting."""
    task = split_task("imdb/imdb_50k.jsonl.gz")
    write_texts(task, tmp_path)
    command(tmp_path, "ingest", "train.jsonl", "--out", "shards", "--ngram-range", "1,2", "--min-df", 2)
    command(tmp_path, "train", "shards", "--out", "model", *TRAIN, *MODELS["tf-idf, l2"][1])
    (tmp_path / "in").mkdir()
    records = [{"text": r["text"], "url": f"u{k}"} for k, r in enumerate([*task.train, *task.test])]
    for copy in range(COPIES):
        rows = [{"id": f"{copy}-{k}", **record} for k, record in enumerate(records)]
        if form == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / f"{copy}.parquet", compression="zstd")
        else:
            data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
            (tmp_path / "in" / f"{copy}.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
    megabytes = COPIES * sum(len(record["text"].encode()) for record in records) / 1e6
    print(f"\n{megabytes:.0f} MB of text as {form}:")
    for flags in (["--workers", "1"], ["--workers", "2"], ["--workers", "2", "--keep-top", "10%", "--column", "url"]):
        out = tmp_path / "-".join(flags)
        score = [sys.executable, "-m", "sparseoco", "score", "model", "in", "--out", str(out), *flags]
        printed = subprocess.run(
            [sys.executable, "-c", MEASURE, *score], cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True
        )
        seconds, processor, memory = json.loads(printed.stdout)
        print(
            f"  {' '.join(flags):45} {megabytes / seconds:6.1f} MB/s, {megabytes / processor:.1f} "
            f"MB per second of processor, largest process {memory / 1e3:.0f} MB"
        )
