"""The interface of the learners: grids, labels, matrices, files."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from sparseoco.core.errors import StorageError
from sparseoco.learners import streaming
from sparseoco.training.learner import Learner
from sparseoco.training.validation import bytes_per_column
from tests.oracles.stream import fobos
from tests.support.errors import raises_code

pytestmark = pytest.mark.formulas


@pytest.fixture
def data() -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(5)
    X = sp.csr_matrix(rng.integers(1, 4, (80, 12)) * (rng.random((80, 12)) < 0.3), dtype=np.float64)
    return X, rng.integers(0, 2, 80)


def test_a_grid_is_a_product_in_the_order_of_the_definition() -> None:
    learner = Learner("fobos", grid={"lam": [0, 1e-3], "eta0": [1, 0.1]}, n_features=3)
    sqrt = {"step": "sqrt"}
    assert learner.configurations == [
        {"eta0": 1.0, "lam": 0.0} | sqrt,
        {"eta0": 1.0, "lam": 1e-3} | sqrt,
        {"eta0": 0.1, "lam": 0.0} | sqrt,
        {"eta0": 0.1, "lam": 1e-3} | sqrt,
    ]
    assert Learner("fobos", grid={"lam": 0.1}, n_features=3).configurations == [{"eta0": 0.5, "lam": 0.1} | sqrt]
    assert Learner("fobos", grid=[{"lam": 3}, {}], n_features=3, n_classes=5).n_columns == 10


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ({"algorithm": "sgd"}, "unknown-algorithm", "'sgd'"),
        ({"algorithm": "caos-erm"}, "not-online", "caos-erm"),
        ({"loss": "absolute"}, "unknown-loss", "'absolute'"),
        ({"algorithm": "arow", "loss": "logistic"}, "unsupported-combination", "hinge"),
        ({"algorithm": "sgft", "penalty": "box"}, "unsupported-combination", "sgft"),
        ({"penalty": "l0"}, "unknown-penalty", "'l0'"),
        ({"grid": {"gamma": [1]}}, "unknown-parameter", "eta0, lam, step"),
        ({"grid": {"eta0": [0.0]}}, "invalid-parameter", "fobos: eta0=0.0"),
        ({"grid": {"lam": [-1]}}, "invalid-parameter", "lam=-1"),
        ({"grid": {"lam": [float("nan")]}}, "invalid-parameter", "lam=nan"),
        ({"grid": {"lam": ["x"]}}, "invalid-parameter", "lam='x'"),
        ({"grid": {"lam": []}}, "invalid-grid", "lam"),
        ({"grid": []}, "invalid-grid", "empty"),
        ({"grid": "lam"}, "invalid-grid", "grid"),
        ({"algorithm": "stda", "grid": {"p": 0.5}}, "invalid-parameter", "p=0.5"),
        ({"algorithm": "stda", "grid": {"by": "count"}}, "invalid-parameter", "by='count'"),
        ({"n_features": 0}, "invalid-option", "n_features=0"),
        ({"n_features": "many"}, "invalid-option", "n_features='many'"),
        ({"n_classes": 0}, "invalid-option", "n_classes=0"),
        ({"n_classes": None}, "unsupported-combination", "loss='logistic'"),
        ({"n_classes": 2, "loss": "softmax"}, "unsupported-combination", "loss='softmax'"),
        ({"dtype": "float16"}, "invalid-option", "dtype='float16'"),
    ],
)
def test_refusals_name_what_is_wrong(arguments: dict, code: str, named: str) -> None:
    with raises_code(code, named):
        Learner(**{"algorithm": "fobos", "n_features": 3} | arguments)


def test_the_default_loss_is_the_learners_own() -> None:
    assert Learner("fobos", n_features=3).loss == "logistic"
    assert Learner("arow", n_features=3).loss == "hinge"


def test_numbers_that_do_not_exist(data: tuple) -> None:
    X, y = data
    learner = Learner("stda", grid={"p": [1, 2], "lam": [0.0, 1e-3]}, n_features=12).partial_fit(X, y)
    for columns in ([999], [4], [-1], [0, 4]):
        with raises_code("unknown-column", columns[-1], "0 … 3"):
            learner.weights(columns)
    for read in (learner.slots_of, learner.thresholds_of, learner.weights_of, lambda i: learner.select([i])):
        for number in (999, 4, -1):
            with raises_code("unknown-configuration", number, "0 … 3"):
                read(number)


def test_infinite_order_and_mixed_orders(data: tuple) -> None:
    X, y = data
    grid = {"p": [1, 2, float("inf"), "inf"], "lam": [1e-3, 1e-2]}
    learner = Learner("stda", grid=grid, n_features=12).partial_fit(X, y)
    assert [entry["p"] for entry in learner.configurations] == [1, 2, "inf", "inf"] * 2
    for i, configuration in enumerate(learner.configurations):
        of_one_order = Learner("stda", grid=[configuration, configuration], n_features=12).partial_fit(X, y)
        assert of_one_order.weights_of(0).tobytes() == learner.weights_of(i).tobytes()
        assert of_one_order.nonzeros()[0] == learner.nonzeros()[i] == np.count_nonzero(learner.weights_of(i))
        assert of_one_order.decision_function(X)[:, 0].tobytes() == learner.decision_function(X)[:, i].tobytes()
    assert learner.weights([5, 0]).tobytes() == learner.weights()[:, [5, 0]].tobytes()


@pytest.mark.parametrize("classes", [2, 4])
def test_nonzeros_by_bin(data: tuple, classes: int) -> None:
    X, y = data
    learner = Learner("rda", grid={"lam": [1e-3, 0.05, 0.3]}, n_features=12, n_classes=classes).partial_fit(X, y)
    bins = np.arange(12) // 5
    weights = learner.weights().reshape(12, 3, -1)
    expected = [(weights[bins == b] != 0).sum(axis=(0, 2)) for b in range(3)]
    assert learner.nonzeros(bins).tolist() == np.array(expected).tolist()
    assert learner.nonzeros().tolist() == np.sum(expected, axis=0).tolist()


def test_odd_matrices_mean_the_same(data: tuple) -> None:
    X, y = data
    expected = Learner("cl-fobos", loss="hinge", n_features=12).partial_fit(X, y).weights().tobytes()
    twice = sp.coo_matrix(X)  # every entry in two halves, out of order, and zeros stored
    halves = sp.csr_matrix(
        (
            np.concatenate([twice.data / 2, twice.data / 2, [0.0]]),
            (np.r_[twice.row, twice.row, 3], np.r_[twice.col, twice.col, 3]),
        ),
        X.shape,
    )
    wide = X.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    backwards = X.copy()
    for i in range(80):
        row = slice(X.indptr[i], X.indptr[i + 1])
        backwards.indices[row], backwards.data[row] = X.indices[row][::-1], X.data[row][::-1]
    backwards.has_sorted_indices = False
    before = halves.data.copy()
    for matrix in (halves, wide, backwards, X.astype(np.int64), X.astype(np.uint8), X.tocsc(), sp.csr_array(X)):
        assert Learner("cl-fobos", loss="hinge", n_features=12).partial_fit(matrix, y).weights().tobytes() == expected
    assert halves.data.tobytes() == before.tobytes()
    signs = Learner("cl-fobos", loss="hinge", n_features=12).partial_fit(X, 2 * y - 1)
    assert signs.weights().tobytes() == expected


@pytest.mark.fault(23)
def test_bad_rows_and_labels_are_refused_and_nothing_is_learned(data: tuple) -> None:
    X, y = data
    learner = Learner("fobos", n_features=12)
    for value in (np.nan, np.inf, -np.inf):
        bad = X.copy()
        bad.data[bad.indptr[7]] = value
        with raises_code("invalid-rows", "row 7"):
            learner.partial_fit(bad, y)
    small = Learner("fobos", n_features=12, dtype="float32")
    with raises_code("invalid-rows", "float32", "row"):
        small.partial_fit(X * 1e300, y)
    for labels, named in (
        (np.where(np.arange(80) == 9, 2, y), "y of row 9"),
        (y[:5], "X has 80 rows"),
        (["a"] * 80, "y holds"),
    ):
        with raises_code("invalid-labels", named):
            learner.partial_fit(X, labels)
    with raises_code("invalid-rows", "ndarray"):
        learner.partial_fit(X.toarray(), y)
    with raises_code("invalid-rows", "(rows, 12)"):
        learner.partial_fit(X[:, :5], y)
    with raises_code("invalid-rows", "complex128"):
        learner.partial_fit(X.astype(np.complex128), y)
    assert learner.progress.rows == 0
    assert not learner.weights().any()


def test_regression_learns_numbers(data: tuple) -> None:
    X, _ = data
    y = X @ np.linspace(-1, 1, 12)
    learner = Learner("fobos", loss="squared", grid={"eta0": 0.05}, n_features=12, n_classes=None)
    learner.partial_fit(X, y)
    expected = list(fobos(X.toarray(), y, "squared", 0.05, 1e-5))[-1]
    np.testing.assert_allclose(learner.weights()[:, 0], expected, atol=1e-12)
    assert learner.progress.error_count.tolist() == [0]


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
    X, y = data
    learner = Learner("stda", grid={"p": [1, "inf"]}, n_features=12).partial_fit(X, y)
    path = tmp_path / "learner"
    learner.save(path)
    whole = path.read_bytes()
    with raises_code("missing-file", tmp_path / "none", kind=StorageError):
        Learner.load(tmp_path / "none")
    for cut in range(0, len(whole), 211):
        path.write_bytes(whole[:cut])
        with raises_code("corrupt-file", path, kind=StorageError):
            Learner.load(path)
    damaged = bytearray(whole)
    damaged[whole.index(b"NUMPY") + 200] ^= 1  # a byte of the first array, after its header
    path.write_bytes(damaged)
    with raises_code("corrupt-file", path, kind=StorageError):
        Learner.load(path)
    with raises_code("io-error", path / "inside", kind=StorageError):
        learner.save(path / "inside" / "a file")


@pytest.mark.parametrize(
    ("name", "parameters"), [*((name, {}) for name in streaming()), ("cao-ftrl", {"predict_gradient": "mean"})]
)
@pytest.mark.parametrize("loss", [None, "hinge"])
def test_bytes_a_column(name: str, parameters: dict, loss: str | None) -> None:
    learner = Learner(name, loss=loss, grid=[parameters] * 16, n_features=1000, dtype="float32")
    ((_, block),) = learner._blocks
    held = block.state.nbytes + block.last_update.nbytes
    sized = bytes_per_column(name, 1000, "float32", loss=loss, parameters=parameters)
    assert held / 16 <= sized <= 1.2 * held / 16
