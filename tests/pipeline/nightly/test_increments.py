"""Increments have the bits of one uninterrupted stream, for any workers, weightings and interruptions."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csr_matrix

from sparseoco.kernels.order import epoch_rows
from sparseoco.learners import ALGORITHMS
from sparseoco.pipeline.nightly import run_nightly
from sparseoco.search.increments import increment_seed
from sparseoco.search.worker import increment_store
from sparseoco.storage.commit import read_json
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.terms import TermWeights, increment_weights
from sparseoco.store.weighting import Weighting
from sparseoco.training.decisions import fit_calibration
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from tests.support.errors import raises_code
from tests.support.nightly_runs import ROWS, contents, new_learner, nights, prepare, rows_of
from tests.support.prefect_server import artifacts, environment, flow_runs, prefect_server

# ----------------------------------------------------------------------------------------------------------------------
# Increments have the bits of one uninterrupted stream, for any workers and interruptions.


def stream(store: Store, seed: int, shuffle: bool) -> tuple[sp.csr_matrix, np.ndarray]:
    """The documents of all increments in the order in which they are learned."""
    matrix, _ = read_shards(store.folder)
    order, first = [], 0
    for version in range(1, store.manifest.version + 1):
        rows = increment_store(store.folder, version).n_rows
        order.append(first + epoch_rows(increment_seed(seed, version), 1, shuffle, rows, 0, rows, -1, 1))
        first += rows
    places = np.concatenate(order)
    return matrix[places], store.labels()[places]


@pytest.mark.parametrize("shuffle", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_bits_of_an_uninterrupted_run(four_nights: Path, tmp_path: Path, shuffle: bool) -> None:
    """The model of the last increment, its state included, is that of one learner with the last vocabulary."""
    folder = four_nights
    if not shuffle:
        folder = tmp_path
        nights(folder, 4, **{"seed = 3": "seed = 3\nshuffle = false"})
    store = Store.open(folder / "run" / "shards")
    assert [row["increment"] for row in rows_of(folder / "run", "history")] == [1, 2, 3, 4]
    assert len(store.manifest.features.files) < 4  # small ones are merged
    last = rows_of(folder / "run", "history")[-1]
    assert last["promoted"]
    X, y = stream(store, 3, shuffle)
    whole = new_learner(last, store.n_features).partial_fit(X, y)
    whole.save(tmp_path / "whole.npz")
    model = folder / "run" / "models" / "00000004"
    assert (model / "learner.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert Model(model).table.num_rows == int(whole.nonzeros()[0])
    curve = rows_of(model, "curve")
    assert [mark["rows"] for mark in curve] == [90, 180, 270, 360]
    assert curve[-1]["progressive_loss"] == pytest.approx(float(whole.progress.loss_sum[0]) / 360, abs=1e-12)


def test_models_are_calibrated_on_the_newest_progressive_margins(four_nights: Path) -> None:
    """Of the first increment, which starts from nothing, on the last fifth of them."""
    run = four_nights / "run"
    store = Store.open(run / "shards")
    X, y = stream(store, 3, True)
    for row in rows_of(run, "history"):
        learner = new_learner(row, X.shape[1])
        end = 90 * row["increment"]
        margins = np.empty((end, 1, 3), np.float32)
        learner.learn_rows(X[:end].indptr, X[:end].indices, X[:end].data, y[:end], margins_out=margins)
        newest = slice(72 if end == 90 else end - 90, end)
        if row["promoted"]:
            model = Model(run / "models" / f"{row['increment']:08d}")
            assert model.calibration == fit_calibration(margins[newest, 0], y[newest])


def test_every_configuration_is_evaluated_before_it_learns(four_nights: Path) -> None:
    """Errors of an increment are those of one learner on its rows; the champion's are those of its model."""
    run = four_nights / "run"
    store = Store.open(run / "shards")
    X, y = stream(store, 3, True)
    table = rows_of(run, "history-configurations")
    for number in (0, 7):
        own = [row for row in table if row["configuration"] == number]
        learner = new_learner(own[0], store.n_features)
        before = 0
        for increment, row in enumerate(own):
            rows = slice(90 * increment, 90 * (increment + 1))
            learner.partial_fit(X[rows], y[rows])
            errors = int(learner.progress.error_count[0])
            assert row["progressive_error"] == (errors - before) / 90
            before = errors
    for row in rows_of(run, "history")[1:]:
        rows = slice(90 * (row["increment"] - 1), 90 * row["increment"])
        own = X[rows]
        champion = Learner.load(run / "models" / f"{row['deployed']:08d}" / "learner.npz", n_features=store.n_features)
        _, wrong = champion.evaluate(own.indptr, own.indices, own.data, y[rows])
        assert row["deployed_error"] == int(wrong[0]) / 90
        margins = champion.margins(own.indptr, own.indices, own.data)[:, 0]
        likely = Model(run / "models" / f"{row['deployed']:08d}").probabilities(margins.astype(float)).max(axis=1)
        assert row["expected_error"] == pytest.approx(1 - likely.mean())
        assert row["expected_spread"] == pytest.approx(math.sqrt((likely * (1 - likely)).sum()) / 90)


