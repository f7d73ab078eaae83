"""`train --algorithm auto` against the best of its configurations in hindsight, and its time against a grid search.

Prints, for each corpus, the error in the stream and on the test set, and the seconds.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix, vstack

from sparseoco import Mixture, Model, Store
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.kernels.order import epoch_rows
from sparseoco.pipeline import steps
from sparseoco.pipeline.evaluation import evaluate_model
from sparseoco.search.mixture_task import MixtureOptions
from sparseoco.store.corpus import open_corpus
from sparseoco.text.options import SHARD_BYTES, TextOptions
from sparseoco.text.readers import Features, count_texts, read_documents
from sparseoco.training.mixture import GRID
from sparseoco.training.options import SearchOptions
from tests.benchmarks.corpora import corpus, with_one_topic

pytestmark = pytest.mark.benchmark


class Corpus(NamedTuple):
    """A corpus: its file, the fields that are read, and which rows are for training and for the test."""

    file: str
    reading: dict[str, Any]
    train: dict[str, str]
    test: dict[str, str]


CORPORA = {
    "imdb": Corpus("imdb/imdb_50k.jsonl.gz", {}, {"split": "train"}, {"split": "test"}),
    "20news": Corpus("20news/20news-bydate.jsonl.gz", {}, {"split": "train"}, {"split": "test"}),
    "reuters": Corpus(
        "reuters/reuters21578.jsonl.gz",
        {},
        {"modapte": "train"},
        {"modapte": "test"},
    ),
}
CLUSTER = ClusterOptions(workers=2, threads=1)


def rows_of_test(store: Store, inputs: list[str], where: dict[str, str]) -> tuple[csr_matrix, np.ndarray]:
    """Counts (rows, n_features) and classes of the test set; documents of classes never seen are left out."""
    options = TextOptions.model_validate(store.manifest.options).model_copy(update={"where": where})
    terms = store.describe(np.arange(store.n_features))["term"].cast(pa.string())
    features = Features.named(terms.combine_chunks())
    number = {name: i for i, name in enumerate(store.classes)}
    parts, truth = [], []
    for batch in read_documents(inputs, options):
        labels = batch.labels.to_pylist()
        if labels:
            indptr, indices, counts = count_texts(batch, features, options)
            known = np.array([label in number for label in labels])
            parts.append(csr_matrix((counts, indices, indptr), shape=(len(labels), store.n_features))[known])
            truth += [number[label] for label in labels if label in number]
    return vstack(parts, "csr"), np.array(truth)


def errors_of(margins: np.ndarray, truth: np.ndarray) -> float:
    guesses = margins.argmax(axis=1) if margins.shape[1] > 1 else margins[:, 0] > 0
    return float(np.mean(guesses != truth))


@pytest.mark.parametrize("name", list(CORPORA))
def test_against_the_best_in_hindsight(name: str, tmp_path: Path) -> None:
    """Both errors of the mixture are within a hundredth of the best configuration's."""
    chosen = CORPORA[name]
    path = corpus(chosen.file)
    if name == "reuters":
        path = with_one_topic(path, tmp_path / "reuters.jsonl.gz")
    inputs = [str(path)]
    reading = TextOptions(min_df=2, duplicates="all", where=chosen.train, **chosen.reading)
    steps.ingest_texts(inputs, tmp_path / "shards", reading, ClusterOptions(), shard_bytes=SHARD_BYTES)
    store = Store.open(tmp_path / "shards")
    options = SearchOptions(algorithms=GRID, folds=5)
    seconds = {}
    for run in ("warm", "timed"):  # machine code is made in the first
        started = time.perf_counter()
        steps.train_auto(
            tmp_path / "shards",
            tmp_path / run,
            options,
            MixtureOptions(keep="mixture"),
            ClusterOptions(workers=1),
            epochs=1,
        )
        seconds["auto"] = time.perf_counter() - started
    X, truth = rows_of_test(store, inputs, chosen.test)
    rows, stream = open_corpus(store, tmp_path), {}
    mixture = Mixture(n_features=store.n_features, n_classes=len(store.classes), dtype="float32")
    mixture.learn_rows(*rows.gather(epoch_rows(0, 1, True, rows.n_rows, 0, rows.n_rows, -1, 1)))
    snapshot = mixture.snapshot()
    tested = [
        errors_of(margins, truth)
        for learner in mixture.learners
        for margins in learner.margins(X.indptr, X.indices, X.data).transpose(1, 0, 2)
    ]
    stream = {"mixture": snapshot.error_count / snapshot.rows, "best": snapshot.errors.min() / snapshot.rows}
    test = {"mixture": errors_of(X @ mixture.weights(), truth), "best": min(tested)}
    if name != "reuters":  # whose test set has classes that the training set has not
        evaluated = evaluate_model(Model(tmp_path / "timed"), inputs, chosen.test, lambda *_: None)
        assert evaluated["error"] == pytest.approx(test["mixture"], abs=2e-4)
    started = time.perf_counter()
    steps.search(tmp_path / "shards", tmp_path / "search", options, CLUSTER)
    steps.train_best(tmp_path / "shards", tmp_path / "search", CLUSTER)
    seconds["search"] = time.perf_counter() - started
    for where, found in (("stream", stream), ("test", test)):
        ratio = found["mixture"] / found["best"] - 1
        print(f"\n{name}, {where}: error {found['mixture']:.4f}, best in hindsight {found['best']:.4f} ({ratio:+.2%})")
        assert ratio < 0.01
    print(f"regret {snapshot.regret:.0f} ≤ {snapshot.bound:.0f} ≤ {snapshot.printed_bound:.0f} errors")
    print(f"test error of the one best in the stream {tested[int(snapshot.errors.argmin())]:.4f}")
    print(
        f"loss {snapshot.loss_sum / snapshot.rows:.4f}, best in hindsight {snapshot.losses.min() / snapshot.rows:.4f}"
    )
    print(f"{seconds['auto']:.1f} s by one worker; a 5-fold search of the same grid by two {seconds['search']:.1f} s")
