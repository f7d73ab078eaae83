"""Raw text to shards and to scores, beside scikit-learn."""

import itertools
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline

from sparseoco import Model
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline.evaluation import document_batches
from sparseoco.pipeline.steps import ingest_texts
from sparseoco.store.manifest import Manifest
from sparseoco.text.options import SHARD_BYTES, TextOptions
from tests.benchmarks.corpora import corpus, records
from tests.benchmarks.support import counters, least
from tests.benchmarks.test_accuracy import Task, command, split_task, write_texts

# ----------------------------------------------------------------------------------------------------------------------
# Raw text to committed shards against CountVectorizer on the same raw file, in the same run.


@pytest.mark.benchmark
def test_imdb_against_countvectorizer(tmp_path: Path) -> None:
    """The ingest step with its own cluster of threads, kernels compiled, beside CountVectorizer."""
    imdb, numbers = corpus("imdb/imdb_50k.jsonl.gz"), itertools.count()

    def vectorize() -> Any:
        return CountVectorizer(ngram_range=(1, 2)).fit_transform(
            [record["text"] for record in records("imdb/imdb_50k.jsonl.gz")]
        )

    def ours(folder: str) -> Manifest:
        options = TextOptions(ngram_range=(1, 2), duplicates="all")
        return ingest_texts([str(imdb)], tmp_path / folder, options, ClusterOptions(), shard_bytes=SHARD_BYTES)

    manifest, before = ours("first"), psutil.Process().memory_info().rss
    seconds = least(lambda: ours(str(next(numbers))), turns=5)
    peak, theirs = counters()["peak"], least(vectorize, turns=1)
    matrix = vectorize()
    assert (manifest.features.count, manifest.nonzeros) == (matrix.shape[1], matrix.nnz)
    print(
        f"\nCountVectorizer {theirs:.2f} s; ingest {seconds:.2f} s: {theirs / seconds:.1f} times faster; "
        f"memory {(peak - before) / 1e9:.2f} GB above the {before / 1e9:.2f} GB before"
    )


# ----------------------------------------------------------------------------------------------------------------------
# Margins of text on one thread beside scikit-learn, in megabytes of text per second.
#
# Uni- and bigrams of IMDB, three linear models of some 10^5 nonzero weights: sublinear tf-idf in rows of unit length,
# whose norms need the whole vocabulary, counts, and counts of 2^22 hashed features. Ours reads JSON lines; a fitted
# `Pipeline` of scikit-learn is given a list of texts. Prints the speed of each; ours
# must be 10 times that of scikit-learn.


TRAIN = ("--algorithm", "adagrad", "--set", "eta=0.3", "--epochs", 2)
COUNTS = ("--set", "lam=3e-4", "--tf", "count", "--idf", "false", "--norm", "none")
MODELS = {
    "tf-idf, l2": ("shards", ("--set", "lam=7e-6")),
    "counts": ("shards", COUNTS),
    "hashed counts": ("hashed", COUNTS),
}
REPEATS = 5


def scikit_learn(task: Task) -> float:
    """Seconds of a fitted pipeline for the test texts."""
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True),
        SGDClassifier(loss="log_loss", penalty="l1", alpha=1e-6, random_state=0),
    )
    model.fit([r["text"] for r in task.train], [r["label"] for r in task.train])
    texts = [r["text"] for r in task.test]
    return least(lambda: model.predict(texts), turns=1, clock=time.thread_time)


def margins(folder: Path, texts: Path) -> float:
    """Seconds for the texts, read and numbered."""
    model = Model(folder)
    model.margins(["a fine film"])  # opened
    batches = partial(document_batches, model, [str(texts)], {})
    return least(lambda: [model.margins(batch) for batch in batches()], turns=REPEATS, clock=time.thread_time)


@pytest.mark.benchmark
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_margins_against_peers(tmp_path: Path) -> None:
    task = split_task("imdb/imdb_50k.jsonl.gz")
    write_texts(task, tmp_path)
    command(tmp_path, "ingest", "train.jsonl", "--out", "shards", "--ngram-range", "1,2", "--min-df", 2)
    command(tmp_path, "ingest", "train.jsonl", "--out", "hashed", "--ngram-range", "1,2", "--hash-bits", 22)
    megabytes = sum(len(r["text"].encode()) for r in task.test) / 1e6
    theirs = scikit_learn(task)
    print(f"\n{megabytes:.1f} MB of text, {len(task.test):,} documents; MB/s on one thread:")
    print(f"  {'scikit-learn':24} {megabytes / theirs:6.1f}")
    for number, (name, (store, flags)) in enumerate(MODELS.items()):
        command(tmp_path, "train", store, "--out", f"model-{number}", *TRAIN, *flags)
        ours = margins(tmp_path / f"model-{number}", tmp_path / "test.jsonl")
        print(f"  ours, {name:18} {megabytes / ours:6.1f}; scikit-learn takes {theirs / ours:.1f} times our seconds")
        assert ours < theirs / 10
