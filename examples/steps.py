"""How much a step size matters: progressive loss and error of one pass, for several steps and models of the loss.

    python examples/steps.py FILE.jsonl.gz [DOCUMENTS]

The file has a text and one of two labels in each line (`text`, `label`). Its first DOCUMENTS lines of a fixed random
order, all by default, become unigrams that occur in two documents or more: counts, and sublinear tf-idf with the idf
of all documents. Every document is predicted before it is learned: logistic loss, no penalty, an intercept.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from sparseoco import Learner

STEPS = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "adagrad": ("adagrad", {"eta": STEPS, "lam": 0.0}),
    "adagrad truncated": ("adagrad", {"eta": STEPS, "lam": 0.0, "model": "truncated"}),
    "fobos": ("fobos", {"eta0": STEPS, "lam": 0.0}),
    "fobos truncated": ("fobos", {"eta0": STEPS, "lam": 0.0, "model": "truncated"}),
    "scinol": ("scinol", {}),
}


def read(path: Path, documents: int | None) -> tuple[list[str], np.ndarray]:
    """Texts, and whether a label is the second of the two."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    order = np.random.default_rng(0).permutation(len(rows))[:documents]
    last = max(row["label"] for row in rows)
    return [rows[i]["text"] for i in order], np.array([rows[i]["label"] == last for i in order], int)


def main() -> None:
    """Print a row for every method and kind of feature: loss (error) for each step."""
    texts, y = read(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
    counts = TfidfVectorizer(min_df=2, norm=None, use_idf=False)
    for kind, vectorizer in (("counts", counts), ("tf-idf", TfidfVectorizer(min_df=2, sublinear_tf=True))):
        X = vectorizer.fit_transform(texts)
        print(f"{kind}: {X.shape[0]:,} documents, {X.shape[1]:,} features")
        for method, (name, grid) in METHODS.items():
            learner = Learner(name, loss="logistic", grid=grid, n_features=X.shape[1], intercept=True)
            learner.partial_fit(X, y)
            done = learner.progress
            pairs = zip(done.loss_sum / done.rows, done.error_count / done.rows, strict=True)
            print(f"| {method} |", " | ".join(f"{loss:.3f} ({error:.3f})" for loss, error in pairs), "|", flush=True)


if __name__ == "__main__":
    main()
