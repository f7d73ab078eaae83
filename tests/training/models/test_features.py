"""A saved model computes the values it was trained on from text, and those of new text as scikit-learn does."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer

from sparseoco import Model
from sparseoco.core.errors import DamagedError
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.terms import term_weights
from sparseoco.store.weighting import Weighting
from sparseoco.training.models import write_model
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes, jsonl, random_texts
from tests.support.searches import plain_search

TEXTS, NEW = random_texts(60), [*random_texts(20, seed=1), "unknown words alpha", "", "unknown"]
WEIGHTINGS = [
    Weighting(tf=tf, idf=idf, norm=norm)
    for (tf, idf), norm in product((("count", False), ("log", True), ("binary", False), ("log", False)), ("none", "l2"))
]
weightings = pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: w.label)
KINDS = {"vocabulary": {"min_df": 2}, "hashed": {"hash_bits": 5}}


def ingested(folder: Path, texts: list[str], options: dict[str, Any]) -> Path:
    ingest_bytes(folder, "texts.jsonl", jsonl(texts), **options)
    return folder / "out"


@pytest.fixture(scope="module", params=KINDS)
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, csr_matrix]:
    """A store, and the counts of the new texts over its features."""
    options, folder = KINDS[request.param], tmp_path_factory.mktemp("texts")
    store = ingested(folder / "old", TEXTS, options)
    if request.param == "hashed":
        return store, read_shards(ingested(folder / "new", NEW, options))[0]
    terms = {term: i for i, term in enumerate(read_shards(store)[1])}
    found, names = read_shards(ingested(folder / "new", NEW, {}))
    new = np.zeros((len(NEW), len(terms)))
    for column, name in enumerate(names):
        if name in terms:
            new[:, terms[name]] = found[:, [column]].toarray()[:, 0]
    return store, csr_matrix(new)


def by_scikit_learn(X: csr_matrix, new: csr_matrix, weighting: Weighting) -> np.ndarray:
    X, new = csr_matrix(X, dtype=np.float64, copy=True), csr_matrix(new, dtype=np.float64, copy=True)
    if weighting.tf == "binary":
        X.data[:], new.data[:] = 1.0, 1.0
    transformer = TfidfTransformer(
        norm=None if weighting.norm == "none" else "l2", use_idf=weighting.idf, sublinear_tf=weighting.tf == "log"
    )
    return np.asarray(transformer.fit(X).transform(new).toarray())


def model(folder: Path, store: Path, weighting: Weighting, used: np.ndarray) -> Model:
    opened = Store.open(store)
    weights = np.zeros((opened.n_features, 1))
    weights[used, 0] = np.arange(1.0, used.size + 1)
    description = {"algorithm": "none", "parameters": {}, "weighting": weighting.model_dump()}
    write_model(folder, weights, opened, description, [])
    return Model(folder)


@weightings
def test_values_of_texts(stores: tuple[Path, csr_matrix], tmp_path: Path, weighting: Weighting) -> None:
    store, counts = stores
    X, _ = read_shards(store)
    used = np.unique(X.indices)[::2]
    saved = model(tmp_path / "model", store, weighting, used)
    np.testing.assert_array_equal(saved.feature_ids, used)
    opened = Store.open(store)
    rows = [opened.read(shard) for shard in range(opened.n_shards)]
    learned = np.concatenate(
        [term_weights(opened, weighting).values(part.indptr, part.indices, part.counts) for part in rows]
    )
    expected = csr_matrix((learned, X.indices, X.indptr), X.shape)[:, used].toarray()
    np.testing.assert_array_equal(saved.values(TEXTS).toarray(), expected)
    expected = by_scikit_learn(X, counts, weighting)[:, used]
    np.testing.assert_allclose(saved.values(NEW).toarray(), expected, rtol=1e-12, atol=0)
    margins = expected @ np.arange(1.0, used.size + 1)
    np.testing.assert_allclose(saved.margins(NEW)[:, 0], margins, rtol=1e-12, atol=1e-12)


def test_the_vocabulary_is_checked(stores: tuple[Path, csr_matrix], tmp_path: Path) -> None:
    saved = model(tmp_path / "model", stores[0], Weighting(tf="log", idf=True, norm="l2"), np.array([0, 3]))
    path = saved.folder / "vocabulary.parquet"
    path.write_bytes(path.read_bytes()[:-1])  # type: ignore[union-attr]
    with raises_code("corrupt-model", "vocabulary.parquet", kind=DamagedError):
        Model(saved.folder).margins(NEW)


def test_a_model_of_selected_features_needs_only_these(stores: tuple[Path, csr_matrix], tmp_path: Path) -> None:
    """Its idf is that of the whole store, and its norms are of the selected features."""
    store, weighting = stores[0], Weighting(tf="log", idf=True, norm="l2")
    X, _ = read_shards(store)
    used = np.unique(X.indices)[1::2]
    model(tmp_path / "first", store, weighting, used)
    options = plain_search(
        algorithms={"adagrad": {"lam": 0.0}},
        features=weighting.model_dump(),
        features_from=str(tmp_path / "first"),
        dtype="float64",
    )
    (configuration,) = options.configurations()
    steps.train(store, tmp_path / "second", configuration, options, ClusterOptions(), epochs=1)
    second = Model(tmp_path / "second")
    idf = Weighting(tf="log", idf=True)
    selected = by_scikit_learn(X, X, idf)[:, used]
    sizes = np.linalg.norm(selected, axis=1, keepdims=True)
    expected = np.divide(selected, sizes, out=np.zeros_like(selected), where=sizes > 0)
    own = np.isin(used, second.feature_ids)
    np.testing.assert_allclose(second.values(TEXTS).toarray(), expected[:, own], rtol=1e-12, atol=1e-15)
