"""Does it matter how a stream is cut? The same rows, in one call and in chunks, by three packages.

    python examples/invariance.py [reviews.jsonl.gz]

The file has a document a line, ``{"text": …, "label": …, "split": "train" or another}``: for the figures below the
Large Movie Review Dataset (Maas et al. 2011), 25,000 training reviews. Without a file, docstrings of the installed
packages are used, those of one library against all others.

Documents are sets of words (`CountVectorizer(binary=True)`), shuffled once (`numpy.random.default_rng(0)`); logistic
loss, step 0.5/√t, L1 with λ = 1e-4, one pass, no intercept. A feature is *rare* if 2 to 7 training documents have it.
What is counted are the weights that are not zero in the end; equal digests are equal weights, bit for bit.

What to expect, and why:

- **sparseoco**, ``fobos``: soft-thresholds every weight in every round, evaluated when the weight is read. Charges
  depend on the rounds that passed, never on calls: 7,447 of 23,771 rare features in one call and in 500.
- **scikit-learn**, `SGDClassifier`: the cumulative penalty of Tsuruoka et al. (2009), charged only when a feature
  occurs: a feature first met late pays at once for all rounds before, one that does not come again stops paying, and
  each call of `partial_fit` starts the account anew. 1,395 in one `fit`; 12,640, 22,456 and 23,639 in chunks of 5,000,
  500 and 50.
- **Vowpal Wabbit** (if installed: ``pip install vowpalwabbit``), ``--sgd --l1``: the penalty of the whole stream is
  taken off every weight, however late it was learned, when a model for prediction is written: 866. It reads a file in
  one go, so there is nothing to cut; by default (without ``--predict_only_model``) the model is written untruncated.
"""

import gzip
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import SGDClassifier

from sparseoco import SparseOnlineClassifier
from sparseoco.pipeline.demo import write_corpus

ETA0, LAM = 0.5, 1e-4
CHUNKS = (5000, 500, 50)
RARE = (2, 7)


class Stream(NamedTuple):
    """Rows in the order they are learned, labels 0 and 1, and which features are rare."""

    X: sp.csr_matrix
    y: np.ndarray
    rare: np.ndarray


class Result(NamedTuple):
    """The weights that one way of training ends with."""

    package: str
    calls: str
    weights: np.ndarray

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.weights.tobytes()).hexdigest()[:12]


def read(path: Path) -> Stream:
    """The training documents of a file of JSON lines; the label that sorts last is the second class."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    documents = [document for document in documents if document.get("split", "train") == "train"]
    labels = np.array([document["label"] for document in documents])
    X = CountVectorizer(binary=True, dtype=np.float64).fit_transform(document["text"] for document in documents)
    order = np.random.default_rng(0).permutation(len(labels))
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    X = X[order]
    X.sort_indices()
    y = (labels == max(labels)).astype(np.int64)[order]
    return Stream(X, y, (frequency >= RARE[0]) & (frequency <= RARE[1]))


def train_sparseoco(stream: Stream, chunk: int | None) -> np.ndarray:
    """Weights after one call, or after one a chunk."""
    model = SparseOnlineClassifier(
        "fobos", loss="logistic", eta0=ETA0, lam=LAM, fit_intercept=False, epochs=1, shuffle=False
    )
    return fitted(model, stream, chunk)


def train_scikit_learn(stream: Stream, chunk: int | None) -> np.ndarray:
    """As `train_sparseoco`; the step of the first row is eta0, of row t eta0/√t."""
    model = SGDClassifier(
        loss="log_loss",
        penalty="l1",
        alpha=LAM,
        learning_rate="invscaling",
        eta0=ETA0,
        power_t=0.5,
        max_iter=1,
        tol=None,
        shuffle=False,
        fit_intercept=False,
    )
    return fitted(model, stream, chunk)


def fitted(model: Any, stream: Stream, chunk: int | None) -> np.ndarray:
    """The weights of an estimator after one `fit`, or after a `partial_fit` a chunk."""
    if chunk is None:
        model.fit(stream.X, stream.y)
    else:
        for start in range(0, len(stream.y), chunk):
            rows = slice(start, start + chunk)
            model.partial_fit(stream.X[rows], stream.y[rows], classes=[0, 1])
    weights: np.ndarray = model.coef_[0]
    return weights


def train_vowpal_wabbit(stream: Stream) -> np.ndarray | None:
    """Weights as its readable model lists them, or None where it is not installed."""
    try:
        import vowpalwabbit
    except ImportError:
        return None
    n_features = stream.X.shape[1]
    weights = np.zeros(n_features)
    with tempfile.TemporaryDirectory() as folder:
        data, model = Path(folder) / "data.txt", Path(folder) / "model.txt"
        with data.open("w") as file:
            for i, label in enumerate(stream.y):
                words = stream.X.indices[stream.X.indptr[i] : stream.X.indptr[i + 1]]
                file.write(f"{2 * label - 1} | {' '.join(map(str, words))}\n")
        workspace = vowpalwabbit.Workspace(
            f"--quiet --data {data} --readable_model {model} --predict_only_model --bit_precision "
            f"{n_features.bit_length()} --loss_function logistic --sgd --learning_rate {ETA0} --power_t 0.5 "
            f"--l1 {LAM} --noconstant"
        )
        workspace.finish()
        listing = model.read_text().partition("Checksum")[2].splitlines()[1:]
    for line in listing:
        feature, _, weight = line.partition(":")
        if feature.isdigit() and weight:
            weights[int(feature)] = float(weight)
    return weights


def results(stream: Stream, chunks: tuple[int, ...] = CHUNKS) -> Iterator[Result]:
    """Every way of training, one after the other."""
    for package, train in (("sparseoco fobos", train_sparseoco), ("SGDClassifier", train_scikit_learn)):
        yield Result(package, "one fit", train(stream, None))
        for chunk in chunks:
            yield Result(package, f"partial_fit, {chunk:,} rows each", train(stream, chunk))
    weights = train_vowpal_wabbit(stream)
    if weights is None:
        print("Vowpal Wabbit is not installed (pip install vowpalwabbit): left out.")
    else:
        yield Result("Vowpal Wabbit --l1", "one pass", weights)


def main(arguments: list[str]) -> None:
    """Print the table."""
    if arguments:
        stream = read(Path(arguments[0]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder) / "docstrings.jsonl")
            stream = read(Path(folder) / "docstrings.jsonl")
    rows, features = stream.X.shape
    print(f"{rows:,} documents, {features:,} features, {stream.rare.sum():,} of them rare\n")
    print(f"{'package':<19} {'calls':<29} {'rare kept':>9} {'all kept':>9}  digest of the weights")
    for result in results(stream):
        kept = result.weights != 0
        rare = np.count_nonzero(kept & stream.rare)
        print(f"{result.package:<19} {result.calls:<29} {rare:>9,} {np.count_nonzero(kept):>9,}  {result.digest}")


if __name__ == "__main__":
    main(sys.argv[1:])
