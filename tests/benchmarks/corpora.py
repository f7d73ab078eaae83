"""Real corpora for benchmarks and tests, if they are in the parent folder of the project."""

import gzip
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

DATA = Path(os.environ.get("SPARSEOCO_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
Record = dict[str, Any]
Matrix = tuple[sp.csr_matrix, np.ndarray]


def corpus(name: str) -> Path:
    """A file of a corpus, or a skip that says where it would be looked for."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there (set SPARSEOCO_DATA to where the corpora are)")
    return path


def records(name: str) -> Iterator[Record]:
    """The documents of a corpus of JSON lines."""
    with gzip.open(corpus(name), "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


@cache
def imdb_counts(longest: int) -> Matrix:
    """Counts of the n-grams up to this length of the 25,000 training reviews, found twice at least, and the labels."""
    reviews = [review for review in records("imdb/imdb_50k.jsonl.gz") if review["split"] == "train"]
    X = CountVectorizer(ngram_range=(1, longest), min_df=2).fit_transform([review["text"] for review in reviews])
    return X.astype(np.float64), np.array([review["label"] == "pos" for review in reviews], np.int64)
