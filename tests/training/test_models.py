"""Saved models: their files, their features, and margins of hashed features."""

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix
from scipy.special import expit

from sparseoco import Model
from sparseoco.core.errors import DamagedError, StorageError
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.pipeline import steps
from sparseoco.storage.commit import commit_json, digest_file, read_json
from sparseoco.storage.tables import write_parquet
from sparseoco.store.shards import Store, read_shards
from sparseoco.store.terms import term_weights
from sparseoco.store.weighting import Weighting
from sparseoco.text.options import TextOptions
from sparseoco.training.models import amend_model
from tests.support.commands import call
from tests.support.count_vectorizer import tfidf
from tests.support.errors import raises_code
from tests.support.ingests import ingest_bytes, jsonl, random_texts
from tests.support.models import model_with
from tests.support.searches import plain_search
from tests.support.stores import WEIGHTINGS, make_store

# ----------------------------------------------------------------------------------------------------------------------
# A saved model is found from its own folder, from a run's and from that of nightly runs.


LINES = ["t0 t0 t3", "t1", "t5 unknown", ""]


OUTPUT = {"margin": 0.5, "precision": 1.0, "recall": 0.5, "f1": 0.7, "share": 0.2}  # of a threshold


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with weights for three features: t0 and t5 for the second class, t1 for the first."""
    store = Store.open(make_store(tmp_path / "store"))
    store.manifest.options.update(TextOptions().plain())
    return model_with(tmp_path / "model", store, {0: 1.0, 1: -2.0, 5: 0.5}).folder


Predict = Callable[..., list[list[str]]]


@pytest.fixture
def predict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Predict:
    """The cells that the command prints for the lines."""

    def run(*arguments: object) -> list[list[str]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join([*LINES, ""]).encode())))
        assert call(monkeypatch, "predict", *arguments) == 0
        return [line.split("\t") for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.mark.parametrize("inside", ["", "model", "models/00000001"])
def test_model_and_predict_take_any_of_the_folders(inside: str, model: Path, tmp_path: Path, predict: Predict) -> None:
    """A model's own, a run's, and that of nightly runs with two increments, the first of which is deployed."""
    folder, expected = tmp_path / "run", ["c1", "c0", "c1", "c0"]
    shutil.copytree(model, folder / inside)
    if inside.startswith("models"):
        (folder / "models" / "00000002").mkdir()
        commit_json(folder / "promoted.json", {"model": inside, "increment": 1})
    assert Model(folder).predict(LINES) == Model(str(folder)).predict(LINES) == expected
    np.testing.assert_array_equal(Model(folder).margins(LINES), [[2.0], [-2.0], [0.5], [0.0]])
    assert predict(folder) == [[name] for name in expected]


def amended(model: Path, **entries: object) -> Model:
    amend_model(model, entries)
    return Model(model)


def test_probabilities_are_calibrated_or_those_of_the_loss(model: Path, predict: Predict) -> None:
    with raises_code("no-probabilities", model):
        Model(model).predict_proba(LINES)
    margins = np.array([2.0, -2.0, 0.5, 0.0])
    found = amended(model, loss="logistic").predict_proba(LINES)
    np.testing.assert_allclose(found, np.stack([expit(-margins), expit(margins)], axis=1))
    calibration = {"method": "sigmoid", "slopes": [0.5], "offsets": [1.0]}
    calibrated = amended(model, loss="hinge", calibration=calibration)
    np.testing.assert_allclose(calibrated.predict_proba(LINES)[:, 1], expit(0.5 * margins + 1))
    rows = predict(model, "--margins", "--proba")
    assert [row[0] for row in rows] == ["c1", "c0", "c1", "c0"]
    numbers = np.array([row[1:] for row in rows], float)
    np.testing.assert_allclose(numbers[:, 0], margins)
    np.testing.assert_allclose(numbers[:, 1:], calibrated.predict_proba(LINES), rtol=1e-5)


def test_a_threshold_decides_between_two_classes(model: Path) -> None:
    found = amended(model, threshold={"rule": {"rule": "top", "value": 0.2}, "outputs": [OUTPUT], "rows": 10})
    assert found.predict(LINES) == ["c1", "c0", "c0", "c0"]


@pytest.mark.parametrize(
    "entries",
    [
        {"calibration": {"method": "sigmoid", "slopes": [1.0, 1.0], "offsets": [0.0, 0.0]}},
        {"calibration": {"method": "sigmoid", "slopes": ["x"], "offsets": [0.0]}},
        {"threshold": {"rule": "f1", "outputs": [], "rows": 1}},
        {"threshold": "f1"},
        {"calibration": {"method": "sigmoid", "slopes": [1e308], "offsets": [0.0]}},
        {"calibration": {"method": "sigmoid", "slopes": [1.0], "offsets": [-1e308]}},
        {"threshold": {"rule": {"rule": "top", "value": 0.2}, "outputs": [OUTPUT | {"margin": -1e308}], "rows": 10}},
        {"intercept": [1e308]},
        {"features": {"count": 5}},
        {"features": {"count": 0}},
        {"features": {"hash_bits": 3}},
        {"features": {"kind": "hashed"}},
        {"positive_class": "zzz"},
        {"classes": ["a", "a"]},
        {"labels": "numbers"},
    ],
    ids=str,
)
@pytest.mark.fault(51, 57)
def test_a_description_of_another_model_is_refused(model: Path, entries: dict[str, Any]) -> None:
    if "features" in entries:
        entries = {"features": read_json(model / "model.json")["features"] | entries["features"]}
    with raises_code("corrupt-model", model, kind=StorageError):
        amended(model, **entries)


def test_a_model_of_an_earlier_version_is_told(model: Path) -> None:
    described = read_json(model / "model.json")
    del described["weighting"]
    commit_json(model / "model.json", described)
    with raises_code("format-version", model, kind=StorageError):
        Model(model)


@pytest.mark.fault(55)
def test_a_folder_without_a_model_of_its_own_is_named(tmp_path: Path) -> None:
    with raises_code("missing-model", tmp_path):
        Model(tmp_path)
    elsewhere = ("../elsewhere", "/elsewhere", "models/../../x", "models/00000001/../../..", 3)
    for promoted in ({"increment": 3}, *({"model": name} for name in elsewhere)):
        commit_json(tmp_path / "promoted.json", promoted)
        with raises_code("corrupt-file", "promoted.json", kind=StorageError):
            Model(tmp_path)
    commit_json(tmp_path / "promoted.json", {"model": "models/00000003"})
    with raises_code("missing-model", tmp_path):
        Model(tmp_path)


@pytest.mark.fault(55)
def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path, model: Path) -> None:
    commit_json(tmp_path / "run" / "promoted.json", {"model": "models/00000001"})
    (tmp_path / "run" / "models").mkdir()
    (tmp_path / "run" / "models" / "00000001").symlink_to(model)
    with raises_code("outside-folder", "promoted.json", kind=StorageError):
        Model(tmp_path / "run")


@pytest.mark.parametrize(
    "column",
    [{"class": "other"}, {"feature_id": -1}, {"weight": np.nan}, {"weight": -1e308}, {"weight": None}, {"weight": "1"}],
    ids=str,
)
@pytest.mark.fault(51)
def test_a_table_of_other_weights_is_refused(model: Path, column: dict[str, object]) -> None:
    """Its digest matches: someone computed it again."""
    table = Model(model).table
    for name, value in column.items():
        values = pa.array([value] * len(table), pa.string() if value == "1" else table.schema.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), name, values)
    write_parquet(model / "weights.parquet", table)
    amend_model(model, {"weights_sha256": digest_file(model / "weights.parquet")})
    with raises_code("corrupt-model", "weights.parquet", kind=StorageError):
        Model(model)


def test_margins_are_the_sums_of_values_times_weights(model: Path) -> None:
    """Bit for bit those of SciPy's product; with norms, features without a weight count too."""
    found = Model(model)
    expected = found.values(LINES) @ found.weights + found.intercepts
    assert found.margins(LINES).tobytes() == expected.tobytes()
    assert expected[:3, 0].tolist() == [2.0, -2.0, 0.5]


