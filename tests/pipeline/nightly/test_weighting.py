"""Weighted increments: a term keeps the idf of the increment that brought it, everywhere."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from sparseoco.kernels.order import epoch_rows
from sparseoco.pipeline.nightly import run_nightly
from sparseoco.search.results import increment_seed
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.terms import TermWeights, increment_weights
from sparseoco.store.weighting import Weighting
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from tests.support.nightly_runs import ROWS, arrive, new_learner, prepare, rows_of

TFIDF = Weighting(tf="log", idf=True, norm="l2")
FEATURES = {'tf = "count"': 'tf = "log"', "idf = false": "idf = true", 'norm = "none"': 'norm = "l2"'}
GRID = {
    "algorithms.rda = { lam = [1e-3], gamma = [1, 3] }": "",
    "lam = [1e-4, 1e-2], eta0 = [0.1, 0.3, 1.0]": "lam = [1e-4]",
}


@pytest.fixture(scope="module", params=["vocabulary", "hashed"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose three files came one by one."""
    folder = tmp_path_factory.mktemp("weighted")
    hashed = {'vocabulary = "extend"': "hash_bits = 10"} if request.param == "hashed" else {}
    described = prepare(folder, **FEATURES, **GRID, **hashed)
    for increment in range(1, 4):
        arrive(folder, increment)
        run_nightly(described)
    return folder / "run"


def idf_by_hand(X: csr_matrix) -> np.ndarray:
    """ln((1 + n)/(1 + df)) + 1 of the first increment with the feature; of the first one for all others."""
    idf = np.full(X.shape[1], np.log(1.0 + ROWS) + 1.0)
    known = np.zeros(X.shape[1], bool)
    for first in range(0, X.shape[0], ROWS):
        df = np.asarray((X[first : first + ROWS] > 0).sum(axis=0))[0]
        new = (df > 0) & ~known
        idf[new] = np.log((1.0 + ROWS) / (1.0 + df[new])) + 1.0
        known |= new
    return idf


def test_bits_are_those_of_one_learner_on_weighted_rows(run: Path) -> None:
    store = Store.open(run / "shards")
    X, _ = read_shards(store.folder)
    idf = increment_weights(store.folder, 3, TFIDF).idf
    np.testing.assert_allclose(idf, idf_by_hand(X), rtol=1e-14)
    values = TermWeights(TFIDF, idf).values(X.indptr, X.indices, X.data, np.float32)
    X = csr_matrix((values, X.indices, X.indptr), X.shape)
    places = [
        ROWS * (version - 1) + epoch_rows(increment_seed(3, version), 1, True, ROWS, 0, ROWS, -1, 1)
        for version in (1, 2, 3)
    ]
    order = np.concatenate(places)
    last = rows_of(run, "history-configurations")[-1]
    assert Weighting.of(last) == Weighting.of(rows_of(run, "history")[-1]) == TFIDF
    learner = new_learner(last, X.shape[1]).partial_fit(X[order], store.labels()[order])
    errors = sum(row["progressive_error"] for row in rows_of(run, "history-configurations")) * ROWS
    assert errors == pytest.approx(int(learner.progress.error_count[0]))
    deployed = run / "models" / f"{rows_of(run, 'history')[-1]['increment']:08d}"
    if deployed.exists():
        saved = Learner.load(deployed / "learner.npz")
        np.testing.assert_array_equal(saved.weights_of(0), learner.weights_of(0))


def test_a_deployed_model_is_evaluated_as_it_predicts(run: Path) -> None:
    """Terms that it does not know are left out of the norm, as in text that it is given."""
    for row in rows_of(run, "history")[1:]:
        model = Model(run / "models" / f"{row['deployed']:08d}")
        assert model.weighting == TFIDF
        path = run.parent / "incoming" / f"increment-{row['increment']}.jsonl"
        documents = [json.loads(line) for line in path.read_text().splitlines()]
        predicted = model.predict([document["text"] for document in documents])
        wrong = sum(str(document["label"]) != label for document, label in zip(documents, predicted, strict=True))
        assert row["deployed_error"] == pytest.approx(wrong / ROWS)