def test_any_workers_and_any_grouping(four_nights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All increments at once, in narrow blocks, in one thread: the same history, models and choice."""
    monkeypatch.setattr("sparseoco.search.packing.BLOCK_COLUMNS", 6)
    expected = contents(four_nights / "run")
    nights(tmp_path, 4, **{"threads = 2": "threads = 1"})
    got = contents(tmp_path / "run")
    got, expected = (  # manifests and segments of sources say where the files were
        {k: v for k, v in found.items() if "manifest-" not in k and "sources-" not in k} for found in (got, expected)
    )
    assert got == expected


@pytest.mark.fault(10)
def test_nothing_new(four_nights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, nothing is written and no cluster is started."""
    before = contents(four_nights)
    page = (four_nights / "run" / "nightly.html").stat().st_mtime_ns
    monkeypatch.setattr("sparseoco.pipeline.nightly.run.connect", None)
    outcome = run_nightly(prepare(four_nights))
    assert outcome.message == "Nothing new: all files are learned, up to increment 4."
    assert contents(four_nights) == before
    assert (four_nights / "run" / "nightly.html").stat().st_mtime_ns == page


def test_the_served_model(four_nights: Path) -> None:
    run = four_nights / "run"
    assert read_json(run / "promoted.json")["model"] == "models/00000004"
    assert Model(run).folder == run / "models" / "00000004"
    assert Model(run).predict(["wave boat tide salt", "tree leaf moss"]) == ["sea", "wood"]


RDA = "algorithms.rda = { lam = [1e-3], gamma = [1, 3] }"


@pytest.mark.parametrize("name", [name for name, algorithm in ALGORITHMS.items() if algorithm.driver != "stream"])
def test_options_that_rule_out_nightly_runs(name: str, tmp_path: Path) -> None:
    code = "fixed-features" if ALGORITHMS[name].online else "not-online"
    run = prepare(tmp_path, 1, **{RDA: f"algorithms.{name} = {{}}"})
    with raises_code(code, name):
        run_nightly(run)
    assert not (tmp_path / "run").exists()


def test_groups_of_features_rule_out_nightly_runs(tmp_path: Path) -> None:
    groups = 'algorithms.fobos = {}\npenalty = "group"\nfeature_groups = "field"'
    with raises_code("unsupported-combination", "feature_groups"):
        run_nightly(prepare(tmp_path, 1, **{RDA: groups}))


@pytest.mark.parametrize("model", ["run", "run/models/00000001", "run/model", "elsewhere/../run"])
def test_increments_do_not_warm_start_from_each_other(model: str, tmp_path: Path) -> None:
    run = prepare(tmp_path, 1, **{"seed = 3": f'seed = 3\nwarm_start = "{model}"'})
    with raises_code("invalid-warm-start", "warm_start"):
        run_nightly(run)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("features", ['vocabulary = "frozen"', "hash_bits = 8"])
def test_features_that_stay(features: str, tmp_path: Path) -> None:
    """Without new features, learners that touch all features continue too."""
    changes = {'vocabulary = "extend"': features, RDA: 'algorithms.ogd = { domain = ["ball"], D = [2.0, 10.0] }'}
    nights(tmp_path, 2, **changes)
    last = rows_of(tmp_path / "run", "history")[-1]
    if "frozen" in features:
        assert (last["new_terms"], last["dropped_terms"]) == (0, 180)
        assert last["unknown_share"] == pytest.approx(180 / (90 * 15), abs=1e-12)
    else:
        assert (last["new_terms"], last["dropped_terms"], last["unknown_share"]) == (None, None, None)
    assert {row["status"] for row in rows_of(tmp_path / "run", "history-configurations")} == {"ok"}


# ----------------------------------------------------------------------------------------------------------------------
# Weighted increments: a term keeps the idf of the increment that brought it, everywhere.


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
    nights(folder, 3, **FEATURES, **GRID, **hashed)
    return folder / "run"


def test_bits_are_those_of_one_learner_on_weighted_rows(run: Path) -> None:
    store = Store.open(run / "shards")
    X, _ = read_shards(store.folder)
    # ln((1 + n)/(1 + df)) + 1 of the first increment with the feature; of the first one for all others.
    expected, known = np.full(X.shape[1], np.log(1.0 + ROWS) + 1.0), np.zeros(X.shape[1], bool)
    for first in range(0, X.shape[0], ROWS):
        df = np.asarray((X[first : first + ROWS] > 0).sum(axis=0))[0]
        new = (df > 0) & ~known
        expected[new] = np.log((1.0 + ROWS) / (1.0 + df[new])) + 1.0
        known |= new
    idf = increment_weights(store.folder, 3, TFIDF).idf
    np.testing.assert_allclose(idf, expected, rtol=1e-14)
    values = TermWeights(TFIDF, idf).values(X.indptr, X.indices, X.data.astype(np.uint16), np.float32)
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


# ----------------------------------------------------------------------------------------------------------------------
# The nightly flow, as a person runs it.


@pytest.mark.slow
def test_the_flow_does_what_the_command_does(tmp_path: Path) -> None:
    run = prepare(tmp_path / "command", 1)
    (tmp_path / "command" / "incoming" / "broken.jsonl").write_text("{")
    run_nightly(run)
    texts = f'inputs = ["{tmp_path / "command" / "incoming"}"]'
    prepare(tmp_path / "flow", **{'inputs = ["incoming"]': texts})
    with prefect_server(tmp_path / "server") as address:
        env = environment(tmp_path / "home", PREFECT_API_URL=address)
        command = [sys.executable, "-m", "flows.nightly", str(tmp_path / "flow" / "places.toml")]
        for _ in range(2):  # the second finds nothing new
            ran = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=env)
            assert ran.returncode == 0, ran.stderr
            assert "left out until it changes: " in ran.stderr
        assert "Nothing new: all files that can be read are learned" in ran.stderr
        by_hand = f"from flows.nightly import nightly; nightly({command[-1]!r}, rollback=1)"
        ran = subprocess.run(
            [sys.executable, "-c", by_hand], capture_output=True, text=True, timeout=180, check=False, env=env
        )
        assert "The model of increment 1 is already deployed." in ran.stderr
        assert [entry["state_type"] for entry in flow_runs(address)] == ["COMPLETED"] * 3
        found = artifacts(address)
    assert "The model of increment 1 is deployed" in found["places-nightly"]["data"]
    assert "broken.jsonl, line 1: not valid JSON" in found["places-nightly"]["data"]
    assert "promoted" in found["places-increments"]["data"]
    assert "nightly" in found["places-nightly"]["data"].partition("Page: ")[2]
    assert contents(tmp_path / "flow" / "run") == contents(tmp_path / "command" / "run")
