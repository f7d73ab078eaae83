"""Margins of text on one thread beside scikit-learn, fastText and Vowpal Wabbit, in megabytes of text per second; and
the whole command `score`.

Uni- and bigrams of IMDB, three linear models of some 10^5 nonzero weights: sublinear tf-idf in rows of unit length,
whose norms need the whole vocabulary, counts, and counts of 2^22 hashed features. Ours reads JSON lines. The peers are
given what they read fastest: a fitted `Pipeline` of scikit-learn and fastText's `predict` a list of texts, Vowpal
Wabbit, which hashes features and has no vocabulary, a file of its own format in lower case. fastText and Vowpal Wabbit
are left out unless `fasttext-wheel` and `vowpalwabbit` are installed. Prints the speed of each, and of reading and
numbering the words of the same file as the ingest does ("tokenize"); ours must be 10 times that of scikit-learn, and
greater than fastText's.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline

from sparseoco import Model
from sparseoco.pipeline.evaluation import document_batches
from sparseoco.text.counting import tokenize
from tests.benchmarks.test_accuracy import Record, Task, command, split_task, write_texts

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


def fastest(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds of this thread."""
    seconds = []
    for _ in range(repeats):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return min(seconds)


def scikit_learn(task: Task, texts: list[str]) -> float:
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True),
        SGDClassifier(loss="log_loss", penalty="l1", alpha=1e-6, random_state=0),
    )
    model.fit([r["text"] for r in task.train], [r["label"] for r in task.train])
    return fastest(lambda: model.predict(texts), 1)


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
    return fastest(lambda: model.predict(texts), 1)


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

    ours = fastest(margins)
    reading = fastest(lambda: [None for _ in batches()])
    tokenizing = fastest(lambda: [tokenize(batch.spans, model.text) for batch in batches()])
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
