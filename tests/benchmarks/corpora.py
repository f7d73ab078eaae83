"""Real corpora for benchmarks and tests, if they are in the parent folder of the project."""

import gzip
import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

DATA = Path(os.environ.get("SPARSEOCO_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


def corpus(name: str) -> Path:
    """A file of a corpus, or a skip that says where it would be looked for."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there (set SPARSEOCO_DATA to where the corpora are)")
    return path


Matrix = tuple[sp.csr_matrix, np.ndarray]


@cache
def imdb_counts(longest: int) -> Matrix:
    """Counts of the n-grams up to this length of the 25,000 training reviews, found twice at least, and the labels."""
    with gzip.open(corpus("imdb/imdb_50k.jsonl.gz"), "rt", encoding="utf-8") as lines:
        records = [record for record in map(json.loads, lines) if record["split"] == "train"]
    X = CountVectorizer(ngram_range=(1, longest), min_df=2).fit_transform([record["text"] for record in records])
    return X.astype(np.float64), np.array([record["label"] == "pos" for record in records], np.int64)
