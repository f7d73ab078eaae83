"""Weightings of counts, and files of terms."""

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer

from sparseoco.store import terms as term_files
from sparseoco.store.corpus import WeightedCorpus, weighted_corpus
from sparseoco.store.entries import read_table
from sparseoco.store.manifest import FileEntry
from sparseoco.store.shards import Store, read_shards, write_names, write_quarantine, write_vocabulary
from sparseoco.store.terms import TermWeights, add_files, inverse_document_frequencies, smooth_idf, term_weights
from sparseoco.store.weighting import COUNTS, TFIDF, FeatureOptions, Weighting
from tests.support.errors import raises_code
from tests.support.stores import make_store

# ----------------------------------------------------------------------------------------------------------------------
# Weights of terms, against scikit-learn's `TfidfTransformer`.


WEIGHTINGS = [
    Weighting(tf=tf, idf=idf, norm=norm)
    for tf, idf, norm in product(("count", "binary", "log"), (False, True), ("none", "l2"))
]
weightings = pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: w.label)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(make_store(tmp_path_factory.mktemp("weighting") / "store", rows=120, features=90, shard_rows=50))


def expected(X: csr_matrix, weighting: Weighting) -> csr_matrix:
    """The same by scikit-learn, with the idf of X itself."""
    X = csr_matrix(X, dtype=np.float64, copy=True)
    if weighting.tf == "binary":
        X.data[:] = 1.0
    transformer = TfidfTransformer(
        norm=None if weighting.norm == "none" else "l2", use_idf=weighting.idf, sublinear_tf=weighting.tf == "log"
    )
    fitted = transformer.fit(X)
    return fitted.transform(X, copy=True)


def weighted(X: csr_matrix, weights: TermWeights, dtype: Any = np.float64) -> csr_matrix:
    return csr_matrix((weights.values(X.indptr, X.indices, X.data, dtype), X.indices, X.indptr), X.shape)


@weightings
def test_values_equal_scikit_learns(store: Store, tmp_path: Path, weighting: Weighting) -> None:
    X, _ = read_shards(store.folder)
    corpus = weighted_corpus(store, tmp_path, term_weights(store, weighting))
    indptr, indices, values, labels, _ = corpus.rows(0, store.n_rows)
    np.testing.assert_array_equal(labels, store.labels())
    got = csr_matrix((values, indices, indptr), X.shape)
    np.testing.assert_allclose(got.toarray(), expected(X, weighting).toarray(), rtol=1e-12, atol=0)


@weightings
def test_weights_are_cast_once_and_do_not_depend_on_how_rows_are_read(
    store: Store, tmp_path: Path, weighting: Weighting
) -> None:
    if weighting.is_identity:
        return
    exact = weighted_corpus(store, tmp_path, term_weights(store, weighting))
    single = weighted_corpus(store, tmp_path, term_weights(store, weighting), np.float32)
    assert isinstance(exact, WeightedCorpus)
    whole = exact.rows(0, store.n_rows)
    assert single.rows(0, store.n_rows)[2].dtype == np.float32
    np.testing.assert_array_equal(single.rows(0, store.n_rows)[2], whole[2].astype(np.float32))
    order = np.random.default_rng(0).permutation(store.n_rows)
    gathered = exact.gather(order)
    for i, row in enumerate(order):
        mine, there = slice(*gathered[0][i : i + 2]), slice(*whole[0][row : row + 2])
        np.testing.assert_array_equal(gathered[2][mine], whole[2][there])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6000), min_size=4, max_size=4), min_size=1, max_size=6),
    st.sampled_from(WEIGHTINGS),
    st.sampled_from([np.uint16, np.uint32, np.float64]),
)
def test_any_counts(rows: list[list[int]], weighting: Weighting, dtype: Any) -> None:
    X = csr_matrix(np.array(rows, dtype))
    assume(X.nnz)
    idf = smooth_idf(np.bincount(X.indices, minlength=4), len(rows))
    got = weighted(X, TermWeights(weighting, idf))
    np.testing.assert_allclose(got.toarray(), expected(X, weighting).toarray(), rtol=1e-12, atol=0)


def test_pointers_may_start_anywhere() -> None:
    X = csr_matrix(np.array([[1.0, 3.0, 0.0], [0.0, 4.0, 2.0], [5.0, 0.0, 0.0]]))
    weights = TermWeights(Weighting(tf="log", norm="l2"), np.empty(0))
    first = X.indptr[1]
    part = weights.values(X.indptr[1:], X.indices[first:], X.data[first:])
    np.testing.assert_array_equal(part, weights.values(X.indptr, X.indices, X.data)[first:])


