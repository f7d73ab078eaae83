"""The intercept and the weights of classes reach the learner, the model and what starts from it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from sparseoco import Learner, Model, Store
from sparseoco.core.option_models import validate
from sparseoco.search.models import write_block
from sparseoco.store.shards import read_shards
from sparseoco.training.block import Block, search_setting
from sparseoco.training.options import SearchOptions
from sparseoco.training.stream import NO_FOLD
from sparseoco.training.warm_start import Origin, take_weights
from tests.support.errors import raises_code
from tests.support.searches import COUNTS, site
from tests.support.stores import make_store

LAM = {"lam": 1e-3}


def options(**changes: Any) -> SearchOptions:
    plain = {"loss": "logistic", "epochs": 1, "features": COUNTS, "algorithms": {"adagrad": LAM}, "shuffle": False}
    return validate(SearchOptions, plain | changes)


def train(store: Path, folder: Path, **changes: Any) -> Model:
    opened, chosen = Store.open(store), options(**changes)
    block = Block.of(search_setting(chosen, opened, NO_FOLD), chosen.configurations())
    write_block(site(opened, folder), block, folder / "model", {})
    return Model(folder / "model")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "store", classes=3)


def same(learner: Learner, model: Model) -> None:
    weights = np.zeros((learner.n_features, 3))
    columns = [model.classes.index(name) for name in model.table["class"].to_pylist()]
    weights[model.table["feature_id"].to_numpy(), columns] = model.table["weight"].to_numpy()
    assert np.array_equal(weights, learner.weights())
    assert np.array_equal(model.intercepts, learner.intercepts()[0])


@pytest.mark.parametrize("intercept", [None, False])
@pytest.mark.parametrize("class_weight", [None, "balanced", {"c1": 2.5}])
def test_a_model_is_that_of_one_learner(store: Path, tmp_path: Path, intercept: bool | None, class_weight: Any) -> None:
    model = train(store, tmp_path, intercept=intercept, class_weight=class_weight)
    X, labels = read_shards(store)[0], Store.open(store).labels()
    names = model.classes
    arguments: dict[str, Any] = {"n_features": X.shape[1], "n_classes": 3, "dtype": "float32"}
    learner = Learner("adagrad", grid=[model.description["parameters"]], intercept=intercept is None, **arguments)
    expected = None
    if class_weight == "balanced":
        expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    elif class_weight:
        expected = np.array([class_weight.get(name, 1.0) for name in names])
    learner.partial_fit(X, labels, None if expected is None else expected[labels])
    recorded = model.description["class_weights"]
    assert recorded is None if expected is None else recorded == pytest.approx(expected)
    assert model.has_intercept == (intercept is None)
    same(learner, model)


def test_a_warm_start_takes_the_intercepts(store: Path, tmp_path: Path) -> None:
    model = train(store, tmp_path)
    arguments: dict[str, Any] = {"n_features": Store.open(store).n_features, "n_classes": 3}
    started = Learner("cl-fobos", intercept=True, **arguments)
    take_weights(Origin.of(model.folder), started, Store.open(store))
    np.testing.assert_allclose(started.intercepts()[0], model.intercepts, rtol=1e-12)
    without = Learner("cl-fobos", **arguments)
    take_weights(Origin.of(model.folder), without, Store.open(store))
    assert not without.intercepts().any()


def test_what_has_no_meaning_is_refused(store: Path) -> None:
    with raises_code("invalid-option", "box"):
        options(algorithms={"fobos": {"R": 1.0}}, penalty="box", intercept=True)
    assert not Block.of(
        search_setting(options(algorithms={"fobos": {"R": 1.0}}, penalty="box"), Store.open(store), NO_FOLD),
        options(algorithms={"fobos": {"R": 1.0}}, penalty="box").configurations(),
    ).intercept
    for bad in ("even", {"c0": -1.0}, {"c0": "much"}):
        with raises_code("invalid-option", "class_weight"):
            options(class_weight=bad)
    assert options(class_weight="c0=0.5,a=b=2").class_weight == {"c0": 0.5, "a=b": 2.0}
    with raises_code("unknown-class", "'other'"):
        search_setting(options(class_weight={"other": 2.0}), Store.open(store), NO_FOLD)
