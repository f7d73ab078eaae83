"""Matrices to time on: the IMDB reviews' uni- and bigrams, and words drawn by Zipf's law."""

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

IMDB = Path(__file__).parents[3] / "shared" / "data" / "imdb" / "imdb_50k.jsonl.gz"
CACHE = Path(tempfile.gettempdir()) / "sparseoco-benchmark-imdb.npz"


def imdb_bigrams() -> tuple[sp.csr_matrix, np.ndarray]:
    """(50,000 × 2.47 million) counts, ids in order of frequency, rows shuffled; kept in the temporary folder."""
    if not CACHE.exists():
        with gzip.open(IMDB, "rt", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        X = CountVectorizer(ngram_range=(1, 2), dtype=np.int32).fit_transform([record["text"] for record in records])
        y = np.array([record["label"] == "pos" for record in records], np.int32)
        order = np.argsort(-np.asarray(X.sum(axis=0)).ravel(), kind="stable")
        X = X[:, order].tocsr()[np.random.default_rng(0).permutation(len(y))]
        X.sort_indices()
        y = y[np.random.default_rng(0).permutation(len(y))]
        np.savez(CACHE, indptr=X.indptr, indices=X.indices, data=X.data.astype(np.uint16), shape=X.shape, y=y)
    with np.load(CACHE) as stored:
        X = sp.csr_matrix((stored["data"], stored["indices"], stored["indptr"]), shape=tuple(stored["shape"]))
        return X, stored["y"]


def zipf(rows: int, features: int, words: int = 100, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """`words` a row, word of rank r with probability ∝ 1/r."""
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(1.0 / np.arange(1, features + 1))
    drawn = np.searchsorted(cumulative, rng.random(rows * words) * cumulative[-1])
    indptr = np.arange(0, rows * words + 1, words)
    X = sp.csr_matrix((np.ones(rows * words, np.uint16), np.minimum(drawn, features - 1), indptr), (rows, features))
    X.sum_duplicates()
    X.indices = X.indices.astype(np.int32)
    X.indptr = X.indptr.astype(np.int32)
    return X, rng.integers(0, 2, rows)
