"""The interface of the learners: names, grids, labels, matrices, files, and what is refused."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco import learners
from sparseoco.cli.options import search_tables
from sparseoco.core.errors import StorageError
from sparseoco.learners import ALGORITHMS, _sources, algorithm_names, find_algorithm
from sparseoco.learners.contract import Algorithm
from sparseoco.learners.penalties import PENALTIES
from sparseoco.training.learner import Learner
from sparseoco.training.validation import DENSE_BYTES, bytes_per_column, check_size
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas


def test_the_registry_parsed_from_sources_equals_the_imported_one() -> None:
    for name, source in _sources().items():
        algorithm = getattr(import_module(source.module), source.variable)
        assert (algorithm.name, algorithm.driver) == (name, source.driver)
        assert (name in algorithm_names("stream") + algorithm_names("dense")) == algorithm.online
    modules = [import_module(f"sparseoco.learners.{module.name}") for module in iter_modules(learners.__path__)]
    defined = {value.name for module in modules for value in vars(module).values() if isinstance(value, Algorithm)}
    assert _sources().keys() == set(algorithm_names()) == defined


def test_a_learner_is_imported_without_the_others() -> None:
    code = "import sys; from sparseoco.learners import find_algorithm; find_algorithm('fobos');"
    subprocess.run([sys.executable, "-c", f"{code} assert 'sparseoco.learners.ons' not in sys.modules"], check=True)


def test_an_unknown_name_lists_the_ones_there_are() -> None:
    with raises_code("unknown-algorithm", "adam", "caos-erm"):
        find_algorithm("adam")
    with raises_code("unknown-algorithm", "adam", "fobos") as caught:
        find_algorithm("adam", online=True)
    assert "caos-erm" not in str(caught.value)
    with raises_code("unknown-algorithm"):
        find_algorithm(["fobos"])  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------------------------
# Grids, and what has no meaning.


def test_a_grid_is_a_product_in_the_order_of_the_definition() -> None:
    learner = Learner("fobos", grid={"lam": [0, 1e-3], "eta0": [1, 0.1]}, n_features=3)
    assert learner.configurations == [
        {"eta0": eta0, "lam": lam, "step": "sqrt", "model": "linear"} for eta0 in (1.0, 0.1) for lam in (0.0, 1e-3)
    ]
    assert Learner("fobos", grid={"lam": 0.1}, n_features=3).configurations == [
        {"eta0": 0.5, "lam": 0.1, "step": "sqrt", "model": "linear"}
    ]
    assert Learner("fobos", grid=[{"lam": 3}, {}], n_features=3, n_classes=5).n_columns == 10
    assert Learner("rda", penalty="box", n_features=3).configurations == [{"gamma": 1.0, "R": 1.0}]


def test_the_search_of_the_command_line_takes_the_parameters_of_the_penalty() -> None:
    assert search_tables(["rda"], ["R=1,2"], "box") == {"rda": {"gamma": ANY, "R": [1.0, 2.0]}}
    assert "l1_ratio" in search_tables(["fobos"], [], "elastic_net")["fobos"]
    with raises_code("unknown-parameter", "fobos", "lam"):
        search_tables(["fobos"], ["lam=1"], "box")


SETS: dict[str, Any] = {"n_classes": 3, "multilabel": True}
NUMBERS: dict[str, Any] = {"n_classes": None}
OUT_OF_RANGE: list[tuple[str, dict[str, Any], str]] = [
    ("fobos", {"eta0": 0.0}, "fobos: eta0=0.0 must be greater than 0"),
    ("fobos", {"lam": -1}, "lam=-1"),
    ("fobos", {"lam": float("nan")}, "lam=nan"),
    ("fobos", {"lam": "x"}, "lam='x'"),
    ("stda", {"p": 0.5}, "p=0.5"),
    ("stda", {"by": "count"}, "by='count'"),
    ("cao-ftrl", {"R": 0.0}, "cao-ftrl: R=0.0 must be greater than 0"),
    ("cao-ftrl", {"predict_gradient": "next"}, "predict_gradient='next' must be none or last or mean or given"),
    ("cao-ftrl", {"regularizer": 1}, "regularizer=1 must be proximal or centred or none"),
    ("ao-ftrl", {"regularizer": "none"}, "regularizer='none' must be proximal or centred"),
    ("caos-ftrl", {"keep": 0.0}, "keep=0.0 must be greater than 0"),
    ("caos-ftrl", {"keep": 1.5}, "keep=1.5 must be at most 1"),
    ("caos-ftrl", {"sample": "all"}, "sample='all' must be uniform or lipschitz"),
    ("caos-ftrl", {"seed": 0.5}, "seed=0.5 must be a whole number"),
    ("caos-ftrl", {"seed": -1}, "seed=-1 must be a whole number of at least 0"),
    ("adagrad", {"delta": 0}, "delta=0 must be greater than 0"),
    ("adagrad", {"schedule": "log"}, "schedule='log' must be constant or sqrt or first"),
    ("optimistic-ftrl", {"eta": 0.0}, "eta=0.0 must be greater than 0"),
    ("onseg", {"delta": 3.0, "gamma": 0.1}, "delta=3"),
    ("ogdeg", {"gamma": 1.0}, "gamma"),
    ("ogdeg", {"D": 2.0, "r": 1.1}, "r=1.1"),
    ("onseg", {"domain": "simplex", "r": 0.5}, "0.408"),
    ("onseg", {"gamma": 0.0}, "gamma=0"),
    ("onseg", {"F": 1e200}, "F=1e+200"),
    ("onseg", {"sigma": 1e-320}, "sigma="),
    ("ons", {"beta": 1e300}, "beta=1e+300"),
    ("onseg", {"repetition": -1}, "repetition=-1"),
    ("ons", {"beta": "small"}, "beta='small'"),
    ("ogd", {"domain": "cube"}, "domain='cube'"),
]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "named"),
    [
        ("sgd", {}, "unknown-algorithm", "'sgd'"),
        ("caos-erm", {}, "not-online", "caos-erm"),
        ("fobos", {"loss": "absolute"}, "unknown-loss", "'absolute'"),
        ("fobos", {"loss": "return", **NUMBERS}, "unknown-loss", "logistic"),
        ("ons", {"loss": "nothing"}, "unknown-loss", "log_return"),
        ("arow", {"loss": "logistic"}, "unsupported-combination", "hinge"),
        ("ons", {"loss": "return", "grid": {"domain": "simplex"}}, "invalid-labels", "n_classes"),
        ("ons", {"loss": "log_return", **NUMBERS}, "unsupported-combination", "domain=simplex"),
        ("ogdeg", {"loss": "softmax", "n_classes": 3}, "unsupported-combination", "loss='logistic'"),
        ("onseg", {"loss": "softmax", "n_classes": 3}, "unsupported-combination", "loss='logistic'"),
        ("fobos", {"penalty": "l0"}, "unknown-penalty", "'l0'"),
        ("fobos", {"penalty": "group"}, "unsupported-combination", "penalty='group'"),
        ("cao-ftrl", {"grid": {"regularizer": "none"}}, "unsupported-combination", "strongly convex"),
        ("fobos", {"penalty": "box", "grid": {"lam": 0.1}}, "unknown-parameter", "'lam'"),
        ("fobos", {"penalty": "elastic_net", "grid": {"l1_ratio": 1}}, "invalid-parameter", "l1_ratio=1"),
        ("fobos", {"penalty": "box", "intercept": True}, "unsupported-combination", "box"),
        *((name, {"intercept": True}, "unsupported-combination", name) for name in algorithm_names("dense")),
        ("fobos", {"grid": {"gamma": [1]}}, "unknown-parameter", "eta0, lam, step"),
        ("ao-gd", {"grid": {"lam": 0.1}}, "unknown-parameter", "ao-gd has no parameter 'lam'; it has R"),
        ("ao-ftrl", {"grid": {"lam": 0.1}}, "unknown-parameter", "it has R, predict_gradient"),
        ("fobos", {"grid": {"lam": []}}, "invalid-grid", "lam"),
        ("fobos", {"grid": []}, "invalid-grid", "empty"),
        ("fobos", {"grid": "lam"}, "invalid-grid", "grid"),
        ("fobos", {"n_features": 0}, "invalid-option", "n_features=0"),
        ("fobos", {"n_features": "many"}, "invalid-option", "n_features='many'"),
        ("fobos", {"n_classes": 0}, "invalid-option", "n_classes=0"),
        ("fobos", NUMBERS, "unsupported-combination", "loss='logistic'"),
        ("fobos", {"n_classes": 2, "loss": "softmax"}, "unsupported-combination", "loss='softmax'"),
        ("fobos", {"dtype": "float16"}, "invalid-option", "dtype='float16'"),
        ("adagrad", SETS | {"loss": "softmax"}, "unsupported-combination", "softmax"),
        ("adagrad", SETS | {"loss": "squared"}, "unsupported-combination", "squared"),
        ("adagrad", SETS | NUMBERS, "unsupported-combination", ""),
        ("ons", SETS, "unsupported-combination", "ons"),
        (
            "cl-fobos",
            {"loss": "softmax", "penalty": "group", "n_classes": 3, "grid": {"average": "iterates"}},
            "unsupported-combination",
            "average",
        ),
        *((name, {"grid": grid}, "invalid-parameter", named) for name, grid, named in OUT_OF_RANGE),
    ],
)
def test_refusals_name_what_is_wrong(name: str, arguments: dict[str, Any], code: str, named: str) -> None:
    with raises_code(code, named):
        Learner(name, **{"n_features": 3} | arguments)


@pytest.mark.parametrize(
    ("name", "penalty"),
    [(name, penalty) for name in ALGORITHMS for penalty in PENALTIES if penalty not in ALGORITHMS[name].penalties],
)
def test_penalties_that_a_learner_does_not_take_are_refused_and_say_why(name: str, penalty: str) -> None:
    with raises_code("unsupported-combination", name, f"penalty={penalty!r}", ALGORITHMS[name].why):
        ALGORITHMS[name].under(PENALTIES[penalty])


def test_too_many_features_are_refused_with_the_figure() -> None:
    with raises_code("too-many-features", "onseg", "d²", "44,798", "16.1 GB"):
        Learner("onseg", n_features=44_798)
    check_size("ons", 11_584)
    assert bytes_per_column("ons", 11_584, "float32") <= DENSE_BYTES
    for name in ("ogd", "ogdeg", "ao-eg"):
        check_size(name, 10**8)
        assert bytes_per_column(name, 10, "float64") == 8 * 10 * (4 if name == "ao-eg" else 1)
    with raises_code("invalid-parameter", "simplex"):
        Learner("ogdeg", grid={"domain": "simplex"}, n_features=1)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [*((name, {}) for name in algorithm_names("stream")), ("cao-ftrl", {"predict_gradient": "mean"})],
)
@pytest.mark.parametrize("loss", [None, "hinge"])
def test_bytes_a_column(name: str, parameters: dict[str, Any], loss: str | None) -> None:
    learner = Learner(name, loss=loss, grid=[parameters] * 16, n_features=1000, dtype="float32")
    assert learner.loss == (loss or ALGORITHMS[name].default_loss)
    ((_, block),) = learner._blocks
    held = block.state.nbytes + block.last_update.nbytes
    sized = bytes_per_column(name, 1000, "float32", loss=loss, parameters=parameters)
    assert held / 16 <= sized <= 1.2 * held / 16


# ----------------------------------------------------------------------------------------------------------------------
# Rows, labels and weights of rows.


@pytest.fixture
def data() -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(5)
    X = sp.csr_matrix(rng.integers(1, 4, (80, 12)) * (rng.random((80, 12)) < 0.3), dtype=np.float64)
    return X, rng.integers(0, 2, 80)


def test_numbers_that_do_not_exist(data: tuple) -> None:
    learner = Learner("stda", grid={"p": [1, 2], "lam": [0.0, 1e-3]}, n_features=12).partial_fit(*data)
    assert learner.weights_of(3).tobytes() == learner.weights()[:, [3]].tobytes()
    for read in (learner.slots_of, learner.thresholds_of, learner.weights_of, lambda i: learner.select([0, i])):
        for number in (999, 4, -1):
            with raises_code("unknown-configuration", number, "0 … 3"):
                read(number)
    with raises_code("invalid-grid"):
        learner.select([])


def test_orders_of_norms_by_name_and_number() -> None:
    learner = Learner("stda", grid={"p": [1, 2, float("inf"), "inf"], "lam": [1e-3, 1e-2]}, n_features=12)
    assert [entry["p"] for entry in learner.configurations] == [1, 2, "inf", "inf"] * 2


@pytest.mark.parametrize("classes", [2, 4])
def test_nonzeros_by_bin(data: tuple, classes: int) -> None:
    learner = Learner("rda", grid={"lam": [1e-3, 0.05, 0.3]}, n_features=12, n_classes=classes).partial_fit(*data)
    bins = np.arange(12) // 5
    weights = learner.weights().reshape(12, 3, -1)
    expected = [(weights[bins == b] != 0).sum(axis=(0, 2)) for b in range(3)]
    assert learner.nonzeros(bins).tolist() == np.array(expected).tolist()
    assert learner.nonzeros().tolist() == np.sum(expected, axis=0).tolist()


def test_groups_drop_features_whole(data: tuple) -> None:
    X, y = data[0], np.arange(80) % 3
    learner = Learner("rda", loss="softmax", penalty="group", grid={"lam": [1e-3, 0.1]}, n_features=12, n_classes=3)
    weights = learner.partial_fit(X, y).weights().reshape(12, 2, 3)
    assert set((weights == 0).sum(axis=2).ravel()) == {0, 3}


def test_labels_of_two_classes_may_be_signs(data: tuple) -> None:
    X, y = data
    ours, signs = (Learner("cl-fobos", loss="hinge", n_features=12).partial_fit(X, own) for own in (y, 2 * y - 1))
    assert signs.weights().tobytes() == ours.weights().tobytes()


@pytest.mark.fault(23)
def test_bad_rows_and_labels_are_refused_and_nothing_is_learned(data: tuple) -> None:
    X, y = data
    learner = Learner("fobos", n_features=12)
    for labels, named in (
        (np.where(np.arange(80) == 9, 2, y), "y of row 9"),
        (y[:5], "X has 80 rows"),
        (["a"] * 80, "y holds"),
    ):
        with raises_code("invalid-labels", named):
            learner.partial_fit(X, labels)
    for rows, named in ((X.toarray(), "ndarray"), (X[:, :5], "(rows, 12)"), (X.astype(np.complex128), "complex128")):
        with raises_code("invalid-rows", named):
            learner.partial_fit(rows, y)
    for weights in ([1.0], [-0.5] * 80, [np.nan] * 80, [np.inf] * 80, ["a"] * 80):
        with raises_code("invalid-sample-weights"):
            learner.partial_fit(X, y, weights)
    with raises_code("unsupported-combination", "alone uses predicted_slopes"):
        learner.partial_fit(X, y, predicted_slopes=np.zeros(80))
    given = Learner("ao-ftrl", grid={"predict_gradient": "given"}, n_features=12)
    for slopes, named in ((np.zeros((80, 2)), "(80, 1)"), ([0.0] * 79 + [np.nan], "row 79")):
        with raises_code("invalid-option", named):
            given.partial_fit(X, y, predicted_slopes=slopes)
    assert learner.progress.rows == 0
    assert not learner.weights().any()


@pytest.mark.parametrize(
    "labels", [[0, 1], [[0], [3]], [[0], [-1]], ["01", "1"], np.eye(3), np.array([[0, 2, 0], [0, 0, 0]]), [[0]]]
)
def test_label_sets_that_are_refused(labels: Any) -> None:
    learner = Learner("adagrad", n_features=3, **SETS)
    with raises_code("invalid-labels"):
        learner.partial_fit(sp.csr_matrix(np.ones((2, 3))), labels)
    assert learner.rounds == 0


def test_forms_of_label_sets(data: tuple) -> None:
    """An indicator matrix, sparse or dense."""
    X = data[0]
    truth = X @ np.random.default_rng(2).normal(size=(12, 3)) > 1.0
    found = [
        Learner("adagrad", n_features=12, **SETS).partial_fit(X, labels).weights().tobytes()
        for labels in (truth.astype(int), truth, sp.csr_matrix(truth.astype(int)))
    ]
    assert len(set(found)) == 1


def test_relatives_are_not_negative_and_nothing_is_learned_of_those_that_are() -> None:
    X = sp.csr_matrix([[1.0, 1.1, 0.0], [0.9, 1.0, 1.2], [1.0, 1.0, -0.5]])
    shares = Learner("ons", loss="log_return", grid={"domain": "simplex"}, n_features=3, n_classes=None)
    before = shares.weights()
    with raises_code("invalid-input", "Row 2", "-0.5"):
        shares.partial_fit(X, np.zeros(3))
    np.testing.assert_array_equal(shares.weights(), before)
    shares.partial_fit(X[:2], np.zeros(2))
    assert shares.progress.rows == 2
    assert shares.weights().sum() == pytest.approx(1.0)


@pytest.mark.fault(31)
@pytest.mark.parametrize(("classes", "label"), [(1, 0), (2, 1), (3, 2)])
def test_one_label_only(classes: int, label: int) -> None:
    X = sp.csr_matrix(np.eye(4))
    learner = Learner("rda", n_features=4, n_classes=classes).partial_fit(X, np.full(4, label))
    assert np.isfinite(learner.weights()).all()
    assert learner.decision_function(X).shape == (4, 1, classes if classes > 2 else 1)


def test_empty_calls_change_nothing(data: tuple) -> None:
    X, y = data
    learner = Learner("stda", n_features=12).partial_fit(X[:0], y[:0])
    assert learner.progress.rows == 0
    learner.partial_fit(sp.csr_matrix((3, 12)), [0, 1, 0])
    assert learner.progress.rows == 3
    assert not learner.weights().any()


def test_files_that_are_not_learners(tmp_path: Path, data: tuple) -> None:
    learner = Learner("stda", grid={"p": [1, "inf"]}, n_features=12).partial_fit(*data)
    path = tmp_path / "learner"
    learner.save(path)
    whole = path.read_bytes()
    with raises_code("fewer-features", 12, 11):
        Learner.load(path, n_features=11)
    with raises_code("missing-file", tmp_path / "none", kind=StorageError):
        Learner.load(tmp_path / "none")
    path.write_bytes(whole[:-1])
    with raises_code("corrupt-file", path, kind=StorageError):
        Learner.load(path)
    with raises_code("io-error", path / "inside", kind=StorageError):
        learner.save(path / "inside" / "a file")
