"""Searches that start from a model: from its weights or its state, or on its features."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client

from sparseoco.core.errors import StorageError
from sparseoco.core.logs import progress_to
from sparseoco.execution.clusters import ClusterOptions
from sparseoco.learners import find_algorithm
from sparseoco.offline.epochs import fit_epochs
from sparseoco.pipeline import comparators, steps
from sparseoco.report.page import summary_markdown
from sparseoco.search.run import model_features, selected_features
from sparseoco.storage.commit import commit_json, read_json
from sparseoco.store.entries import add_entries
from sparseoco.store.manifest import FeatureTable, commit_manifest
from sparseoco.store.shards import Session, Store, open_store, read_shards, write_terms
from sparseoco.store.terms import read_feature_subset
from sparseoco.training.block import Origin, check_origin, resume_learner, take_weights
from sparseoco.training.learner import Learner
from sparseoco.training.models import Model
from sparseoco.training.search_tables import read_metrics
from tests.support.damage import damage, flip, flip_bit, stopped_at
from tests.support.errors import raises_code
from tests.support.models import dense_weights, model_with
from tests.support.searches import TablesOf, cells, configuration, plain_search
from tests.support.stores import make_store, store_of, with_classes

# ----------------------------------------------------------------------------------------------------------------------
# Runs that begin from a saved model: exactly where they can, else from its weights by name.


FEATURES = 200
HERE = ClusterOptions(threads=2)
pytestmark = pytest.mark.usefixtures("here")


def changed(store: Path, **fields: Any) -> Path:
    """The store with another newest manifest."""
    manifest = Store.open(store).manifest
    commit_manifest(store, manifest.model_copy(update={"version": manifest.version + 1, **fields}))
    return store


def with_terms(store: Path, terms: list[str]) -> Path:
    """The store with other words for its features."""
    seen = np.ones(len(terms), np.int64)
    entry = write_terms(store, "vocabulary", np.arange(len(terms)), pa.array(terms), seen, seen)
    return changed(store, features=FeatureTable(kind="vocabulary", count=len(terms), files=(entry,)))


def hashed(store: Path, bits: int = 8) -> Path:
    """The store with hashed features, each of two terms."""
    ids = np.repeat(np.arange(FEATURES), 2)
    entry = write_terms(store, "names", ids, pa.array([f"h{i}" for i in range(2 * FEATURES)]), ids + 1, ids + 1)
    table = FeatureTable(kind="hashed", count=2**bits, files=(entry,), hash_bits=bits)
    return changed(store, features=table)


def train(
    store: Path, model: Path, algorithm: str = "stda", *, epochs: int = 1, parameters: Any = None, **options: Any
) -> Model:
    """Train in document order, with λ = 0.001 unless parameters are given."""
    definition = find_algorithm(algorithm)
    if parameters is None:
        parameters = {"lam": 1e-3} if definition.driver == "stream" else {}
    order = {"shuffle": False} if definition.online else {}
    paths = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    chosen = configuration(algorithm, **parameters)
    steps.train(store, model, chosen, plain_search(algorithms={algorithm: {}}, **order | paths), HERE, epochs=epochs)
    return Model(model)


def state(model: Path) -> bytes:
    return (model / "learner.npz").read_bytes()


@pytest.mark.parametrize("algorithm", ["stda", "ons"])
def test_a_grown_vocabulary(tmp_path: Path, algorithm: str) -> None:
    """A learner continues with the new features, unless it touches all features."""
    store = make_store(tmp_path / "store")
    train(store, tmp_path / "first", algorithm)
    files = Store.open(store).manifest.features.files
    ids, seen = np.arange(FEATURES, FEATURES + 2), np.ones(2, np.int64)
    more = write_terms(store, "vocabulary", ids, pa.array(["new", "newer"]), seen, seen)
    changed(store, features=FeatureTable(kind="vocabulary", count=FEATURES + 2, files=(*files, more)))
    model = train(store, tmp_path / "second", warm_start=tmp_path / "first", algorithm=algorithm)
    resumable = algorithm == "stda"
    assert model.description["warm_start"]["state"] is resumable
    if resumable:
        train(store, tmp_path / "long", epochs=2, algorithm=algorithm)
        assert state(tmp_path / "second") == state(tmp_path / "long")


@pytest.mark.parametrize("algorithm", ["stda", "cl-fobos", pytest.param("cao-ftrl", marks=pytest.mark.slow)])
def test_a_resumed_learner_has_the_bits_of_an_uninterrupted_run(store: Path, tmp_path: Path, algorithm: str) -> None:
    """In the order of documents, two calls of one epoch are a call of two."""
    train(store, tmp_path / "long", epochs=3, algorithm=algorithm)
    train(store, tmp_path / "first", epochs=1, algorithm=algorithm)
    last = train(store, tmp_path / "last", warm_start=tmp_path / "first", epochs=2, algorithm=algorithm)
    assert state(tmp_path / "last") == state(tmp_path / "long")
    weights = [(tmp_path / name / "weights.parquet").read_bytes() for name in ("last", "long")]
    assert weights[0] == weights[1]
    assert last.description["rounds"] == 900
    taken = last.description["warm_start"]
    assert taken["state"]
    assert taken["model_sha256"] == Origin.of(tmp_path / "first").sha256


def test_new_rows_of_the_same_features(tmp_path: Path) -> None:
    """As one learner that learns the rows of one store, then of the other."""
    old, new = make_store(tmp_path / "old"), make_store(tmp_path / "new", rows=170)
    train(old, tmp_path / "first")
    model = train(new, tmp_path / "second", warm_start=tmp_path / "first")
    arguments: dict[str, Any] = {"n_features": FEATURES, "dtype": "float64", "intercept": True}
    learner = Learner("stda", grid=[model.description["parameters"]], **arguments)
    for store in map(Store.open, (old, new)):
        for shard in range(store.n_shards):
            rows = store.read(shard)
            learner.learn_rows(rows.indptr, rows.indices, rows.counts, rows.labels)
    learner.save(tmp_path / "whole")
    assert state(tmp_path / "second") == (tmp_path / "whole").read_bytes()
    curve = model.description["warm_start"]
    assert (curve["state"], curve["found"]) == (True, curve["weights"])


def begun(algorithm: str, store: Path, model: Path, classes: int = 2, **parameters: Any) -> tuple[Learner, int]:
    learner = Learner(
        algorithm, grid=[parameters], n_features=Store.open(store).n_features, n_classes=classes, dtype="float64"
    )
    return learner, take_weights(Origin.of(model), learner, Store.open(store))


def test_another_learner_starts_from_the_weights(store: Path, tmp_path: Path) -> None:
    model = train(store, tmp_path / "first", epochs=2)
    for algorithm in ("cl-fobos", "fobos"):
        learner, found = begun(algorithm, store, tmp_path / "first")
        expected = np.zeros(FEATURES)
        expected[model.table["feature_id"].to_numpy()] = model.table["weight"].to_numpy()
        np.testing.assert_allclose(learner.weights()[:, 0], expected, rtol=1e-5, atol=1e-7)
        assert (found, learner.rounds, learner.progress.rows) == (len(model.table), 600, 0)
    # One parameter or the penalty's λ is another learner.
    warm = train(store, tmp_path / "second", warm_start=tmp_path / "first", parameters={"lam": 1e-2})
    assert not warm.description["warm_start"]["state"]
    assert warm.description["rounds"] == 900
    assert warm.description["warm_start"]["found"] == len(model.table)
    # A model that was saved without its state has its weights.
    (tmp_path / "first" / "learner.npz").unlink()
    described = read_json(tmp_path / "first" / "model.json")
    for name in ("learner_sha256", "rounds"):
        del described[name]
    commit_json(tmp_path / "first" / "model.json", described)
    older = train(store, tmp_path / "third", warm_start=tmp_path / "first")
    assert (older.description["warm_start"]["state"], older.description["rounds"]) == (False, 900)


def test_features_are_found_by_name(store: Path, tmp_path: Path) -> None:
    model = train(store, tmp_path / "first")
    here = dict(zip(model.table["feature"].to_pylist(), model.table["weight"].to_pylist(), strict=True))
    terms = [f"t{i}" for i in reversed(range(0, FEATURES, 2))] + [f"new{i}" for i in range(FEATURES // 2)]
    other = with_terms(make_store(tmp_path / "other"), terms)
    learner, found = begun("cl-fobos", other, tmp_path / "first")
    np.testing.assert_allclose(learner.weights()[:, 0], [here.get(term, 0.0) for term in terms], rtol=1e-6)
    assert 0 < found == sum(term in here for term in terms) < len(here)
    # The same learner on other features begins from weights, and says how many it found.
    assert train(other, tmp_path / "second", warm_start=tmp_path / "first").description["warm_start"] == {
        "model_sha256": Origin.of(tmp_path / "first").sha256,
        "state": False,
        "weights": len(here),
        "found": found,
    }
    # The same words in another order are other features, though every file is as long.
    turned = with_terms(make_store(tmp_path / "turned"), [f"t{i}" for i in reversed(range(FEATURES))])
    assert not train(turned, tmp_path / "third", warm_start=tmp_path / "first").description["warm_start"]["state"]
    strange = with_terms(make_store(tmp_path / "strange"), [f"s{i}" for i in range(FEATURES)])
    with raises_code("no-common-features"):
        begun("cl-fobos", strange, tmp_path / "first")


def test_hashed_features_are_found_by_id(tmp_path: Path) -> None:
    store = hashed(make_store(tmp_path / "store"), 8)
    model = train(store, tmp_path / "first")
    learner, found = begun("cl-fobos", store, tmp_path / "first")
    np.testing.assert_array_equal(np.flatnonzero(learner.weights()), model.table["feature_id"].to_numpy())
    assert found == len(model.table)
    assert train(store, tmp_path / "second", warm_start=tmp_path / "first").description["warm_start"]["state"]
    with raises_code("features-differ", "hash_bits=8", "hash_bits=9"):
        check_origin(Origin.of(tmp_path / "first"), Store.open(hashed(make_store(tmp_path / "finer"), 9)))
    with raises_code("features-differ", "hashed features", "a vocabulary"):
        check_origin(Origin.of(tmp_path / "first"), Store.open(make_store(tmp_path / "words")))


def test_classes_are_found_by_name(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "two")
    model, _ = begun("cl-fobos", store, tmp_path / "two")
    w = model.weights()[:, 0]
    turned, _ = begun("cl-fobos", with_classes(make_store(tmp_path / "turned"), "c1", "c0"), tmp_path / "two")
    np.testing.assert_array_equal(turned.weights()[:, 0], -w)
    three = with_classes(make_store(tmp_path / "three", classes=3), "c1", "other", "c0")
    wide, _ = begun("cl-fobos", three, tmp_path / "two", classes=3)
    np.testing.assert_array_equal(wide.weights(), np.column_stack([w, np.zeros(FEATURES), -w]))
    train(three, tmp_path / "many")
    again, _ = begun(
        "cl-fobos", with_classes(make_store(tmp_path / "four"), "c0", "c1", "x", "other"), tmp_path / "many", 4
    )
    same, _ = begun("cl-fobos", three, tmp_path / "many", 3)
    np.testing.assert_array_equal(again.weights()[:, [1, 3, 0]], same.weights())
    assert not again.weights()[:, 2].any()
    assert same.weights().any(axis=0).all()
    with raises_code("unknown-class", "'other'", "c0, c1"):
        begun("cl-fobos", store, tmp_path / "many")


def test_every_configuration_starts_from_the_weights(tables_of: TablesOf, store: Path, tmp_path: Path) -> None:
    """And its cells are never taken for those of a search that began from nothing, or from another model."""
    for name, epochs in (("first", 1), ("other", 2)):
        train(store, tmp_path / name, epochs=epochs)
    cold = plain_search(algorithms={"cl-fobos": {"lam": [1e-4, 1e-3]}, "fobos": {"lam": [1e-3]}}, folds=2)

    def search(warm_start: str | None) -> list[float]:
        options = cold.model_copy(update={"warm_start": warm_start and str(tmp_path / warm_start)})
        tables = tables_of(store, "search", options)
        assert {row["status"] for row in tables["metrics"]} == {"ok"}
        return [row["progressive_loss"] for row in tables["metrics"]]

    nothing, first, other = search(None), search("first"), search("other")
    assert all(warm < bare for warm, bare in zip(first, nothing, strict=True))
    assert not set(first) & set(other)
    before = cells(tmp_path / "search")
    assert (search("first"), search(None)) == (first, nothing)
    assert cells(tmp_path / "search") == before


def test_models_that_cannot_be_a_warm_start(store: Path, tmp_path: Path) -> None:
    with raises_code("missing-model", "nothing"):
        train(store, tmp_path / "out", warm_start=tmp_path / "nothing")
    train(store, tmp_path / "first")
    origin = Origin.of(tmp_path / "first")
    learner = Learner("stda", grid={"lam": 1e-3}, n_features=FEATURES, dtype="float64")
    flip(tmp_path / "first" / "learner.npz")
    with raises_code("corrupt-model", "learner.npz", kind=StorageError):
        resume_learner(origin, learner, Store.open(store))
    (tmp_path / "first" / "model.json").write_text((tmp_path / "first" / "model.json").read_text() + " ")
    with raises_code("model-replaced", kind=StorageError):
        resume_learner(origin, learner, Store.open(store))


# ----------------------------------------------------------------------------------------------------------------------
# Learning on the features that a model kept: as on the columns cut out of the matrix, whatever the learner.


@pytest.mark.parametrize(
    ("kind", "classes"), [("plain", 2), ("hashed", 3), ("classes", 3), ("multi", 3), ("numbers", 3)]
)
def test_a_learner_of_a_stream(tmp_path: Path, kind: str, classes: int) -> None:
    """Weights are those of the columns cut out, the others 0; the model says whose features they are."""
    store = store_of(tmp_path / "store", "plain" if kind == "hashed" else kind, classes=classes, shard_rows=41)
    loss = {"loss": "squared" if kind == "numbers" else "logistic"}
    if kind == "hashed":
        hashed(store)
    first = train(store, tmp_path / "first", "adagrad", parameters={"eta": 1.0, "lam": 1e-2}, **loss)
    kept, opened, algorithm = first.feature_ids, Store.open(store), "adagrad" if kind == "numbers" else "rda"
    n_features, weights = opened.n_features, opened.column("weight") if opened.manifest.columns else None
    assert 0 < kept.size < n_features
    own = {"parameters": {"lam": 1e-4}, "features_from": first.folder}
    model = train(store, tmp_path / "second", algorithm, epochs=2, **own, **loss)
    matrix, _ = read_shards(store)
    shape = {"n_features": kept.size, "n_classes": opened.n_classes, "multilabel": opened.is_multilabel}
    shape |= {"grid": [model.description["parameters"]], "dtype": "float64", "intercept": True}
    learner = Learner(algorithm, **shape, **loss)
    for _ in range(2):
        learner.partial_fit(matrix[:, kept], opened.labels(), weights)
    expected = np.zeros((n_features, learner.n_outputs))
    expected[kept] = learner.weights()
    np.testing.assert_array_equal(dense_weights(model, n_features), expected)
    learner.save(tmp_path / "learner")
    assert (model.folder / "learner.npz").read_bytes() == (tmp_path / "learner").read_bytes()
    source = model.description["features_from"]
    assert source["model_sha256"] == Origin.of(first.folder).sha256
    assert source["features"] == kept.size
    assert model.description["provenance"]["store"] == Store.open(store).manifest.digest
    assert not (model.folder / ".features").exists()
    named = dict(zip(first.table["feature_id"].to_pylist(), first.table["feature"].to_pylist(), strict=True))
    for feature, name in zip(model.table["feature_id"].to_pylist(), model.table["feature"].to_pylist(), strict=True):
        assert named[feature] == name
    assert model.predict(["t1 t2", "t3"])  # text is read with the features of the store


@pytest.mark.parametrize("algorithm", ["caos-erm", "cao-rcd"])
def test_an_epoch_method(store: Path, tmp_path: Path, algorithm: str) -> None:
    first = train(store, tmp_path / "first", "cl-fobos", parameters={"lam": 3e-2})
    kept = first.feature_ids
    parameters = {"alpha": 1.0, "rounds": 50}
    model = train(store, tmp_path / "second", algorithm, parameters=parameters, features_from=first.folder)
    matrix, _ = read_shards(store)
    arguments = {"algorithm": algorithm, "grid": [parameters], "epochs": 1, "fit_intercept": True}
    fit = fit_epochs(matrix[:, kept], Store.open(store).labels(), **arguments)
    weights = dense_weights(model, Store.open(store).n_features)
    np.testing.assert_array_equal(weights[kept], fit.weights)
    assert np.count_nonzero(weights) == np.count_nonzero(fit.weights) > 0
    assert model.intercepts.tolist() == fit.intercepts[0].tolist()


def test_a_search_and_its_regret(tmp_path: Path) -> None:
    """For any shards; cells are never those of all features; the best is learned on the same features."""
    tables = []
    for name, shard_rows in (("a", 300), ("b", 41)):
        store = make_store(tmp_path / name / "store", shard_rows=shard_rows)
        first = train(store, tmp_path / name / "first", "cl-fobos", parameters={"lam": 3e-2})
        options = plain_search(
            algorithms={"fobos": {"lam": [1e-4, 1e-3]}, "stda": {"lam": [1e-3]}},
            folds=2,
            features_from=str(first.folder),
        )
        out = tmp_path / name / "run"
        steps.search(store, out, options, HERE)
        steps.train_best(store, out, HERE)
        cells = set((out / "search" / "cells").iterdir())
        tables.append(read_metrics(out).drop_columns("seconds").to_pylist())
        assert all(row["nonzeros"] <= first.feature_ids.size for row in tables[-1])
        assert set(Model(out / "model").feature_ids) <= set(first.feature_ids)
        run = read_json(out / "run.json")
        assert (run["search"]["features_from"], run["corpus"]["features"]) == ("../first", 200)
        assert run["corpus"]["features_from"]["same_documents"]
        optimistic, *_ = read_json(out / "search" / "best.json")["notes"]
        assert optimistic.startswith("the held-out figures are optimistic: the model of features_from")
        assert optimistic in summary_markdown(out).replace("\\", "")
        assert f"{first.feature_ids.size} features" in summary_markdown(out)
        assert not (out / ".features").exists()
        steps.search(store, out, options, HERE)  # found, though the features were made again
        assert set((out / "search" / "cells").iterdir()) == cells
        steps.search(store, out, options.model_copy(update={"features_from": None}), HERE)
        assert len(list((out / "search" / "cells").iterdir())) == 2 * len(cells)
    assert tables[0] == tables[1]
    steps.search(store, out, options, HERE)
    comparators.regret(out, HERE, marks=3)
    (first.folder / "model.json").write_text((first.folder / "model.json").read_text() + " ")
    with raises_code("model-replaced", out):
        comparators.regret(out, HERE, marks=3)


def keeping(folder: Path, store: Path, features: list[int]) -> Path:
    """A model with weights for these features."""
    return model_with(folder, Store.open(store), dict.fromkeys(features, 1.0)).folder


def test_resuming(store: Path, tmp_path: Path) -> None:
    """From the state where the features are the same ones, else from weights by name."""
    even = {"features_from": keeping(tmp_path / "even", store, list(range(0, 200, 2)))}
    odd = {"features_from": keeping(tmp_path / "odd", store, list(range(1, 200, 2)))}
    third = {"features_from": keeping(tmp_path / "third", store, list(range(0, 200, 3)))}
    long = train(store, tmp_path / "long", "fobos", epochs=2, **even)
    half = train(store, tmp_path / "half", "fobos", **even)
    rest = train(store, tmp_path / "rest", "fobos", warm_start=half.folder, **even)
    assert rest.description["warm_start"]["state"]
    assert (rest.folder / "learner.npz").read_bytes() == (long.folder / "learner.npz").read_bytes()
    whole = train(store, tmp_path / "whole", "fobos", warm_start=half.folder).description["warm_start"]
    assert (whole["state"], whole["found"]) == (False, half.description["nonzeros"])
    some = train(store, tmp_path / "some", "fobos", warm_start=half.folder, **third).description["warm_start"]
    assert (some["state"], some["found"]) == (False, np.sum(half.feature_ids % 6 == 0))
    with raises_code("no-common-features"):  # as many features, but others
        train(store, tmp_path / "none", "fobos", warm_start=half.folder, **odd)


def test_models_whose_features_cannot_be_taken(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    model = keeping(tmp_path / "model", store, [3, 5])
    with raises_code("missing-model", "nothing"):
        train(store, tmp_path / "out", features_from=tmp_path / "nothing")
    with raises_code("invalid-warm-start", model):
        train(store, model, features_from=model)
    with raises_code("no-features", "empty"):
        train(store, tmp_path / "out", features_from=keeping(tmp_path / "empty", store, []))
    with raises_code("features-differ", model):
        train(hashed(make_store(tmp_path / "hashed")), tmp_path / "out", features_from=model)
    with_terms(store, [f"w{i}" for i in range(FEATURES)])
    with raises_code("features-differ", model):
        train(store, tmp_path / "out", features_from=model)


@pytest.mark.fault(52)
def test_intact_files_of_a_killed_run_are_reused(client: Client, tmp_path: Path) -> None:
    store = Store.open(make_store(tmp_path / "store", shard_rows=50))
    origin = Origin.of(keeping(tmp_path / "model", store.folder, [3, 5, 190]))
    kept = model_features(origin, store)
    options, folder = plain_search(algorithms={"rda": {}}, features_from=origin.model), tmp_path / "out" / ".features"
    stopped = stopped_at("sparseoco.store.terms.commit_feature_subset")
    with stopped, selected_features(Session(client, store), options, tmp_path / "out"):
        pass
    (own,) = folder.iterdir()
    stamps = {path: path.stat().st_mtime_ns for path in own.glob("entry-*.json")}
    assert len(stamps) == 6
    first, second, *_ = stamps
    first.unlink()
    flip_bit(second, random.Random(0))
    shard = max(own.glob("shard-*.parquet"))
    shard.write_bytes(shard.read_bytes()[:100])
    events: list[tuple[str, int, int]] = []
    reported = progress_to(lambda *event: events.append(event))
    with reported, selected_features(Session(client, store), options, tmp_path / "out") as selected:
        rows = selected.store
        assert {path.stat().st_mtime_ns == stamp for path, stamp in stamps.items()} == {True, False}
        assert (rows.n_rows, rows.n_features, rows.classes) == (300, 3, store.classes)
        matrix, terms = read_shards(rows.folder)
        assert terms == ["t3", "t5", "t190"]
        np.testing.assert_array_equal(matrix.toarray(), read_shards(store.folder)[0][:, kept.features].toarray())
        np.testing.assert_array_equal(rows.document_frequencies(), store.document_frequencies()[kept.features])
        damage(rows.folder / rows.manifest.features.files[0].file, "cut", random.Random(0))
        with selected_features(Session(client, store), options, tmp_path / "out") as again:
            assert again.store.manifest == rows.manifest
            assert again.store.vocabulary()["term"].to_pylist() == terms
    assert events[-1] == ("features", 6, 6)
    assert not folder.exists()
    (tmp_path / "model" / "model.json").write_text("{}")
    with raises_code("model-replaced", kind=StorageError):
        model_features(origin, store)


def test_a_store_that_changes_meanwhile(client: Client, tmp_path: Path) -> None:
    """A later version does not matter; if the version that was planned with is another one, nothing is mixed."""
    store = Store.open(make_store(tmp_path / "store"))
    model = keeping(tmp_path / "model", store.folder, [3, 5])
    options = plain_search(algorithms={"rda": {}}, features_from=str(model))
    with selected_features(Session(client, store), options, tmp_path / "out") as selected:
        rows = selected.store
        fewer = {"version": 2, **add_entries(store.folder, None, store.shards[:-1])}
        commit_manifest(store.folder, store.manifest.model_copy(update=fewer))
        assert read_feature_subset(rows.folder).source.manifest == store.manifest
        (tmp_path / "store" / "manifest-00000001.json").unlink()
        commit_manifest(store.folder, store.manifest.model_copy(update=fewer | {"version": 1}))
        open_store.cache_clear()
        with raises_code("store-changed", store.folder, kind=StorageError):
            read_feature_subset(rows.folder)
