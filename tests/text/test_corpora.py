"""Real corpora: the counts equal those of CountVectorizer."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import CountVectorizer

from sparseoco.store.shards import read_shards
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions

DATA = Path(__file__).parents[3] / "shared" / "data"
pytestmark = [
    pytest.mark.corpora,
    pytest.mark.skipif(not DATA.exists(), reason="the corpora are not next to the project"),
]


@pytest.mark.parametrize(
    ("name", "options", "reading"),
    [
        ("reviews/books.jsonl.gz", {"ngram_range": (1, 2), "min_df": 2}, {}),
        ("20news/20news-bydate.jsonl.gz", {"max_features": 5000}, {"where": {"split": "test"}, "duplicates": "all"}),
        ("reuters/reuters21578.jsonl.gz", {"max_df": 0.5}, {"label_field": "modapte", "duplicates": "all"}),
    ],
)
def test_corpus(tmp_path: Path, name: str, options: dict[str, Any], reading: dict[str, Any]) -> None:
    ingest([str(DATA / name)], tmp_path / "out", TextOptions.of(options | reading), shard_bytes=1 << 20)
    matrix, terms = read_shards(tmp_path / "out")
    with gzip.open(DATA / name, "rt") as file:
        rows = [json.loads(line) for line in file]
    chosen = [row["text"] for row in rows if all(row[k] == v for k, v in reading.get("where", {}).items())]
    limit = options.pop("max_features", None)
    vectorizer = CountVectorizer(**options)
    theirs = vectorizer.fit_transform(chosen)
    place = vectorizer.vocabulary_
    assert (matrix != theirs[:, [place[term] for term in terms]]).nnz == 0
    totals, every = (np.asarray(counts.sum(axis=0)).ravel() for counts in (matrix, theirs))
    assert totals.tolist() == np.sort(every)[::-1][:limit].tolist()


def test_processed_books(tmp_path: Path) -> None:
    folder = DATA / "reviews-processed" / "books"
    inputs = [str(folder / f"{label}.review.gz") for label in ("positive", "negative")]
    manifest = ingest(inputs, tmp_path / "out", TextOptions())
    assert (manifest.rows, manifest.features.count) == (2000, 195_887)
    assert [(entry.name, entry.rows) for entry in manifest.labels.classes] == [("negative", 1000), ("positive", 1000)]


def test_svmlight_books(tmp_path: Path) -> None:
    path = DATA / "reviews-counts" / "books.svmlight.gz"
    manifest = ingest([str(path)], tmp_path / "out", TextOptions())
    matrix, terms = read_shards(tmp_path / "out")
    theirs, labels = load_svmlight_file(str(path), zero_based=True)
    assert manifest.rows == 4465
    assert (matrix != theirs[:, [int(term) for term in terms]]).nnz == 0
    assert matrix.sum() == theirs.sum()
    assert manifest.labels.classes[1].rows == int((labels == 1).sum())