# ----------------------------------------------------------------------------------------------------------------------
# A saved write computes the values it was trained on from text, and those of new text as scikit-learn does.


TEXTS, NEW = random_texts(60), [*random_texts(20, seed=1), "unknown words alpha", "", "unknown"]
by_weighting = pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: w.label)
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
    return np.asarray(tfidf(weighting).fit(X).transform(new).toarray())


def write(folder: Path, store: Path, weighting: Weighting, used: np.ndarray) -> Model:
    weights = dict(zip(used.tolist(), np.arange(1.0, used.size + 1), strict=True))
    return model_with(folder, Store.open(store), weights, weighting=weighting.model_dump())


@by_weighting
def test_values_of_texts(stores: tuple[Path, csr_matrix], tmp_path: Path, weighting: Weighting) -> None:
    store, counts = stores
    X, _ = read_shards(store)
    used = np.unique(X.indices)[::2]
    saved = write(tmp_path / "model", store, weighting, used)
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
    saved = write(tmp_path / "model", stores[0], Weighting(tf="log", idf=True, norm="l2"), np.array([0, 3]))
    path = saved.folder / "vocabulary.parquet"
    path.write_bytes(path.read_bytes()[:-1])  # type: ignore[union-attr]
    with raises_code("corrupt-model", "vocabulary.parquet", kind=DamagedError):
        Model(saved.folder).margins(NEW)


def test_a_model_of_selected_features_needs_only_these(stores: tuple[Path, csr_matrix], tmp_path: Path) -> None:
    """Its idf is that of the whole store, and its norms are of the selected features."""
    store, weighting = stores[0], Weighting(tf="log", idf=True, norm="l2")
    X, _ = read_shards(store)
    used = np.unique(X.indices)[1::2]
    write(tmp_path / "first", store, weighting, used)
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