def test_real_values() -> None:
    X = csr_matrix(np.array([[0.25, 3.5, 0.0], [0.0, 1e-3, 2.0]]))
    for weighting in WEIGHTINGS:
        got = weighted(X, TermWeights(weighting, smooth_idf([1, 2, 1], 2)))
        np.testing.assert_allclose(got.toarray(), expected(X, weighting).toarray(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("bad", [0.0, -2.0, np.nan])
def test_a_value_without_a_logarithm_is_refused(bad: float) -> None:
    X = csr_matrix((np.array([1.0, bad]), np.array([0, 1]), np.array([0, 2])), (1, 2))
    assert weighted(X, TermWeights(Weighting(tf="binary"), np.empty(0))).data.tolist() == [1.0, 1.0]
    with raises_code("invalid-weighting"):
        weighted(X, TermWeights(Weighting(tf="log"), np.empty(0)))


def test_counts_are_read_as_they_are(store: Store, tmp_path: Path) -> None:
    assert COUNTS.is_identity
    assert not isinstance(weighted_corpus(store, tmp_path, term_weights(store, COUNTS)), WeightedCorpus)


def test_idf_is_that_of_the_vocabulary(store: Store) -> None:
    X, _ = read_shards(store.folder)
    transformer = TfidfTransformer().fit(X)
    np.testing.assert_allclose(inverse_document_frequencies(store), transformer.idf_, rtol=1e-15)
    assert inverse_document_frequencies(store) is inverse_document_frequencies(store)
    assert term_weights(store, COUNTS).weighting == COUNTS


def test_options_of_features() -> None:
    options = FeatureOptions.model_validate({"tf": ["log", "count", "log"], "idf": True, "norm": "l2"})
    assert [w.label for w in options.weightings] == ["log tf, idf, l2", "counts, idf, l2"]
    assert FeatureOptions().weighting == FeatureOptions().for_values(real=False).weighting == TFIDF
    assert FeatureOptions().for_values(real=True).weighting == COUNTS
    partly = FeatureOptions.model_validate({"tf": "count", "idf": [True, False]})
    assert [w.label for w in partly.for_values(real=True).weightings] == ["counts, idf", "counts"]
    assert Weighting.of({"tf": "log", "idf": True, "norm": "l2", "other": 1}) == options.weightings[0]
    with raises_code("unsupported-combination"):
        _ = options.weighting


def test_labels_of_weightings() -> None:
    assert [w.label for w in WEIGHTINGS[:2]] == ["counts", "counts, l2"]
    assert len({w.label for w in WEIGHTINGS}) == len(WEIGHTINGS)


# ----------------------------------------------------------------------------------------------------------------------
# Files of terms are merged as they grow: few of them, with the content of all that were added.


def columns(first: int, count: int) -> tuple[np.ndarray, pa.Array, np.ndarray, np.ndarray]:
    features = np.arange(first, first + count)
    return features, pa.array([f"term{n}" for n in features]), features % 5 + 1, features % 3 + 1


def content(folder: Path, files: tuple[FileEntry, ...]) -> pa.Table:
    return pa.concat_tables([read_table(folder, entry) for entry in files], promote_options="permissive")


@settings(max_examples=30)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=25), st.sampled_from([0, 6000, 1 << 20]))
def test_a_vocabulary_in_few_files(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int) -> None:
    folder, files, first = tmp_path_factory.mktemp("terms"), tuple[FileEntry, ...](), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(term_files, "MERGED_BYTES", limit)
        for size in sizes:
            added = (write_vocabulary(folder, *columns(first, size)),) if size else ()
            files, first = add_files(folder, "vocabulary", files, added), first + size
    if files:
        expected = columns(0, first)
        assert content(folder, files).equals(
            pa.table(dict(zip(content(folder, files).column_names, expected, strict=True)))
        )
    if limit == 1 << 20:
        assert all(before.bytes > 2 * after.bytes for before, after in pairwise(files))
    if not limit:
        assert len(files) == sum(size > 0 for size in sizes)


def test_terms_of_hashed_features_are_summed(tmp_path: Path) -> None:
    files: tuple[FileEntry, ...] = ()
    for _ in range(50):
        files = add_files(tmp_path, "names", files, (write_names(tmp_path, *columns(3, 4)),))
    table = content(tmp_path, files)
    assert table.num_rows <= 4 * len(files) <= 8
    sums = table.group_by(["feature", "term"]).aggregate([("count", "sum"), ("documents", "sum")])
    features, terms, counts, documents = columns(3, 4)
    assert sorted(tuple(row.values()) for row in sums.to_pylist()) == [
        (int(f), t, 50 * int(c), 50 * int(d))
        for f, t, c, d in zip(features, terms.to_pylist(), counts, documents, strict=True)
    ]


def test_quarantined_rows_stay_in_order(tmp_path: Path) -> None:
    files: tuple[FileEntry, ...] = ()
    for number in range(30):
        row = (f"file-{number}.jsonl", number, 10 * number, "no label")
        files = add_files(tmp_path, "quarantine", files, (write_quarantine(tmp_path, [row]),))
    assert content(tmp_path, files)["line"].to_pylist() == list(range(30))
    assert len(files) < 5
