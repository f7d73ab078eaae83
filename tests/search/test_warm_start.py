"""Runs that begin from a saved model: exactly where they can, else from its weights by name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client
from pydantic import ValidationError

from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import ClusterOptions, connect
from sparseoco.learners import find_algorithm
from sparseoco.search.models import train_model
from sparseoco.search.runner import search_configurations
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.store.manifest import ClassEntry, FeatureTable, LabelTable, commit_manifest
from sparseoco.store.shards import Store, write_names, write_vocabulary
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from sparseoco.training.options import Configuration
from sparseoco.training.warm_start import Origin, check_origin, resume_learner, take_weights
from tests.support.errors import raises_code
from tests.support.searches import plain_search
from tests.support.stores import make_store

FEATURES = 200


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connect(ClusterOptions(threads=2), tmp_path_factory.mktemp("scratch")) as client:
        yield client


def changed(store: Path, **fields: Any) -> Path:
    """The store with another newest manifest."""
    manifest = Store.open(store).manifest
    commit_manifest(store, manifest.model_copy(update={"version": manifest.version + 1, **fields}))
    return store


def with_terms(store: Path, terms: list[str]) -> Path:
    """The store with other words for its features."""
    seen = np.ones(len(terms), np.int64)
    entry = write_vocabulary(store, np.arange(len(terms)), pa.array(terms), seen, seen)
    return changed(store, features=FeatureTable(kind="vocabulary", count=len(terms), files=(entry,)))


def with_classes(store: Path, *names: str) -> Path:
    return changed(store, labels=LabelTable(kind="classes", classes=tuple(ClassEntry(name=n, rows=1) for n in names)))


def hashed(store: Path, bits: int) -> Path:
    ids = np.arange(FEATURES)
    entry = write_names(store, ids, pa.array([f"h{i}" for i in ids]), ids + 1, ids + 1)
    return changed(
        store, features=FeatureTable(kind="hashed", count=2**bits, files=(entry,), hash_bits=bits, hash_seed=0)
    )


def train(
    client: Client,
    store: Path,
    model: Path,
    warm_start: Path | None = None,
    *,
    algorithm: str = "stda",
    epochs: int = 1,
    shuffle: bool = False,
    **parameters: Any,
) -> Model:
    definition = find_algorithm(algorithm)
    lam = {"lam": 1e-3} if definition.driver == "stream" else {}
    values = definition.configuration(lam | parameters)
    options = plain_search(
        algorithms={algorithm: {}}, shuffle=shuffle, warm_start=None if warm_start is None else str(warm_start)
    )
    configuration = Configuration(number=0, algorithm=algorithm, parameters=values)
    train_model(client, configuration, options, epochs, Store.open(store), model, lambda *_: None)
    return Model(model)


def state(model: Path) -> bytes:
    return (model / "learner.npz").read_bytes()


@pytest.mark.parametrize("algorithm", ["stda", "ogd"])
def test_a_grown_vocabulary(client: Client, tmp_path: Path, algorithm: str) -> None:
    """A learner continues with the new features, unless it touches all features."""
    store = make_store(tmp_path / "store")
    train(client, store, tmp_path / "first", algorithm=algorithm)
    files = Store.open(store).manifest.features.files
    more = write_vocabulary(
        store, np.arange(FEATURES, FEATURES + 2), pa.array(["new", "newer"]), np.ones(2, np.int64), np.ones(2, np.int64)
    )
    changed(store, features=FeatureTable(kind="vocabulary", count=FEATURES + 2, files=(*files, more)))
    model = train(client, store, tmp_path / "second", tmp_path / "first", algorithm=algorithm)
    resumable = algorithm == "stda"
    assert model.description["warm_start"]["state"] is resumable
    if resumable:
        train(client, store, tmp_path / "long", epochs=2, algorithm=algorithm)
        assert state(tmp_path / "second") == state(tmp_path / "long")


@pytest.mark.parametrize("algorithm", ["stda", "cl-fobos", pytest.param("cao-ftrl", marks=pytest.mark.slow)])
def test_a_resumed_learner_has_the_bits_of_an_uninterrupted_run(client: Client, tmp_path: Path, algorithm: str) -> None:
    """In the order of documents, two calls of one epoch are a call of two."""
    store = make_store(tmp_path / "store")
    train(client, store, tmp_path / "long", epochs=3, algorithm=algorithm)
    train(client, store, tmp_path / "first", epochs=1, algorithm=algorithm)
    last = train(client, store, tmp_path / "last", tmp_path / "first", epochs=2, algorithm=algorithm)
    assert state(tmp_path / "last") == state(tmp_path / "long")
    weights = [(tmp_path / name / "weights.parquet").read_bytes() for name in ("last", "long")]
    assert weights[0] == weights[1]
    assert last.description["rounds"] == 900
    taken = last.description["warm_start"]
    assert taken["state"]
    assert taken["model_sha256"] == Origin.of(tmp_path / "first").sha256


def test_new_rows_of_the_same_features(client: Client, tmp_path: Path) -> None:
    """As one learner that learns the rows of one store, then of the other."""
    old, new = make_store(tmp_path / "old"), make_store(tmp_path / "new", rows=170)
    train(client, old, tmp_path / "first")
    model = train(client, new, tmp_path / "second", tmp_path / "first")
    arguments: dict[str, Any] = {"n_features": FEATURES, "dtype": "float32", "intercept": True}
    learner = Learner("stda", grid=[model.description["parameters"]], **arguments)
    for store in map(Store.open, (old, new)):
        for shard in range(store.n_shards):
            rows = store.read(shard)
            learner.learn_rows(rows.indptr, rows.indices, rows.counts, rows.labels)
    learner.save(tmp_path / "whole")
    assert state(tmp_path / "second") == (tmp_path / "whole").read_bytes()
    curve = model.description["warm_start"]
    assert (curve["state"], curve["found"]) == (True, curve["weights"])


def test_shuffled_streams_are_those_of_each_call(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    train(client, store, tmp_path / "first", shuffle=True)
    train(client, store, tmp_path / "again", tmp_path / "first", shuffle=True)
    other = Learner.load(tmp_path / "first" / "learner.npz")
    assert other.progress.rows == 300
    train(client, store, tmp_path / "twice", tmp_path / "first", shuffle=True)
    assert state(tmp_path / "twice") == state(tmp_path / "again")


def begun(algorithm: str, store: Path, model: Path, classes: int = 2, **parameters: Any) -> tuple[Learner, int]:
    learner = Learner(
        algorithm, grid=[parameters], n_features=Store.open(store).n_features, n_classes=classes, dtype="float32"
    )
    return learner, take_weights(Origin.of(model), learner, Store.open(store))


def weights_by_name(model: Model) -> dict[str, float]:
    return dict(zip(model.table["feature"].to_pylist(), model.table["weight"].to_pylist(), strict=True))


def test_another_learner_starts_from_the_weights(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    model = train(client, store, tmp_path / "first", epochs=2)
    for algorithm in ("cl-fobos", "rda"):
        learner, found = begun(algorithm, store, tmp_path / "first")
        expected = np.zeros(FEATURES)
        expected[model.table["feature_id"].to_numpy()] = model.table["weight"].to_numpy()
        np.testing.assert_allclose(learner.weights()[:, 0], expected, rtol=1e-5, atol=1e-7)
        assert (found, learner.rounds, learner.progress.rows) == (len(model.table), 600, 0)
    # One parameter or the penalty's λ is another learner.
    warm = train(client, store, tmp_path / "second", tmp_path / "first", lam=1e-2)
    assert not warm.description["warm_start"]["state"]
    assert warm.description["rounds"] == 900
    assert warm.description["warm_start"]["found"] == len(model.table)
    # A model that was saved without its state has its weights.
    (tmp_path / "first" / "learner.npz").unlink()
    described = read_json(tmp_path / "first" / "model.json")
    for name in ("learner_sha256", "rounds"):
        del described[name]
    commit_json(tmp_path / "first" / "model.json", described)
    older = train(client, store, tmp_path / "third", tmp_path / "first")
    assert (older.description["warm_start"]["state"], older.description["rounds"]) == (False, 900)


def test_features_are_found_by_name(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    model = train(client, store, tmp_path / "first")
    here = weights_by_name(model)
    terms = [f"t{i}" for i in reversed(range(0, FEATURES, 2))] + [f"new{i}" for i in range(FEATURES // 2)]
    other = with_terms(make_store(tmp_path / "other"), terms)
    learner, found = begun("cl-fobos", other, tmp_path / "first")
    np.testing.assert_allclose(learner.weights()[:, 0], [here.get(term, 0.0) for term in terms], rtol=1e-6)
    assert 0 < found == sum(term in here for term in terms) < len(here)
    # The same learner on other features begins from weights, and says how many it found.
    assert train(client, other, tmp_path / "second", tmp_path / "first").description["warm_start"] == {
        "model_sha256": Origin.of(tmp_path / "first").sha256,
        "state": False,
        "weights": len(here),
        "found": found,
    }
    # The same words in another order are other features, though every file is as long.
    turned = with_terms(make_store(tmp_path / "turned"), [f"t{i}" for i in reversed(range(FEATURES))])
    assert not train(client, turned, tmp_path / "third", tmp_path / "first").description["warm_start"]["state"]
    strange = with_terms(make_store(tmp_path / "strange"), [f"s{i}" for i in range(FEATURES)])
    with raises_code("no-common-features"):
        begun("cl-fobos", strange, tmp_path / "first")


def test_hashed_features_are_found_by_id(client: Client, tmp_path: Path) -> None:
    store = hashed(make_store(tmp_path / "store"), 8)
    model = train(client, store, tmp_path / "first")
    learner, found = begun("cl-fobos", store, tmp_path / "first")
    np.testing.assert_array_equal(np.flatnonzero(learner.weights()), model.table["feature_id"].to_numpy())
    assert found == len(model.table)
    assert train(client, store, tmp_path / "second", tmp_path / "first").description["warm_start"]["state"]
    with raises_code("features-differ", "hash_bits=8", "hash_bits=9"):
        check_origin(Origin.of(tmp_path / "first"), Store.open(hashed(make_store(tmp_path / "finer"), 9)))
    with raises_code("features-differ", "hashed features", "a vocabulary"):
        check_origin(Origin.of(tmp_path / "first"), Store.open(make_store(tmp_path / "words")))


def test_classes_are_found_by_name(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    train(client, store, tmp_path / "two")
    model, _ = begun("cl-fobos", store, tmp_path / "two")
    w = model.weights()[:, 0]
    turned, _ = begun("cl-fobos", with_classes(make_store(tmp_path / "turned"), "c1", "c0"), tmp_path / "two")
    np.testing.assert_array_equal(turned.weights()[:, 0], -w)
    three = with_classes(make_store(tmp_path / "three", classes=3), "c1", "other", "c0")
    wide, _ = begun("cl-fobos", three, tmp_path / "two", classes=3)
    np.testing.assert_array_equal(wide.weights(), np.column_stack([w, np.zeros(FEATURES), -w]))
    train(client, three, tmp_path / "many")
    again, _ = begun(
        "cl-fobos", with_classes(make_store(tmp_path / "four"), "c0", "c1", "x", "other"), tmp_path / "many", 4
    )
    same, _ = begun("cl-fobos", three, tmp_path / "many", 3)
    np.testing.assert_array_equal(again.weights()[:, [1, 3, 0]], same.weights())
    assert not again.weights()[:, 2].any()
    assert same.weights().any(axis=0).all()
    with raises_code("unknown-class", "'other'", "c0, c1"):
        begun("cl-fobos", store, tmp_path / "many")


def test_every_configuration_of_a_search_starts_from_the_weights(client: Client, tmp_path: Path) -> None:
    """And its cells are never taken for those of a search that began from nothing, or from another model."""
    store = make_store(tmp_path / "store")
    for name, epochs in (("first", 1), ("other", 2)):
        train(client, store, tmp_path / name, epochs=epochs)
    cold = plain_search(algorithms={"cl-fobos": {"lam": [1e-4, 1e-3]}, "rda": {"lam": [1e-3]}}, folds=2)

    def search(warm_start: str | None) -> list[float]:
        options = cold.model_copy(update={"warm_start": warm_start and str(tmp_path / warm_start)})
        tables = search_configurations(
            client, options.configurations(), options, Store.open(store), tmp_path / "search", lambda *_: None
        )
        assert {row["status"] for row in tables["metrics"]} == {"ok"}
        return [row["progressive_loss"] for row in tables["metrics"]]

    nothing, first, other = search(None), search("first"), search("other")
    assert all(warm < bare for warm, bare in zip(first, nothing, strict=True))
    assert not set(first) & set(other)
    count = len(list((tmp_path / "search" / "cells").iterdir()))
    assert (search("first"), search(None)) == (first, nothing)
    assert len(list((tmp_path / "search" / "cells").iterdir())) == count


def test_models_that_cannot_be_a_warm_start(client: Client, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    with raises_code("missing-model", "nothing"):
        train(client, store, tmp_path / "out", tmp_path / "nothing")
    train(client, store, tmp_path / "first")
    origin = Origin.of(tmp_path / "first")
    learner = Learner("stda", grid={"lam": 1e-3}, n_features=FEATURES, dtype="float32")
    damaged = bytearray(state(tmp_path / "first"))
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "first" / "learner.npz").write_bytes(damaged)
    with raises_code("corrupt-model", "learner.npz", kind=StorageError):
        resume_learner(origin, learner, Store.open(store))
    (tmp_path / "first" / "model.json").write_text((tmp_path / "first" / "model.json").read_text() + " ")
    with raises_code("model-replaced", kind=StorageError):
        resume_learner(origin, learner, Store.open(store))
    with pytest.raises(ValidationError, match=r"caos-erm .* warm_start"):
        plain_search(algorithms={"caos-erm": {}}, warm_start="x")
