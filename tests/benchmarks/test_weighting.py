"""What weighting costs: an epoch of 64 columns on sublinear tf-idf against one on counts. Prints the ratio."""

import time
from pathlib import Path

import numpy as np
import pytest

from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.store.corpus import weighted_corpus
from sparseoco.store.shards import Store
from sparseoco.store.terms import term_weights
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.training.learner import Learner
from sparseoco.training.stream import Order, Passes, StreamPosition, train
from tests.benchmarks.corpora import corpus

pytestmark = pytest.mark.benchmark
ROWS, EPOCHS = 12288, 9


def test_tfidf_against_counts(tmp_path: Path) -> None:
    """Processor time of one thread, in turns over the same rows; at most 10 % more."""
    options = TextOptions(ngram_range=(1, 2), duplicates="all")
    inputs = [str(corpus("imdb/imdb_50k.jsonl.gz"))]
    steps.ingest_texts(inputs, tmp_path / "shards", options, ClusterOptions(), shard_bytes=SHARD_BYTES)
    store, seconds = Store.open(tmp_path / "shards"), dict[str, list[float]]()
    grid = {"lam": np.geomspace(1e-7, 1e-4, 16).tolist(), "eta0": [0.03, 0.1, 0.3, 1.0]}
    trained = {
        weighting: (
            weighted_corpus(store, tmp_path, term_weights(store, weighting), np.float32),
            Learner("cl-fobos", grid=grid, n_features=store.n_features, dtype="float32"),
        )
        for weighting in (COUNTS, Weighting(tf="log", idf=True, norm="l2"))
    }
    for epoch in range(1, EPOCHS + 1):
        for weighting, (rows, learner) in trained.items():
            started = time.thread_time()
            passes = Passes(Order(0, True), StreamPosition(epoch, ROWS), StreamPosition(epoch, 0))
            for _ in train(learner, rows, passes):
                pass
            seconds.setdefault(weighting.label, []).append(time.thread_time() - started)
    plain, weighted = (np.array(own[1:]) for own in seconds.values())
    print(f"\ntf-idf on 64 columns costs {np.median(weighted / plain) - 1:+.1%} over counts")
